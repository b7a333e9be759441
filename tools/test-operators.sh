#!/usr/bin/env bash
# What an operator sees and orders: recovery_status, abort_recovery, evict_client, health_check, weft status, and the
# traces of evictions, with real processes. Usage: tools/test-operators.sh [CASE...]; needs root, bin/weft, iproute2.

# Tools look at every mount of the machine; here that is to be the test's own ones.
if [ -z "${OPERATORS_ALONE:-}" ]; then
  OPERATORS_ALONE=1 exec unshare --mount --propagation private "$0" "$@"
fi
awk '$3 == "fuse.weft" { print $2 }' /proc/mounts | while read -r mount; do umount -l "$mount"; done

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

LCTL=$(dirname "$WEFT")/lctl
export WEFT_RUN=$work/run
# Nothing that is asked may hang.
lctl_seconds=60
mdt=$two_fsname-MDT0000
trap 'two_down; rm -rf "$work"' EXIT

lctl() { in_two timeout "$lctl_seconds" "$LCTL" "$@"; }
# The same on a host that has servers only: what is asked through a mount may have to wait for the MDT.
lctl_alone() {
  in_two unshare --mount --propagation private timeout "$lctl_seconds" \
    bash -c 'umount -l "$1" "$2"; shift 2; exec "$@"' - "$two_a" "$two_b" "$LCTL" "$@" 2>>"$work/alone"
}
server_pid() { sed -n "$1p" "$work/two.pids"; }

# until_true SECONDS COMMAND...
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || { echo "not within the time: $*"; return 1; }
    sleep 0.1
  done
}

mdt_says() { lctl_alone get_param -n "mdt.*.recovery_status" > "$work/status"; grep -qx "$1" "$work/status"; }
mdt_is() { mdt_says "status: $1"; }

kill_mds() {
  local pid
  pid=$(server_pid 2)
  kill -9 "$pid"
  tail --pid="$pid" -f /dev/null
}

start_mds() {
  two_serve two-mds 7002 "$work/two.mdt"
  # It takes the place of the one that was killed.
  sed -i -e "2s/.*/$(tail -n 1 "$work/two.pids")/" -e '$d' "$work/two.pids"
}

t_names() {
  lctl list_param 'mdt.*' 'obdfilter.*' > "$work/names"
  grep -qx "mdt.$mdt.recovery_status" "$work/names"
  grep -qx "mdt.$mdt.evict_client" "$work/names"
  [ "$(grep -c '^obdfilter.*recovery_status$' "$work/names")" = 4 ]
  mdt_is INACTIVE
  lctl get_param 'mdt.*.recovery_status' 'obdfilter.*.recovery_status' > "$work/statuses"
  grep -qx "mdt.$mdt.recovery_status=status: INACTIVE" "$work/statuses"
  lctl dl | grep -q "UP mdt $mdt ${mdt}_UUID"
  [ "$(lctl get_param -n "mdt.*.num_exports")" = 2 ]
  must_fail 2 lctl get_param 'mdt.*.no_such_thing'
}

t_parameters() {
  [ "$(lctl get_param 'mdt.*.commit_on_sharing' | sed 's/.*MDT0000.//')" = commit_on_sharing=1 ]
  lctl set_param 'mdt.*.commit_on_sharing=0' > /dev/null
  [ "$(lctl get_param -n 'mdt.*.commit_on_sharing')" = 0 ]
  lctl set_param 'mdt.*.commit_on_sharing=1' > /dev/null
  grep -qx 'obdfilter.*sync_journal=0' <(lctl get_param 'obdfilter.*.sync_journal')
  lctl set_param 'obdfilter.*.sync_journal=1' > /dev/null
  [ "$(lctl get_param -n 'obdfilter.*.sync_journal' | grep -cx 1)" = 4 ]
  dd if=/dev/zero of="$two_a/synced" bs=1M count=4 conv=fsync status=none
  must_fail 22 lctl set_param 'obdfilter.*.sync_journal=2'
  lctl set_param 'obdfilter.*.sync_journal=0' > /dev/null
}

t_health() {
  [ "$(lctl get_param health_check)" = "health_check=healthy" ]
  "$WEFT" status "$two_a" >/dev/null
  kill -STOP "$(server_pid 4)"
  lctl get_param -n health_check > "$work/health" 2> "$work/why"
  kill -CONT "$(server_pid 4)"
  diff "$work/health" - <<END
device $two_fsname-OST0002 reported unhealthy
device $two_fsname-OST0003 reported unhealthy
NOT HEALTHY
END
  grep -q "OST0002: it does not answer" "$work/why"
  [ "$(lctl get_param -n health_check)" = healthy ]
}

# The MDS is killed, and one of two clients does not come back: the operator looks on, and ends the wait.
t_abort_recovery() {
  local away started
  echo before > "$two_a/file"
  "$WEFT" sync "$two_a"
  away=$(daemon_pid "$two_b")
  kill -9 "$away"
  umount -l "$two_b"
  kill_mds
  start_mds
  until_true 20 mdt_says "completed_clients: 1"
  mdt_is RECOVERING
  mdt_says "connected_clients: 1/2"
  mdt_says "time_remaining: [1-9][0-9]*"
  started=$SECONDS
  lctl_alone --device "$mdt" abort_recovery
  [ $((SECONDS - started)) -le 5 ]
  mdt_is COMPLETE
  mdt_says "completed_clients: 1/2"
  [ "$(cat "$two_a/file")" = before ]
  lctl_alone abort_recovery "$mdt"
  trace=$(grep -o 'trace="[^"]*"' "$work/two-mds.log" | tail -n 1 | cut -d'"' -f2)
  until_true 5 test -s "$trace"
  grep -q "why: it did not come back" "$trace"
  two_mount "$two_b"
  echo after > "$two_b/file" && [ "$(cat "$two_a/file")" = after ]
}

# Evicts every client at this address: both find out at once, and go on.
t_evict_client() {
  local uuid trace
  mkdir -p "$two_b/dir"
  ls "$two_a/dir" "$two_b/dir"
  lctl get_param -n "mdt.*.exports.*.uuid" > "$work/uuids"
  [ "$(wc -l < "$work/uuids")" = 2 ]
  uuid=$(head -n 1 "$work/uuids")
  [ "$(lctl set_param "mdt.*.evict_client=$uuid")" = "mdt.$mdt.evict_client=$uuid" ]
  trace=$(grep -o 'trace="[^"]*"' "$work/two-mds.log" | tail -n 1 | cut -d'"' -f2)
  until_true 5 test -s "$trace"
  grep -qx "client: $uuid" "$trace"
  grep -q "^nid: 127.0.0.1@tcp" "$trace"
  grep -q "why: an operator at 127.0.0.1" "$trace"
  grep -q "s before: " "$trace"
  # The client that did nothing has a new session all the same.
  until_true 10 bash -c "[ \"\$(nsenter --net=/run/netns/$two_ns $LCTL get_param -n 'mdt.*.num_exports')\" = 2 ]"
  echo one > "$two_a/dir/x" && [ "$(cat "$two_b/dir/x")" = one ]
  lctl set_param "obdfilter.*.evict_client=nid:127.0.0.1@tcp" > "$work/evicted"
  [ "$(wc -l < "$work/evicted")" -ge 1 ]
  echo two > "$two_b/dir/x" && [ "$(cat "$two_a/dir/x")" = two ]
  must_fail 2 lctl set_param "mdt.*.evict_client=nid:10.9.9.9@tcp"
  must_fail 2 lctl set_param "mdt.*.evict_client=nobody"
}

# What was changed in a mapping under a lock that is lost is not written over what others have: it is lost, and msync says so.
t_evict_mapped() {
  printf 'old%4093s' '' > "$two_b/mapped"
  python3 - "$two_a/mapped" "$work/changed" <<'END' > "$work/mapped" &
import errno, mmap, os, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
page = mmap.mmap(file, 4096)
page[:3] = b"new"
os.close(os.open(sys.argv[2], os.O_CREAT))
while os.path.exists(sys.argv[2]):
    time.sleep(0.01)
try:
    page.flush()
    os.fsync(file)
    print("no error")
except OSError as error:
    print(errno.errorcode[error.errno])
print(bytes(page[:3]).decode())
END
  local holder=$!
  until_true 10 test -e "$work/changed"
  lctl set_param "obdfilter.*.evict_client=nid:127.0.0.1@tcp" > "$work/evicted"
  printf 'other' | dd of="$two_b/mapped" conv=notrunc,fsync status=none
  rm "$work/changed"
  wait $holder
  diff "$work/mapped" <(printf 'EIO\noth\n')
  [ "$(head -c 5 "$two_b/mapped")" = other ]
  [ "$(head -c 5 "$two_a/mapped")" = other ]
}

# Who cannot read the servers' key gives no orders; the clients' key is none.
t_rights() {
  local client=$work/as-client
  mkdir -p "$client"
  sed "s/\.server\.key/.client.key/" "$WEFT_RUN"/serve-"$(server_pid 2)".json > "$client/serve-1.json"
  # As long as somebody has its lock it counts.
  flock "$client/serve-1.json" sleep 60 & local holder=$!
  until_true 5 bash -c "! flock -n '$client/serve-1.json' true"
  WEFT_RUN=$client must_fail 1 lctl set_param "mdt.*.evict_client=nid:127.0.0.1@tcp"
  kill $holder
}

check start two_up
for case in ${*:-names parameters health abort_recovery evict_client evict_mapped rights}; do
  check "$case" "t_$case"
done
finish
