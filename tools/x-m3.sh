#!/usr/bin/env bash
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"
leave() { two_down; rm -rf --one-file-system "$work" "/etc/weft/$two_fsname".*.key; }
trap leave EXIT
clients=$CARGO_TARGET_DIR/release/examples/clients
ulimit -n "$(ulimit -Hn)"
two_up >"$work/start.log" 2>&1 || { cat "$work/start.log"; exit 1; }
mds=$(sed -n 2p "$work/two.pids")
run() { in_two "$clients" "127.0.0.1:7001@tcp:/$two_fsname" "/etc/weft/$two_fsname.client.key" "$@"; }
for c in 64 4096; do
perf record -F 499 -o /tmp/w/m3-$c.data -p $mds -- sleep 300 >/dev/null 2>&1 & p=$!
run rates $c 262144
kill -INT $p; wait $p
done
