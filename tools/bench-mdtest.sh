#!/usr/bin/env bash
# The real mdtest with 4 ranks on a `weft up` mount, on a mount over tcp with servers in processes of their own, and on a plain directory of
# the same disk, in turns: empty files in own directories, and files of 3,901 bytes in one directory. Prints medians [least-greatest] and
# the ratio to the plain directory.
# Usage: tools/bench-mdtest.sh MDTEST [ROUNDS [FILES]]; needs root, mpirun, and mdtest, built from its source (hpc/ior).
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

mdtest=${1:?the program mdtest}
rounds=${2:-5}
files=${3:-5000}
fsname=wm$((RANDOM % 9000 + 1000))
leave() {
  "$WEFT" down "$work/up" >/dev/null 2>&1
  two_down
  rm -rf --one-file-system "$work" "/etc/weft/$fsname".*.key
}
trap leave EXIT

# run LABEL LOAD DIR OPTION...: a line for each phase, "LOAD PHASE LABEL RATE".
run() {
  local label=$1 load=$2 dir=$3
  shift 3
  mkdir -p "$dir"
  mpirun -np 4 "$mdtest" -F -C -T -E -r -n "$files" -d "$dir" "$@" 2>&1 |
    awk -v load="$load" -v label="$label" '$1 == "File" && $2 ~ /creation|stat|read|removal/ { print load, $2, label, $3 }'
}

{
  mkdir -p "$work/up" "$work/plain"
  "$WEFT" up "$work/up" --data "$work/data" --fsname "$fsname"
  two_up
} >"$work/start.log" 2>&1 || { cat "$work/start.log"; exit 1; }
echo "weft $(git -C "$top" rev-parse --short HEAD), Linux $(uname -r), $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "mdtest -F -C -T -E -r -n $files, 4 ranks, $rounds rounds"
for _ in $(seq "$rounds"); do
  for place in "up $work/up" "tcp $two_a" "plain $work/plain"; do
    run "${place%% *}" empty "${place#* }/m" -u
    run "${place%% *}" 3901 "${place#* }/m" -w 3901 -e 3901
  done
done > "$work/rates"
python3 - "$work/rates" <<'PY'
import statistics
import sys

rates = {}
for line in open(sys.argv[1]):
    load, phase, label, rate = line.split()
    rates.setdefault((load, phase), {}).setdefault(label, []).append(float(rate))
for (load, phase), by_label in rates.items():
    plain = statistics.median(by_label["plain"])
    for label, all_of in by_label.items():
        middle = statistics.median(all_of)
        print(f"{load:6} {phase:9} {label:6} {middle:>10.0f} /s [{min(all_of):.0f}-{max(all_of):.0f}]  ratio {middle / plain:.2f}")
PY
