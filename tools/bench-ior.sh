#!/usr/bin/env bash
# The real IOR with 4 ranks, and fio, on a `weft up` mount, on a mount over tcp with servers in processes of their own, and on a plain directory
# of the same disk, in turns: MiB/s written with fsync and read cold, 4 KiB operations a second, and the processor's time of weft's processes for
# each GiB. Prints medians [least-greatest] and the ratio to the plain directory.
#   own     a file for each rank, 1 MiB at a time
#   shared  one file, records of 47,008 bytes of the ranks in turns; each rank reads what another one wrote
#   stream  one rank, one file, 1 MiB at a time
#   4k      one file: random reads cold, one at a time (psync, through the page cache) and 32 at a time (libaio, O_DIRECT); random writes with an
#           fsync each (psync)
# Usage: tools/bench-ior.sh IOR [ROUNDS [MIB]]; MIB for each rank, 256 if not said. Needs root, mpirun (mpich), fio, and ior, built
# from its source (hpc/ior). KEEP=FILE: every figure is kept there.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"
. "$(dirname "$0")/lib-ior.sh"

ior=${1:?the program ior}
rounds=${2:-3}
mib=${3:-256}
fsname=wi$((RANDOM % 9000 + 1000))
ior_fsnames=("$fsname" "$two_fsname")
leave() {
  "$WEFT" down "$work/up" >/dev/null 2>&1
  two_down
  rm -rf --one-file-system "$work" "/etc/weft/$fsname".*.key
}
trap leave EXIT

# ticks PID...: the processor's time of these processes so far.
ticks() {
  local pid
  for pid in "$@"; do cat "/proc/$pid/stat"; done | sed 's/.*) //' | awk '{ sum += $12 + $13 } END { print sum + 0 }'
}
# What the disk read is printed: it has to be what the program read, and some 50 MiB of mpirun.
disk=/sys/dev/block/$(stat -c '%Hd:%Ld' "$work")/stat
disk_mib() { awk '{ printf "%d", $3 / 2048 }' "$disk"; }

# of LABEL: sets `who`, the parts of weft that work for it, and `pids`, the processes of each.
of() {
  who=() pids=()
  case $1 in
    up) who=(all) pids=("$up_pid") ;;
    tcp) who=(client servers) pids=("$client_pid" "$(tr '\n' ' ' < "$work/two.pids")") ;;
  esac
}

# run LOAD STEP LABEL COMMAND...: a line of what COMMAND says its rate was, and lines of what that took.
run() {
  local load=$1 step=$2 label=$3 rate part before=() read
  shift 3
  of "$label"
  # shellcheck disable=SC2086
  for part in "${!who[@]}"; do before[part]=$(ticks ${pids[part]}); done
  read=$(disk_mib)
  rate=$("$@" 2>"$work/run.log")
  # shellcheck disable=SC2086
  for part in "${!who[@]}"; do echo "ticks $load $step $label ${who[part]} $(($(ticks ${pids[part]}) - before[part]))"; done
  echo "disk $load $step $label $(($(disk_mib) - read))"
  if [ -n "$rate" ]; then
    echo "rate $load $step $label $rate"
  else
    { echo "$load $step $label: no rate"; tail -n 5 "$work/run.log"; } >&2
  fi
}

# random read|write FILE OPTION...: operations of 4 KiB a second.
random() {
  local step=$1 file=$2
  shift 2
  timeout 180 fio --name=4k --filename="$file" --rw="rand$step" --bs=4k --size="$((mib * 2))m" --runtime=6 --output="$work/fio" --output-format=json "$@" >&2
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["jobs"][0][sys.argv[2]]["iops"])' "$work/fio" "$step"
}

# both LOAD LABEL RANKS DIR OPTION...: writes and reads.
both() {
  local load=$1 label=$2 ranks=$3 file=$4/$1
  shift 4
  cold
  run "$load" write "$label" io "$ranks" write "$file" "$@"
  cold
  # shellcheck disable=SC2046
  run "$load" read "$label" io "$ranks" read "$file" "$@" $([ "$load" = shared ] && echo -C)
  rm -f "$file"*
}

small() {
  local label=$1 file=$2/4k
  timeout 180 fio --name=4k --filename="$file" --rw=write --bs=1m --size="$((mib * 2))m" --end_fsync=1 >"$work/run.log" 2>&1
  cold
  run 4k read "$label" random read "$file" --ioengine=psync
  cold
  run 4k read32 "$label" random read "$file" --ioengine=libaio --direct=1 --iodepth=32
  cold
  run 4k fsync "$label" random write "$file" --ioengine=psync --fsync=1
  rm -f "$file"
}

{
  mkdir -p "$work/up" "$work/plain"
  "$WEFT" up "$work/up" --data "$work/data" --fsname "$fsname"
  two_up
} >"$work/start.log" 2>&1 || { cat "$work/start.log"; exit 1; }
up_pid=$(daemon_pid "$work/up")
client_pid=$(in_two "$WEFT" status --json "$two_a" | python3 -c 'import json,sys; print(json.load(sys.stdin)[0]["status"]["pid"])')
places=("up $work/up" "tcp $two_a" "plain $work/plain")
echo "weft $(git -C "$top" rev-parse --short HEAD), Linux $(uname -r), $(nproc) cores, FUSE engine $WEFT_FUSE_ENGINE, load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "$rounds rounds; own, shared, stream: $((mib * 4)) MiB; 4k: a file of $((mib * 2)) MiB, 6 s"
for _ in $(seq "$rounds"); do
  # The places take turns in each load, not in each round: they are minutes apart otherwise.
  for place in "${places[@]}"; do both own "${place%% *}" 4 "${place#* }" -F -t 1m -b "${mib}m"; done
  for place in "${places[@]}"; do both shared "${place%% *}" 4 "${place#* }" -t 47008 -b 47008 -s $((mib * 1048576 / 47008)); done
  for place in "${places[@]}"; do both stream "${place%% *}" 1 "${place#* }" -t 1m -b "$((mib * 4))m"; done
  for place in "${places[@]}"; do small "${place%% *}" "${place#* }"; done
done > "$work/figures"
echo "load at the end $(cut -d' ' -f1-3 /proc/loadavg)"
[ -z "${KEEP:-}" ] || cp "$work/figures" "$KEEP"
python3 - "$work/figures" "$mib" <<'PY'
import os
import statistics
import sys

rates, ticks, disk = {}, {}, {}
for line in open(sys.argv[1]):
    kind, load, step, label, *rest = line.split()
    if kind == "rate":
        rates.setdefault((load, step), {}).setdefault(label, []).append(float(rest[0]))
    elif kind == "ticks":
        ticks.setdefault((load, step), {}).setdefault((label, rest[0]), []).append(int(rest[1]))
    else:
        disk.setdefault((load, step, label), []).append(int(rest[0]))
gib = int(sys.argv[2]) * 4 / 1024
for (load, step), by_label in rates.items():
    plain = statistics.median(by_label["plain"]) if "plain" in by_label else float("nan")
    unit = "/s" if load == "4k" else "MiB/s"
    for label, all_of in by_label.items():
        middle = statistics.median(all_of)
        read = statistics.median(disk[load, step, label])
        print(f"{load:6} {step:6} {label:6} {middle:>8.0f} {unit:5} [{min(all_of):.0f}-{max(all_of):.0f}]  ratio {middle / plain:.2f}  {read:.0f} MiB from the disk")
print("seconds of processor of weft's processes for each GiB:")
for (load, step), by_part in ticks.items():
    if load != "4k":
        for (label, who), all_of in by_part.items():
            seconds = [used / os.sysconf("SC_CLK_TCK") / gib for used in all_of]
            print(f"{load:6} {step:6} {label:6} {who:8} {statistics.median(seconds):.2f} [{min(seconds):.2f}-{max(seconds):.2f}]")
PY
