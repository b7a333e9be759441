#!/usr/bin/env bash
# `make bench`: a weft mount beside a plain directory of the same disk, in one run. Raw output goes to
# bench/results/. Usage: tools/bench.sh [options of the bench program]
# What serves is what this machine is set to.
export WEFT_FUSE_ENGINE=${WEFT_FUSE_ENGINE:-auto}
. "$(dirname "$0")/lib.sh"

fsname=wb$((RANDOM % 9000 + 1000))
leave() {
  "$WEFT" down "$work/mnt" >/dev/null 2>&1
  umount -l "$work/mnt" 2>/dev/null
  rm -rf --one-file-system "$work" "/etc/weft/$fsname".*.key
}
trap leave EXIT

mkdir -p "$work/mnt" "$work/plain"
"$WEFT" up "$work/mnt" --no-uring --data "$work/data" --fsname "$fsname" >/dev/null || exit 1
out=bench/results/$(date +%Y-%m-%d)-$(git rev-parse --short HEAD).txt
mkdir -p bench/results
{
  echo "weft $(git rev-parse --short HEAD), Linux $(uname -r), $(nproc) cores, $(df --output=fstype "$work" | tail -1) below"
  "$(dirname "$WEFT")/bench" "$@" weft="$work/mnt" plain="$work/plain"
} | tee "$out"
