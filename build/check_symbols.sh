#!/bin/sh
# check_symbols.sh LIBRARY [GLIBC]: looks at the built library. It must export the functions of
# include/nixlpush.h, all of them and nothing else, have the right SONAME, and need no newer
# glibc than GLIBC (without it, any). Prints the wheel platform that the library fits.
set -eu
library=${1:?usage: check_symbols.sh LIBRARY [GLIBC]}
limit=${2:-}
soname=libnixlpush.so.1
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "check_symbols: $library: $*" >&2; exit 1; }

# Declared is each name in front of a parenthesis on a line that is no comment.
sed -n 's/^[a-z].*[ *]\(nixlpush_[a-z_]*\)(.*/\1/p' "$root/include/nixlpush.h" | sort > "$work/declared"
nm --dynamic --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort > "$work/exported"
[ -s "$work/declared" ] || fail "no functions found in include/nixlpush.h"
extra=$(comm -13 "$work/declared" "$work/exported" | tr '\n' ' ')
[ -z "$extra" ] || fail "exports what the header does not declare: $extra"
absent=$(comm -23 "$work/declared" "$work/exported" | tr '\n' ' ')
[ -z "$absent" ] || fail "does not export what the header declares: $absent"

found=$(readelf --dynamic --wide "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
[ "$found" = "$soname" ] || fail "SONAME is '$found', must be $soname"

highest=$(readelf --version-info --wide "$library" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
highest=${highest#GLIBC_}
newer() { [ "$1" != "$2" ] && [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | tail -n 1)" = "$1" ]; }
if [ -n "$limit" ] && newer "$highest" "$limit"; then
  fail "needs glibc $highest, newer than $limit: $(nm --dynamic "$library" | grep "GLIBC_$highest" | head -n 3 | tr -s ' \n' ' ')"
fi

# No wheel platform older than manylinux_2_28 is claimed, since none is tested.
floor=2.28
newer "$highest" $floor && floor=$highest
echo "$(wc -l < "$work/exported") functions exported, as declared; needs glibc $highest" >&2
echo "manylinux_$(echo "$floor" | tr . _)_$(uname -m)"
