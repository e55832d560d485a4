#!/bin/bash
# Plants each defect of connector/testdata/mutants in a copy of its file, and lets the simulator
# find it. Prints the rule that was violated and the seed; fails if one is not found.
# Usage: build/mutants.sh [SEEDS] [NAME...]
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=${1:-3000}
shift || true
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

missed=0
for patch in connector/testdata/mutants/*.patch; do
  name=$(basename "$patch" .patch)
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
  file=$(sed -n 's|^+++ b/||p' "$patch")
  patch --quiet --output="$work/$name.go" "$file" < "$patch"
  echo "{\"Replace\": {\"$PWD/$file\": \"$work/$name.go\"}}" > "$work/overlay.json"
  go test -overlay "$work/overlay.json" -c -o "$work/sim.test" ./connector
  if (cd connector && "$work/sim.test" -test.run 'TestSim$' -sim.seeds "$seeds") > "$work/out" 2>&1; then
    printf '%-28s NOT FOUND in %d seeds\n' "$name" "$seeds"
    missed=1
    continue
  fi
  found=$(sed -n 's/.*rule \(.*\) is violated.* -seed \([0-9]*\)$/\1, seed \2/p' "$work/out" | head -1)
  printf '%-28s %s\n' "$name" "${found:-$(grep -m1 -E '^(panic|fatal error)' "$work/out")}"
done
exit $missed
