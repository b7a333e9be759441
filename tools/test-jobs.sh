#!/usr/bin/env bash
# What a job brings with it, with real processes: weft stage (attributes, lists, kills at random points, a full target, links in place of directories, depth) and weft rankfs
# (requests to the MDT, double mounts, kills of ranks and of the mount below, e2fsck, signals, export, discard).
# Usage: tools/test-jobs.sh [CASE...]; needs root, bin/weft, e2fsprogs, loop devices. LONG=1 kills more often.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

LCTL=$(dirname "$WEFT")/lctl
stage_kills=20
rank_kills=${LONG:+100}
rank_kills=${rank_kills:-10}
plain=$work/plain
images=$two_a/images

fuse_mode=$(stat -c %a /dev/fuse)

leave() {
  chmod "$fuse_mode" /dev/fuse
  rm -rf /tmp/weft-1234
  awk -v work="$work/" '$1 ~ "^/dev/loop" && index($2, work) == 1 { print $2 }' /proc/mounts | while read -r mount; do umount -l "$mount"; done
  [ ! -d "$work/global" ] || { "$WEFT" down "$work/global" > /dev/null 2>&1; rm -f "/etc/weft/wg$two_id".*.key; }
  two_down
  rm -rf --one-file-system "$work"
}
trap leave EXIT

lctl() { in_two timeout 60 "$LCTL" "$@"; }
rankfs() { timeout 60 "$WEFT" rankfs "$@"; }
field() { python3 -c 'import json,sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
has_loops() { cat /sys/block/loop*/loop/backing_file | grep -q "^$images/"; }

t_stage_words() {
  mkdir -p "$plain/words"
  must_fail 2 "$WEFT" stage
  must_fail 2 "$WEFT" stage in "$plain/words"
  must_fail 1 "$WEFT" stage in "$plain/nothing" "$two_a/words"
  must_fail 1 "$WEFT" stage in "$plain/words" "$two_a/no/such/place"
  must_fail 2 "$WEFT" stage in "$plain/words" "$plain/words/in"
  must_fail 2 "$WEFT" stage in "$plain/words" "$two_a/words" --streams 0
  echo ../etc > "$work/list"
  must_fail 2 "$WEFT" stage in "$plain/words" "$two_a/words" --list "$work/list"
  grep -q 'line 1 of the list' "$work/err"
  must_fail 1 "$WEFT" stage in "$plain/words" "$two_a/words" --list "$work/no-list"
  # A stager that works with the same state.
  flock "$two_a/words/.weft-stage/lock" "$WEFT" stage out "$plain/words" "$two_a/words" 2> "$work/err" && return 1
  grep -q 'another stager' "$work/err"
}

t_stage_tree() {
  local from=$plain/tree to=$two_a/tree
  mkdir -p "$from/a/b" "$from/deep/er"
  echo one > "$from/a/one"; echo two > "$from/a/b/two"; echo three > "$from/deep/er/three"
  ln -s a/one "$from/link"
  truncate -s 64M "$from/hole"; echo end >> "$from/hole"
  mkfifo "$from/pipe"
  chmod 4751 "$from/a/one"; chown 1234:4321 "$from/a/one"
  touch -d '2001-02-03 04:05:06.789' "$from/a/one"
  chmod 550 "$from/deep"; touch -d '2002-02-03' "$from/deep" "$from/a"
  "$WEFT" stage in "$from" "$to" --json > "$work/answer" 2> "$work/err"
  grep -q 'pipe: left out' "$work/err"
  [ "$(field copied < "$work/answer")" = 5 ]
  rm "$from/pipe"
  diff -r "$from" "$to" --exclude=.weft-stage
  (cd "$from" && find . -mindepth 1 -printf '%P %M %U %G %s %T@ %l\n' | sed 's/ \(d[^ ]* [0-9]* [0-9]*\) [0-9]* / \1 /' | sort) > "$work/from"
  (cd "$to" && find . -mindepth 1 -not -path './.weft-stage*' -printf '%P %M %U %G %s %T@ %l\n' | sed 's/ \(d[^ ]* [0-9]* [0-9]*\) [0-9]* / \1 /' | sort) > "$work/to"
  diff "$work/from" "$work/to"
  [ "$(stat -c %b "$to/hole")" -lt 1000 ]
  # Only what has changed is copied; what was lost, too.
  echo changed > "$from/a/one"; rm "$to/a/b/two"; chmod 600 "$from/deep/er/three"
  chown -h 77:78 "$from/link"; touch -h -d '2003-02-03' "$from/link"
  "$WEFT" stage in "$from" "$to" --json > "$work/answer"
  [ "$(field copied < "$work/answer") $(field up_to_date < "$work/answer")" = "2 3" ]
  diff -r "$from" "$to" --exclude=.weft-stage
  [ "$(stat -c %a "$to/deep/er/three")" = 600 ]
  [ "$(stat -c '%u %g %Y' "$to/link")" = "$(stat -c '%u %g %Y' "$from/link")" ]
  # Back again by a list, from the other mount, as text.
  printf 'a\nlink\n' > "$work/list"
  "$WEFT" stage out "$two_b/tree" "$plain/back" --list "$work/list" | grep -qE '^4 files copied|^3 files copied'
  (cd "$plain/back" && find . -mindepth 1 -not -path './.weft-stage*' | sort | xargs) | grep -qx './a ./a/b ./a/b/two ./a/one ./link'
  "$WEFT" stage out "$two_b/tree/a/one" "$plain/single" --no-verify
  cmp "$from/a/one" "$plain/single/one"
  # A directory that cannot be read is named, and what is beside it is copied. What a stager that was killed left behind is no file.
  from=$plain/closed
  mkdir -p "$from/shut" "$from/beside"
  echo 1 > "$from/beside/file"
  echo part > "$from/beside/.weft-stage-0123abcd-3-89abcdef"
  chown -R 1234:1234 "$from"
  chmod 0 "$from/shut"
  install -d -o 1234 "$work/closed"
  must_fail 1 setpriv --reuid 1234 --regid 1234 --clear-groups "$WEFT" stage out "$from" "$work/closed"
  grep -q "closed/shut: Permission denied" "$work/err"
  grep -q "1 file not copied" "$work/err"
  [ "$(cd "$work/closed" && find . -path ./.weft-stage -prune -o -type f -print | xargs)" = ./beside/file ]
}

t_stage_killed() { python3 tests/staging.py "$WEFT" "$two_b/source" "$plain/killed" "$stage_kills"; }

t_stage_into_weft_killed() { python3 tests/staging.py "$WEFT" "$plain/source" "$two_a/killed" "$stage_kills" 200; }

t_stage_full() {
  mkdir -p "$work/small" "$plain/much"
  mount -t tmpfs -o size=2m tmpfs "$work/small"
  for n in 1 2 3 4 5 6; do head -c 700000 /dev/urandom > "$plain/much/$n"; done
  must_fail 1 "$WEFT" stage out "$plain/much" "$work/small/out" --streams 1
  grep -q 'No space left' "$work/err"
  grep -q 'run the same command again' "$work/err"
  # What is there is whole, and nothing else is there.
  for file in "$work/small/out"/*; do cmp "$file" "$plain/much/$(basename "$file")"; done
  not ls "$work/small/out"/.weft-stage-*
  mount -o remount,size=8m "$work/small"
  "$WEFT" stage out "$plain/much" "$work/small/out"
  diff -r "$plain/much" "$work/small/out" --exclude=.weft-stage
  umount "$work/small"
}

# Root copies between trees in which others put links to elsewhere in place of directories: nothing there is read or changed.
t_stage_raced() {
  local from=$plain/raced to=$work/raced outside=$work/outside run swaps=()
  mkdir -p "$from/d/e" "$to" "$outside/e"
  for n in $(seq 40); do echo ours > "$from/d/$n"; echo ours > "$from/d/e/$n"; echo theirs > "$outside/$n"; echo theirs > "$outside/e/$n"; done
  chmod 700 "$outside" "$outside/e"
  find "$outside" -printf '%p %m %U %T@ %s\n' | sort > "$work/outside-was"
  "$WEFT" stage out "$from" "$to" > /dev/null
  for tree in "$from" "$to"; do
    ln -s "$outside" "$tree/link"
    python3 -c '
import ctypes, os, sys
os.chdir(sys.argv[1])
exchange = ctypes.CDLL(None).renameat2
while True:
    exchange(-100, b"d", -100, b"link", 2)' "$tree" &
    swaps+=($!)
  done
  for run in $(seq 40); do
    rm -rf "$to/.weft-stage/records"
    "$WEFT" stage out "$from" "$to" --streams 2 > "$work/raced-said" 2>&1 || true
  done
  kill "${swaps[@]}"; wait "${swaps[@]}" || true
  find "$outside" -printf '%p %m %U %T@ %s\n' | sort | diff "$work/outside-was" -
  # What the trees have of it, they have by the link only.
  [ -z "$(grep -rl theirs "$to")" ]
}

# Deeper than a path can be long, or files can be open.
t_stage_deep() {
  python3 - "$plain/deep" <<'DEEP'
import os, sys
os.mkdir(sys.argv[1])
at = os.open(sys.argv[1], os.O_RDONLY)
for depth in range(1200):
    os.mkdir("deep-below", 0o750, dir_fd=at)
    at, above = os.open("deep-below", os.O_RDONLY, dir_fd=at), at
    os.close(above)
with open(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at), "w") as file:
    file.write("deepest")
DEEP
  (ulimit -n 64; ulimit -s 512; "$WEFT" stage out "$plain/deep" "$work/deep" --json) > "$work/answer"
  [ "$(field copied < "$work/answer")" = 1 ]
  python3 - "$work/deep" <<'DEEP'
import os, sys
at = os.open(sys.argv[1], os.O_RDONLY)
for depth in range(1200):
    at, above = os.open("deep-below", os.O_RDONLY, dir_fd=at), at
    os.close(above)
    assert os.fstat(at).st_mode & 0o7777 == 0o750
with open(os.open("file", os.O_RDONLY, dir_fd=at)) as file:
    assert file.read() == "deepest"
DEEP
  (ulimit -n 64; ulimit -s 512; "$WEFT" stage out "$plain/deep" "$work/deep" --json) > "$work/answer"
  [ "$(field up_to_date < "$work/answer")" = 1 ]
}

# A file that is changed right after its copy, in the same step of the clock as far as its size and time show.
t_stage_same_time() {
  local from=$plain/same to=$work/same time
  mkdir -p "$from"
  echo one > "$from/file"
  "$WEFT" stage out "$from" "$to" > /dev/null
  time=$(stat -c %y "$from/file")
  echo two > "$from/file"; touch -d "$time" "$from/file"
  "$WEFT" stage out "$from" "$to" --json > "$work/answer"
  [ "$(field copied < "$work/answer")" = 1 ]
  cmp "$from/file" "$to/file"
}

# Requests that the MDT has counted.
requests() { lctl get_param -n 'mdt.*.md_stats' | awk '$3 == "samples" && $1 != "statfs" { sum += $2 } END { print sum + 0 }'; }
# four_ranks FILES: prints how many requests four ranks cost that make so many files each.
four_ranks() {
  local before pids=() pid rank
  "$WEFT" drain "$two_a" >/dev/null || true
  before=$(requests)
  for rank in 0 1 2 3; do
    rankfs run --dir "$images" --size 256M --bytes-per-inode 4096 --job "f$1" --rank $rank -- \
      python3 -c "for n in range($1): open(f'{n}', 'w').write('x' * 100)" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid"; done
  "$WEFT" drain "$two_a" >/dev/null || true
  echo $(($(requests) - before))
}

t_rank_requests() {
  local few many files=${LONG:+10000}
  files=${files:-3000}
  four_ranks 10 > "$work/warm"
  few=$(four_ranks 100 | tail -n 1)
  many=$(four_ranks "$files" | tail -n 1)
  echo "4 ranks of 100 files: $few requests; of $files: $many" | tee "$work/requests"
  [ "$few" -gt 0 ]
  # Closes travel together or not, and attributes are asked for again or not: some requests of each rank.
  [ $((many > few ? many - few : few - many)) -le 16 ]
}

t_rank_double() {
  mkdir -p "$work/m" "$work/n"
  rankfs create "$images/d.rankfs" --size 64M --job 12 --rank 3
  must_fail 1 rankfs create "$images/d.rankfs" --size 64M
  must_fail 2 rankfs create "$images/d.img" --size 64M
  rankfs mount "$images/d.rankfs" "$work/m"
  must_fail 1 rankfs mount "$images/d.rankfs" "$work/n"
  grep -q 'in use (rank 3 of job 12' "$work/err"
  # Through another client: what counts is the lock.
  must_fail 1 rankfs mount "$two_b/images/d.rankfs" "$work/n"
  must_fail 1 rankfs export "$two_b/images/d.rankfs" "$plain/d.img"
  echo here > "$work/m/file"
  rankfs list "$images" | grep -q "^d.rankfs .* 12  .*at $work/m"
  rankfs umount "$work/m"
  e2fsck -fn "$images/d.rankfs"
  rankfs mount "$two_b/images/d.rankfs" "$work/n"
  grep -qx here "$work/n/file"
  rankfs gc "$images" | grep -q 'd.rankfs: stays'
  echo 11 > "$work/living"; echo 12 >> "$work/living"
  rankfs gc "$images" --living "$work/living" | grep -q 'd.rankfs: stays, its job lives'
  # Mounted by another path of the same file.
  rankfs gc "$images" --ended 12
  not mountpoint -q "$work/n"
  [ ! -e "$images/d.rankfs" ]
  not has_loops
  # Where somebody works in it, it stays mounted.
  rankfs create "$images/b.rankfs" --size 64M --job 13
  rankfs mount "$images/b.rankfs" "$work/m"
  (cd "$work/m" && exec sleep 600) &
  local user=$!
  until [ "$(readlink /proc/$user/cwd)" = "$work/m" ]; do sleep 0.1; done
  must_fail 1 rankfs gc "$images" --ended 13
  grep -q "processes use it at $work/m" "$work/err"
  mountpoint -q "$work/m"
  kill $user; wait $user || true
  rankfs gc "$images" --ended 13
  # Readers share.
  rankfs create "$images/s.rankfs" --size 64M
  rankfs mount --read-only "$images/s.rankfs" "$work/m"
  rankfs mount --read-only "$two_b/images/s.rankfs" "$work/n"
  must_fail 1 rankfs mount "$images/s.rankfs" "$work/small"
  rankfs umount "$work/m"; rankfs umount "$work/n"
  rm "$images/s.rankfs"
}

t_rank_killed() { python3 tests/rankfs.py "$WEFT" "$images" "$rank_kills"; }

t_rank_run() {
  local status=0
  rankfs run --dir "$images" --size 64M --job 1 -- sh -c 'echo x > a; [ "$PWD" = "$RANKDIR" ] && exit 7' || status=$?
  [ $status = 7 ]
  must_fail 127 rankfs run --dir "$images" --size 64M --job 1 -- "$work/no-program"
  must_fail 2 rankfs run --dir "$images" --size lots --job 1 -- true
  must_fail 2 rankfs run --dir "$images" --size 16T --job 1 -- true
  rankfs create "$images/4.7.rankfs" --size 8M --job 4 --rank 7
  must_fail 1 rankfs run --dir "$images" --size 8M --job 4 --rank 7 -- true
  grep -q 'give another --rank' "$work/err"
  rm "$images/4.7.rankfs"
  must_fail 1 rankfs run --dir "$work/nothing" --size 64M --job 1 -- true
  # As another user, and full: the rank hears of it, and nothing else does.
  rankfs run --dir "$images" --size 8M --job 1 --owner 1234:4321 -- sh -c \
    'touch a && [ "$(stat -c %u a)" = 1234 ] && ! err=$(head -c 20M /dev/zero 2>&1 > b) && echo "$err" | grep -q "No space"'
  # Told to end: the program is told, and all is tidied up.
  mkfifo "$work/ready"
  "$WEFT" rankfs run --dir "$images" --size 64M --job 1 -- sh -c "echo > $work/ready; exec sleep 600" &
  local pid=$!
  read -r _ < "$work/ready"
  kill -TERM $pid
  status=0; wait $pid || status=$?
  [ $status = 143 ]
  # At any moment: it leaves no image, whether the program runs already or not.
  for delay in 0.002 0.004 0.008 0.012 0.016 0.02 0.03 0.04 0.06 0.1; do
    "$WEFT" rankfs run --dir "$images" --size 64M --job 1 -- sleep 600 &
    pid=$!
    sleep $delay
    kill -TERM $pid
    wait $pid || true
    [ -z "$(ls "$images")" ]
  done
  # In another container: gc does not see the program, and leaves it alone, inside and outside.
  mkfifo "$work/ready2" "$work/go"
  unshare --pid --fork --mount-proc "$WEFT" rankfs run --dir "$images" --size 64M --job 2 -- sh -c "echo > $work/ready2; read -r _ < $work/go; exit 9" &
  pid=$!
  read -r _ < "$work/ready2"
  rankfs gc "$images" | grep -q '2.rankfs: stays, it is in use in another container'
  echo > "$work/go"
  status=0; wait $pid || status=$?
  [ $status = 9 ]
  # What outlives the program ends with it, and keeps nothing.
  rankfs run --dir "$images" --size 64M --job 3 -- sh -c 'setsid sleep 600 & echo $! > '"$work/left"
  # One that nobody has asked about yet has no program.
  not readlink -q "/proc/$(< "$work/left")/exe"
  not has_loops
  # A name that is no image holds nobody up.
  mkfifo "$images/pipe.rankfs"
  ln -s nowhere "$images/link.rankfs"
  timeout 20 "$WEFT" rankfs gc "$images"
  timeout 20 "$WEFT" rankfs list "$images"
  rm "$images/pipe.rankfs" "$images/link.rankfs"
  # Kept by the ones and exported by the others.
  rankfs run --dir "$images" --size 64M --job 1 --export "$plain/e.img" -- sh -c 'echo inside > a'
  e2fsck -fn "$plain/e.img"
  [ "$(stat -c %b "$plain/e.img")" -lt 20000 ]
  rankfs import "$plain/e.img" "$images/i.rankfs" --job 5
  mkdir -p "$work/m"
  rankfs mount "$images/i.rankfs" "$work/m"
  grep -qx inside "$work/m/a"
  rankfs umount "$images/i.rankfs"
  # An export takes the place of no image, and of nothing but a file.
  rankfs create "$images/-x.rankfs" --size 8M
  for n in "$images/i.rankfs" "$images/-x.rankfs" "$work/ready" "$images"; do must_fail 2 rankfs export "$images/i.rankfs" "$n"; done
  ln -s "$plain/e.img" "$plain/link"
  must_fail 2 rankfs run --dir "$images" --size 64M --job 1 --export "$plain/link" -- touch "$work/ran"
  grep -q 'is a symbolic link; export to another name' "$work/err"
  not test -e "$work/ran"
  rankfs export "$images/i.rankfs" "$plain/e.img"
  (cd "$images" && rm ./-x.rankfs && rankfs create --size 8M -- -x.rankfs && rm ./-x.rankfs)
  # Names that are no text: of images, and of what others have mounted.
  local odd=$'odd\xff'
  mkdir -p "$work/$odd"
  mount -t tmpfs odd "$work/$odd"
  rankfs create "$images/$odd.rankfs" --size 8M --job 6
  rankfs mount "$images/$odd.rankfs" "$work/m"
  rankfs list --json "$images" | python3 -c 'import json, sys; assert len(json.load(sys.stdin)) == 2'
  rankfs list "$images" | grep -q "at $work/m"
  rankfs umount "$work/m"
  rankfs mount "$images/$odd.rankfs" "$work/m"
  rankfs gc --ended 6 --json "$images" | python3 -c 'import json, sys; assert len(json.load(sys.stdin)["removed"]) == 1'
  umount "$work/$odd"
  # An import that was broken off.
  cp --sparse=always "$plain/e.img" "$images/half.rankfs"
  python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.weft.rankfs", b"""{"version":1,"job":null,"rank":null,"node":"x","boot":"y","owner":null,"kept":true,"is_partial":true}""")' "$images/half.rankfs"
  must_fail 1 rankfs mount "$images/half.rankfs" "$work/m"
  grep -q 'was not imported to its end; remove it and import it again' "$work/err"
  # It was made on another machine, whose locks are not seen on every file system.
  rankfs gc "$images" | grep -q 'half.rankfs: stays, it was made on another machine'
  must_fail 2 rankfs gc "$images" --here --other-machines
  rankfs gc "$images" --other-machines | grep -q 'half.rankfs: removed'
  must_fail 1 rankfs import "$plain/no.img" "$images/j.rankfs"
  must_fail 1 rankfs import "$WEFT" "$images/j.rankfs"
  rankfs gc "$images" --ended 5
  [ -z "$(ls "$images")" ]
  not has_loops
}

# Of a user who may not mount: the image is served by a program, and is the same one.
as_user() { setpriv --reuid 1234 --regid 1234 --clear-groups env -u XDG_RUNTIME_DIR timeout 60 "$@"; }
t_rank_user() {
  local status=0 pid
  chmod 666 /dev/fuse
  chmod 1777 "$images"
  as_user "$WEFT" rankfs run --dir "$images" --size 64M --job 1 -- sh -c \
    'echo x > a; [ "$PWD" = "$RANKDIR" ] && [ "$(id -u)" = 1234 ] && [ "$(stat -c %u a)" = 1234 ] && exit 7' || status=$?
  [ $status = 7 ]
  must_fail 2 as_user "$WEFT" rankfs run --dir "$images" --size 64M --job 1 --owner 0:0 -- true
  must_fail 1 as_user "$WEFT" rankfs run --dir "$images" --size 64M --job 1 --base "$images/b.rankfs" -- true
  grep -q 'needs root' "$work/err"
  must_fail 127 as_user "$WEFT" rankfs run --dir "$images" --size 64M --job 1 -- "$work/no-program"
  # Full: the rank hears of it.
  as_user "$WEFT" rankfs run --dir "$images" --size 8M --job 1 -- sh -c \
    '! err=$(head -c 20M /dev/zero 2>&1 > b) && echo "$err" | grep -q "No space"'
  # What outlives the program ends with it.
  as_user "$WEFT" rankfs run --dir "$images" --size 64M --job 3 -- sh -c 'setsid sleep 600 & :'
  [ -z "$(ls "$images")" ]
  # Ranks of one user have one place, each its own image there, and the first that ends leaves those of the others alone.
  local pids=() rank
  for rank in 1 2 3; do
    as_user "$WEFT" rankfs run --dir "$images" --size 64M --job 3 --rank $rank -- sh -c "echo $rank > id; sync; sleep 0.$((rank * 2)); [ \"\$(cat id)\" = $rank ]" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid"; done
  [ -z "$(ls "$images")" ]
  # The kernel mounts it.
  as_user "$WEFT" rankfs run --dir "$images" --size 64M --job 4 --keep -- sh -c 'mkdir d; seq 100000 > d/numbers'
  e2fsck -fn "$images/4.rankfs"
  mkdir -p "$work/m"
  rankfs mount "$images/4.rankfs" "$work/m"
  seq 100000 | cmp - "$work/m/d/numbers"
  rankfs umount "$work/m"
  rm "$images/4.rankfs"
  # Killed: what was made durable is there.
  mkfifo "$work/ready3"
  chmod 666 "$work/ready3"
  setpriv --reuid 1234 --regid 1234 --clear-groups env -u XDG_RUNTIME_DIR "$WEFT" rankfs run --dir "$images" --size 64M --job 5 -- \
    python3 -c "
import os, time
for n in range(100):
    with open(f'f{n}', 'w') as file:
        file.write(f'{n} ' * 500)
        file.flush()
        os.fsync(file.fileno())
os.fsync(os.open('.', os.O_RDONLY))
open('$work/ready3', 'w').write('now')
time.sleep(600)" &
  pid=$!
  read -r _ < "$work/ready3" || true
  kill -9 $pid
  wait $pid || true
  for _ in $(seq 60); do rankfs mount "$images/5.rankfs" "$work/m" && break; done
  (cd "$work/m" && python3 -c "
for n in range(100):
    assert open(f'f{n}').read() == f'{n} ' * 500, n")
  rankfs umount "$work/m"
  as_user "$WEFT" rankfs gc "$images" | grep -q '5.rankfs: removed'
  python3 tests/rankfs.py "$WEFT" "$images" "$rank_kills" 1234
  # Another user has made the places in /tmp, or may write where they are.
  rm -rf /tmp/weft-1234
  install -d -o 1236 -m 777 /tmp/weft-1234
  must_fail 1 as_user "$WEFT" rankfs run --dir "$images" --size 64M --job 6 -- true
  grep -q 'have to be your own' "$work/err"
  install -d -o 1236 -m 1777 "$work/runtime"
  as_user env XDG_RUNTIME_DIR="$work/runtime" "$WEFT" rankfs run --dir "$images" --size 64M --job 6 --at "$work/home/at" -- true && return 1
  rm -r /tmp/weft-1234
  install -d -o 1234 -m 755 "$work/home"
  as_user env XDG_RUNTIME_DIR="$work/runtime" "$WEFT" rankfs run --dir "$images" --size 64M --job 6 -- sh -c '[ "$RANKDIR" = /tmp/weft-1234/rankfs ]'
  [ -z "$(ls "$work/runtime")" ]
  (cd "$work/home" && as_user "$WEFT" rankfs run --dir "$images" --size 64M --job 6 --at at -- sh -c '[ "$RANKDIR" = "$PWD" ]')
  [ "$(ls "$work/home")" = at ]
  must_fail 2 as_user "$WEFT" rankfs run --dir "$images" --size 64M --job 6 --at "$work/home/a,b" -- true
  # Its server is killed: what there is stays.
  must_fail 1 as_user "$WEFT" rankfs run --dir "$images" --size 64M --job 6 -- sh -c 'kill -9 $(pgrep -u 1234 -x fuse2fs)'
  grep -q 'the image is kept' "$work/err"
  as_user "$WEFT" rankfs gc "$images" | grep -q '6.rankfs: stays, it is to be kept'
  rm "$images/6.rankfs"
  # What a user has made does not stop the machine, nor is it believed.
  as_user "$WEFT" rankfs create "$images/e.rankfs" --size 64M
  tune2fs -e panic "$images/e.rankfs" > /dev/null
  rankfs mount "$images/e.rankfs" "$work/m"
  grep -q "^/dev/loop.* $work/m .*errors=remount-ro" /proc/mounts
  rankfs umount "$work/m"
  rankfs create "$images/r.rankfs" --size 8M
  [ "$(as_user "$WEFT" rankfs list "$images" | awk '{ print $1 }' | xargs)" = "IMAGE e.rankfs" ]
  debugfs -w -R "mkdir d" "$images/e.rankfs"
  debugfs -w -R "set_inode_field d block[0] 7" "$images/e.rankfs"
  must_fail 1 rankfs mount --read-only "$images/e.rankfs" "$work/m"
  grep -q 'is damaged' "$work/err"
  rankfs mount "$images/e.rankfs" "$work/m"
  rankfs umount "$work/m"
  rankfs mount --read-only "$images/e.rankfs" "$work/m"
  rankfs umount "$work/m"
  python3 -c '
import os, sys
os.setxattr(sys.argv[1], "user.weft.rankfs", b"""{"version":1,"job":"a\\nb\\u001b[31m","rank":1,"node":"x","boot":"y","owner":null,"kept":true}""")' "$images/e.rankfs"
  rankfs list "$images" | grep -q '^e.rankfs .* -  *-  *-  *closed'
  rm "$images/e.rankfs" "$images/r.rankfs"
  chmod 755 "$images"
  not has_loops
}

# Bytes that the OSTs have read.
ost_read() { lctl get_param -n 'obdfilter.*.stats' | awk '$1 == "read_bytes" { sum += $7 } END { print sum + 0 }'; }
t_rank_base() {
  local before read pids=() pid
  mkdir -p "$work/m"
  # Through another client: this one has nothing of it in memory.
  rankfs create "$two_b/images/base.rankfs" --size 64M --keep
  rankfs mount "$two_b/images/base.rankfs" "$work/m"
  head -c 20M /dev/urandom > "$work/m/program"
  echo before > "$work/m/settings"
  sha256sum < "$work/m/program" > "$work/sum"
  rankfs umount "$work/m"
  # For as long as it is mounted the machine keeps what was read.
  mkdir -p "$work/n"
  rankfs mount --read-only "$images/base.rankfs" "$work/n"
  sha256sum < "$work/n/program" | cmp - "$work/sum"
  before=$(ost_read)
  [ "$before" -ge 20971520 ]
  for rank in $(seq 0 "${LONG:+9}9"); do
    rankfs run --dir "$images" --size 8M --job 7 --rank "$rank" --base "$images/base.rankfs" --owner 1234:1234 -- \
      sh -c "sha256sum < program | cmp - $work/sum && echo $rank >> \$RANKDIR/mine && mv mine settings && ! grep before settings" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid"; done
  read=$(($(ost_read) - before))
  echo "${#pids[@]} ranks read a program of 20 MiB, and made their images: the OSTs read $((read / ${#pids[@]})) bytes for each" | tee "$work/base"
  # What each reads is its own image, when it is made and mounted.
  [ "$read" -lt $((${#pids[@]} * 2000000)) ]
  rankfs umount "$work/n"
  rankfs mount --read-only "$images/base.rankfs" "$work/m"
  grep -qx before "$work/m/settings"
  rankfs umount "$work/m"
  must_fail 1 rankfs run --dir "$images" --size 8M --job 7 --base "$images/none.rankfs" -- true
  rm "$images/base.rankfs"
  [ -z "$(ls "$images")" ]
  not has_loops
}

t_rank_spread() {
  local rank osts
  for rank in 0 1 2 3 4 5; do
    rankfs create "$images/s$rank.rankfs" --size 8M --rank $rank --ranks-per-ost 1
    rankfs create "$images/z$rank.rankfs" --size 8M --rank $rank --ranks-per-ost 3
  done
  osts=$("$LFS" getstripe -i "$images"/s?.rankfs | xargs)
  [ "$osts" = "0 1 2 3 0 1" ]
  osts=$("$LFS" getstripe -i "$images"/z?.rankfs | xargs)
  [ "$osts" = "0 0 0 1 1 1" ]
  [ "$("$LFS" getstripe -c "$images/s1.rankfs") $(stat -c %a "$images/s1.rankfs")" = "1 600" ]
  must_fail 1 rankfs create "$images/s1.rankfs" --size 8M --rank 1 --ranks-per-ost 1
  must_fail 2 rankfs create "$images/n.rankfs" --size 8M --ranks-per-ost 1
  must_fail 1 rankfs create "$plain/n.rankfs" --size 8M --rank 1 --ranks-per-ost 1
  rm "$images"/*.rankfs
}

# A fast file system for the job beside the one that everybody has: what happens to the first is nothing to the second.
t_two_layers() {
  local global=$work/global pid pids
  mkdir -p "$global" "$plain/case"
  in_two "$WEFT" up "$global" --data "$work/global.data" --fsname "wg$two_id" --osts 2 --oss 1 -o max_cached_mb=64 > /dev/null
  # A young file system may not have all its OSTs yet.
  for _ in $(seq 100); do
    rm -f "$two_a/probe"
    "$LFS" setstripe -c -1 "$two_a/probe"
    [ "$("$LFS" getstripe -c "$two_a/probe")" = 4 ] && break
  done
  "$LFS" setstripe -c -1 -S 1M "$two_a"
  "$LFS" setstripe -c 1 "$global"
  head -c 8M /dev/urandom > "$plain/case/input"
  "$WEFT" stage in "$plain/case" "$global/case" > /dev/null
  "$WEFT" stage in "$global/case" "$two_a/case" > /dev/null
  "$LFS" getstripe -c "$two_a/case/input" "$global/case/input" | xargs > "$work/counts"
  cat "$work/counts"
  grep -qx '4 1' "$work/counts"
  # Every server of the fast one is killed.
  pids=$(cat "$work/two.pids")
  for pid in $pids; do kill -9 "$pid"; tail --pid="$pid" -f /dev/null; done
  timeout 20 sh -c "cp $plain/case/input $global/copy && sync $global/copy && cmp $global/copy $plain/case/input && ls $global && df $global && rm $global/copy"
  "$WEFT" status "$global" | grep -q HEALTHY
  mkdir "$global/results"
  # They come back, and so does what was there.
  : > "$work/two.pids"
  two_servers
  timeout 120 cmp "$two_a/case/input" "$plain/case/input"
  "$WEFT" stage out "$two_a/case" "$global/results" > /dev/null
  cmp "$global/results/input" "$plain/case/input"
  "$LFS" setstripe -d "$two_a"
  "$WEFT" down "$global" > /dev/null
}

t_rank_mounts() {
  local rank seen wanted
  mkdir -p "$work/at"
  for rank in 0 1 2 3; do
    seen=$("$WEFT" rank-mount --mounts "$two_a,$two_b" --at "$work/at" --rank $rank -- stat -c %d "$work/at")
    seen+=" $(cd "$two_a" && SLURM_PROCID=$rank as_user "$WEFT" rank-mount --mounts "$two_a,$two_b" -- stat -c %d .)"
    if [ $((rank % 2)) = 0 ]; then wanted=$two_a; else wanted=$two_b; fi
    [ "$seen" = "$(stat -c '%d %d' "$wanted")" ]
  done
  must_fail 2 "$WEFT" rank-mount --mounts "$two_a,$two_b" -- true
  must_fail 1 "$WEFT" rank-mount --mounts "$two_a,$two_b" --at "$work/nowhere" --rank 1 -- true
  must_fail 127 "$WEFT" rank-mount --mounts "$two_a" --rank 1 -- "$work/no-program"
  # A mount that is missing here would be a directory of this machine's.
  must_fail 1 "$WEFT" rank-mount --mounts "$two_a,$work/at" --rank 1 -- touch "$work/ran"
  grep -q 'is no mount of weft on this machine' "$work/err"
  not test -e "$work/ran"
  [ -z "$(ls "$work/at")" ]
}

t_rank_discard() {
  local before after
  mkdir -p "$work/m"
  rankfs create "$images/x.rankfs" --size 128M
  rankfs mount --discard "$images/x.rankfs" "$work/m"
  head -c 60M /dev/urandom > "$work/m/big"; sync -f "$work/m/big"
  before=$(stat -c %b "$two_b/images/x.rankfs")
  rm "$work/m/big"
  rankfs umount "$work/m"
  after=$(stat -c %b "$two_b/images/x.rankfs")
  echo "$before blocks, then $after"
  [ "$before" -ge 120000 ] && [ "$after" -lt 10000 ]
  rm "$images/x.rankfs"
}

# The client below is killed with an image mounted: what was made durable inside is there, and gc takes the rest away.
t_rank_client_killed() {
  local pid here=$two_b/images
  mkdir -p "$work/m"
  rankfs create "$here/c.rankfs" --size 128M --job 9
  rankfs mount "$here/c.rankfs" "$work/m"
  python3 - "$work/m" <<'PY'
import os, sys
os.chdir(sys.argv[1])
for n in range(300):
    with open(f"f{n}", "w") as file:
        file.write(f"{n} " * 500)
        file.flush()
        os.fsync(file.fileno())
os.fsync(os.open(".", os.O_RDONLY))
PY
  pid=$(daemon_pid "$two_b")
  kill -9 "$pid"
  tail --pid="$pid" -f /dev/null
  umount -l "$two_b"
  two_mount "$two_b"
  mkdir "$work/again"
  # The old mount is of no use, and its lock ends with the lease of its client.
  umount -l "$work/m"
  for _ in $(seq 60); do rankfs mount "$here/c.rankfs" "$work/again" && break; done
  python3 - "$work/again" <<'PY'
import os, sys
os.chdir(sys.argv[1])
for n in range(300):
    assert open(f"f{n}").read() == f"{n} " * 500, n
PY
  rankfs umount "$work/again"
  e2fsck -fn "$here/c.rankfs"
  rankfs gc "$images" --ended 9
  [ -z "$(ls "$images")" ]
  not has_loops
}

# What Slurm would run, with what Slurm would say; the job is another user's.
t_slurm_scripts() {
  local dir=$top/packaging/slurm
  printf 'RANKFS_DIR=%s\nRANKFS_SIZE=64M\nRANKFS_MOUNTS=%s\n' "$images" "$work/jobs" > "$work/conf"
  export WEFT_RANKFS_CONF=$work/conf SLURM_JOB_ID=77 SLURM_JOB_UID=1234 SLURM_TASKS_PER_NODE='2(x3)' PATH="$(dirname "$WEFT"):$PATH"
  "$dir/prolog.sh"
  [ "$(ls "$images" | wc -l)" = 2 ]
  [ "$(SLURM_LOCALID=1 "$dir/task-prolog.sh")" = "export RANKDIR=$work/jobs/77/1" ]
  chmod 755 "$work/jobs" "$work/jobs/77"
  setpriv --reuid 1234 --regid 1234 --clear-groups sh -c "echo mine > $work/jobs/77/1/file"
  # The image of the same job on another machine is that machine's.
  "$WEFT" rankfs create "$images/other.rankfs" --size 64M --job 77
  python3 - "$images/other.rankfs" <<'PY2'
import json, os, sys
name = "user.weft.rankfs"
record = json.loads(os.getxattr(sys.argv[1], name))
os.setxattr(sys.argv[1], name, json.dumps({**record, "node": "elsewhere"}).encode())
PY2
  "$dir/epilog.sh"
  [ "$(ls "$images")" = other.rankfs ]
  [ ! -e "$work/jobs/77" ]
  not has_loops
  "$WEFT" rankfs gc "$images" --ended 77
  [ -z "$(ls "$images")" ]
}

two_up >/dev/null || { echo "no cluster"; exit 1; }
mkdir -p "$plain" "$images"
for case in ${*:-stage_words stage_tree stage_killed stage_into_weft_killed stage_full stage_raced stage_deep stage_same_time rank_run rank_double rank_requests rank_discard rank_killed rank_client_killed rank_user rank_base rank_spread rank_mounts two_layers slurm_scripts}; do
  check "$case" "t_$case"
done
for told in requests base; do [ ! -e "$work/$told" ] || sed "s/^/      | /" "$work/$told"; done
finish
