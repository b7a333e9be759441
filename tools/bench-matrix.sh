#!/usr/bin/env bash
# Access modes and layouts (IOR, 4 ranks, a mount over tcp, 4 OSTs): MiB/s written with fsync and read cold for
#   own     a file for each rank, 1 MiB at a time
#   shared  one file, 1 MiB at a time
#   47008   one file, records of 47,008 bytes of the ranks in turns
# each with one stripe, with one on every OST (-c -1), and with four on every OST (-C 16). Each rank reads what another one wrote. Then the
# phases of the ranks (tools/phase-report.py). Usage: tools/bench-matrix.sh IOR [ROUNDS [MIB]]; MIB for each rank, 64 if not said. Needs root,
# mpirun (mpich) and ior, built from its source (hpc/ior).
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"
. "$(dirname "$0")/lib-ior.sh"

ior=${1:?the program ior}
rounds=${2:-3}
mib=${3:-64}
leave() {
  two_down
  rm -rf --one-file-system "$work" "/etc/weft/$two_fsname".*.key
}
trap leave EXIT

# of MODE: IOR's options.
of() {
  case $1 in
    own) echo "-F -t 1m -b ${mib}m" ;;
    shared) echo "-t 1m -b ${mib}m" ;;
    47008) echo "-t 47008 -b 47008 -s $((mib * 1048576 / 47008))" ;;
  esac
}

# both MODE LAYOUT OPTION...: lines with the rates.
both() {
  local mode=$1 layout=$2 dir=$two_a/$1 step options
  shift 2
  mkdir "$dir" && "$LFS" setstripe "$@" "$dir" || exit 1
  read -ra options <<< "$(of "$mode")"
  for step in write read; do
    [ "$step" = write ] || options+=(-C)
    cold
    echo "$mode $layout $step $(io 4 "$step" "$dir/f" "${options[@]}" -O "saveRankPerformanceDetailsCSV=$work/ranks")"
    cat "$work/ranks" >> "$work/$mode.csv"
  done
  rm -r "$dir"
}

two_up >"$work/start.log" 2>&1 || { cat "$work/start.log"; exit 1; }
echo "weft $(git -C "$top" rev-parse --short HEAD), Linux $(uname -r), $(nproc) cores, FUSE engine $WEFT_FUSE_ENGINE, load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "$rounds rounds, $mib MiB for each of 4 ranks: median [least-greatest] MiB/s"
for _ in $(seq "$rounds"); do
  for mode in own shared 47008; do
    both $mode c1 -c 1
    both $mode c-1 -c -1
    both $mode C16 -C 16
  done
done > "$work/figures"
python3 - "$work/figures" <<'PY'
import statistics
import sys

rates = {}
for line in open(sys.argv[1]):
    mode, layout, step, *rate = line.split()
    if not rate:
        sys.exit(f"{mode} {layout} {step}: no rate")
    rates.setdefault((step, mode), {}).setdefault(layout, []).append(float(rate[0]))
for (step, mode), by_layout in sorted(rates.items(), reverse=True):
    cells = [f"{layout:>3} {statistics.median(of):>5.0f} [{min(of):.0f}-{max(of):.0f}]" for layout, of in by_layout.items()]
    print(f"{step:5} {mode:6} " + "   ".join(cells))
best = lambda step, mode: {layout: statistics.median(of) for layout, of in rates[step, mode].items()}
for step in ("write", "read"):
    strided, shared = best(step, "47008"), best(step, "shared")
    print(f"{step}: 47,008 bytes of 1 MiB: " + ", ".join(f"{layout} {strided[layout] / shared[layout]:.2f}" for layout in strided))
PY
for mode in own shared 47008; do
  grep -v '^access' "$work/$mode.csv" | sed '1i access,rank,runtime-with-openclose,runtime,a,b' > "$work/$mode.ranks"
  echo "== $mode"
  python3 "$top/tools/phase-report.py" "$work/$mode.ranks"
done
