#!/usr/bin/env bash
# Two builds side by side in one run: creates, stats of what another mount made, write and read of 1 MiB at a time, each with the
# processor's time of all processes of weft; first with servers in processes of their own and two mounts over tcp, then with `weft up`.
# Usage: tools/bench-builds.sh OLD NEW [ROUNDS]; OLD and NEW are directories with a `weft` (as bin/), ROUNDS is 5. Needs root.
old=$(cd "$1" && pwd) new=$(cd "$2" && pwd) rounds=${3:-5}
results=${BENCH_RESULTS:-/tmp/bench-builds.$$}
if [ -z "${BENCH_BUILD:-}" ]; then
  : > "$results"
  for round in $(seq "$rounds"); do
    for form in tcp up; do
      order="$old $new"
      [ $((round % 2)) = 1 ] || order="$new $old"
      for build in $order; do
        name=old
        [ "$build" = "$new" ] && name=new
        BENCH_BUILD=$name BENCH_RESULTS=$results TWO=$form WEFT=$build/weft "$0" "$old" "$new" 1 || exit 1
      done
    done
  done
  python3 "$(dirname "$0")/bench-builds.py" --report "$results"
  rm -f "$results"
  exit
fi
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"
leave() {
  two_down
  rm -rf --one-file-system "$work"
}
trap leave EXIT
two_up >/dev/null || { echo "the cluster does not start"; cat "$work"/*.log; exit 1; }
python3 "$top/tools/bench-builds.py" "$BENCH_BUILD" "$TWO" "$(readlink -f "$WEFT")" "$two_a" "$two_b" >> "$BENCH_RESULTS"
