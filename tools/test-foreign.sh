#!/usr/bin/env bash
# xfstests and LTP's file system tests, from copies of their public source. Usage: tools/test-foreign.sh [xfstests|ltp]
# Downloads nothing but what tools/deps.sh installs to build them. Without its variable a suite is skipped. Needs root and bin/weft.
#
# XFSTESTS=DIR  the source of xfstests. It is built in a copy, which the cache keeps, unless `make` has run in DIR itself.
#               XFSTESTS_GROUPS: which tests (default generic/quick,generic/auto). XFSTESTS_TESTS="generic/001 ..." runs these alone.
# LTP=DIR       the source of LTP, or where `make install` has put it (a directory with runtest/ and testcases/bin/).
#               LTP_RUNTEST: which files of runtest/ (default: fs fs_perms_simple fcntl-locktests dio smoketest syscalls).
#               LTP_TESTS: a regular expression for the names of the tests in them that are run (default: all; of syscalls, ltp_calls).
# FOREIGN_KEEP=DIR  what the suites say is kept there: the output of each test that failed, and how long each took.
#
# A test that fails and is not in tests/xfstests-known.txt or tests/ltp-known.txt, with a reason, fails the run; one that is in there
# and passes is told.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

LTP_SECONDS=${LTP_SECONDS:-900}
# One test of xfstests may take so long.
XFSTESTS_SECONDS=${XFSTESTS_SECONDS:-900}
# The system calls of LTP that take files. The others are the kernel's alone.
ltp_calls='(access|ch(dir|mod|own|root)|close|copy_file_range|creat|dup|execve|faccess|fallocate|posix_fadvise|fch|fcntl|fdatasync|f?l?(get|set|list|remove)xattr'
ltp_calls+='|flock|f?pathconf|f?l?stat|fsync|f?truncate|futimesat|getcwd|getdents|io_|landlock|lchown|link|l?lseek|mkdir|mknod|mincore|mmap|m?remap|msync|munmap'
ltp_calls+='|inotify|fanotify|ioctl|prot_hsymlinks|name_to_handle|open|poll|p?read|p?write|realpath|rename|rmdir|select|sendfile|splice|symlink|sync|tee|umask|unlink|utime|vmsplice).*'

trap 'two_down; rm -rf --one-file-system "$work"' EXIT

# judge SUITE: compares the names of failed tests (file failed) with those that are known to, among those that ran (file ran).
judge() {
  awk '/^[^#]/ { print $1 }' "$top/tests/$1-known.txt" | sort -u > "$work/known"
  sort -u -o "$work/failed" "$work/failed"
  sort -u -o "$work/ran" "$work/ran"
  echo "$(wc -l < "$work/ran") ran, $(wc -l < "$work/failed") failed, of which known: $(comm -12 "$work/failed" "$work/known" | wc -l)" | tee "$work/notes"
  comm -12 "$work/known" "$work/ran" | comm -23 - "$work/failed" | sed 's/^/passes, although it is known to fail: /' | tee -a "$work/notes"
  if [ -n "$(comm -23 "$work/failed" "$work/known")" ]; then
    echo "failed, and not in tests/$1-known.txt:"
    comm -23 "$work/failed" "$work/known"
    return 1
  fi
}

# `mount -t fuse.weft` looks for its helper in /sbin. In this script's own mount namespace it finds one there.
put_helper() {
  mkdir -p "$work/helper"
  printf '#!/bin/sh\nexec "%s" "$@"\n' "$(dirname "$WEFT")/mount.weft" > "$work/helper/mount.fuse.weft"
  chmod 755 "$work/helper/mount.fuse.weft"
  local sbin
  sbin=$(readlink -f /sbin)
  mount -t overlay overlay -o "lowerdir=$work/helper:$sbin" "$sbin"
}

# A second file system for what xfstests calls scratch, with every target in one server.
scratch_fsname=x$two_id
scratch_up() {
  local mgs=127.0.0.1:7101@tcp n
  "$WEFT" format --mgs --fsname "$scratch_fsname" "$work/scratch.mgs" || return 1
  "$WEFT" format --mdt --fsname "$scratch_fsname" --index 0 --mgsnode $mgs "$work/scratch.mdt" || return 1
  for n in 0 1; do
    "$WEFT" format --ost --fsname "$scratch_fsname" --index $n --mgsnode $mgs "$work/scratch.ost$n" || return 1
  done
  two_serve scratch 7101 "$work"/scratch.{mgs,mdt,ost0,ost1}
}

# xfstests has no limit of time for a test: bash reads this before it runs one, and ends it with its children.
limit_xfstests() {
  cat > "$work/limit" <<LIMIT
case \$0 in
  */tests/*/[0-9]*) [ -n "\${WEFT_LIMITED:-}" ] || { export WEFT_LIMITED=1; exec timeout -k 20 $XFSTESTS_SECONDS bash "\$0" "\$@"; } ;;
esac
LIMIT
}

# keep SUITE FILE...: copies what a suite has left to where it is to be kept.
keep() {
  [ -n "${FOREIGN_KEEP:-}" ] || return 0
  mkdir -p "$FOREIGN_KEEP/$1"
  cp -r "${@:2}" "$FOREIGN_KEEP/$1"
}

t_xfstests() {
  local user
  for user in fsgqa fsgqa2 123456-fsgqa; do
    id "$user" >/dev/null 2>&1 || useradd --system --create-home --badname "$user" 2>/dev/null || useradd --system --create-home "$user"
    # Without a home su says so, and the output is compared.
    mkdir -p "/home/$user"
  done
  put_helper
  # It wants each of the two mounted once, by itself.
  umount "$two_a" "$two_b"
  scratch_up
  mkdir -p "$work/test" "$work/scratch" "$work/results"
  # It compares the type that df tells with FSTYP, which has no subtype.
  printf '#!/bin/sh\ndf -T -P -a "$@" | sed "s/ fuse.weft / fuse /"\n' > "$work/df"
  chmod 755 "$work/df"
  cat > "$work/config" <<CONFIG
export DF_PROG=$work/df
export FSTYP=fuse
export FUSE_SUBTYP=.weft
export TEST_DEV=127.0.0.1:7001@tcp:/$two_fsname
export TEST_DIR=$work/test
export SCRATCH_DEV=127.0.0.1:7101@tcp:/$scratch_fsname
export SCRATCH_MNT=$work/scratch
export RESULT_BASE=$work/results
CONFIG
  limit_xfstests
  # shellcheck disable=SC2086
  (cd "$XFSTESTS" && in_two env BASH_ENV="$work/limit" HOST_OPTIONS="$work/config" \
    ./check ${XFSTESTS_TESTS:--g ${XFSTESTS_GROUPS:-generic/quick,generic/auto}}) \
    > "$work/check.out" 2>&1 || true
  keep xfstests "$work/check.out" "$work/results"
  umount -q "$work/test" "$work/scratch" || true
  two_mount "$two_a" && two_mount "$two_b"
  rm -rf "/etc/weft/$scratch_fsname".*.key
  sed -n 's/^Ran: //p' "$work/check.out" | tr ' ' '\n' | sed '/^$/d' > "$work/ran"
  sed -n 's/^Failures: //p' "$work/check.out" | tr ' ' '\n' | sed '/^$/d' > "$work/failed"
  [ -s "$work/ran" ] || { tail -n 30 "$work/check.out"; return 1; }
  judge xfstests || { grep -A12 'output mismatch' "$work/check.out" | head -n 200; return 1; }
}

t_ltp() {
  local file name line status start wanted
  mkdir -p "$two_a/ltp"
  chmod 1777 "$two_a/ltp"
  : > "$work/ran"
  : > "$work/failed"
  : > "$work/times"
  for file in ${LTP_RUNTEST:-fs fs_perms_simple fcntl-locktests dio smoketest syscalls}; do
    [ -e "$LTP/runtest/$file" ] || { echo "there is no $LTP/runtest/$file"; continue; }
    wanted=${LTP_TESTS:-.*}
    [ "$file" != syscalls ] || wanted=${LTP_TESTS:-$ltp_calls}
    while read -r name line; do
      [[ -n $name && $name != \#* ]] || continue
      [[ $name =~ ^($wanted)$ ]] || continue
      # The locks are tested on a file in /tmp, which is no weft.
      line=${line//\/tmp\//$two_a/ltp/}
      status=0
      start=$SECONDS
      # A test that makes file systems of its own makes one, which is as little weft as all others that it would make.
      (cd "$two_a/ltp" && LTP_SINGLE_FS_TYPE=tmpfs LTP_TIMEOUT_MUL=${LTP_TIMEOUT_MUL:-5} LTPROOT=$LTP TMPDIR=$two_a/ltp TMP=$two_a/ltp \
        PATH=$LTP/testcases/bin:$PATH timeout -k 20 "$LTP_SECONDS" bash -c "$line") > "$work/one.out" 2>&1 < /dev/null || status=$?
      echo "$file $name status $status, $((SECONDS - start)) s" >> "$work/times"
      # 32: the test cannot run here. 127: its program is not there, for what it is built with is not.
      [[ $status != 32 && $status != 127 ]] || continue
      echo "$name" >> "$work/ran"
      if [ "$status" != 0 ]; then
        echo "$name" >> "$work/failed"
        echo "== $name: status $status"
        grep -E 'FAIL|BROK' "$work/one.out" | head -n 5
        cp "$work/one.out" "$work/$name.out"
        keep ltp "$work/$name.out"
      fi
    done < "$LTP/runtest/$file"
  done
  keep ltp "$work/times"
  rm -rf "$two_a/ltp"
  [ -s "$work/ran" ] || { echo "nothing ran: is LTP=$LTP an installed LTP?"; return 1; }
  judge ltp
}

# copy_of DIR NAME: where a copy of DIR is or is to be built; another source has another place.
copy_of() {
  echo "$cache/$2-$(find "$1" -name .git -prune -o -type f -printf '%P %s\n' | sort | cksum | cut -d ' ' -f 1)"
}

# in_copy DIR PLACE COMMAND...: runs a command in a copy of DIR at PLACE, unless one has ended well there.
in_copy() {
  local source=$1 place=$2
  shift 2
  [ ! -e "$place/.is-built" ] || return 0
  rm -rf "$place" && mkdir -p "$place" && cp -r "$source/." "$place" && (cd "$place" && "$@") && touch "$place/.is-built"
}

make_ltp() {
  local jobs
  jobs=-j$(nproc)
  make autotools && ./configure --prefix="$PWD/installed" --disable-metadata && make "$jobs" && make "$jobs" install
}

build_xfstests() {
  local place
  place=$(copy_of "$XFSTESTS" xfstests)
  "$top/tools/deps.sh" foreign
  in_copy "$XFSTESTS" "$place" make "-j$(nproc)"
}

build_ltp() {
  local place
  place=$(copy_of "$LTP" ltp)
  "$top/tools/deps.sh" foreign
  in_copy "$LTP" "$place" make_ltp
}

# given SUITE: why it cannot run; nothing if it can.
given() {
  case $1 in
    xfstests) [ -n "${XFSTESTS:-}" ] || echo "XFSTESTS names no source of xfstests"
      [ -z "${XFSTESTS:-}" ] || [ -x "$XFSTESTS/check" ] || echo "there is no $XFSTESTS/check" ;;
    ltp) [ -n "${LTP:-}" ] || echo "LTP names no source of LTP"
      [ -z "${LTP:-}" ] || [ -d "$LTP/runtest" ] || echo "there is no $LTP/runtest" ;;
    *) echo "there is no such suite" ;;
  esac
}

started=
for suite in ${*:-xfstests ltp}; do
  why=$(given "$suite")
  if [ -n "$why" ]; then
    skip "$suite" "$why"
    continue
  fi
  case $suite in
    xfstests) [ -x "$XFSTESTS/ltp/fsstress" ] || { check build_xfstests build_xfstests; XFSTESTS=$(copy_of "$XFSTESTS" xfstests); } ;;
    ltp) [ -d "$LTP/testcases/bin" ] || { check build_ltp build_ltp; LTP=$(copy_of "$LTP" ltp)/installed; } ;;
  esac
  [ -n "$started" ] || { check start two_up; started=1; }
  : > "$work/notes"
  check "$suite" "t_$suite"
  sed 's/^/      /' "$work/notes"
done
finish
