# One file system with two mounts on this host, for tests of what one sees of the other. Sourced after lib.sh.
#
# The cluster has a network namespace of its own with nothing but `lo`, so that no port is taken and nobody else
# reaches it. TWO=tcp (the default): an MGS, an MDS and two OSSes in four processes, two mounts over tcp.
# TWO=up: `weft up --listen` is the first mount, with every server in its process; the second comes over tcp.
# WEFT_MOUNT: further options of the mounts, for example fuse_engine=dev.
# TWO_LAYOUT: options of `lfs setstripe` for the root, for example "-E 64K -L mdt -E -1".
# TWO_PARAM: a parameter that both mounts get, for example llite.*.metadata_writeback=0.
# TWO_LOG: what mounts and servers are to log, for example weft_client::io=trace; the logs are kept in TWO_LOG_DIR.

two_id=$((RANDOM % 9000 + 1000))
two_ns=w2$two_id
two_fsname=w2$two_id
two_a=$work/a
two_b=$work/b

in_two() { nsenter --net="/run/netns/$two_ns" "$@"; }

# two_serve NAME PORT DIR...
two_serve() {
  local name=$1 port=$2
  shift 2
  # Not through a function: the process that is remembered has to be the server's own.
  nsenter --net="/run/netns/$two_ns" "$WEFT" serve "$@" --listen "127.0.0.1:$port@tcp" --server "$name" \
    >"$work/$name.log" 2>&1 &
  echo $! >> "$work/two.pids"
  # The shell says nothing when a test kills it.
  disown
}

# Starts the four servers of formatted targets.
two_servers() {
  two_serve two-mgs 7001 "$work/two.mgs"
  two_serve two-mds 7002 "$work/two.mdt"
  two_serve two-oss1 7003 "$work/two.ost0" "$work/two.ost1"
  two_serve two-oss2 7004 "$work/two.ost2" "$work/two.ost3"
}

two_mount() {
  if [ -n "${TWO_LOG:-}" ]; then
    nsenter --net="/run/netns/$two_ns" "$WEFT" mount "127.0.0.1:7001@tcp:/$two_fsname" "$1" --foreground \
      ${WEFT_MOUNT:+-o "$WEFT_MOUNT"} >"$work/two-mount-$(basename "$1").log" 2>&1 &
    timeout 20 bash -c "until mountpoint -q '$1'; do sleep 0.1; done"
    return
  fi
  in_two "$WEFT" mount "127.0.0.1:7001@tcp:/$two_fsname" "$1" ${WEFT_MOUNT:+-o "$WEFT_MOUNT"} && mountpoint -q "$1"
}

# A server answers before it serves, and nobody knows of targets that have not been served yet: waits until every target is.
two_settle() {
  local _
  for _ in $(seq 100); do
    in_two "$WEFT" status "$two_a" > /dev/null 2>&1 && two_has_osts && return
    sleep 0.1
  done
}
two_has_osts() { [ "${TWO:-tcp}" = up ] || [ "$(in_two "$LFS" osts "$two_a" | grep -c ' ACTIVE$')" = 4 ]; }

two_up() {
  [ -z "${TWO_LOG:-}" ] || export WEFT_LOG=$TWO_LOG
  mkdir -p "$two_a" "$two_b"
  ip netns add "$two_ns" || return 1
  in_two ip link set lo up
  : > "$work/two.pids"
  if [ "${TWO:-tcp}" = up ]; then
    in_two "$WEFT" up "$two_a" --data "$work/two.data" --fsname "$two_fsname" --listen 127.0.0.1:7001@tcp \
      ${WEFT_MOUNT:+-o "$WEFT_MOUNT"} || return 1
  else
    local n
    "$WEFT" format --mgs --fsname "$two_fsname" "$work/two.mgs" || return 1
    "$WEFT" format --mdt --fsname "$two_fsname" --index 0 --mgsnode 127.0.0.1:7001@tcp "$work/two.mdt" || return 1
    for n in 0 1 2 3; do
      "$WEFT" format --ost --fsname "$two_fsname" --index $n --mgsnode 127.0.0.1:7001@tcp "$work/two.ost$n" || return 1
    done
    two_servers
    two_mount "$two_a" || return 1
  fi
  two_mount "$two_b" || return 1
  two_settle
  # shellcheck disable=SC2086
  [ -z "${TWO_LAYOUT:-}" ] || in_two "$LFS" setstripe $TWO_LAYOUT "$two_a" || return 1
  [ -z "${TWO_PARAM:-}" ] || in_two "$(dirname "$WEFT")/lctl" set_param -n "$TWO_PARAM" > /dev/null || return 1
  chmod 755 "$work" "$two_a"
}

two_down() {
  local mount pid mounts=()
  for mount in "$two_b" "$two_a"; do
    # One that nobody serves any more does not say that it is one.
    mountpoint -q "$mount" || { umount -l "$mount" 2>/dev/null; continue; }
    pid=$(daemon_pid "$mount") && mounts+=("$pid")
    umount "$mount" 2>/dev/null || { echo "$mount is busy"; umount -l "$mount"; }
  done
  # What a mount still has to tell it tells after umount: the servers have to be there.
  if [ "${TWO:-tcp}" != up ]; then
    for pid in "${mounts[@]}"; do timeout 20 tail --pid="$pid" -f /dev/null || kill -9 "$pid"; done
  fi
  if [ "${TWO:-tcp}" = up ]; then "$WEFT" down "$two_a" >/dev/null 2>&1; fi
  if [ -e "$work/two.pids" ]; then
    while read -r pid; do kill "$pid" 2>/dev/null; done < "$work/two.pids"
    while read -r pid; do tail --pid="$pid" -f /dev/null; done < "$work/two.pids"
  fi
  ip netns del "$two_ns" 2>/dev/null
  if [ -n "${TWO_LOG_DIR:-}" ]; then mkdir -p "$TWO_LOG_DIR" && cp "$work"/two-*.log "$TWO_LOG_DIR"; fi
  rm -rf "/etc/weft/$two_fsname".*.key
}
