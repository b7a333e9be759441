#!/usr/bin/env bash
# The cost of checksums of data on its way (osc.*.checksums, docs/operations.md#protection): one file system of four processes over tcp, in
# memory, so that no disk counts. A file is written, made durable, and read again by a mount that has nothing of it: MiB/s, and processor
# seconds of servers and mounts together for a GiB, with `-o protect=mac-crc` and checksums or none.
# Usage: tools/bench-checksums.sh [ROUNDS]; MIB for another size. Needs root, bin/weft and memory for the file.
SCRATCH=${SCRATCH:-/dev/shm}
export SCRATCH
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

LCTL=$(dirname "$WEFT")/lctl
rounds=${1:-5}
mib=${MIB:-1024}
leave() {
  two_down
  rm -rf --one-file-system "$work" "/etc/weft/$two_fsname".*.key
}
trap leave EXIT

# The servers demand no more than the mounts.
two_serve() {
  local name=$1 port=$2
  shift 2
  nsenter --net="/run/netns/$two_ns" "$WEFT" serve "$@" --listen "127.0.0.1:$port@tcp" --server "$name" --protect mac-crc \
    >"$work/$name.log" 2>&1 &
  echo $! >> "$work/two.pids"
  disown
}
WEFT_MOUNT=${WEFT_MOUNT:+$WEFT_MOUNT,}protect=mac-crc
two_up >"$work/start.log" 2>&1 || { cat "$work/start.log"; exit 1; }
mounts=$(pgrep -f "mount 127.0.0.1:7001@tcp:/$two_fsname " | tr '\n' ' ')
# shellcheck disable=SC2086
used() { for pid in $(cat "$work/two.pids") $mounts; do awk '{print $14 + $15}' "/proc/$pid/stat" 2>/dev/null; done | awk '{sum += $1} END {print sum}'; }

measure() {
  local kind=$1 what=$2 from before
  shift 2
  before=$(used) from=$(date +%s%N)
  "$@" > /dev/null 2>&1 || { echo "$kind $what failed"; exit 1; }
  python3 -c "
took, used = ($(date +%s%N) - $from) / 1e9, ($(used) - $before) / 100
print('$kind', '$what', $mib / took, used / ($mib / 1024))" >> "$work/figures"
}

round() {
  local kind=$1
  "$LFS" setstripe -c 4 "$two_a/f"
  measure "$kind" write dd if=/dev/zero of="$two_a/f" bs=4M count=$((mib / 4)) conv=fsync,notrunc
  measure "$kind" read dd if="$two_b/f" of=/dev/null bs=4M
  rm "$two_a/f"
}

echo "weft $(git -C "$top" rev-parse --short HEAD), Linux $(uname -r), $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg)"
for _ in $(seq "$rounds"); do
  for on in 1 0; do
    "$LCTL" set_param "osc.$two_fsname-*.checksums=$on" > /dev/null || exit 1
    round "checksums=$on"
  done
done
python3 - "$work/figures" <<'PY'
import statistics
import sys

rows = {}
for line in open(sys.argv[1]):
    kind, what, rate, cost = line.split()
    rows.setdefault((what, kind), []).append((float(rate), float(cost)))
for (what, kind), all_of in sorted(rows.items()):
    rates, costs = zip(*all_of)
    print(f"{what:5} {kind:12} {statistics.median(rates):6.0f} MiB/s [{min(rates):.0f}-{max(rates):.0f}]"
          f"  {statistics.median(costs):.2f} CPU s/GiB [{min(costs):.2f}-{max(costs):.2f}]")
PY
