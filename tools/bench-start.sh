#!/usr/bin/env bash
# A job that starts: many clients without mounts look up, open and read one program at the same time, over tcp (FEATURES.md M6). What the MDS
# was asked for, how much the OSSes read from their disks, and how long it took; with what an OST keeps of hot objects, with its cache for
# reads, and with neither. Usage: tools/bench-start.sh [CLIENTS [MIB]]; needs root and bin/weft.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

most=${1:-200}
mib=${2:-8}
leave() {
  [ -z "${job:-}" ] || kill "$job" 2>/dev/null
  two_down
  rm -rf --one-file-system "$work" "/etc/weft/$two_fsname".*.key
}
trap leave EXIT

cargo build --release -q -p weft-mounting --example clients || exit 1
clients=${CARGO_TARGET_DIR:-$top/target}/release/examples/clients
# Each client has a connection to each server that it uses.
ulimit -n "$(ulimit -Hn)"
two_up >"$work/start.log" 2>&1 || { cat "$work/start.log"; exit 1; }
lctl() { in_two "$(dirname "$WEFT")/lctl" "$@"; }
asked() { lctl get_param -n "mdt.$two_fsname-*.md_stats" | awk '$3 == "samples" { n += $2 } END { print n + 0 }'; }
disk_kib() { sed -n '3,4p' "$work/two.pids" | while read -r pid; do awk '$1 == "read_bytes:" { print $2 }' "/proc/$pid/io"; done | awk '{ n += $1 } END { printf "%d\n", n / 1024 }'; }

# start CLIENTS: prints a row.
start() {
  local before_asked before_disk took
  mkfifo "$work/words"
  in_two "$clients" "127.0.0.1:7001@tcp:/$two_fsname" "/etc/weft/$two_fsname.client.key" start "$1" "$mib" \
    < "$work/words" > "$work/said" 2> "$work/failed" &
  job=$!
  exec 9> "$work/words"
  until_true 120 grep -q ready "$work/said" || { cat "$work/failed"; exit 1; }
  sync
  echo 1 > /proc/sys/vm/drop_caches
  before_asked=$(asked) before_disk=$(disk_kib)
  echo >&9
  until_true 120 grep -q start "$work/said" || { cat "$work/failed"; exit 1; }
  took=$(awk '$1 == "start" { print $4 }' "$work/said")
  printf '%-28s %7d %14s %13s %9s %8s\n' "$how" "$1" "$(echo "scale=2; ($(asked) - $before_asked) / $1" | bc)" \
    "$(echo "scale=2; ($(disk_kib) - $before_disk) / 1024 / $mib" | bc)" "$took" "$(echo "$1 * $mib / $took" | bc)"
  echo >&9
  exec 9>&-
  wait "$job" || { cat "$work/failed"; exit 1; }
  job=""
  rm "$work/words"
}

echo "weft $(git -C "$top" rev-parse --short HEAD), Linux $(uname -r), $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "a program of $mib MiB, over tcp on loopback"
printf '%-28s %7s %14s %13s %9s %8s\n' "" clients "MDS, for each" "disk, of file" seconds MiB/s
for how in "nothing is kept" "hot objects (the default)" "read_cache_enable=1"; do
  case $how in
    nothing*) lctl set_param -n "osd-weft.$two_fsname-OST*.readcache_hot_filesize=0" > /dev/null ;;
    hot*) lctl set_param -n "osd-weft.$two_fsname-OST*.readcache_hot_filesize=32M" > /dev/null ;;
    *) lctl set_param -n "osd-weft.$two_fsname-OST*.read_cache_enable=1" > /dev/null ;;
  esac
  for count in $((most / 4)) $((most / 2)) "$most"; do start "$count"; done
done
