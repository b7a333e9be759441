#!/usr/bin/env bash
# File systems of ranks (weft rankfs) beside the shared one, over tcp with servers in processes of their own: names a second inside an image, as
# root and as a user; MiB/s by the size of a file; and what 4 ranks cost the MDS that make their files in images or in one shared directory.
# Usage: [IOZONE=PROGRAM] [TWO_FS=1] tools/bench-rankfs.sh [MDTEST]; needs root and e2fsprogs, and fuse2fs for the form of users. With the program mdtest,
# built from its source (hpc/ior), it measures inside an image, too. With iozone, built from its source, it does not measure anything else; nor with TWO_FS=1: that has
# ranks in one file system, in two of which each has an MDT of its own, and in images.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

mdtest=${1:-}
rates=$work/rates.py
images=$two_a/images
fuse_mode=$(stat -c %a /dev/fuse)
leave() {
  chmod "$fuse_mode" /dev/fuse
  rm -rf /tmp/weft-1234
  awk -v work="$work/" '$1 ~ "^/dev/loop" && index($2, work) == 1 { print $2 }' /proc/mounts | while read -r mount; do umount -l "$mount"; done
  [ ! -d "$second" ] || umount "$second"
  two_down
  rm -f "/etc/weft/$second_fs".*.key
  rm -rf --one-file-system "$work"
}
trap leave EXIT
# A second file system, with servers and an MDT of its own.
second=$work/second
second_fs=${two_fsname}s
second_up() {
  local n mgs=127.0.0.1:7101@tcp
  "$WEFT" format --mgs --fsname "$second_fs" "$work/second.mgs"
  "$WEFT" format --mdt --fsname "$second_fs" --index 0 --mgsnode "$mgs" "$work/second.mdt"
  for n in 0 1 2 3; do
    "$WEFT" format --ost --fsname "$second_fs" --index $n --mgsnode "$mgs" "$work/second.ost$n"
  done
  two_serve second-mgs 7101 "$work/second.mgs"
  two_serve second-mds 7102 "$work/second.mdt"
  two_serve second-oss1 7103 "$work/second.ost0" "$work/second.ost1"
  two_serve second-oss2 7104 "$work/second.ost2" "$work/second.ost3"
  mkdir "$second"
  in_two "$WEFT" mount "$mgs:/$second_fs" "$second"
}

rankfs() { "$WEFT" rankfs "$@"; }
as_user() { setpriv --reuid 1234 --regid 1234 --clear-groups env -u XDG_RUNTIME_DIR "$@"; }
# three COMMAND...: runs it three times, and prints the median of each of its columns.
three() {
  for _ in 1 2 3; do "$@" < /dev/null; done | python3 -c '
import statistics, sys
rows = [[float(word) for word in line.split()] for line in sys.stdin]
print(" ".join(f"{statistics.median(column):>9.0f}" for column in zip(*rows)))'
}
inside="run --dir $images --size 512M --bytes-per-inode 4096 --job b --rank 0 --"

# Microseconds of processor of the MDS.
mds_time() { awk -v tick="$(getconf CLK_TCK)" '{ print int(($14 + $15) * 1000000 / tick) }' "/proc/$(sed -n 2p "$work/two.pids")/stat"; }
# four_ranks COMMAND...: four of them at the same time, with RANK set.
four_ranks() {
  local pids=() pid
  for rank in 0 1 2 3; do
    RANK=$rank "$@" > /dev/null &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid"; done
}
names=(10000 100)
in_image() {
  rankfs run --dir "$images" --size 256M --bytes-per-inode 4096 --job l --rank "$RANK" -- python3 "$rates" names "${names[@]}"
}
in_shared() { (mkdir -p "$two_a/shared/$RANK" && cd "$two_a/shared/$RANK" && python3 "$rates" names "${names[@]}"); }
# Odd ranks in the one file system, even ones in the other.
in_two_shared() {
  local top=$two_a/shared
  [ $((RANK % 2)) = 1 ] || top=$second/shared
  (mkdir -p "$top/$RANK" && cd "$top/$RANK" && python3 "$rates" names "${names[@]}")
}
# made_by RANKS FUNCTION: the sum of what each of them makes a second, the median of three.
made_by() {
  local rank names=(5000) _
  for _ in 1 2 3; do
    for rank in $(seq "$1"); do RANK=$rank "$2" & done | awk '{ sum += $1 } END { print sum }'
  done | sort -n | sed -n 2p
}
# with_iozone DIRECTORY: KiB/s of iozone's automatic mode by size, of records of 1 MiB or the whole file: write, rewrite, read, reread. A write
# counts until it is flushed.
with_iozone() {
  "$IOZONE" -a -e -n 4k -g 512m -i 0 -i 1 -f "$1/iozone.tmp" |
    awk '$1 ~ /^[0-9]+$/ && NF == 6 && $2 == ($1 < 1024 ? $1 : 1024) { print }' | tee -a "$work/iozone.$2" > /dev/null
}
load_of() {
  local before after
  before=$(mds_time)
  four_ranks "$1"
  "$WEFT" drain "$two_a" > /dev/null 2>&1
  after=$(mds_time)
  echo "$1: $(((after - before) / 40000)) us of the MDS for each file ($(((after - before) / 1000)) ms in all)"
}

two_up >"$work/start.log" 2>&1 || { cat "$work/start.log"; exit 1; }
chmod 666 /dev/fuse
mkdir -p "$images" "$two_a/shared"
chmod 1777 "$images"
install -m 644 tests/rankfs_rates.py "$rates"
echo "weft $(git -C "$top" rev-parse --short HEAD), Linux $(uname -r), $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg)"
if [ -n "${IOZONE:-}" ]; then
  mkdir -p "$work/m"
  rankfs create "$images/iozone.rankfs" --size 2G
  for _ in 1 2 3; do
    with_iozone "$two_a/shared" shared
    rankfs mount "$images/iozone.rankfs" "$work/m"
    with_iozone "$work/m" image
    rankfs umount "$work/m"
  done
  echo "iozone -a -e -n 4k -g 512m -i 0 -i 1, MiB/s, medians of three: KiB; shared: write, rewrite, read, reread; image: the same"
  python3 - "$work" <<'P'
import collections, statistics, sys
table = collections.defaultdict(lambda: {"shared": [], "image": []})
for place in ("shared", "image"):
    for line in open(f"{sys.argv[1]}/iozone.{place}"):
        size, _, *rates = map(int, line.split())
        table[size][place].append(rates)
for size, rows in sorted(table.items()):
    cells = [f"{statistics.median(c) / 1024:8.0f}" for place in rows.values() for c in zip(*place)]
    print(f"{size:8}", *cells)
P
  exit
fi
if [ -n "${TWO_FS:-}" ]; then
  second_up > "$work/start.log" 2>&1 || { cat "$work/start.log"; exit 1; }
  mkdir "$second/shared"
  echo "files a second that so many ranks make in all, 5,000 empty ones each: in one file system; in two, half of the ranks in each; in images"
  for ranks in 1 2 4 8; do
    echo "$ranks ranks: $(made_by "$ranks" in_shared) $(made_by "$ranks" in_two_shared) $(made_by "$ranks" in_image)"
  done
  exit
fi
echo "one process, medians of three: files a second in one directory of an image: made, looked at, removed"
for count in 100 1000 10000; do
  # shellcheck disable=SC2086 # The words of a command.
  {
    printf 'kernel, %5d empty files  ' "$count"
    three rankfs $inside python3 "$rates" names "$count"
    printf 'user,   %5d empty files  ' "$count"
    three as_user "$WEFT" rankfs $inside python3 "$rates" names "$count"
  }
done
if [ -n "$mdtest" ]; then
  for count in 100 10000; do
    echo "mdtest -F -C -T -r -n $count in an image, one rank"
    # shellcheck disable=SC2086
    rankfs $inside sh -c "$mdtest -F -C -T -r -n $count -d \$RANKDIR/m" | awk '$1 == "File" { print "  " $2, $3 }'
  done
fi
echo "MiB/s by size of a file, through the caches, medians of three: shared: write, read; image: write, read"
mkdir -p "$work/m"
rankfs create "$images/sizes.rankfs" --size 2G
rankfs mount "$images/sizes.rankfs" "$work/m"
python3 tests/rankfs_rates.py sizes "$two_a/shared" "$work/m"
rankfs umount "$work/m"
rm "$images/sizes.rankfs"
echo "files a second that so many ranks make in all, 5,000 empty ones each: in directories of their own of the shared file system; in images"
for ranks in 1 2 4 8; do
  echo "$ranks ranks: $(made_by "$ranks" in_shared) $(made_by "$ranks" in_image)"
done
echo "4 ranks that make, look at and remove 10,000 files of 100 bytes each"
for _ in 1 2 3; do
  load_of in_shared
  load_of in_image
done
