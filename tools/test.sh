#!/usr/bin/env bash
# Everything that has to pass, stage by stage; a failed stage does not keep the next from running. The last line is
# `N passed, N failed`, counted in stages. Usage: tools/test.sh [STAGE...]
# LONG=1 runs whole what is else cut to fit CI, and what mounts on both FUSE engines where the kernel has both.
set -u
cd "$(dirname "$0")/.." || exit 2
. tools/watched.sh

passed=0
failed=0
broken=
# What the stage that runs has printed, what is told again at the end, what was skipped, and what stages aside have printed.
said=$(mktemp) || exit 2
told=$(mktemp) || exit 2
skips=$(mktemp) || exit 2
asides=$(mktemp -d) || exit 2
declare -A aside_pids=()
wanted=" $* "
# How long a stage may take, in seconds: one that hangs fails, and the others have their turn.
stage_seconds=${STAGE_SECONDS:-$([ -n "${LONG:-}" ] && echo 43200 || echo 1800)}
# Lines of a failed case that are told again.
TOLD_LINES=30
# Where root permits FUSE over io_uring.
uring_switch=/sys/module/fuse/parameters/enable_uring
uring_before=$(cat "$uring_switch" 2>/dev/null)

root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

leave() {
  local pid
  for pid in "${aside_pids[@]}"; do kill -- "-$pid" 2>/dev/null; done
  rm -rf "$said" "$told" "$skips" "$asides"
  [ "$uring_before" = "$(cat "$uring_switch" 2>/dev/null)" ] || echo "$uring_before" | root tee "$uring_switch" >/dev/null
}
trap leave EXIT

chosen() { [ "$wanted" = "  " ] || [[ $wanted == *" $1 "* ]]; }

# judge NAME SECONDS STATUS: counts a stage whose output is in $said, and says how it went.
judge() {
  # What cases say of themselves, and where each was left out.
  grep -E '^skip +[^ ]' "$said" | cut -c 1-200 | sed "s/^skip */$1: /" >> "$skips"
  if [ "$3" = 0 ]; then
    passed=$((passed + 1))
    printf '== %s: passed, %d s\n' "$1" "$2"
    return
  fi
  failed=$((failed + 1))
  broken="$broken $1"
  printf '== %s: FAILED, %d s\n' "$1" "$2"
  # Behind the logs of servers nobody finds them.
  printf '\n== %s\n' "$1" >> "$told"
  grep -A "$TOLD_LINES" -E '^(fail|FAIL) | FAIL: | hangs|^error(\[|:)|^thread .* panicked|^test .* FAILED|^seed .* failed' "$said" \
    | grep -v ' INFO ' | cut -c 1-300 | head -n 120 >> "$told"
}

# stage NAME COMMAND...: runs it and says how it went and how long it took.
stage() {
  local name=$1 start=$SECONDS
  shift
  chosen "$name" || return 0
  printf '\n== %s\n' "$name"
  watched "$stage_seconds" "$@" 2>&1 | tee "$said"
  judge "$name" $((SECONDS - start)) "${PIPESTATUS[0]}"
}

# begin_aside NAME COMMAND...: runs it beside the stages that follow; `end_aside NAME` tells what it said.
begin_aside() {
  local name=$1
  shift
  chosen "$name" || return 0
  # A process group of its own, so that all of it can be ended.
  setsid --wait bash -c 'watched "$stage_seconds" "$@"; status=$?; echo "$SECONDS" > "$0.took"; exit $status' "$asides/$name" "$@" > "$asides/$name" 2>&1 &
  aside_pids[$name]=$!
  printf '\n== %s: runs beside what follows\n' "$name"
}

end_aside() {
  local status=0
  [ -n "${aside_pids[$1]:-}" ] || return 0
  wait "${aside_pids[$1]}" || status=$?
  unset "aside_pids[$1]"
  printf '\n== %s\n' "$1"
  cat "$asides/$1"
  cp "$asides/$1" "$said"
  judge "$1" "$(cat "$asides/$1.took" 2>/dev/null || echo 0)" "$status"
}

skip() {
  chosen "$1" || return 0
  printf '\n== %s: skipped: %s\n' "$1" "$2"
  printf '%s: %s\n' "$1" "$2" >> "$skips"
}

# rule NAME: a stage that is the rule of that name in the Makefile.
rule() { stage "$1" make --no-print-directory "$1"; }

# on_engines COMMAND...: runs it, at night once on each engine that there is.
on_engines() {
  local engine engines=dev status=0
  if [ -z "${LONG:-}" ]; then
    "$@"
    return
  fi
  [ -n "$uring_before" ] && echo Y | root tee "$uring_switch" >/dev/null && engines="dev uring"
  for engine in $engines; do
    echo "-- on the engine $engine"
    WEFT_FUSE_ENGINE=$engine "$@" || status=1
  done
  return $status
}

as_root() {
  sudo -n env PATH="$PATH" HOME="$HOME" LONG="${LONG:-}" LOCK_OPS="${LOCK_OPS:-}" SCRATCH="${SCRATCH:-}" XFSTESTS="${XFSTESTS:-}" LTP="${LTP:-}" \
    WEFT_FUSE_ENGINE="${WEFT_FUSE_ENGINE:-dev}" "$@"
}

# mounting NAME [HOW]: a stage that has to be root, has to have FUSE, and whose script is tools/NAME.sh. HOW: stage (which runs it now)
# or begin_aside.
mounting() {
  local name=$1 how=${2:-stage}
  if [ ! -x "tools/$name.sh" ]; then
    skip "$name" "there is no tools/$name.sh"
  elif [ ! -e /dev/fuse ]; then
    skip "$name" "there is no /dev/fuse"
  elif [ "$(id -u)" = 0 ]; then
    "$how" "$name" on_engines make --no-print-directory "$name"
  elif sudo -n true 2>/dev/null && make --no-print-directory build; then
    "$how" "$name" on_engines as_root "tools/$name.sh"
  else
    skip "$name" "needs root"
  fi
}

# Stages aside run in a shell of their own.
export -f root on_engines as_root
export uring_before uring_switch stage_seconds

stage deps tools/deps.sh test suites
rule fmt
rule clippy
rule tidy
rule test-unit
[ -n "${LONG:-}" ] && rule test-debug
rule test-doc
if rustup target list --installed 2>/dev/null | grep -q wasm32-unknown-unknown; then
  rule test-wasm
else
  skip test-wasm "the target wasm32-unknown-unknown is not installed (rustup target add wasm32-unknown-unknown)"
fi
# They measure times, and have the machine for themselves.
mounting test-storm
mounting test-operators
mounting test-osts
[ -n "${LONG:-}" ] && mounting test-deb
mounting test-jobs
mounting test-burst
# The longest one needs no mount and no time of the clock: it runs beside those that wait for disks and leases. At night, where it
# uses every processor there is for hours, it has them alone.
if [ ! -x tools/test-sim.sh ]; then
  skip test-sim "there is no tools/test-sim.sh"
elif [ -n "${LONG:-}" ]; then
  rule test-sim
else
  begin_aside test-sim make --no-print-directory test-sim
fi
mounting test-mount
mounting test-netns
mounting test-coherence
mounting test-suites
mounting test-unmounts
mounting test-full
# Both wait for leases and servers most of the time.
if [ -n "${LONG:-}" ]; then
  mounting test-failover
else
  mounting test-failover begin_aside
fi
mounting test-faults
end_aside test-failover
if [ -n "${LONG:-}" ]; then
  mounting attack
  mounting test-foreign
  mounting test-churn
  mounting test-locks
  mounting test-slurm
fi
rule test-fuzz
end_aside test-sim
rule test-deny

printf '\n'
if [ $((passed + failed)) = 0 ]; then
  broken=" no stage has such a name"
  failed=1
fi
printf '%d skipped\n' "$(wc -l < "$skips")"
sed 's/^/  /' "$skips"
if [ "$failed" != 0 ]; then
  cat "$told"
  printf '\nfailed:%s\n' "$broken"
fi
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
