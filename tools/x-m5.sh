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
nice -n 19 nsenter --net="/run/netns/$two_ns" "$clients" "127.0.0.1:7001@tcp:/$two_fsname" "/etc/weft/$two_fsname.client.key" storm 4 150000 > $work/storm &
sleep 1
(sleep 2; perf sched record -o /tmp/w/sched.data -- sleep 2 >/dev/null 2>&1; perf record -g -F 999 -o /tmp/w/m5.data -p $mds -- sleep 3 >/dev/null 2>&1) &
run look 100 9
wait %1
cat $work/storm
