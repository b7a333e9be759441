#!/usr/bin/env bash
# A file system over the machines of a job (weft burst), with real processes: four machines are namespaces of mounts and processes, with
# directories and addresses of their own.
# Usage: tools/test-burst.sh [CASE...]; needs root, bin/weft, iproute2.

. "$(dirname "$0")/lib.sh"

id=$((RANDOM % 10000))
net=wbu$id
holders=
local=$work/local
# On each machine a directory of its own: where one machine removes its mount point, the others' stay.
mounts=$work/m
at=$mounts/b
all="n1 n2 n3 n4"

# The machine $1 does the rest. This is the way that weft goes, too.
cat > "$work/reach" <<R
#!/bin/sh
node=\$1
shift
[ ! -e "$work/\$node.down" ] || { echo "\$node: no route to host" >&2; exit 255; }
exec nsenter --net=/run/netns/$net --mount --pid --target "\$(cat "$work/\$node.pid")" "\$@"
R
chmod 755 "$work/reach"
on() { timeout 100 "$work/reach" "$@"; }

machine() {
  mkdir -p "$work/disk-$1" "$work/mounts-$1"
  unshare --mount --pid --fork --mount-proc --propagation private sh -c 'exec sleep infinity' > /dev/null 2>&1 &
  until pgrep -P $! sleep > "$work/$1.pid"; do :; done
  holders="$holders $(cat "$work/$1.pid")"
  on "$1" mount --bind "$work/disk-$1" "$local"
  on "$1" mount --bind "$work/mounts-$1" "$mounts"
  on "$1" mount -t tmpfs run /run
}

burst() {
  local verb=$1
  shift
  timeout 200 "$WEFT" burst "$verb" --nodes "$work/nodes" --data "$local" --remote "$work/reach" "$@"
}
start() { burst start "$at" --mem-limit-mb 256 "$@"; }
# Nothing is left of any file system.
nothing() {
  local node
  for node in $all; do
    [ -z "$(ls -A "$work/disk-$node")$(ls -A "$work/mounts-$node")" ]
    not on "$node" grep -q " $at fuse.weft" /proc/mounts
  done
  [ "$(pgrep -f "$local/weft-burst-" | wc -l)" = 0 ]
}
list() {
  local node
  for node in "$@"; do echo "$node 127.0.7.${node#n}"; done > "$work/nodes"
}

leave() {
  for node in $all; do
    rm -f "$work/$node.down"
    on "$node" umount -l "$at"
  done > /dev/null 2>&1
  pgrep -f "$local/weft-burst-" | xargs -r kill -9
  # The first process of a name space of processes heeds no other signal from without.
  kill -9 $holders
  ip netns del "$net"
  ip netns del "$net-2" 2> /dev/null
  rm -f "/var/log/weft/mount-var-tmp-${work##*/}"-m-[bo].log
  rm -rf --one-file-system "$work"
}
trap leave EXIT

t_shared() {
  local node
  list $all
  start --osts 2
  on n1 sh -c "mount | grep -q ' $at type fuse.weft'"
  on n1 dd if=/dev/urandom of="$work/data" bs=1M count=24 status=none
  on n2 "$LFS" setstripe -c -1 "$at/file"
  [ "$(on n2 "$LFS" getstripe -c "$at/file")" = 8 ]
  on n2 cp "$work/data" "$at/file"
  for node in $all; do on "$node" cmp "$work/data" "$at/file"; done
  on n3 sh -c "echo three > $at/three"
  [ "$(on n4 cat "$at/three")" = three ]
  [ "$(on n4 "$LFS" df "$at" | grep -c OST)" = 8 ]
  # Its keys and data are for its owner only.
  [ "$(on n2 stat -c %a "$local/weft-burst-burst")" = 700 ]
  [ -z "$(on n2 find "$local/weft-burst-burst" -name '*.key' -perm /077)" ]
  # Somebody uses it.
  on n3 sh -c "cd $at && exec sleep 90" &
  until [ -n "$(find /proc/[0-9]*/cwd -lname "$at" 2>/dev/null)" ]; do :; done
  burst stop && return 1
  [ "$(on n3 cat "$at/three")" = three ]
  on n3 pkill -f 'sleep 90'
  while [ -n "$(find /proc/[0-9]*/cwd -lname "$at" 2>/dev/null)" ]; do :; done
  burst stop
  nothing
  # As often as it is asked.
  burst stop
}

# What runs is not hurt by a start that fails, and a start that fails leaves nothing.
t_refused() {
  list n1 n2 n3
  start --owner 1234:1234
  on n2 setpriv --reuid 1234 --regid 1234 --clear-groups sh -c "echo mine > $at/mine"
  start 2> "$work/err" && return 1
  grep -q 'was not stopped' "$work/err"
  [ "$(on n3 cat "$at/mine")" = mine ]
  # Another one beside it: first its port is taken on one machine, then it has its own.
  list n3 n4
  on n4 python3 -c 'import socket, time
s = socket.create_server(("127.0.7.4", 7995)); time.sleep(90)' &
  until on n4 sh -c 'grep -q ":1F3B" /proc/net/tcp'; do :; done
  timeout 200 "$WEFT" burst start "$mounts/o" --nodes "$work/nodes" --data "$local" --remote "$work/reach" --fsname other --port 7995 2> "$work/err" && return 1
  grep -q '^weft: n4: .*7995' "$work/err"
  on n4 pkill python3
  [ "$(ls "$work/disk-n3") $(ls "$work/disk-n4")" = 'weft-burst-burst ' ]
  [ ! -e "$work/mounts-n3/o" ]
  [ ! -e "$work/mounts-n4/o" ]
  timeout 200 "$WEFT" burst start "$mounts/o" --nodes "$work/nodes" --data "$local" --remote "$work/reach" --fsname other --port 7996
  on n4 sh -c "echo other > $mounts/o/file"
  [ "$(on n3 cat "$mounts/o/file")" = other ]
  [ "$(on n3 cat "$at/mine")" = mine ]
  burst stop --fsname other
  [ "$(on n3 cat "$at/mine")" = mine ]
  list n1 n2 n3
  burst stop
  nothing
}

# Machines that are lost, and come back.
t_lost() {
  list $all
  start
  on n1 sh -c "echo one > $at/one"
  on n2 pkill -9 -f 'weft serve .*'
  on n3 pkill -9 -f 'weft mount .*'
  touch "$work/n4.down"
  burst stop --force 2> "$work/err" && return 1
  grep -q 'n4: no route to host' "$work/err"
  [ -z "$(ls -A "$work/disk-n1")$(ls -A "$work/disk-n2")$(ls -A "$work/disk-n3")" ]
  rm "$work/n4.down"
  burst stop --force
  nothing
  # A start that was killed in the middle.
  for tenth in 1 3 5 8 12; do
    timeout -s KILL "$(echo "$tenth / 10" | bc -l)" "$WEFT" burst start "$at" --nodes "$work/nodes" --data "$local" --remote "$work/reach" || true
    burst stop --force
    nothing
  done
}

# A machine that does not reach the first one: all of it goes again, in time.
t_apart() {
  list n1 n2 n3
  ip netns add "$net-2"
  nsenter --net="/run/netns/$net-2" ip link set lo up
  sed "s|^exec nsenter|[ \$node != n2 ] \|\| exec nsenter --net=/run/netns/$net-2 --mount --pid --target \"\$(cat $work/n2.pid)\" \"\$@\"\n&|" "$work/reach" > "$work/reach2"
  chmod 755 "$work/reach2"
  for _ in 1 2; do
    timeout 100 "$WEFT" burst start "$at" --nodes "$work/nodes" --data "$local" --remote "$work/reach2" --wait 3 2> "$work/err" && return 1
    grep -q '^weft: n2: not done within 3 s' "$work/err"
    timeout 100 "$WEFT" burst stop --force --nodes "$work/nodes" --data "$local" --remote "$work/reach2" --wait 3
    nothing
  done
  ip netns del "$net-2"
  # A login that is slow: whoever comes after the command has ended does nothing.
  sed 's|^exec nsenter|[ "$node" != n2 ] \|\| sleep 2\n&|' "$work/reach" > "$work/reach3"
  chmod 755 "$work/reach3"
  timeout -s KILL 1 "$WEFT" burst start "$at" --nodes "$work/nodes" --data "$local" --remote "$work/reach3" || true
  burst stop --force
  timeout -s KILL 1 "$WEFT" burst stop --nodes "$work/nodes" --data "$local" --remote "$work/reach3" || true
  start
  on n2 sh -c "echo two > $at/two"
  # Both orders of before would have come by now.
  until ! pgrep -f "$work/reach3" > /dev/null; do :; done
  [ "$(on n2 cat "$at/two")" = two ]
  burst stop
  nothing
}

# However the directory is written, whatever is mounted over it, and whoever stops it meanwhile.
t_crossed() {
  local round
  list $all
  for node in $all; do on "$node" ln -s "$local" /run/other; done
  timeout 200 "$WEFT" burst start "$at" --nodes "$work/nodes" --data /run/other --remote "$work/reach"
  burst stop
  nothing
  start
  on n2 mount -t tmpfs over "$at"
  burst stop --force 2> "$work/err" && return 1
  grep -q "^weft: n2: over (tmpfs) is mounted over it" "$work/err"
  on n2 umount "$at"
  burst stop --force
  nothing
  for round in 0 5 10 15 25; do
    start --wait 5 > "$work/started" 2>&1 &
    sleep "0.0$round"
    burst stop --force > "$work/stopped" 2>&1 || true
    wait $! || true
    burst stop --force
    nothing
  done
}

t_words() {
  echo 'n1; reboot' > "$work/nodes"
  must_fail 2 "$WEFT" burst start "$at" --nodes "$work/nodes" --data "$local"
  : > "$work/nodes"
  must_fail 2 "$WEFT" burst start "$at" --nodes "$work/nodes" --data "$local"
  must_fail 1 "$WEFT" burst start "$at" --nodes "$work/none" --data "$local"
  echo localhost > "$work/nodes"
  must_fail 1 "$WEFT" burst start "$at" --nodes "$work/nodes" --data "$local"
  grep -q 'write its address' "$work/err"
  list n1
  must_fail 1 "$WEFT" burst start "$at" --nodes "$work/nodes" --data "$local" --remote "$work/nothing"
  must_fail 1 "$WEFT" burst start "$at" --nodes "$work/nodes" --data "$work/none" --remote "$work/reach"
  echo garbage | "$WEFT" burst on-node > "$work/out" 2> "$work/err" && return 1
  grep -q 'install the same weft' "$work/err"
  # Anybody could exchange what lies there.
  on n1 chmod 777 "$local"
  must_fail 1 "$WEFT" burst start "$at" --nodes "$work/nodes" --data "$local" --remote "$work/reach"
  grep -q 'others can exchange' "$work/err"
  on n1 chmod 755 "$local"
  nothing
}

mkdir -p "$local" "$mounts"
ip netns add "$net"
nsenter --net="/run/netns/$net" ip link set lo up
for node in $all; do machine "$node"; done
for case in ${*:-words shared refused lost apart crossed}; do
  check "$case" "t_$case"
done
finish
