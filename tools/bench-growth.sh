#!/usr/bin/env bash
# What one client writes to 1, 2, 4 and 8 OSTs, each behind a link of 50 MB/s: one file over all of them, and read back with empty caches.
# Each OSS has a network namespace of its own; `tbf` bounds its link in both directions.
# Usage: tools/bench-growth.sh [ROUNDS]
. "$(dirname "$0")/lib.sh"

rounds=${1:-3}
rate=400mbit
mib_each=128
id=$((RANDOM % 900 + 100))
client=wg$id-c
fsname=wg$id
counts=(1 2 4 8)

in_client() { nsenter --net="/run/netns/$client" "$@"; }

leave() {
  local pid n
  if mountpoint -q "$work/mnt"; then
    pid=$(daemon_pid "$work/mnt")
    umount "$work/mnt" || umount -l "$work/mnt"
    timeout 20 tail --pid="$pid" -f /dev/null
  fi
  for pid in $(tac "$work/pids" 2>/dev/null); do
    kill "$pid" 2>/dev/null
    timeout 20 tail --pid="$pid" -f /dev/null || kill -9 "$pid"
  done
  for n in "$client" $(seq -f "wg$id-%g" 0 7); do ip netns del "$n" 2>/dev/null; done
  rm -rf --one-file-system "$work" "/etc/weft/$fsname".*.key
}
trap leave EXIT

# serve NAMESPACE NAME ADDRESS DIR...
serve() {
  local ns=$1 name=$2 address=$3
  shift 3
  nsenter --net="/run/netns/$ns" "$WEFT" serve "$@" --listen "$address@tcp" --server "$name" >"$work/$name.log" 2>&1 &
  echo $! >> "$work/pids"
  disown
}

# link N: the namespace of OSS N, and its link.
link() {
  local ns=wg$id-$1 here=wg$id.$1
  ip netns add "$ns"
  in_client ip link add "$here" type veth peer name oss netns "$ns"
  in_client ip addr add "10.77.$1.1/24" dev "$here"
  in_client ip link set "$here" up
  nsenter --net="/run/netns/$ns" bash -c "ip link set lo up; ip addr add 10.77.$1.2/24 dev oss; ip link set oss up
    ip route add default via 10.77.$1.1
    tc qdisc add dev oss root tbf rate $rate burst 256kb latency 50ms"
  in_client tc qdisc add dev "$here" root tbf rate $rate burst 256kb latency 50ms
}

set_up() {
  local n mgs=10.77.99.1:7001@tcp
  : > "$work/pids"
  ip netns add "$client"
  in_client ip link set lo up
  in_client ip addr add 10.77.99.1/32 dev lo
  "$WEFT" format --mgs --fsname "$fsname" "$work/mgs" >/dev/null || exit 1
  "$WEFT" format --mdt --fsname "$fsname" --index 0 --mgsnode "$mgs" "$work/mdt" >/dev/null || exit 1
  serve "$client" mgs 10.77.99.1:7001 "$work/mgs"
  serve "$client" mds 10.77.99.1:7002 "$work/mdt"
  for n in $(seq 0 7); do
    link "$n"
    "$WEFT" format --ost --fsname "$fsname" --index "$n" --mgsnode "$mgs" "$work/ost$n" >/dev/null || exit 1
    serve "wg$id-$n" "oss$n" "10.77.$n.2:7003" "$work/ost$n"
  done
  mkdir -p "$work/mnt"
  in_client "$WEFT" mount "$mgs:/$fsname" "$work/mnt" || exit 1
}

# measure COUNT: MB/s of writing and of reading.
measure() {
  python3 - "$work/mnt/over$1" $((mib_each * $1)) <<'PY'
import os, sys, time
path, mib = sys.argv[1], int(sys.argv[2])
block = os.urandom(1 << 20)
fd = os.open(path, os.O_WRONLY)
begin = time.monotonic()
for _ in range(mib):
    os.write(fd, block)
os.fsync(fd)
write = time.monotonic() - begin
os.close(fd)
with open("/proc/sys/vm/drop_caches", "w") as caches:
    caches.write("3")
fd = os.open(path, os.O_RDONLY)
begin = time.monotonic()
while os.read(fd, 1 << 20):
    pass
read = time.monotonic() - begin
print(f"{mib * 1.048576 / write:.1f} {mib * 1.048576 / read:.1f}")
PY
}

set_up
echo "weft $(git rev-parse --short HEAD), Linux $(uname -r), $(nproc) cores; MB/s to N OSTs of 50 MB/s each, one file over all of them"
echo "OSTs write read (each round)"
for round in $(seq "$rounds"); do
  for count in "${counts[@]}"; do
    "$WEFT" lfs setstripe -c "$count" "$work/mnt/over$count" || exit 1
    echo "$count $(measure "$count")"
    rm "$work/mnt/over$count"
  done
done
