#!/usr/bin/env bash
# Ring three: four servers and two clients in network namespaces; one fault at a time under a load that checks every
# byte, and a table of what applications saw of each (tests/faults.py).
# Usage: tools/test-faults.sh [FAULT...|removals|resuming]: all that CI takes (without removals), with LONG=1 all, or rows whose names
# begin so, or what is left after rm -rf while the MDS is killed (tests/removals.py), or when I/O returns after a link was down
# (tests/resuming.py).
# ROUNDS=N makes each fault so often; SEED chooses what the load does.
# MARKDOWN=1 prints the table for docs/recovery.md; FAULT_LOGS=DIR keeps the logs of servers and mounts.
# Needs root, bin/weft, iproute2, nft (tools/deps.sh test).
. "$(dirname "$0")/lib.sh"

id=$((RANDOM % 400 + 500))
: > "$work/pids"

# What is left if the test itself was killed; otherwise nothing.
leave() {
  for client in cla clb clc; do umount -l "$work/$client" 2>/dev/null; done
  while read -r pid; do kill -9 "$pid" 2>/dev/null; done < "$work/pids"
  umount -l "$work/small" 2>/dev/null
  for node in sw mgs mds oss1 oss2 cla clb clc; do ip netns del "wf$id$node" 2>/dev/null; done
  rm -rf --one-file-system "$work" "/etc/weft/wf$id".*.key
}
trap leave EXIT

# The two that are no rows: what is left after rm -rf without its MDS, and when I/O returns after a link was down.
removals() { python3 "$top/tests/removals.py" "$WEFT" "$work" "$id"; }
resuming() { python3 "$top/tests/resuming.py" "$WEFT" "$work" "$id" 10 ${LONG:+60}; }
rows() {
  python3 "$top/tests/faults.py" ${LONG:+--long} ${MARKDOWN:+--markdown} --rounds "${ROUNDS:-1}" --seed "${SEED:-$RANDOM}" \
    "$WEFT" "$work" "$id" "$@"
}
# Each has a cluster of its own.
anew() { rm -rf "${work:?}"/* "/etc/weft/wf$id".*.key; : > "$work/pids"; }

case ${1:-all} in
  removals | resuming) "$1" ;;
  all)
    status=0
    for part in rows ${LONG:+removals} resuming; do "$part" || status=1; anew; done
    exit $status
    ;;
  *) rows "$@" ;;
esac
