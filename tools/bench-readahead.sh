#!/usr/bin/env bash
# Cold reads of one file of 1 GiB with and without read-ahead, in turns: rates, the processor's time of all processes of weft, and what
# read_ahead_stats says. Usage: tools/bench-readahead.sh [ROUNDS [WAY...]]; 5 rounds, all ways. TWO=tcp or up as in tools/lib-two.sh. Needs root, bin/weft.
#   page1m       1 MiB at a time through the page cache
#   page4        four processes, each every fourth record of 47,008 bytes, through the page cache
#   pagestride   one record of 47,008 bytes in sixteen, through the page cache
#   past1m       1 MiB at a time past the page cache
#   past64k      64 KiB at a time past the page cache
#   paststride   one record of 47,008 bytes in sixteen, past the page cache
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"
rounds=${1:-5}
ways=("${@:2}")
[ ${#ways[@]} -gt 0 ] || ways=(page1m page4 pagestride past1m past64k paststride)
trap 'two_down; rm -rf --one-file-system "$work"' EXIT
lctl() { in_two timeout 60 "$(dirname "$WEFT")/lctl" "$@"; }
two_up > /dev/null || { echo "the cluster does not start"; cat "$work"/*.log; exit 1; }
dd if=/dev/urandom of="$two_a/file" bs=1M count=1024 conv=fsync status=none
"$WEFT" sync "$two_a"
for _ in $(seq "$rounds"); do
  for how in "${ways[@]}"; do
    for mb in 0 128; do
      lctl set_param "llite.*.max_read_ahead_mb=$mb" "llite.*.read_ahead_stats=clear" "ldlm.namespaces.*-osc-*.lru_size=clear" > /dev/null
      sync
      echo 3 > /proc/sys/vm/drop_caches
      printf 'max_read_ahead_mb=%-4s %s' "$mb" "$(in_two python3 "$top/tools/bench-readahead.py" "$how" "$two_b/file" "$(readlink -f "$WEFT")")"
      lctl get_param -n "llite.*.read_ahead_stats" | awk '/^(hits|misses|read_but)/ { printf " %s=%s", $1, $2 } END { print "" }'
    done
  done
done
