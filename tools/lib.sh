# Helpers of the tests that need a real mount. Sourced, not run.
# A test script defines functions and calls `check NAME FUNCTION...`; `finish` prints the count and sets the status.

# Tools and suites look at every mount of the machine; here that is to be the test's own ones.
if [ "$(id -u)" = 0 ] && [ -z "${WEFT_ALONE:-}" ]; then
  WEFT_ALONE=1 exec unshare --mount --propagation private "$0" "$@"
fi
if [ -n "${WEFT_ALONE:-}" ]; then
  awk '$3 == "fuse.weft" { print $2 }' /proc/mounts | while read -r mount; do umount -l "$mount"; done
fi

set -u
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$top" || exit 2
. "$top/tools/watched.sh"

WEFT=${WEFT:-$top/bin/weft}
LFS=$(dirname "$WEFT")/lfs
cache=${WEFT_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/weft-tools}
passed=0
failed=0
skipped=0
# Said for all mounts: "weft up" as root would switch FUSE over io_uring on for the whole machine.
export WEFT_FUSE_ENGINE=${WEFT_FUSE_ENGINE:-dev}

# A scratch directory, removed at the end. SCRATCH=/dev/shm has servers on disks that lose nothing by waiting: for long
# runs of what is to be checked for its results, and syncs all the time.
work=$(mktemp -d "${SCRATCH:-/var/tmp}/weft-test.XXXXXX")
chmod 755 "$work"

say() { printf '%s\n' "$*"; }

# How long a case may take, in seconds. One that hangs fails, and those that follow have their turn.
case_seconds=${CASE_SECONDS:-$([ -n "${LONG:-}" ] && echo 14400 || echo 900)}
# Every command of a case counts, and the one that failed is told.
strictly() {
  set -eE
  trap 'echo "failed: $BASH_COMMAND (${BASH_SOURCE[0]##*/}, lines $LINENO ${BASH_LINENO[*]})" >> "$work/failed-at"' ERR
  "$@"
}

# check NAME COMMAND...: runs the command with its output in a log, prints one line and the log's end on failure.
check() {
  local name=$1 log=$work/log start end status
  shift
  rm -f "$work/failed-at"
  start=$(date +%s.%N)
  # Not as a condition: there the shell takes no notice of set -e, and only the last command would count.
  watched "$case_seconds" strictly "$@" >"$log" 2>&1
  status=$?
  if [ "$status" = 0 ]; then
    end=$(date +%s.%N)
    passed=$((passed + 1))
    printf 'ok    %-44s %6.1f s\n' "$name" "$(echo "$end - $start" | bc)"
  else
    failed=$((failed + 1))
    printf 'FAIL  %s\n' "$name"
    tail -n 5 "$work/failed-at" 2>/dev/null | cut -c 1-300 | sed 's/^/      | /'
    tail -n 40 "$log" | sed 's/^/      | /'
  fi
}

skip() {
  skipped=$((skipped + 1))
  printf 'skip  %s: %s\n' "$1" "$2"
}

finish() {
  printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
  [ "$failed" -eq 0 ]
}

# until_true SECONDS COMMAND...
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || { echo "not within the time: $*"; return 1; }
    sleep 0.1
  done
}

# not COMMAND...: has to fail. `! COMMAND` would be no check: set -e takes no notice of it, nor of what stands before `&&`.
not() {
  if "$@"; then
    echo "$*: succeeds"
    return 1
  fi
}

# must_fail STATUS COMMAND...: the command has to end with that status and say one line on stderr.
must_fail() {
  local want=$1 got=0
  shift
  "$@" >"$work/out" 2>"$work/err" || got=$?
  if [ "$got" != "$want" ]; then
    echo "$*: status $got, not $want"; cat "$work/out" "$work/err"; return 1
  fi
  if [ ! -s "$work/err" ]; then
    echo "$*: says nothing on stderr"; return 1
  fi
  if grep -q 'panicked' "$work/err"; then
    echo "$*: panics"; cat "$work/err"; return 1
  fi
}

# daemon_pid MOUNTPOINT: the process that serves the mount.
daemon_pid() {
  "$WEFT" status --json "$1" | python3 -c 'import json,sys; print(json.load(sys.stdin)[0]["status"]["pid"])'
}

# tool NAME: builds a test suite from the registry into the cache, once.
tool() {
  [ -x "$cache/bin/$1" ] || cargo install --locked --quiet --root "$cache" "$1"
}
