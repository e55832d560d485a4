#!/bin/sh
# zig_env.sh DIR: makes a Python environment that holds the zig compiler (some 400 MB), which
# brings the C libraries of other systems along.
set -eu
dir=${1:?usage: zig_env.sh DIR}
[ -e "$dir/ready" ] && exit 0
echo "zig: installing the compiler into $dir (1 minute)"
rm -rf "$dir"
"${PYTHON:-python3}" -m venv "$dir"
"$dir/bin/pip" install --quiet --disable-pip-version-check ziglang==0.17.1
touch "$dir/ready"
