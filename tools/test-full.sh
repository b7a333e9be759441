#!/usr/bin/env bash
# Full disks, for real: each target on a loop device that is too small, with every server in a process of its own. What grows gets
# ENOSPC, what frees space goes on, targets start, and afterwards there is as much room as before.
# Usage: tools/test-full.sh [CASE...]; needs root, bin/weft, iproute2, e2fsprogs and xfsprogs. With LONG=1 MDTs are filled and emptied, too;
# one of them under a quota, for which it needs btrfs-progs.
# MDT_MB: size of the MDT that is filled (160, or 320 with XFS). NAMES=short: files with short names, and nothing else, which takes longer.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

LCTL=$(dirname "$WEFT")/lctl
export WEFT_RUN=$work/run
disks=()
trap 'rm -rf --one-file-system "$work"' EXIT

# one CASE: with disks and servers of its own, which are gone afterwards.
one() {
  trap over EXIT
  "t_$1"
}

over() {
  local status=$?
  [ $status = 0 ] || tail -n 5 "$work"/two-*.log
  two_down
  for disk in "${disks[@]}"; do umount "$disk" || umount -l "$disk"; done
  rm -rf --one-file-system "$work"/two* "$work"/*.image "$work/a" "$work/b"
  exit $status
}

# disk NAME MIB KIND [MKFS-OPTION...]: a file system of its own at $work/NAME.
disk() {
  local name=$1 size=$2 kind=$3
  shift 3
  truncate -s "${size}M" "$work/$name.image"
  "mkfs.$kind" -q "$@" "$work/$name.image" && mkdir "$work/$name" && mount -o loop "$work/$name.image" "$work/$name" || return 1
  disks+=("$work/$name")
}

server_pid() { sed -n "$1p" "$work/two.pids"; }
# restart LINE NAME PORT DIR...: kills a server and starts it again.
restart() {
  local line=$1 pid
  pid=$(server_pid "$line")
  kill -9 "$pid"
  tail --pid="$pid" -f /dev/null
  two_serve "$2" "$3" "${@:4}"
  sed -i -e "${line}s/.*/$(tail -n 1 "$work/two.pids")/" -e '$d' "$work/two.pids"
}
restart_mds() { restart 2 two-mds 7002 "$work/two.mdt"; }

status() { in_two timeout 60 "$WEFT" status "$two_a" > "$work/status"; }
is_full() { ! status && grep -q "FULL: .*$1" "$work/status"; }
is_healthy() { status && grep -q HEALTHY "$work/status"; }

# tree fill DIR: makes what fits, and prints how many. tree look DIR FROM TO: those are there. tree empty DIR FROM TO: removes them.
tree() {
  NAMES=${NAMES:-long} timeout 3000 python3 - "$@" <<'END'
import errno, os, random, sys
what, top = sys.argv[1:3]
short = os.environ["NAMES"] == "short"
WIDE = 500

def folder(number):
    return f"{top}/d{number // WIDE}"

def path(number):
    return f"{folder(number)}/" + (f"f{number}" if short else f"f{number}".ljust(200, "x"))

def target(number):
    # What cannot be compressed.
    return random.Random(number).randbytes(1900).hex()

def is_file(number):
    return short or number % 8 == 0

def make(number):
    if number % WIDE == 0:
        os.mkdir(folder(number))
    if is_file(number):
        os.close(os.open(path(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    else:
        os.symlink(target(number), path(number))

if what == "fill":
    os.makedirs(top, exist_ok=True)
    number = 0
    try:
        while True:
            make(number)
            number += 1
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    print(number)
else:
    for number in range(int(sys.argv[3]), int(sys.argv[4])):
        if what == "look":
            assert is_file(number) and os.lstat(path(number)).st_size == 0 or os.readlink(path(number)) == target(number), number
            continue
        os.unlink(path(number))
        if number % WIDE == WIDE - 1:
            os.rmdir(folder(number))
END
}

# Bytes that the MDT's disk has in use.
mdt_used() { df -B1 --output=used "$work/two.mdt" | tail -n 1; }

# An MDT is filled, killed and started while it is full, emptied, and filled again.
filled() {
  local first second half
  first=$(tree fill "$two_a/one")
  echo "filled: $first, $(mdt_used) bytes used"
  [ "$first" -gt "$1" ]
  is_full MDT0000 || { cat "$work/status"; return 1; }
  [ "$(stat -f -c %d "$two_a")" = 0 ]
  # Reading goes on, on the other mount too.
  [ "$(find "$two_a/one" -type d | wc -l)" -gt $((first / 500)) ]
  tree look "$two_b/one" 0 500
  # So does what takes nothing.
  chmod 600 "$two_a/one/d0"/f0*
  mv "$two_a/one/d0"/f8x* "$two_a/one/d0/moved" && mv "$two_a/one/d0/moved" "$two_a/one/d0/$(printf 'f8%198s' | tr ' ' x)"
  restart_mds
  tree look "$two_a/one" $((first - 500)) "$first"
  # Merging may have made some room by now.
  echo "more: $(tree fill "$two_a/more")"
  is_full MDT0000
  rm -rf "$two_a/more"
  half=$((first / 1000 * 500))
  tree empty "$two_a/one" 0 "$half"
  restart_mds
  tree look "$two_a/one" "$half" "$first"
  tree empty "$two_a/one" "$half" "$first"
  rm -rf "$two_a/one"
  until_true 30 is_healthy || { cat "$work/status"; return 1; }
  # What was removed is merged away by the target itself.
  until_true 60 mkdir "$two_a/two"
  second=$(tree fill "$two_a/two")
  echo "filled again: $second, $(mdt_used) bytes used"
  [ "$second" -gt $((first * 7 / 10)) ]
  restart_mds
  tree look "$two_b/two" 0 "$second"
  tree empty "$two_b/two" 0 "$second"
  rm -rf "$two_b/two"
  until_true 60 touch "$two_a/last"
  ! grep -E "panicked|store failed|Worker" "$work/two-mds.log"
}

t_ext4() {
  disk two.mdt "${MDT_MB:-160}" ext4
  two_up
  filled $((${MDT_MB:-160} * 10))
}

t_xfs() {
  disk two.mdt "${MDT_MB:-320}" xfs
  two_up
  filled 3000
}

# The disk has room, and a quota does not let the MDT have it. Of those that a file system tells nothing of, btrfs has one without
# further ado: of a subvolume.
t_quota() {
  disk host 1024 btrfs
  btrfs quota enable "$work/host"
  btrfs subvolume create "$work/host/mdt"
  btrfs qgroup limit 256M "$work/host/mdt"
  mkdir "$work/two.mdt"
  mount --bind "$work/host/mdt" "$work/two.mdt"
  disks=("$work/two.mdt" "${disks[@]}")
  two_up
  filled 2000
}

# fill_up DIR: something else takes every block of the disk.
fill_up() {
  dd if=/dev/zero of="$1/others" bs=64k status=none 2>/dev/null || true
  dd if=/dev/zero of="$1/others2" bs=4k status=none 2>/dev/null || true
  sync "$1"
  [ "$(df --output=avail "$1" | tail -n 1)" -lt 64 ]
}

# Other programs fill the disks of all targets up. They start, and what frees space is carried out.
t_others() {
  local name
  disk two.mdt 160 ext4 -m 0 && disk two.mgs 100 ext4 -m 0 && disk two.ost0 200 ext4 -m 0
  two_up
  # The MDT hears of OSTs one after the other.
  until_true 20 "$LFS" setstripe -i 0 -c 1 "$two_a/known"
  "$LFS" setstripe -i 0 -c 1 "$two_a"
  mkdir "$two_a/d"
  for name in $(seq 300); do echo "$name" > "$two_a/d/$name"; done
  dd if=/dev/urandom of="$two_a/d/data" bs=1M count=20 status=none
  "$WEFT" sync "$two_a"
  for name in mdt mgs ost0; do fill_up "$work/two.$name"; done
  until_true 20 bash -c "! mkdir '$two_a/more' 2>/dev/null || ! rmdir '$two_a/more'"
  must_fail 1 touch "$two_a/new"
  grep -q "No space left" "$work/err"
  is_full MDT0000
  rm "$two_a/d/1" && truncate -s 1 "$two_a/d/2" && rm "$two_a/d/data"
  restart 1 two-mgs 7001 "$work/two.mgs"
  restart_mds
  restart 3 two-oss1 7003 "$work/two.ost0" "$work/two.ost1"
  for name in $(seq 3 150); do [ "$(cat "$two_a/d/$name")" = "$name" ] && rm "$two_a/d/$name"; done
  restart_mds
  for name in $(seq 151 300); do [ "$(cat "$two_b/d/$name")" = "$name" ] && rm "$two_b/d/$name"; done
  rm "$two_a/d/2" && rmdir "$two_a/d"
  for name in mdt mgs ost0; do rm "$work/two.$name"/others*; done
  until_true 30 touch "$two_a/new"
  until_true 30 is_healthy || { cat "$work/status"; return 1; }
  dd if=/dev/urandom of="$two_a/data" bs=1M count=10 conv=fsync status=none
}

# The disk has blocks, and no inodes.
t_inodes() {
  local n=0
  disk two.mdt 160 ext4 -N 1024
  two_up
  for n in $(seq 100); do touch "$two_a/f$n"; done
  mkdir "$work/two.mdt/others"
  n=0
  while : 2>/dev/null > "$work/two.mdt/others/$n"; do n=$((n + 1)); done
  until_true 20 bash -c "! touch '$two_a/new' 2>/dev/null || ! rm '$two_a/new'"
  is_full MDT0000
  rm "$two_a/f1"
  restart_mds
  for n in $(seq 2 100); do rm "$two_a/f$n"; done
  must_fail 1 touch "$two_a/new"
  rm -r "$work/two.mdt/others"
  until_true 30 touch "$two_a/new"
}

# A rank writes more than the shared file system takes, and does not sync it: whoever unmounts its image is told, and the next mount repairs it.
t_rankfs() {
  local images=$two_a/images files=$work/files
  cat > "$files" <<'EOF'
import os, sys
os.chdir(sys.argv[1])
os.makedirs("d", exist_ok=True)
for n in range(300):
    with open(f"d/{n}", "wb") as file:
        file.write(bytes([n % 251]) * (1 << 20))
EOF
  disk two.ost0 300 ext4 -m 0
  two_up
  until_true 20 "$LFS" setstripe -i 0 -c 1 "$two_a/known"
  mkdir "$images" "$work/m"
  "$LFS" setstripe -i 0 -c 1 "$images"
  must_fail 1 "$WEFT" rankfs run --dir "$images" --size 600M --job j --rank 1 --keep -- python3 "$files" .
  grep -q "j.1.rankfs has lost some of what was written to it" "$work/err"
  grep -q "the image is kept" "$work/err"
  rm "$images/j.1.rankfs"
  until_true 30 dd if=/dev/zero of="$images/probe" bs=1M count=50 conv=fsync status=none
  rm "$images/probe"
  "$WEFT" rankfs create "$images/k.rankfs" --size 600M
  "$WEFT" rankfs mount "$images/k.rankfs" "$work/m"
  # It may be told while it writes.
  python3 "$files" "$work/m" || true
  must_fail 1 "$WEFT" rankfs umount "$work/m"
  grep -q "has lost some of what was written to it" "$work/err"
  # With room again the next mount repairs it, and what it has can be read.
  truncate -s 0 "$two_a/known"
  "$LFS" migrate -i 1 -c 1 "$images/k.rankfs"
  "$WEFT" rankfs mount "$images/k.rankfs" "$work/m"
  find "$work/m" -type f -size +0 -exec cat {} + > "$work/out"
  "$WEFT" rankfs umount "$work/m"
  e2fsck -fn "$images/k.rankfs"
  rm -r "$images" "$files" "$work/m"
}

[ $# -gt 0 ] || set -- others inodes rankfs ${LONG:+ext4 xfs quota}
for name in "$@"; do
  if [ "$name" = quota ] && ! command -v mkfs.btrfs > /dev/null; then
    skip "a full disk: quota" "there is no btrfs-progs"
    continue
  fi
  check "a full disk: $name" one "$name"
done
finish
