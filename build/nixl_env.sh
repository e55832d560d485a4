#!/bin/sh
# nixl_env.sh DIR: makes a Python environment with NIXL (70 MB) and what the tests that speak
# with it from Python need, but without torch or vLLM.
set -eu
dir=${1:?usage: nixl_env.sh DIR}
[ -e "$dir/ready" ] && exit 0
echo "nixl: installing NIXL 1.5.1 into $dir (1 minute)"
rm -rf "$dir"
"${PYTHON:-python3}" -m venv "$dir"
pip="$dir/bin/pip install --quiet --disable-pip-version-check"
$pip --no-deps nixl-cu12==1.5.1
$pip numpy pyzmq msgpack msgspec pytest
touch "$dir/ready"
