#!/usr/bin/env bash
# What it costs to look at files that a mount has not seen, as what it keeps grows, and when that is bounded.
# Usage: tools/bench-names.sh [FILES [BOUND...]]; 200,000 files and the bounds 0 (none) and 20,000 without arguments. A bound is the
# `lru_size` of the mount's locks of the MDT. The files are made by one mount, in directories of 1,000, and looked at one after the other
# by another one, a process of its own over tcp. Needs root.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

leave() {
  two_down
  rm -rf --one-file-system "$work"
}
trap leave EXIT

files=${1:-200000}
shift
[ $# -gt 0 ] || set -- 0 20000

# on_names make|look DIR FROM UNTIL STEP: one line for each STEP files.
on_names() {
  python3 - "$@" <<'PYTHON'
import os, sys, time
what, top, first, last, step = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
begin = time.monotonic()
for n in range(first, last):
    directory = f"{top}/d{n // 1000}"
    if what == "look":
        os.stat(f"{directory}/f{n}")
    else:
        if n % 1000 == 0:
            os.mkdir(directory)
        os.mknod(f"{directory}/f{n}", 0o600)
    if (n + 1) % step == 0:
        now = time.monotonic()
        print(f"{what} {n + 1}: {step / (now - begin):.0f}/s", flush=True)
        begin = time.monotonic()
PYTHON
}

# counter NAME
counter() {
  python3 -c 'import json, os, sys; print(json.loads(os.getxattr(sys.argv[1], "weft.counters")).get(sys.argv[2], 0))' "$two_b" "$1"
}

resident() { awk '/VmRSS/ { print int($2 / 1024) " MiB" }' "/proc/$(daemon_pid "$two_b")/status"; }

two_up || { cat "$work"/*.log; exit 1; }
part=$((files / 4000 * 1000))
makers=()
for n in 0 1 2 3; do
  on_names make "$two_a" $((n * part)) $((n * part + part)) $((part * 2)) &
  makers+=($!)
done
wait "${makers[@]}"
files=$((4 * part))
for bound in "$@"; do
  umount "$two_b"
  two_mount "$two_b" || exit 1
  stat "$two_b/d0" >/dev/null
  in_two "$(dirname "$WEFT")/lctl" set_param "ldlm.namespaces.*mdc*.lru_size=$bound" >/dev/null || exit 1
  echo "bound $bound, load $(cut -d' ' -f1 /proc/loadavg), at first $(resident)"
  on_names look "$two_b" 0 "$files" $((files / 10))
  echo "kept $(counter lock.inodes), CancelBits $(counter rpc.CancelBits), Lookup $(counter rpc.Lookup), $(resident)"
done
