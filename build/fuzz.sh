#!/bin/sh
# fuzz.sh TIME: runs each fuzzer of the repository for so long, e.g. 10s.
set -eu
time=${1:?usage: fuzz.sh TIME}
cd "$(dirname "$0")/.."
grep -rho --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | wc -l | xargs echo "fuzzers:"
for file in $(grep -rl --include='*_test.go' '^func Fuzz' .); do
  for fuzzer in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$file"); do
    echo "$fuzzer ($file)"
    go test -run '^$' -fuzz "^$fuzzer\$" -fuzztime "$time" "$(dirname "$file")"
  done
done
