#!/usr/bin/env bash
# Single system calls on a `weft up --listen` mount (the kernel keeps no attributes then), one engine after the other.
# Usage: tools/bench-engines.sh [ENGINE=PROGRAM...]; without arguments dev and uring of bin/weft. An engine called
# `other` is a program that knows no engines. ROUNDS and SECONDS_EACH say how often and how long; needs root.
. "$(dirname "$0")/lib.sh"

fsname=we$((RANDOM % 9000 + 1000))
rounds=${ROUNDS:-3}
CALLS=${CALLS:-$(dirname "$WEFT")/calls}
leave() {
  "$WEFT" down "$work/mnt" >/dev/null 2>&1
  umount -l "$work/mnt" 2>/dev/null
  rm -rf --one-file-system "$work" "/etc/weft/$fsname".*.key
}
trap leave EXIT

mkdir -p "$work/mnt"
echo "Linux $(uname -r), $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg)"
for round in $(seq "$rounds"); do
  for which in ${*:-dev=$WEFT uring=$WEFT}; do
    engine=${which%%=*}
    options="-o fuse_engine=$engine"
    [ "$engine" = other ] && options=
    # shellcheck disable=SC2086
    "${which#*=}" up "$work/mnt" --data "$work/data" --fsname "$fsname" --listen 127.0.0.1:0@tcp $options >/dev/null || exit 1
    for threads in 1 4; do
      "$CALLS" "$work/mnt" $threads "${SECONDS_EACH:-1}" | sed "s/^/$round $engine $threads /"
    done
    "${which#*=}" down "$work/mnt" >/dev/null
    rm -rf "$work/data"
  done
done
