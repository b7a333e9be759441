#!/usr/bin/env bash
# Ring three: files come and go in a memory group of 512 MiB, and memory, keys, logs and engines stay as they are (tests/churn.py).
# Usage: tools/test-churn.sh [MINUTES]; needs root, bin/weft and a memory group (cgroup 1 or 2). Default 60 minutes. KEEP=DIR keeps
# the table and the plot.
. "$(dirname "$0")/lib.sh"

leave() { rm -rf --one-file-system "$work"; }
trap leave EXIT

python3 "$top/tests/churn.py" --weft "$WEFT" --dir "$work" --minutes "${1:-60}" --table "$work/churn.tsv" --plot "$work/churn.svg"
status=$?
[ -z "${KEEP:-}" ] || cp "$work/churn.tsv" "$work/churn.svg" "$KEEP"
[ "$status" = 0 ] || tail -n 40 "$work/log"
exit "$status"
