#!/usr/bin/env bash
# Where the time of a server goes, and what the kernel's memory does meanwhile (docs/operations.md#profile). Usage: tools/profile-server.sh PID
# [SECONDS]: looks at the process PID for so many seconds, 10 if not said. Needs root, and perf of the running kernel.
set -u

pid=${1:?the process of a server}
seconds=${2:-10}
[ -r "/proc/$pid/stat" ] || { echo "profile-server.sh: there is no process $pid" >&2; exit 1; }
command -v perf > /dev/null || { echo "profile-server.sh: there is no perf: install linux-perf" >&2; exit 1; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

group=/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$pid/cgroup")
# look FILE: what the kernel counts now, a name and a number in each line.
look() {
  {
    sed 's/^/vmstat /' /proc/vmstat
    [ -r "$group/memory.stat" ] && sed 's/^/group /' "$group/memory.stat"
    awk '/^(MemFree|Cached|Dirty|Slab):/ { sub(":", ""); print "memory", $1, $2 * 1024 }' /proc/meminfo
    sed 's/.*) //' "/proc/$pid/stat" | awk '{ print "ticks user", $12; print "ticks system", $13 }'
    for kswapd in $(pgrep -x 'kswapd[0-9]*'); do
      sed 's/.*) //' "/proc/$kswapd/stat" | awk -v of="$kswapd" '{ print "ticks kswapd" of, $12 + $13 }'
    done
  } > "$1"
}

look "$work/before"
perf record -q -g -F 499 -o "$work/samples" -p "$pid" -- sleep "$seconds" > "$work/perf.log" 2>&1 || { cat "$work/perf.log" >&2; exit 1; }
look "$work/after"

echo "== process $pid, $seconds s: seconds of a processor"
awk -v hz="$(getconf CLK_TCK)" 'NR == FNR { before[$1 " " $2] = $3; next } $1 == "ticks" { printf "%-16s %8.2f\n", $2, ($3 - before[$1 " " $2]) / hz }' "$work/before" "$work/after"
echo "== memory: what changed"
awk 'NR == FNR { before[$1 " " $2] = $3; next }
  $1 == "memory" || ($1 == "vmstat" && $2 ~ /^(allocstall|pgscan_|pgsteal_|pgmajfault|compact_stall|nr_dirtied|nr_written)/) ||
  ($1 == "group" && $2 ~ /^(anon|file|slab|sock|pgscan|pgsteal|pgmajfault|workingset_refault_file)$/) {
    change = $3 - before[$1 " " $2]
    if (change != 0) printf "%-8s %-32s %+d\n", $1, $2, change
  }' "$work/before" "$work/after"
plain() { sed -E 's/( +-)* *$//'; }
report() { perf report -i "$work/samples" --stdio --no-children -g none "$@" 2> /dev/null | plain | grep -v '^#' | grep .; }
echo "== threads"
report --sort comm | head -n 12
echo "== functions, with all that they call: allocation and reclaim, copies, disk, network"
perf report -i "$work/samples" --stdio --children -g none --sort symbol 2> /dev/null | plain |
  grep -E '\] (__alloc_(pages|frozen_pages)[a-z_]*|try_to_free_[a-z_]*|shrink_[a-z_]*|_copy_(to|from)_iter|[a-z0-9_]*_(write|read)_iter|[_a-z]*iomap_dio_rw|tcp_(send|recv)msg|io_submit_sqes|[_a-z]*memmove[a-z0-9_]*|.*crc32[a-z0-9_:]*|state_mac_update|.*fsync.*)$' |
  head -n 20
echo "== functions by themselves"
report --sort symbol | head -n 25
