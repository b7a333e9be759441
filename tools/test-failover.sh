#!/usr/bin/env bash
# Ring three: pairs of servers that take each other's targets over, in network namespaces, under a load that checks every
# byte (tests/failover.py).
# Usage: tools/test-failover.sh [FAULT...]: all that CI takes, with LONG=1 all, or those whose names begin so.
# ROUNDS=N makes each fault so often; SEED chooses what the load does.
# MARKDOWN=1 prints the table for docs/recovery.md; FAULT_LOGS=DIR keeps the logs of servers and mounts.
# Needs root, bin/weft, iproute2, nft, etcd, openssl (tools/deps.sh test).
. "$(dirname "$0")/lib.sh"

id=$((RANDOM % 400 + 100))
: > "$work/pids"

# What is left if the test itself was killed; otherwise nothing.
leave() {
  for client in cla clb; do umount -l "$work/$client" "$work/etcd/$client" 2>/dev/null; done
  while read -r pid; do kill -9 "$pid" 2>/dev/null; done < "$work/pids"
  for node in sw mgs mds1 mds2 oss1 oss2 cla clb etcd1 etcd2 etcd3; do ip netns del "wf$id$node" 2>/dev/null; done
  rm -rf --one-file-system "$work" "/etc/weft/wf$id".*.key
}
trap leave EXIT

python3 "$top/tests/failover.py" ${LONG:+--long} ${MARKDOWN:+--markdown} --rounds "${ROUNDS:-1}" --seed "${SEED:-$RANDOM}" \
  "$WEFT" "$work" "$id" "$@"
