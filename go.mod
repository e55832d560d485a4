module github.com/nixlpush/nixlpush

go 1.26
