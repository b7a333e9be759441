#!/usr/bin/env bash
# Many clients of one MDT, without mounts, over tcp (crates/mounting/examples/clients.rs): creates, look-ups and removals a second for the same
# work done by few and by many clients, with the processor time that the MDS takes for one of each; and listings that a light client makes while
# four others make and remove files as fast as they can. On one machine the storm has the least priority of the processor, so that it takes only
# what the MDS and the light client leave: its hosts would be others. Usage: tools/bench-clients.sh [ROUNDS]; COUNTS="1 4 64" for other
# numbers of clients, OPERATIONS for another work, FILES for another storm. Needs root and bin/weft.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

rounds=${1:-3}
counts=${COUNTS:-1 4 64 1024 4096}
operations=${OPERATIONS:-65536}
files=${FILES:-50000}
seconds=10
leave() {
  two_down
  rm -rf --one-file-system "$work" "/etc/weft/$two_fsname".*.key
}
trap leave EXIT

cargo build --release -q -p weft-mounting --example clients || exit 1
clients=${CARGO_TARGET_DIR:-$top/target}/release/examples/clients
# Each client has two connections.
ulimit -n "$(ulimit -Hn)"
two_up >"$work/start.log" 2>&1 || { cat "$work/start.log"; exit 1; }
mds=$(sed -n 2p "$work/two.pids")
of_mds() { awk '{print ($14 + $15) * 10}' "/proc/$mds/stat"; }
# The light client has a processor when it wants one: it would be another host's.
light() { nice -n -15 nsenter --net="/run/netns/$two_ns" "$clients" "127.0.0.1:7001@tcp:/$two_fsname" \
  "/etc/weft/$two_fsname.client.key" look 100 $seconds || exit 1; }
run() { in_two "$clients" "127.0.0.1:7001@tcp:/$two_fsname" "/etc/weft/$two_fsname.client.key" "$@" || exit 1; }

echo "weft $(git -C "$top" rev-parse --short HEAD), Linux $(uname -r), $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "$operations files made, looked up and removed by all clients together; $rounds rounds: median [least-greatest]"
for _ in $(seq "$rounds"); do
  for count in $counts; do
    # What clients cost that come and do nothing is no part of it.
    before=$(of_mds)
    run rates "$count" "$count" > /dev/null
    idle=$(($(of_mds) - before)) before=$(of_mds)
    run rates "$count" "$operations" > "$work/rates"
    sed 's/^look up/look-up/' "$work/rates" | awk '{print $1, $2, $4}'
    echo "mds-us $count $(echo "($(of_mds) - $before - $idle) * 1000 / $operations" | bc)"
  done
done > "$work/figures"
python3 - "$work/figures" <<'PY'
import statistics
import sys

figures = {}
for line in open(sys.argv[1]):
    what, count, value = line.split()
    figures.setdefault(what, {}).setdefault(int(count), []).append(float(value))
for what, by_count in figures.items():
    best = max(statistics.median(all_of) for all_of in by_count.values())
    for count, all_of in by_count.items():
        middle = statistics.median(all_of)
        print(f"{what:8} {count:5} clients {middle:9.0f} [{min(all_of):.0f}-{max(all_of):.0f}]  of the greatest {middle / best:.2f}")
PY
echo "listings of 100 files that change, alone and beside 4 clients that make and remove $files files each"
for _ in $(seq "$rounds"); do
  light
  nice -n 19 nsenter --net="/run/netns/$two_ns" "$clients" "127.0.0.1:7001@tcp:/$two_fsname" \
    "/etc/weft/$two_fsname.client.key" storm 4 "$files" > "$work/storm" &
  storm=$!
  sleep 1
  light
  kill -0 $storm 2>/dev/null || echo "the storm was over before"
  wait $storm || exit 1
  cat "$work/storm"
done
