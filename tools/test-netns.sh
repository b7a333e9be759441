#!/usr/bin/env bash
# Ring three: four roles and two clients in six network namespaces, connected by veth pairs and a bridge.
# Usage: tools/test-netns.sh [CASE...]; LONG=1 for more data, and a case that waits for leases; needs root, bin/weft, iproute2 (tools/deps.sh test).
. "$(dirname "$0")/lib.sh"

id=$((RANDOM % 900 + 100))
fsname=wn$id
key=$work/keys
pids=()
nodes="mgs mds oss1 oss2 cl1 cl2"
declare -A ip=([mgs]=10.99.7.1 [mds]=10.99.7.2 [oss1]=10.99.7.3 [oss2]=10.99.7.4 [cl1]=10.99.7.5 [cl2]=10.99.7.6)

ns() { echo "w$id$1"; }
# Not `ip netns exec`: that would hide the mounts from everybody else.
on() { local node=$1; shift; nsenter --net="/run/netns/$(ns "$node")" "$@"; }

leave() {
  for client in cl1 cl2; do umount "$work/$client" 2>/dev/null || umount -l "$work/$client" 2>/dev/null; done
  while read -r pid; do kill "$pid" 2>/dev/null; done < "$work/pids"
  while read -r pid; do tail --pid="$pid" -f /dev/null; done < "$work/pids"
  for node in $nodes sw; do ip netns del "$(ns "$node")" 2>/dev/null; done
  rm -rf --one-file-system "$work" "/etc/weft/$fsname".*.key
}
trap leave EXIT

# One bridge in a namespace of its own, so that nothing of the host's network is touched.
make_net() {
  ip netns add "$(ns sw)"
  on sw ip link add br0 type bridge
  on sw ip link set br0 up
  for node in $nodes; do
    ip netns add "$(ns "$node")"
    ip link add "v$id$node" netns "$(ns sw)" type veth peer name eth0 netns "$(ns "$node")"
    on sw ip link set "v$id$node" master br0 up
    on "$node" ip address add "${ip[$node]}/24" dev eth0
    on "$node" ip link set eth0 up
    on "$node" ip link set lo up
  done
}

serve() {
  local node=$1
  shift
  # Not through `on`: the process that is remembered has to be the server's own.
  nsenter --net="/run/netns/$(ns "$node")" "$WEFT" serve "$@" --listen "${ip[$node]}@tcp" --server "$node" \
    >"$work/$node.log" 2>&1 &
  pids+=($!)
  # A case runs in a subshell: what it starts is known from here only.
  echo $! >> "$work/pids"
  echo $! > "$work/$node.pid"
}

mount_on() {
  on "$1" "$WEFT" mount "${ip[mgs]}@tcp:/$fsname" "$work/$1"
  mountpoint -q "$work/$1"
}

t_start() {
  "$WEFT" format --mgs --fsname "$fsname" "$work/mgs"
  "$WEFT" format --mdt --fsname "$fsname" --index 0 --mgsnode "${ip[mgs]}@tcp" "$work/mdt0"
  for n in 0 1 2 3; do
    "$WEFT" format --ost --fsname "$fsname" --index $n --mgsnode "${ip[mgs]}@tcp" "$work/ost$n"
  done
}

# Bytes that crossed a node's link, both ways.
bytes() {
  on "$1" ip -s -j link show dev eth0 |
    python3 -c 'import json,sys; s = json.load(sys.stdin)[0]["stats64"]; print(s["rx"]["bytes"] + s["tx"]["bytes"])'
}

t_write_read() {
  dd if=/dev/urandom of="$work/data" bs=1M count=256 status=none
  "$LFS" setstripe -c 4 "$work/cl1/file"
  local mds oss
  mds=$(bytes mds)
  oss=$(( $(bytes oss1) + $(bytes oss2) ))
  dd if="$work/data" of="$work/cl1/file" bs=1M conv=fsync,notrunc status=none
  cmp "$work/data" "$work/cl2/file"
  mds=$(( $(bytes mds) - mds ))
  oss=$(( $(bytes oss1) + $(bytes oss2) - oss ))
  echo "bytes over the MDS's link: $mds; over the OSSes' links: $oss (file: $((256 << 20)), written once and read once)"
  cp "$log" "$work/traffic" 2>/dev/null || true
  [ "$mds" -lt 1000000 ]
  [ "$oss" -gt $((512 << 20)) ]
}

t_names_seen_by_both() {
  mkdir "$work/cl1/dir"
  echo one > "$work/cl1/dir/a"
  [ "$(cat "$work/cl2/dir/a")" = one ]
  mv "$work/cl2/dir/a" "$work/cl2/dir/b"
  [ ! -e "$work/cl1/dir/a" ]
  [ "$(cat "$work/cl1/dir/b")" = one ]
  echo two >> "$work/cl2/dir/b"
  [ "$(cat "$work/cl1/dir/b")" = "$(printf 'one\ntwo')" ]
  chmod 600 "$work/cl1/dir/b"
  [ "$(stat -c %a "$work/cl2/dir/b")" = 600 ]
  rm "$work/cl1/dir/b"
  [ ! -e "$work/cl2/dir/b" ]
}

t_basics_over_tcp() { python3 "$top/tests/basics.py" "$work/cl2"; }

# flock and fcntl between the two mounts, against the local file system.
t_locks() {
  mkdir -p "$work/plain"
  python3 "$top/tests/locks.py" "$work/cl1" "$work/cl2" "$work/plain" "${LOCK_OPS:-4000}" ${LOCK_SEED:-1}
}

# A stranger, a client's key in a server's place, and nonsense.
t_security() {
  head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$work/wrong.key"
  chmod 600 "$work/wrong.key"
  mkdir -p "$work/stranger"
  must_fail 1 on cl1 "$WEFT" mount "${ip[mgs]}@tcp:/$fsname" "$work/stranger" --key "$work/wrong.key"
  for node in mgs mds oss1; do
    for _ in 1 2 3; do
      head -c 100000 /dev/urandom | on cl1 timeout 5 bash -c "cat > /dev/tcp/${ip[$node]}/7988" || true
    done
  done
  kill -0 "${pids[@]}"
  echo alive > "$work/cl1/alive"
  [ "$(cat "$work/cl2/alive")" = alive ]
  "$WEFT" format --ost --fsname "$fsname" --index 9 --mgsnode "${ip[mgs]}@tcp" "$work/ost9"
  must_fail 1 timeout 30 nsenter --net="/run/netns/$(ns oss2)" "$WEFT" serve "$work/ost9" --listen "${ip[oss2]}:7999@tcp" \
    --key "/etc/weft/$fsname.client.key"
}

t_used_index() {
  "$WEFT" format --ost --fsname "$fsname" --index 1 --mgsnode "${ip[mgs]}@tcp" "$work/other"
  must_fail 1 timeout 30 nsenter --net="/run/netns/$(ns oss2)" "$WEFT" serve "$work/other" --listen "${ip[oss2]}:7999@tcp"
}

t_mount_weft() {
  umount "$work/cl1"
  on cl1 "$(dirname "$WEFT")/mount.weft" "${ip[mgs]}@tcp:/$fsname" "$work/cl1" -o rw,_netdev
  mountpoint -q "$work/cl1"
  [ "$(cat "$work/cl1/alive")" = alive ]
  # umount(8) calls the other helper: it ends when everything is written.
  local pid
  pid=$(daemon_pid "$work/cl1")
  head -c 64M /dev/urandom > "$work/cl1/late"
  on cl1 "$(dirname "$WEFT")/umount.fuse.weft" "$work/cl1"
  # A dead process that nobody has asked about yet has no program.
  if readlink -q "/proc/$pid/exe"; then echo "process $pid has not ended"; return 1; fi
  [ "$(stat -c %s "$work/cl2/late")" = $((64 << 20)) ]
  on cl1 "$(dirname "$WEFT")/mount.weft" "${ip[mgs]}@tcp:/$fsname" "$work/cl1"
}

# An OSS is killed and started again while a client writes: the client waits and goes on.
t_oss_restart() {
  dd if="$work/data" of="$work/cl1/during" bs=1M conv=fsync status=none &
  local writer=$!
  sleep 0.3
  kill -9 "${pids[2]}"
  wait "${pids[2]}" 2>/dev/null || true
  serve oss1 "$work/ost0" "$work/ost1"
  wait $writer
  cmp "$work/data" "$work/cl2/during"
}

# A server waits for its address as long as its predecessor, killed a moment ago, still has it.
t_address_taken() {
  local holder
  kill -9 "$(< "$work/oss1.pid")"
  tail --pid="$(< "$work/oss1.pid")" -f /dev/null
  mkfifo "$work/held"
  nsenter --net="/run/netns/$(ns oss1)" python3 -c 'import signal, socket, sys, time
while True:
    try: holder = socket.create_server((sys.argv[1], 7988))
    except OSError: time.sleep(0.05)
    else: break
open(sys.argv[2], "w").close()
signal.pause()' "${ip[oss1]}" "$work/held" &
  holder=$!
  read -r _ < "$work/held" || true
  serve oss1 "$work/ost0" "$work/ost1"
  timeout 20 bash -c "until grep -q 'still in use by another process' '$work/oss1.log'; do sleep 0.1; done"
  kill "$holder"
  wait "$holder" || true
  "$LFS" setstripe -o 0,1 "$work/cl1/after"
  head -c 4M /dev/urandom | tee "$work/after" > "$work/cl1/after"
  cmp "$work/after" "$work/cl2/after"
}

# An MDS that is killed knows again after its restart what was open for reading, also what the other client removed meanwhile.
t_mds_restart() {
  mkdir "$work/cl1/held"
  python3 "$top/tests/heldopen.py" "$work/cl1/held" "$work/cl2/held" "${OPEN_FILES:-2000}" "$work/held.step" &
  local reader=$!
  timeout 60 bash -c "until [ -e '$work/held.step' ]; do sleep 0.1; done" || { wait $reader; return 1; }
  kill -9 "${pids[1]}"
  wait "${pids[1]}" 2>/dev/null || true
  serve mds "$work/mdt0"
  rm "$work/held.step"
  wait $reader
}

LCTL=$(dirname "$WEFT")/lctl
lctl_on() { local node=$1; shift; on "$node" timeout 30 "$LCTL" "$@"; }

# Random bytes that go to both OSTs of oss1: bulk_data NAME MIB.
bulk_data() {
  head -c "$2M" /dev/urandom > "$work/$1"
  "$LFS" setstripe -o 0,1 "$work/cl1/$1"
}

kill_and_restart_oss1() {
  local pid
  pid=$(< "$work/oss1.pid")
  kill -9 "$pid" "$@"
  tail --pid="$pid" -f /dev/null
  serve oss1 "$work/ost0" "$work/ost1"
}

# Writes that were answered and are not durable are lost with their server, and their client repeats them (R26).
t_bulk_replay() {
  local mib=${LONG:+512}
  bulk_data bulk "${mib:-64}"
  dd if="$work/bulk" of="$work/cl1/bulk" bs=1M conv=notrunc status=none
  kill_and_restart_oss1
  sha256sum < "$work/bulk" > "$work/sum"
  for client in cl2 cl1; do sha256sum < "$work/$client/bulk" | diff - "$work/sum"; done
  lctl_on oss1 get_param -n "obdfilter.$fsname-*.recovery_status" > "$work/statuses"
  awk '/^replayed_requests:/ { replayed += $2 } END { print replayed " writes were replayed"; exit !replayed }' "$work/statuses"
}

# With their client killed too, what was not synced is lost: each byte of it is there, or zero, or behind the end.
t_bulk_lost() {
  local mib=${LONG:+256}
  mib=${mib:-32}
  local client
  client=$(daemon_pid "$work/cl1")
  bulk_data lost $((2 * mib))
  dd if="$work/lost" of="$work/cl1/lost" bs=1M count="$mib" conv=notrunc,fsync status=none
  dd if="$work/lost" of="$work/cl1/lost" bs=1M skip="$mib" seek="$mib" conv=notrunc status=none
  kill_and_restart_oss1 "$client"
  umount -l "$work/cl1"
  # Nobody waits for a client that is known to be dead.
  lctl_on mds set_param "mdt.$fsname-*.evict_client=nid:${ip[cl1]}@tcp"
  lctl_on oss1 set_param "obdfilter.$fsname-*.evict_client=nid:${ip[cl1]}@tcp"
  python3 - "$work/lost" "$work/cl2/lost" $((mib << 20)) <<'END'
import sys
want, have, synced = open(sys.argv[1], "rb").read(), open(sys.argv[2], "rb").read(), int(sys.argv[3])
assert have[:synced] == want[:synced], "what was synced"
assert len(have) <= len(want), "nobody wrote so much"
lost = len(want) - len(have)
for at in range(synced, len(have), 4096):
    there, was = have[at:at + 4096], want[at:at + 4096]
    if there != was:
        assert not any(there), f"foreign bytes at {at}"
        lost += len(there)
print(f"{lost} of {len(want) - synced} bytes that were not synced are lost, none that was synced")
END
  mount_on cl1
}

make_net || exit 1
check format t_start
serve mgs "$work/mgs"
serve mds "$work/mdt0"
serve oss1 "$work/ost0" "$work/ost1"
serve oss2 "$work/ost2" "$work/ost3"
mkdir -p "$work/cl1" "$work/cl2"
check mount_cl1 mount_on cl1
check mount_cl2 mount_on cl2
for case in ${*:-write_read names_seen_by_both basics_over_tcp locks security used_index mount_weft oss_restart address_taken bulk_replay mds_restart ${LONG:+bulk_lost}}; do
  check "$case" "t_$case"
  grep -E 'bytes over|were replayed|are lost' "$work/log"
done
finish
