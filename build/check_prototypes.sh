#!/bin/sh
# check_prototypes.sh: proves that a prototype in nixlpush.h that drifts from its export does
# not compile. It builds a copy of the sources, first as they are, then once for each change.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$root/go.mod" "$root/go.sum" "$root/include" "$root/internal" "$root/nixl" "$root/connector" \
  "$root/blocks" "$root/notify" "$root/sidechannel" "$work"
header=$work/include/nixlpush.h

build() { (cd "$work" && go build -o /dev/null ./connector/cshared) > "$work/log" 2>&1; }

# drift WHAT SED: the changed header must be refused because of its types.
drift() {
  cp "$root/include/nixlpush.h" "$header"
  sed -i "$2" "$header"
  if cmp -s "$header" "$root/include/nixlpush.h"; then
    echo "check_prototypes: $1: nothing in the header matches $2" >&2
    exit 1
  fi
  if build || ! grep -q 'conflicting types' "$work/log"; then
    echo "check_prototypes: $1: built, or failed for another reason:" >&2
    cat "$work/log" >&2
    exit 1
  fi
  echo "refused: $1"
}

build || { cat "$work/log" >&2; exit 1; }
drift "a narrower integer" 's/\(nixlpush_sidechannel_open(const char \*host, \)uint32_t/\1uint16_t/'
drift "a lost const" 's/nixlpush_submit(nixlpush_handle engine, const /nixlpush_submit(nixlpush_handle engine, /'
drift "another return type" 's/^uint64_t nixlpush_open_handles/uint32_t nixlpush_open_handles/'
drift "one more parameter" 's/nixlpush_log_level(int32_t level)/nixlpush_log_level(int32_t level, int32_t more)/'
