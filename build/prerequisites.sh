#!/bin/sh
# prerequisites.sh TOOL...: checks that each of go, gcc, python is here and new enough, and
# names each that is not, with the line that installs it.
set -u
go_min=1.26
python_min=3.11
missing=0

# need WHAT DEBIAN OTHER
need() {
  missing=1
  echo "missing: $1" >&2
  echo "  Debian, Ubuntu: $2" >&2
  echo "  elsewhere:      $3" >&2
}

# at_least FOUND WANTED: compares two dotted versions.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

check_go() {
  found=$(GOTOOLCHAIN=local go version 2>/dev/null | sed -n 's/^go version go\([0-9.]*\).*/\1/p')
  at_least "${found:-0}" $go_min && return
  arch=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
  need "Go $go_min or newer (found: ${found:-none})" \
    "curl -fsSL https://go.dev/dl/go$go_min.0.linux-$arch.tar.gz | sudo tar -C /usr/local -xz; export PATH=/usr/local/go/bin:\$PATH" \
    "the same, or see https://go.dev/doc/install"
}

check_gcc() {
  command -v gcc >/dev/null && command -v g++ >/dev/null && command -v readelf >/dev/null && return
  need "gcc, g++ and binutils" \
    "sudo apt-get install build-essential" \
    "dnf install gcc gcc-c++ binutils, or what your system calls them"
}

check_python() {
  python=${PYTHON:-python3}
  found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
  if ! at_least "${found:-0}" $python_min; then
    need "Python $python_min or newer (found as $python: ${found:-none})" \
      "sudo apt-get install python3 python3-venv" \
      "install it from https://www.python.org/downloads/, then: make PYTHON=/path/to/python3 ..."
  elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    need "Python's venv" \
      "sudo apt-get install python3-venv" \
      "install the package of your system that holds Python's modules venv and ensurepip"
  fi
}

for tool; do
  "check_$tool"
done
exit $missing
