#!/usr/bin/env bash
# `lfs find` in the MDT beside find(1) over the mount, in turns, with the predicates of IO500, on a `weft up` mount and over tcp with servers in
# processes of their own: files of many directories without data, and one directory with three eighths of all, of 3,901 bytes. Meanwhile another
# process makes and removes files elsewhere in the tree. Prints medians [least-greatest] and the ratio. Both have to find the same names.
# Usage: tools/bench-find.sh [FILES [ROUNDS]]; 200000 and 3. WHERE="up tcp" chooses the mounts, WEFT_FUSE_ENGINE the engine (auto). Needs root and bin/weft.
export WEFT_FUSE_ENGINE=${WEFT_FUSE_ENGINE:-auto}
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

files=${1:-200000}
rounds=${2:-3}
fsname=wf$((RANDOM % 9000 + 1000))
churn=
leave() {
  [ -z "$churn" ] || kill "$churn" 2>/dev/null
  "$WEFT" down "$work/up" >/dev/null 2>&1
  two_down
  rm -rf --one-file-system "$work" "/etc/weft/$fsname".*.key
}
trap leave EXIT

# make DIR: four processes make the files; a stamp lies between the first half and the second one.
make() {
  python3 - "$1" "$files" <<'PY'
import os, sys
top, files = sys.argv[1], int(sys.argv[2])
hard = files * 3 // 8
easy = files - hard
each = 1000
os.makedirs(f"{top}/hard")
os.makedirs(f"{top}/churn")

def share(rank, part):
    for d in range(rank, (easy + each - 1) // each, 4):
        if (d // 4) % 2 != part:
            continue
        os.makedirs(f"{top}/easy/{d}", exist_ok=True)
        for n in range(d * each, min(easy, (d + 1) * each)):
            os.mknod(f"{top}/easy/{d}/file.mdtest.{rank}.{n}")
    for n in range(rank + 4 * part, hard, 8):
        fd = os.open(f"{top}/hard/file.mdtest.{rank}.{n}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, bytes(3901))
        os.close(fd)

for part in (0, 1):
    ranks = []
    for rank in range(4):
        ranks.append(os.fork())
        if ranks[-1] == 0:
            share(rank, part)
            os._exit(0)
    if any(os.waitpid(pid, 0)[1] for pid in ranks):
        sys.exit("the files could not be made")
    if part == 0:
        open(f"{top}/stamp", "w").close()
PY
}
# Makes and removes files until it is killed.
stir() {
  exec python3 - "$1/churn" <<'PY'
import os, sys, time
top = sys.argv[1]
n = 0
while True:
    os.mknod(f"{top}/{n}")
    if n >= 1000:
        os.remove(f"{top}/{n - 1000}")
    n += 1
    time.sleep(0.002)
PY
}
# timed LABEL TOOL COMMAND...: a line "LABEL TOOL SECONDS"; what it prints goes to $work/TOOL.
timed() {
  local label=$1 tool=$2 start
  shift 2
  start=$(date +%s.%N)
  "$@" > "$work/$tool" || { echo "$tool on $label fails" >&2; exit 1; }
  echo "$label $tool $(echo "$(date +%s.%N) - $start" | bc)"
}
LFS=$(dirname "$WEFT")/lfs
# both LABEL DIR PREDICATES...
both() {
  local label=$1 dir=$2
  shift 2
  timed "$label" lfs "$LFS" find "$dir" -newer "$dir/stamp" "$@"
  timed "$label" find find "$dir" -ignore_readdir_race -newer "$dir/stamp" "$@"
  cmp <(grep -v /churn/ "$work/lfs" | sort) <(grep -v /churn/ "$work/find" | sort) >&2 || { echo "they find other names on $label" >&2; exit 1; }
  echo "$label found $(grep -vc /churn/ "$work/lfs")"
}
measure() {
  local where=$1 dir=$2
  make "$dir" || exit 1
  stir "$dir" &
  churn=$!
  for _ in $(seq "$rounds"); do
    both "$where:name-and-size" "$dir" -size 3901c -name '*01*'
    both "$where:size" "$dir" -size 3901c
  done
  kill "$churn"
  wait "$churn"
  churn=
}

echo "weft $(git -C "$top" rev-parse --short HEAD), Linux $(uname -r), $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "FUSE over io_uring is permitted: $(cat /sys/module/fuse/parameters/enable_uring); engine: $WEFT_FUSE_ENGINE"
echo "$files files, $rounds rounds"
for where in ${WHERE:-up tcp}; do
  if [ "$where" = up ]; then
    mkdir -p "$work/up"
    "$WEFT" up "$work/up" --data "$work/data" --fsname "$fsname" > "$work/start.log" 2>&1 || { cat "$work/start.log" >&2; exit 1; }
    measure up "$work/up"
    "$WEFT" down "$work/up" > /dev/null
  else
    two_up > "$work/start.log" 2>&1 || { cat "$work/start.log" >&2; exit 1; }
    measure tcp "$two_a"
  fi
done > "$work/times"
python3 - "$work/times" <<'PY'
import statistics
import sys

times, found = {}, {}
for line in open(sys.argv[1]):
    label, tool, value = line.split()
    if tool == "found":
        found[label] = int(value)
    else:
        times.setdefault(label, {}).setdefault(tool, []).append(float(value))
for label, by_tool in times.items():
    middle = {tool: statistics.median(values) for tool, values in by_tool.items()}
    spread = {tool: f"[{min(values):.3f}-{max(values):.3f}]" for tool, values in by_tool.items()}
    print(f"{label:20} {found[label]:8} found  lfs find {middle['lfs']:7.3f} s {spread['lfs']}  find {middle['find']:7.3f} s {spread['find']}  {middle['find'] / middle['lfs']:5.1f} times")
PY
