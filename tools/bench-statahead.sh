#!/usr/bin/env bash
# `ls -l` of a large directory over a link with a delay, on a mount that knows nothing of it, and a look at each file by its name alone on another
# such mount, with nothing asked for ahead. Prints the times, and how many requests the listing took of the MDT.
# Usage: tools/bench-statahead.sh [ENTRIES [DELAY_MS]]; 100000 and 1. Needs root and bin/weft.
export WEFT_FUSE_ENGINE=${WEFT_FUSE_ENGINE:-auto}
. "$(dirname "$0")/lib.sh"

entries=${1:-100000}
delay=${2:-1}
fsname=ws$((RANDOM % 9000 + 1000))
net=n$fsname
mnt=$work/mnt
second=$work/second
LCTL=$(dirname "$WEFT")/lctl
leave() {
  umount -l "$second" 2>/dev/null
  [ ! -s "$work/slow" ] || kill "$(cat "$work/slow")" 2>/dev/null
  "$WEFT" down "$mnt" >/dev/null 2>&1
  ip netns del "$net" 2>/dev/null
  rm -rf --one-file-system "$work" "/etc/weft/$fsname".*.key
}
trap leave EXIT

mkdir -p "$mnt" "$second"
"$WEFT" up "$mnt" --data "$work/data" --fsname "$fsname" --listen 127.0.0.1:0@tcp > "$work/up.log" || { cat "$work/up.log"; exit 1; }
address=$("$WEFT" status --json "$mnt" |
  python3 -c 'import json,sys; print(next(n for t in json.load(sys.stdin)[0]["targets"] for n in t["nids"] if "tcp" in n))')
port=${address%@*}
ip netns add "$net"
nsenter --net="/run/netns/$net" ip link set lo up
mkdir "$mnt/listed"
seq -f "$mnt/listed/name%.0f" "$entries" | xargs -n 2000 touch

# over OPERATION COMMAND...: the command on a new mount over the link; a line "SECONDS REQUESTS", of this operation (a number of docs/wire.md).
over() {
  local operation=$1 start end daemon most count slow
  shift
  python3 "$top/tests/slowlink.py" "/run/netns/$net" "${port##*:}" "$delay" "$operation" "$work/most" > "$work/slowlink" & slow=$!
  echo "$slow" > "$work/slow"
  timeout 10 bash -c "until grep -q ready '$work/slowlink'; do sleep 0.05; done" || exit 1
  nsenter --net="/run/netns/$net" "$WEFT" mount "$address:/$fsname" "$second"
  daemon=$(daemon_pid "$second")
  start=$(date +%s%N)
  "$@" > "$work/said" || { cat "$work/said" >&2; exit 1; }
  end=$(date +%s%N)
  umount "$second"
  timeout 20 tail -s 0.1 --pid="$daemon" -f /dev/null
  kill "$slow"
  wait "$slow"
  : > "$work/slow"
  read -r most count < "$work/most"
  echo "$(((end - start) / 10000000)) $count"
}
# Names in no order, so that nothing can be asked for ahead.
each() {
  "$LCTL" set_param 'llite.*.enable_statahead_fname=0' > /dev/null
  python3 - "$second/listed" "$entries" <<'PY'
import os, random, sys
names = [f"{sys.argv[1]}/name{n + 1}" for n in range(int(sys.argv[2]))]
random.Random(1).shuffle(names)
for name in names:
    os.lstat(name)
PY
}
seconds() { echo "$(($1 / 100)).$(printf %02d $(($1 % 100)))"; }

echo "weft $(git -C "$top" rev-parse --short HEAD), Linux $(uname -r), $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg), delay $delay ms, engine $WEFT_FUSE_ENGINE"
over 23 ls -lU "$second/listed" > "$work/figures" || exit 1
read -r listed requests < "$work/figures"
echo "ls -l of $entries: $(seconds "$listed") s, $requests requests READDIR with attributes: $((entries / requests)) entries in each"
over 23 ls -l "$second/listed" > "$work/figures" || exit 1
read -r listed_again _ < "$work/figures"
echo "ls -l in order of the names: $(seconds "$listed_again") s"
over 22 each > "$work/figures" || exit 1
read -r alone requests < "$work/figures"
echo "each by its name: $(seconds "$alone") s, $requests lookups: $((alone / (listed > 0 ? listed : 1))) times as long"
