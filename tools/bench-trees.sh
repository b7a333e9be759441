#!/usr/bin/env bash
# Trees as developers have them, on a `weft up` mount, on a mount over tcp with servers in processes of their own, and on a plain directory of
# the same disk, in turns: an archive is unpacked, found through, and removed; a git repository is cloned, and its status asked for, also after the
# kernel's caches were dropped; with CARGO=1 the crate weft-proto is built there. Prints medians [least-greatest] and the ratio to the plain directory.
# Usage: tools/bench-trees.sh ARCHIVE [ROUNDS]; ARCHIVE is a tar file. WEFT_FUSE_ENGINE chooses the engine (auto). Needs root, git, and bin/weft.
export WEFT_FUSE_ENGINE=${WEFT_FUSE_ENGINE:-auto}
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

archive=$(readlink -f "${1:?a tar file}")
rounds=${2:-5}
fsname=wt$((RANDOM % 9000 + 1000))
leave() {
  "$WEFT" down "$work/up" >/dev/null 2>&1
  two_down
  rm -rf --one-file-system "$work" "/etc/weft/$fsname".*.key
}
trap leave EXIT
export GIT_CONFIG_GLOBAL=$work/gitconfig
git config --global safe.directory '*'

# timed LABEL STEP COMMAND...: a line "STEP LABEL SECONDS".
timed() {
  local label=$1 step=$2 start
  shift 2
  start=$(date +%s.%N)
  "$@" > "$work/said" 2>&1 || { echo "$step on $label fails:" >&2; cat "$work/said" >&2; exit 1; }
  echo "$step $label $(echo "$(date +%s.%N) - $start" | bc)"
}
trees() {
  local label=$1 dir=$2
  mkdir -p "$dir/t"
  timed "$label" unpack tar xf "$archive" -C "$dir/t"
  timed "$label" find find "$dir/t"
  timed "$label" find-size find "$dir/t" -size +100k
  timed "$label" remove rm -rf "$dir/t"
  timed "$label" clone git clone -q --no-hardlinks "$top" "$dir/repo"
  timed "$label" status git -C "$dir/repo" status
  sync -f "$dir"
  echo 3 > /proc/sys/vm/drop_caches
  timed "$label" status-cold git -C "$dir/repo" status
  if [ -n "${CARGO:-}" ]; then
    timed "$label" cargo env CARGO_TARGET_DIR="$dir/target" cargo build --offline --quiet --manifest-path "$dir/repo/Cargo.toml" -p weft-proto
  fi
  rm -rf "$dir/repo" "$dir/target"
}

{
  mkdir -p "$work/up" "$work/plain"
  "$WEFT" up "$work/up" --data "$work/data" --fsname "$fsname"
  two_up
} >"$work/start.log" 2>&1 || { cat "$work/start.log"; exit 1; }
echo "weft $(git -C "$top" rev-parse --short HEAD), Linux $(uname -r), $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "FUSE over io_uring is permitted: $(cat /sys/module/fuse/parameters/enable_uring); engine: $WEFT_FUSE_ENGINE"
echo "$(tar tf "$archive" | wc -l) entries, $(($(stat -c %s "$archive") >> 20)) MiB; $(git ls-files | wc -l) files in the repository; $rounds rounds"
for _ in $(seq "$rounds"); do
  trees up "$work/up"
  trees tcp "$two_a"
  trees plain "$work/plain"
done > "$work/times"
python3 - "$work/times" <<'PY'
import statistics
import sys

times = {}
for line in open(sys.argv[1]):
    step, label, seconds = line.split()
    times.setdefault(step, {}).setdefault(label, []).append(float(seconds))
for step, by_label in times.items():
    plain = statistics.median(by_label["plain"])
    for label, all_of in by_label.items():
        middle = statistics.median(all_of)
        print(f"{step:12} {label:6} {middle:8.3f} s [{min(all_of):.3f}-{max(all_of):.3f}]  ratio {middle / plain:.2f}")
PY
