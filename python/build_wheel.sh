#!/bin/bash
# build_wheel.sh LIBRARY OUT_DIR: puts libnixlpush.so.1 and this package into a wheel. Version
# and platform of the wheel are the library's.
set -euo pipefail
library=${1:?usage: build_wheel.sh LIBRARY OUT_DIR}
out=${2:?usage: build_wheel.sh LIBRARY OUT_DIR}
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
python=${PYTHON:-python3}

if [[ ! -f $library ]]; then
  echo "build_wheel: there is no $library to put into the wheel: run \`make lib\` first" >&2
  exit 1
fi
library=$(realpath "$library")
mkdir -p "$out"
out=$(realpath "$out")

NIXLPUSH_WHEEL_PLATFORM=$("$root/build/check_symbols.sh" "$library")
NIXLPUSH_VERSION=$("$python" - "$library" <<'PY'
import ctypes, sys
version = ctypes.CDLL(sys.argv[1]).nixlpush_version
version.restype = ctypes.c_char_p
print(version().decode())
PY
)
export NIXLPUSH_WHEEL_PLATFORM NIXLPUSH_VERSION

# Built from a copy, so that nothing is written into the checkout.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/src"
cp -r "$here"/{nixlpush,pyproject.toml,hatch_build.py,README.md} "$root/LICENSE" "$work/src"
find "$work/src" -name __pycache__ -prune -exec rm -rf {} +
cp "$library" "$work/src/nixlpush/libnixlpush.so.1"

"$python" -m venv "$work/env"
rm -f "$out"/nixlpush-*.whl
"$work/env/bin/pip" wheel --quiet --disable-pip-version-check --no-deps \
  --wheel-dir "$out" "$work/src"
ls "$out"/nixlpush-*.whl
