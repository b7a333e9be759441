#!/usr/bin/env bash
# Ring three: however a mount ends, in the midst of heavy load, it ends at once, leaves nobody behind and does not
# disturb the other one (tests/unmounts.py; docs/fuse.md#unmount).
# `away` is the mount that nobody uses, whose servers are gone: df and umount do not wait for them.
# Usage: tools/test-unmounts.sh [EVENT...]; needs root and bin/weft. LONG=1 for more rounds, SEED for others;
# ENGINES="dev uring" are the engines (default: those that there are here).
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

uring_switch=/sys/module/fuse/parameters/enable_uring
uring_before=$(cat "$uring_switch" 2>/dev/null)
leave() {
  two_down
  [ -n "$uring_before" ] && echo "$uring_before" > "$uring_switch"
  rm -rf --one-file-system "$work"
}
trap leave EXIT

rounds=${ROUNDS:-${LONG:+10}}
seed=$((${SEED:-1} * 1000))

# round EVENT: mounts what is not mounted, and lets it happen.
round() {
  local event=$1 mount servers=
  for mount in "$two_a" "$two_b"; do
    mountpoint -q "$mount" && continue
    umount -l "$mount" 2>/dev/null || true
    two_mount "$mount"
  done
  [ "$event" = servers ] && servers=$(cat "$work/two.pids")
  SEED=$seed timeout -k 5 180 python3 "$top/tests/unmounts.py" "$event" "$two_a" "$two_b" \
    "$(daemon_pid "$two_a")" "$(daemon_pid "$two_b")" $servers
}

# away: the servers are killed; df and plain umount end all the same, and so do the mounts' processes.
away() {
  local mount pid pids
  pids=$(daemon_pid "$two_a"; daemon_pid "$two_b")
  mkdir "$two_a/away" && ls "$two_a" "$two_b" && df "$two_a" "$two_b" || return 1
  xargs kill -9 < "$work/two.pids" || return 1
  while read -r pid; do timeout 20 tail -s 0.1 --pid="$pid" -f /dev/null || return 1; done < "$work/two.pids"
  for mount in "$two_a" "$two_b"; do
    timeout 30 df "$mount" || { echo "df of $mount waits for servers"; return 1; }
    timeout 30 df -i "$mount" | awk 'NR == 2 && $2 > 0 { told = 1 } END { exit !told }' || { echo "df -i of $mount tells nothing"; return 1; }
    timeout 30 umount "$mount" || { echo "umount of $mount waits for servers"; return 1; }
  done
  for pid in $pids; do
    timeout 60 tail -s 0.2 --pid="$pid" -f /dev/null || { echo "$pid is there still"; return 1; }
  done
}

for engine in ${ENGINES:-dev${uring_before:+ uring}}; do
  [ "$engine" = uring ] && echo Y > "$uring_switch"
  WEFT_MOUNT=fuse_engine=$engine
  for turn in $(seq 1 "${rounds:-1}"); do
    rm -rf --one-file-system "$work"/two.*
    two_up > "$work/up" 2>&1 || { echo "the cluster does not start"; cat "$work/up" "$work"/*.log; exit 1; }
    "$LFS" setstripe -c 4 -S 64k "$two_a" >/dev/null
    # What kills the servers comes last.
    for event in ${*:-force force-lazy kill term servers away}; do
      seed=$((seed + 1))
      if [ "$event" = away ]; then
        # There may be no servers any more.
        two_down
        rm -rf --one-file-system "$work"/two.*
        WEFT_MOUNT=fuse_engine=$engine,unmount_wait=10
        two_up > "$work/up" 2>&1 || { echo "the cluster does not start"; exit 1; }
        check "$engine away $turn" away
        WEFT_MOUNT=fuse_engine=$engine
      else
        check "$engine $event $turn" round "$event"
      fi
      [ -n "${VERBOSE:-}" ] && sed 's/^/      | /' "$work/log"
    done
    two_down
  done
done
finish
