#!/usr/bin/env bash
# Attacks that know weft from its documentation only, one after the other, and a table of what they tried and what failed.
# Usage: tools/attack.sh [NAME...]; LONG=1 for a night's length, ATTACK_PERCENT=50 for half of the time of either, ATTACK_SEED=N to repeat a run, RESULTS=FILE keeps the table.
# Needs root, bin/weft, python3, iproute2, e2fsprogs and xfsprogs. Each can be run alone: python3 tests/attack/NAME.py --help.
set -u
cd "$(dirname "$0")/.." || exit 2

export WEFT=${WEFT:-$PWD/bin/weft}
export PYTHONDONTWRITEBYTECODE=1
# In this order; the numbers are seconds of a short run and of a night's.
attacks="ledger:150:900 powercut:120:900 linear:80:600 renames:50:300 below:40:200 flips:240:900 between:70:600 strangers:80:400 hostile:60:400
older:60:120 full:200:900 memory:90:3600"

ATTACK_RESULTS=$(mktemp) || exit 2
export ATTACK_RESULTS
trap 'rm -f "$ATTACK_RESULTS"' EXIT
failed=
ran=
wanted=" $* "
for attack in $attacks; do
  IFS=: read -r name short long <<< "$attack"
  [ "$wanted" = "  " ] || [[ $wanted == *" $name "* ]] || continue
  ran="$ran $name"
  seconds=$short
  trials=
  if [ -n "${LONG:-}" ]; then
    seconds=$long
    trials="--trials 1000000"
    # These do each of their cases once, whatever the time.
    case $name in full|older|memory) trials= ;; esac
  fi
  seconds=$((seconds * ${ATTACK_PERCENT:-100} / 100))
  # shellcheck disable=SC2086
  python3 "tests/attack/$name.py" --seconds "$seconds" $trials || failed="$failed $name"
done
if [ -z "$ran" ]; then
  echo "no attack has such a name" >&2
  exit 2
fi

table() {
  python3 - "$ATTACK_RESULTS" "$ran" <<'PY'
import json, sys
rows = {row[0]: row for row in map(json.loads, open(sys.argv[1], encoding="utf-8"))}
print("\n| attack | tries | failures | what | first failure |\n|---|---|---|---|---|")
for name in sys.argv[2].split():
    _, tries, failures, what, first, seed = rows.get(name, [name, 0, 1, "it ended without a result", ["no result"], 0])
    print(f"| {name} | {tries} | {failures} | {what} (seed {seed}) | {(first or [''])[0][:160].replace('|', '/')} |")
PY
}
table
if [ -n "${RESULTS:-}" ]; then
  { echo "$("$WEFT" --version), $(git rev-parse --short HEAD 2>/dev/null), $(date -u +%F)"; table; } > "$RESULTS"
fi
if [ -n "$failed" ]; then
  printf '\nfailed:%s\n' "$failed"
  exit 1
fi
