#!/usr/bin/env bash
# The Debian package: installed in a fresh Debian, four hosts of it make the file system of README's "On several machines", the package is upgraded
# and removed. Usage: tools/test-deb.sh; needs root, bin/weft, and mmdebstrap (which is installed, and loads a Debian once).
. "$(dirname "$0")/lib.sh"

[ "$(id -u)" = 0 ] || { echo "needs root"; exit 2; }
command -v mmdebstrap > /dev/null || apt-get install -y -qq mmdebstrap > "$work/apt" 2>&1 || { cat "$work/apt"; exit 1; }
base=$cache/debian-bookworm.tar
[ -e "$base" ] || {
  mkdir -p "$cache"
  mmdebstrap --quiet --variant=minbase --include=iproute2,man-db,systemd bookworm "${base%.tar}.new.tar" http://deb.debian.org/debian &&
    mv "${base%.tar}.new.tar" "$base" || exit 1
}
hosts="mgs mds oss client"
declare -A ip=([mgs]=10.1.1.1 [mds]=10.1.1.2 [oss]=10.1.1.3 [client]=10.1.1.9)
id=$((RANDOM % 900 + 100))
ns() { echo "d$id$1"; }

# Nothing is removed while anything is mounted below it.
leave() {
  local host pid mount
  while read -r pid; do kill "$pid" 2> /dev/null && tail --pid="$pid" -f /dev/null; done < "$work/pids"
  awk -v work="$work/" 'index($2, work) == 1 { print $2 }' /proc/mounts | tac | while read -r mount; do umount "$mount" || umount -l "$mount"; done
  for host in $hosts sw; do ip netns del "$(ns "$host")" 2> /dev/null; done
  if grep -q " $work/" /proc/mounts; then
    echo "$work stays: something is mounted there"
    return
  fi
  rm -rf --one-file-system "$work"
}
: > "$work/pids"
trap leave EXIT

# A root with what programs need of the machine. The devices are its own: nothing of the machine's can be changed through them.
furnish() {
  local device
  mount -t proc proc "$1/proc"
  mount -t tmpfs -o mode=755 tmpfs "$1/dev"
  for device in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0" "fuse 10 229"; do
    # shellcheck disable=SC2086
    mknod -m 666 "$1/dev/${device%% *}" c ${device#* }
  done
  ln -s /proc/self/fd "$1/dev/fd"
  mount -t tmpfs tmpfs "$1/run"
}
unfurnish() { umount "$1/run" "$1/dev" "$1/proc"; }
# on HOST COMMAND...: in its network and its root.
on() { nsenter --net="/run/netns/$(ns "$1")" chroot "$work/$1/root" "${@:2}"; }

t_build() {
  tools/deb.sh "$work"
  ls -l "$work"/*.deb
  dpkg-deb --info "$work"/weft_*.deb | grep -q "Depends: libc6 (>= 2\."
  # Debug information is in the other package.
  [ "$(stat -c %s "$work"/weft_*.deb)" -lt 20000000 ]
}

t_install() {
  mkdir "$work/debian"
  tar -C "$work/debian" -xf "$base"
  furnish "$work/debian"
  cp "$work"/*.deb "$work/debian/tmp"
  chroot "$work/debian" sh -c 'dpkg -i /tmp/weft_*.deb'
  chroot "$work/debian" weft --version | grep -q "^weft "
  chroot "$work/debian" sh -c 'man -w lfs-setstripe weft-serve lctl-set_param' > "$work/pages"
  [ "$(wc -l < "$work/pages")" = 3 ]
  chroot "$work/debian" man lfs-setquota > "$work/page"
  grep -q "lfs-setquota" "$work/page"
  [ -e "$work/debian/usr/share/bash-completion/completions/lfs" ]
  # What systemd would say of the units.
  chroot "$work/debian" sh -c 'systemd-analyze verify /usr/lib/systemd/system/weft-*.service' 2> "$work/verified" || true
  not grep -i "weft.*\(unknown\|invalid\|failed\)" "$work/verified"
  unfurnish "$work/debian"
}

t_hosts() {
  local host
  ip netns add "$(ns sw)"
  nsenter --net="/run/netns/$(ns sw)" sh -c 'ip link add br0 type bridge && ip link set br0 up'
  for host in $hosts; do
    ip netns add "$(ns "$host")"
    ip link add "v$id$host" netns "$(ns sw)" type veth peer name eth0 netns "$(ns "$host")"
    nsenter --net="/run/netns/$(ns sw)" ip link set "v$id$host" master br0 up
    nsenter --net="/run/netns/$(ns "$host")" sh -c "ip address add ${ip[$host]}/24 dev eth0 && ip link set eth0 up && ip link set lo up"
    mkdir -p "$work/$host/root" "$work/$host/upper" "$work/$host/tmp"
    mount -t overlay -o "lowerdir=$work/debian,upperdir=$work/$host/upper,workdir=$work/$host/tmp" overlay "$work/$host/root"
    furnish "$work/$host/root"
    mkdir "$work/$host/srv"
    mount --bind "$work/$host/srv" "$work/$host/root/srv"
  done
}

# serve HOST DIR...
serve() {
  nsenter --net="/run/netns/$(ns "$1")" chroot "$work/$1/root" weft serve "${@:2}" --listen "${ip[$1]}@tcp" > "$work/$1.log" 2>&1 &
  echo $! >> "$work/pids"
}

# Word by word as in README.
t_several_machines() {
  on mgs weft format --mgs --fsname demo /srv/mgs
  for host in mds oss; do install -m 600 -t "$work/$host/root/etc/weft" "$work/mgs/root/etc/weft"/demo.*.key; done
  install -m 600 -t "$work/client/root/etc/weft" "$work/mgs/root/etc/weft/demo.client.key"
  serve mgs /srv/mgs
  on mds weft format --mdt --fsname demo --index 0 --mgsnode 10.1.1.1@tcp /srv/mdt0
  serve mds /srv/mdt0
  on oss weft format --ost --fsname demo --index 0 --mgsnode 10.1.1.1@tcp /srv/ost0
  on oss weft format --ost --fsname demo --index 1 --mgsnode 10.1.1.1@tcp /srv/ost1
  serve oss /srv/ost0 /srv/ost1
  on client mkdir -p /mnt/demo
  on client timeout 60 mount -t weft 10.1.1.1@tcp:/demo /mnt/demo || { tail -n 5 "$work"/*.log; return 1; }
  on client sh -c 'lfs setstripe -c 2 /mnt/demo/file && head -c 5000000 /dev/urandom > /tmp/file && cp /tmp/file /mnt/demo/file'
  on client cmp /tmp/file /mnt/demo/file
  on client lfs df /mnt/demo | grep -q "OST:1"
  on client umount /mnt/demo
  on client mount -t weft 10.1.1.1@tcp:/demo /mnt/demo
  on client cmp /tmp/file /mnt/demo/file
}

# An upgrade and a removal take neither a file system that is in use nor keys away.
t_upgrade_and_remove() {
  on client sh -c 'dpkg -i /tmp/weft_*.deb' > "$work/upgraded"
  on client cmp /tmp/file /mnt/demo/file
  on client umount /mnt/demo
  on oss dpkg --remove weft
  [ -e "$work/oss/root/etc/weft/demo.server.key" ] && [ -d "$work/oss/root/srv/ost0" ]
  [ ! -e "$work/oss/root/usr/bin/weft" ] && [ ! -e "$work/oss/root/usr/share/man/man1/lfs.1.gz" ]
  on oss dpkg --purge weft 2> "$work/purged"
  grep -q "/etc/weft stays" "$work/purged"
  on client dpkg --purge weft
  # Nothing is left of a package that left no settings.
  find "$work/client/root/usr" -name "*weft*" -not -path "*/zoneinfo/*" > "$work/left"
  cat "$work/left"
  [ ! -s "$work/left" ]
}

for case in build install hosts several_machines upgrade_and_remove; do check "$case" "t_$case"; done
finish
