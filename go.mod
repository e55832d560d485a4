module github.com/nixlpush/nixlpush

go 1.26.0

require golang.org/x/sys v0.50.0

require go.uber.org/goleak v1.3.0

require (
	github.com/philhofer/fwd v1.2.0 // indirect
	github.com/stretchr/testify v1.12.1
	github.com/tinylib/msgp v1.6.5
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
