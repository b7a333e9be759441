#!/usr/bin/env bash
# Ring three: two clients extract the same archive into one directory at the same time, then one creates and the other
# removes in it; each operation is timed, none may take a second, and no client may be evicted (tests/storm.py).
# Usage: tools/test-storm.sh [SECONDS]; needs root and bin/weft. Default 20 s, with LONG=1 ten minutes.
# TWO and WEFT_MOUNT as in tools/lib-two.sh; STALL_MS is the limit.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

leave() {
  two_down
  rm -rf --one-file-system "$work"
}
trap leave EXIT

seconds=${1:-20}
[ -z "${1:-}" ] && [ -n "${LONG:-}" ] && seconds=600
two_up > "$work/up" 2>&1 || { echo "the cluster does not start"; cat "$work/up" "$work"/*.log; exit 1; }
status=0
python3 "$top/tests/storm.py" "$two_a" "$two_b" "$seconds" "${STALL_MS:-1000}" || status=1
if grep -i 'evict' "$work"/*.log; then
  echo "FAIL a client was evicted"
  status=1
fi
exit $status
