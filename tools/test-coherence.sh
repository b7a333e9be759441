#!/usr/bin/env bash
# Ring three: two mounts of one file system agree at every moment (docs/coherence.md).
# Usage: tools/test-coherence.sh [CASE...]; needs root and bin/weft. LONG=1 for more rounds; TWO and WEFT_MOUNT as in
# tools/lib-two.sh; PLAIN=DIR runs the cases on that directory alone, which shows what a local file system does.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

leave() {
  [ -n "${PLAIN:-}" ] || two_down
  rm -rf --one-file-system "$work"
}
trap leave EXIT

python3 "$top/tests/coherence.py" --check-table || exit 1
if [ -n "${PLAIN:-}" ]; then
  two_a=$PLAIN
  two_b=$PLAIN
else
  two_up || { echo "the cluster does not start"; cat "$work"/*.log; exit 1; }
fi
LFS=$LFS python3 "$top/tests/coherence.py" ${LONG:+--long} --seed "${SEED:-1}" "$two_a" "$two_b" "$@"
status=$?
if [ $status != 0 ] && [ -z "${PLAIN:-}" ]; then
  for log in "$work"/*.log; do
    [ -s "$log" ] && { echo "== $(basename "$log")"; tail -n 20 "$log"; }
  done
fi
exit $status
