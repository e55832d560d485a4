#!/bin/sh
# test_c.sh: builds the C programs against build/out/libnixlpush.so.1 and runs them with real
# NIXL, which is found as the tests in Go find it: NIXLPUSH_NIXL_WHEEL_ROOT.
set -eu
cd "$(dirname "$0")/.."
out=build/out/c
flags="-O1 -g -Iinclude -Wall -Wextra -Wpedantic -Werror"
mkdir -p "$out"
nixl=$(ls "${NIXLPUSH_NIXL_WHEEL_ROOT:?}"/.nixl_cu*.mesonpy.libs/libnixl_capi.so)
export UCX_TLS="${UCX_TLS:-tcp,shm,self}"

# build NAME LIBRARY_DIR COMPILER... FILE...
build() {
  name=$1
  folder=$2
  shift 2
  "$@" $flags -o "$out/$name" -L"$folder" -lnixlpush -Wl,-rpath,"$PWD/$folder" -pthread
}

# run NAME ARGUMENT...: at most two minutes.
run() {
  name=$1
  shift
  echo "--- $name"
  if timeout 120 "$out/$name" "$@"; then
    echo "PASS $name"
  else
    echo "FAIL $name (status $?)"
    exit 1
  fi
}

echo "--- the symbol gate refuses the test build"
if build/check_symbols.sh build/out/test/libnixlpush.so.1 2>"$out/gate" || ! grep -q nixlpush_test_panic "$out/gate"; then
  cat "$out/gate"
  exit 1
fi

host=examples/c/host.c
build push build/out gcc -std=c11 examples/c/push.c $host
build push_cpp build/out g++ -std=c++17 -x c++ examples/c/push.c $host -x none
build unequal build/out gcc -std=c11 examples/c/unequal.c $host
build unequal_asan build/out/asan gcc -std=c11 -fsanitize=address,undefined -fno-sanitize-recover \
  examples/c/unequal.c $host
build misuse build/out gcc -std=c11 examples/c/misuse/misuse.c examples/c/misuse/misuse_engine.c
build misuse_asan build/out/asan gcc -std=c11 -fsanitize=address,undefined -fno-sanitize-recover \
  examples/c/misuse/misuse.c examples/c/misuse/misuse_engine.c
build panic build/out/test gcc -std=c11 -Iconnector/cshared connector/cshared/testdata/panic.c

run push "$nixl"
run push_cpp "$nixl"
run unequal "$nixl"
ASAN_OPTIONS=detect_leaks=0 run unequal_asan "$nixl"
run misuse "$nixl"
ASAN_OPTIONS=detect_leaks=0 run misuse_asan "$nixl"
for place in 1 2 3 4; do
  run panic "$place" "$nixl"
done
