#!/usr/bin/env bash
# A weft mount beside a plain directory and beside a file system that keeps nothing (crates/fuse/examples/null.rs) on the same FUSE engine: the
# kernel asks both for the same, so the difference is weft's. Usage: tools/bench-null.sh uring|dev [options of the bench program]; needs root.
. "$(dirname "$0")/lib.sh"

engine=${1:?uring or dev}
shift
fsname=wn$((RANDOM % 9000 + 1000))
switch=/sys/module/fuse/parameters/enable_uring
before=$(cat $switch)
leave() {
  "$WEFT" down "$work/mnt" >/dev/null 2>&1
  umount "$work/null" || umount -l "$work/null"
  timeout 20 tail --pid="$null" -f /dev/null
  echo "$before" > $switch
  rm -rf --one-file-system "$work" "/etc/weft/$fsname".*.key
}
trap leave EXIT

cargo build --release -q -p weft-fuse --example null -p xtask || exit 1
built=${CARGO_TARGET_DIR:-target}/release
[ "$engine" = uring ] && echo Y > $switch
mkdir -p "$work/mnt" "$work/plain" "$work/null"
"$built/examples/null" "$work/null" "$engine" > "$work/engine" &
null=$!
until [ -s "$work/engine" ]; do kill -0 $null || exit 1; done
"$WEFT" up "$work/mnt" --data "$work/data" --fsname "$fsname" -o "fuse_engine=$engine" >/dev/null || exit 1
echo "weft $(git rev-parse --short HEAD), engine $(cat "$work/engine"), Linux $(uname -r), $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg)"
"$built/bench" "$@" weft="$work/mnt" plain="$work/plain" null="$work/null"
