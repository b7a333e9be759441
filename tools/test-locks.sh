#!/usr/bin/env bash
# Many locks, with real processes: a client that holds 100,000 trims when the MDT's limit is halved, and four clients that
# ask for a million stay within a limit of 64 MiB (docs/locks.md#too-many). Prints the figures.
# Usage: tools/test-locks.sh [CASE...]; needs root and bin/weft. Without LONG=1 a tenth of that, or LOCKS=N.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

LCTL=$(dirname "$WEFT")/lctl
more=("$work/c" "$work/d")
locks=${LOCKS:-${LONG:+100000}}
locks=${locks:-10000}
# Files of one directory.
each=1000
mdt=$two_fsname-MDT0000
# A lock counts for so much (bytes).
lock_bytes=256
# Lustre's pool of a client is calculated again every 10 s; the check gives it two of these.
trim_seconds=20

leave() {
  local mount
  for mount in "${more[@]}"; do
    if mountpoint -q "$mount"; then timeout 60 "$WEFT" down "$mount" >/dev/null || umount -l "$mount"; fi
  done
  two_down
  rm -rf --one-file-system "$work"
}
trap leave EXIT

lctl() { in_two timeout 60 "$LCTL" "$@"; }
server_pid() { sed -n "$1p" "$work/two.pids"; }
# What the MDT has granted, and what mounts believe that they hold of it.
granted() { lctl get_param -n "ldlm.namespaces.mdt-${mdt}_UUID.lock_count"; }
kept() { lctl get_param -n "ldlm.namespaces.$mdt-mdc-*.lock_count" | awk '{ sum += $1 } END { print sum + 0 }'; }
# limits LIMIT THRESHOLD, in MiB; 0 for what they were at first. The threshold is never above the limit.
limits() {
  local space=ldlm.namespaces.mdt-${mdt}_UUID
  lctl set_param "$space.lock_reclaim_threshold_mb=1" "$space.lock_limit_mb=$1" "$space.lock_reclaim_threshold_mb=$2" >/dev/null
}
# Has every mount give back what it keeps; that may take longer than a mount is waited for.
clear_all() {
  local start=$SECONDS
  lctl set_param "ldlm.namespaces.$mdt-mdc-*.lru_size=clear" >/dev/null || true
  # Directories that the kernel uses stay.
  until [ "$(kept)" -le $((4 * locks / each + 200)) ]; do
    [ $((SECONDS - start)) -lt 120 ] || { echo "$(kept) are kept still"; return 1; }
    sleep 0.5
  done
}
tenths() { echo $((($(date +%s%N) - $1) / 100000000)); }

# make_files COUNT
make_files() {
  python3 - "$two_a/many" "$1" "$each" <<'PY'
import os, sys
top, count, each = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for n in range(count):
    at = f"{top}/{n // each}"
    if n % each == 0:
        os.makedirs(at)
    os.mknod(f"{at}/{n}")
PY
}

# look MOUNT COUNT: asks for the attributes of every file.
look() { [ "$(find "$1/many" -type f -printf '%s\n' | grep -cx 0)" = "$2" ]; }

# Row K6 of docs/features.md.
t_volume() {
  local start trimmed least
  # As much as all of them take, and half as much.
  local whole=$(((locks * lock_bytes >> 20) + 1))
  local half=$(((whole + 1) / 2))
  make_files "$locks"
  look "$two_a" "$locks"
  least=$(granted)
  [ "$least" -ge "$locks" ] && [ "$(kept)" -ge "$locks" ]
  limits $((whole * 2)) "$whole"
  [ "$(granted)" -ge $((locks * 9 / 10)) ]
  start=$(date +%s%N)
  limits "$whole" "$half"
  # Each of the 64 parts of the table rounds up. Which directories a client has to itself is counted, and has a limit of its own.
  local most=$(((half << 20) / lock_bytes + 64 + locks / each))
  until [ "$(granted)" -le $most ] && [ "$(kept)" -le $most ]; do
    [ "$(tenths "$start")" -lt $((trim_seconds * 10)) ] || { echo "$(granted) granted, $(kept) kept, $most may be"; return 1; }
  done
  trimmed=$(tenths "$start")
  [ "$(granted)" -ge $((most * 8 / 10)) ]
  echo "figure: $least locks, the limit halved: $(granted) after $((trimmed / 10)).$((trimmed % 10)) s" >> "$work/figures"
  # What was given up is asked for again, and granted.
  look "$two_a" "$locks"
  limits 0 0
}

# Row K7 of docs/features.md.
t_reclaim() {
  local mount look pid most=0 now before peak mds start n passes=3
  local mib=$((64 * locks / 100000))
  [ "$mib" -gt 0 ] || mib=1
  [ -d "$two_a/many" ] || make_files "$locks"
  mkdir "${more[@]}"
  for mount in "${more[@]}"; do two_mount "$mount"; done
  mds=$(server_pid 2)
  limits "$mib" $((mib * 2 / 3 > 0 ? mib * 2 / 3 : 1))
  # What the MDT reads of the files counts before.
  look "$two_b" "$locks"
  clear_all
  before=$(awk '/^VmRSS/ { print $2 }' "/proc/$mds/status")
  echo 5 > "/proc/$mds/clear_refs"
  start=$(date +%s%N)
  for ((n = 0; n < passes; n++)); do
    pid=()
    for mount in "$two_a" "$two_b" "${more[@]}"; do
      look "$mount" "$locks" &
      pid+=($!)
    done
    while kill -0 "${pid[@]}" 2>/dev/null; do
      now=$(granted)
      [ "$now" -le "$most" ] || most=$now
      sleep 0.2
    done
    # Every client gets on.
    for look in "${pid[@]}"; do wait "$look"; done
    clear_all
  done
  peak=$(awk '/^VmHWM/ { print $2 }' "/proc/$mds/status")
  echo "figure: $((4 * passes * locks)) requests of 4 clients in $(($(tenths "$start") / 10)) s, limit $mib MiB: $most locks at most, memory of the MDS from $((before >> 10)) to $((peak >> 10)) MiB at most" >> "$work/figures"
  [ "$most" -le $(((mib << 20) / lock_bytes + 64)) ]
  [ $(((peak - before) >> 10)) -le "$mib" ]
  limits 0 0
}

two_up > "$work/up" 2>&1 || { echo "the cluster does not start"; cat "$work/up" "$work"/*.log; exit 1; }
: > "$work/figures"
for case in ${*:-volume reclaim}; do check "$case" "t_$case"; done
cat "$work/figures"
if grep -i 'a client is evicted' "$work"/*.log; then
  failed=$((failed + 1))
  echo "FAIL a client was evicted"
fi
finish
