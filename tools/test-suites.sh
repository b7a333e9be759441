#!/usr/bin/env bash
# Ring three: suites that nobody here wrote, on a real mount. Usage: tools/test-suites.sh [--plain DIR] [CASE...]
# Needs root, bin/weft and what `tools/deps.sh suites` installs; a case whose tools are not there is skipped.
#
# --plain DIR runs the cases in DIR, a directory of the machine's own file system, to measure what fails there too.
# LONG=1 runs each suite whole (make nightly); without, a subset that fits CI. TWO and WEFT_MOUNT as in lib-two.sh;
# the default is TWO=up. Tests that may fail are listed, with reasons, in tests/suites-known.txt.
export TWO=${TWO:-up}
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

plain=
if [ "${1:-}" = --plain ]; then
  plain=$2/weft-suites.$$
  shift 2
fi
long=${LONG:-}

leave() {
  if [ -n "$plain" ]; then rm -rf "$plain"; else two_down; fi
  rm -rf --one-file-system "$work"
}
trap leave EXIT

# pick SHORT LONG: a number for CI, or for the night.
pick() { if [ -n "$long" ]; then echo "$2"; else echo "$1"; fi; }

# judge SUITE: reads the names of failed tests, and fails for those that are not known to. `--plain` only tells them.
judge() {
  local suite=$1
  sort -u > "$work/failed"
  awk -v suite="$suite" '$1 == suite {print $2}' "$top/tests/suites-known.txt" | sort -u > "$work/known"
  if [ -n "$plain" ]; then
    sed "s/^/fails on the plain directory: /" "$work/failed" | tee -a "$work/notes"
    return 0
  fi
  echo "$(wc -l < "$work/failed") failed, of which known: $(comm -12 "$work/failed" "$work/known" | wc -l)"
  if [ -n "$(comm -23 "$work/failed" "$work/known")" ]; then
    echo "failed, and not in tests/suites-known.txt:"
    comm -23 "$work/failed" "$work/known"
    return 1
  fi
}

t_pjdfstest() {
  tool pjdfstest
  id tests >/dev/null 2>&1 || useradd --system --no-create-home tests
  mkdir -p "$dir/pjd"
  chmod 755 "$dir/pjd"
  "$cache/bin/pjdfstest" -c "$top/tests/pjdfstest.toml" -p "$dir/pjd" > "$work/pjd.out" 2>&1 || true
  tail -n 1 "$work/pjd.out" | tee -a "$work/notes"
  awk 'NF == 2 && tolower($2) == "failed" {print $1}' "$work/pjd.out" | sort -u > "$work/pjd.failed"
  grep -q "^Summary: $(wc -l < "$work/pjd.failed") failed" "$work/pjd.out" || { tail -n 20 "$work/pjd.out"; return 1; }
  judge pjdfstest < "$work/pjd.failed"
  rm -rf "$dir/pjd"
}

# All seeds at once: most of the time goes into waiting for msync (SCRATCH in lib.sh spares that). At most 20,000 operations in
# one process, then the next with another seed: fsx leaves each mapping that it has read through, so that the kernel has more to
# walk through with every page that it writes back, and after 65,530 there are no more.
t_fsx() {
  tool fsx
  local seed jobs=() status=0
  for seed in ${FSX_SEEDS:-1 2 3 4 5 6 7 8}; do
    fsx_chain "$seed" "${FSX_OPS:-$(pick 10000 1000000)}" > "$work/fsx.$seed" 2>&1 &
    jobs[seed]=$!
  done
  for seed in "${!jobs[@]}"; do
    wait "${jobs[seed]}" || { status=1; echo "seed $seed"; tail -n 30 "$work/fsx.$seed"; }
  done
  rm -f "$dir"/fsx.*
  return $status
}

# fsx_chain SEED OPERATIONS
fsx_chain() {
  local seed=$1 left=$2 part=0 count
  while [ "$left" -gt 0 ]; do
    count=$((left < 20000 ? left : 20000))
    "$cache/bin/fsx" -N "$count" -S $((seed + 100 * part)) -P "$work" "$dir/fsx.$seed" || return 1
    left=$((left - count))
    part=$((part + 1))
    rm -f "$dir/fsx.$seed"
  done
}

# fsx on one mount while the other one moves the same files from layout to layout: nothing changes but the generation, which grows
# by one with each move.
t_fsx_moved() {
  tool fsx
  local seed before after moves=0 jobs=()
  for seed in 1 2; do
    fsx_chain "$seed" "$(pick 15000 200000)" > "$work/fsx.$seed" 2>&1 &
    jobs[seed]=$!
  done
  while kill -0 "${jobs[1]}" 2>/dev/null || kill -0 "${jobs[2]}" 2>/dev/null; do
    for seed in 1 2; do
      before=$("$LFS" getstripe -g "$other/fsx.$seed" 2>/dev/null) || continue
      "$LFS" migrate -c $((1 + RANDOM % 2)) -S $((64 << (RANDOM % 3)))K "$other/fsx.$seed" 2>> "$work/moves" || continue
      after=$("$LFS" getstripe -g "$other/fsx.$seed" 2>/dev/null) || continue
      # fsx may be at its next file already.
      [ "$after" -le "$before" ] || [ "$after" = $((before + 1)) ] || { echo "generation $before, then $after"; return 1; }
      moves=$((moves + 1))
    done
  done
  for seed in 1 2; do
    wait "${jobs[seed]}" || { echo "seed $seed"; tail -n 30 "$work/fsx.$seed"; cat "$work/moves"; return 1; }
  done
  echo "$moves moves, $(wc -l < "$work/moves") refused" | tee -a "$work/notes"
  [ "$moves" -ge 5 ]
}

# As `stress-ng --class filesystem --sequential 1 --verify`, but one by one, so that each has its own result.
t_stress_ng() {
  local name status failed=() skipped=() seconds
  local short="access chmod chown copy-file dentry dir fallocate fcntl flock fpunch fstat getdent hdd link lockf \
    open rename symlink touch utime xattr"
  # shellcheck disable=SC2086
  [ -n "$long" ] && short=$(stress-ng --class 'filesystem?' | sed "s/.*stressors: *//")
  seconds=$(pick 1 10)
  mkdir -p "$dir/stress"
  for name in ${STRESSORS:-$short}; do
    status=0
    timeout -k 10 $((seconds * 5 + 60)) stress-ng --"$name" 1 --timeout "$seconds" --verify --temp-path "$dir/stress" \
      > "$work/stress.out" 2>&1 || status=$?
    case $status in
      0) ;;
      3 | 4) skipped+=("$name") ;;
      *) failed+=("$name"); echo "== $name: status $status"; grep -v 'info:\|debug:' "$work/stress.out" | head -n 8 ;;
    esac
  done
  echo "not possible here: ${skipped[*]}"
  printf '%s\n' "${failed[@]}" | sed '/^$/d' | judge stress_ng
  rm -rf "$dir/stress"
}

t_cpython() {
  local tests="test_posix test_shutil test_mmap test_fcntl test_tempfile test_pathlib test_os test_largefile"
  mkdir -p "$dir/python"
  # test_largefile writes 2.5 GB, but only where the resource is allowed.
  # shellcheck disable=SC2086
  (cd "$dir/python" && TMPDIR=$dir/python python3 -m test --tempdir "$dir/python" ${long:+-u largefile} -v $tests) \
    > "$work/python.out" 2>&1 || true
  grep '^Tests result\|^Total tests\|^Result:' "$work/python.out" || { tail -n 30 "$work/python.out"; return 1; }
  sed -n 's/^\(FAIL\|ERROR\): \([^ ]*\) (\([^)]*\)).*/\3/p' "$work/python.out" | judge cpython ||
    { grep -A25 '^\(FAIL\|ERROR\): ' "$work/python.out" | head -n 120; return 1; }
  rm -rf "$dir/python"
}

t_golang() {
  local length=-short
  [ -z "$long" ] || length=
  mkdir -p "$dir/go"
  # -count=1: never a remembered result.
  TMPDIR=$dir/go GOTMPDIR=$dir/go GOFLAGS=-mod=mod go test -count=1 $length -v os io/fs path/filepath \
    > "$work/go.out" 2>&1 || true
  [ "$(grep -c '^\(ok\|FAIL\)[[:space:]].*\(os\|io/fs\|path/filepath\)[[:space:]]' "$work/go.out")" = 3 ] ||
    { tail -n 30 "$work/go.out"; return 1; }
  sed -n 's/^ *--- FAIL: \([^ ]*\).*/\1/p' "$work/go.out" | judge golang ||
    { grep -B15 -A5 -e '--- FAIL' "$work/go.out" | head -n 100; return 1; }
  rm -rf "$dir/go"
}

# A rollback journal and a write-ahead log, a process on each of two mounts.
t_sqlite() {
  mkdir "$dir/sqlite"
  local failed=
  python3 "$top/tests/sqlite.py" "$dir/sqlite/db" "$other/sqlite/db" || failed=two_mounts
  printf '%s' "$failed" | judge sqlite
  rm -rf "$dir/sqlite"
}

t_postgres() {
  "$top/tests/postgres.sh" "$dir/postgres" "$(pick 4 60)"
  rm -rf "$dir/postgres"
}

t_git() {
  python3 "$top/tests/bigrepo.py" "$(pick 2000 50000)" "$(pick 10 40)" > "$work/import"
  mkdir "$dir/git"
  git init -q -b main --bare "$dir/git/one.git"
  git -C "$dir/git/one.git" fast-import --quiet --done < "$work/import"
  rm "$work/import"
  git clone -q --no-local "$dir/git/one.git" "$dir/git/two"
  cd "$dir/git/two"
  [ -z "$(git status --porcelain)" ]
  git fsck --full --strict
  git gc -q --aggressive --prune=now
  git fsck --full --strict
  [ -z "$(git -C "$other/git/two" status --porcelain)" ]
  [ "$(git rev-parse 'HEAD^{tree}')" = "$(git -C "$dir/git/one.git" rev-parse 'main^{tree}')" ]
  git rm -q -r d1
  git commit -q -m less --author='Nobody <nobody@example.org>'
  git checkout -q HEAD~1
  [ -z "$(git status --porcelain)" ]
  cd "$top"
  rm -rf "$dir/git"
}

# A build from clean of this program, with sources and results on the mount.
t_cargo() {
  mkdir "$dir/cargo"
  git clone -q "$top" "$dir/cargo/weft"
  (cd "$dir/cargo/weft" && CARGO_TARGET_DIR=$dir/cargo/target cargo build -q -p weft)
  "$dir/cargo/target/debug/weft" --version
  rm -rf "$dir/cargo"
}

# What an NFS server does: files are found by handles, with nothing of them in the kernel. It reads only: the NFSv4 client of
# Debian cannot write, to a directory of ext4 either.
t_nfs() {
  local url="nfs://127.0.0.1/weft/nfs" options="version=4&nfsport=22049" pid
  mkdir -p "$dir/nfs/a" "$work/nfs"
  head -c 3000000 /dev/urandom > "$dir/nfs/a/file"
  cat > "$work/nfs/conf" <<CONF
NFS_CORE_PARAM { Protocols = 4; NFS_Port = 22049; Enable_NLM = false; Enable_RQUOTA = false; }
NFSv4 { Graceless = true; RecoveryBackend = fs; RecoveryRoot = "$work/nfs"; }
EXPORT {
  Export_Id = 1; Path = $dir; Pseudo = /weft; Protocols = 4; Transports = TCP; Access_Type = RW; Squash = No_Root_Squash;
  SecType = sys; Filesystem_id = 192.168; FSAL { Name = VFS; }
}
CONF
  "${in_ns[@]}" ganesha.nfsd -F -f "$work/nfs/conf" -L "$work/nfs/log" -p "$work/nfs/pid" &
  pid=$!
  # shellcheck disable=SC2064
  trap "kill $pid; wait $pid" EXIT
  timeout 60 bash -c "until ${in_ns[*]} nfs-ls '$url?$options' 2>/dev/null | grep -q ' a\$'; do sleep 0.2; done" ||
    { tail -n 20 "$work/nfs/log"; return 1; }
  echo 2 > /proc/sys/vm/drop_caches
  "${in_ns[@]}" nfs-cat "$url/a/file?$options" | cmp - "$dir/nfs/a/file"
  # A directory that moved, and a file that another mount removed.
  mv "$dir/nfs/a" "$dir/nfs/b"
  echo 2 > /proc/sys/vm/drop_caches
  "${in_ns[@]}" nfs-cat "$url/b/file?$options" | cmp - "$dir/nfs/b/file"
  rm "$other/nfs/b/file"
  # The server has it open for a moment longer than its client.
  for _ in $(seq 20); do
    "${in_ns[@]}" nfs-cat "$url/b/file?$options" >/dev/null 2>&1 || return 0
    sleep 0.5
  done
  echo "a removed file is read"
  return 1
}

needs() {
  case $1 in
    stress_ng) command -v stress-ng ;;
    cpython) python3 -c 'import test.test_os' ;;
    golang) command -v go ;;
    nfs) command -v ganesha.nfsd && command -v nfs-cat ;;
    postgres) ls /usr/lib/postgresql/*/bin/postgres && id postgres ;;
    *) true ;;
  esac >/dev/null 2>&1
}

short="pjdfstest fsx fsx_moved sqlite git nfs stress_ng cpython golang postgres"
if [ -n "$plain" ]; then
  mkdir -p "$plain" && chmod 755 "$plain"
  dir=$plain
  other=$plain
  in_ns=()
else
  two_up > "$work/up" 2>&1 || { echo "the cluster does not start"; cat "$work/up" "$work"/*.log; exit 1; }
  mkdir "$two_a/s" && chmod 755 "$two_a/s"
  dir=$two_a/s
  other=$two_b/s
  in_ns=(nsenter "--net=/run/netns/$two_ns")
fi
for case in ${*:-$short ${long:+cargo}}; do
  if ! needs "$case"; then
    skip "$case" "its tools are not here (tools/deps.sh suites)"
    continue
  fi
  : > "$work/notes"
  check "$case" "t_$case"
  sed 's/^/      /' "$work/notes"
done
finish
