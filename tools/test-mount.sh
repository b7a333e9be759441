#!/usr/bin/env bash
# Ring three: one process with every role, a real mount, and tools that nobody here wrote.
# Usage: tools/test-mount.sh [CASE...]; needs root, bin/weft, fio, sqlite3, git, python3 (tools/deps.sh test).
# WEFT_FUSE_ENGINE=dev or uring: run the cases on that engine; the case `engines` looks at both.
. "$(dirname "$0")/lib.sh"

fsname=wt$((RANDOM % 9000 + 1000))
net=n$fsname
mnt=$work/mnt
data=$work/data
# Where root permits FUSE over io_uring.
uring_switch=/sys/module/fuse/parameters/enable_uring
uring_before=$(cat "$uring_switch" 2>/dev/null || true)
mkdir -p "$mnt"

up() { "$WEFT" up "$mnt" --data "$data" --fsname "$fsname" "$@"; }
down() { "$WEFT" down "$mnt"; }

leave() {
  [ -z "$uring_before" ] || echo "$uring_before" > "$uring_switch"
  "$WEFT" down "$mnt" >/dev/null 2>&1
  umount -l "$mnt" "$work/second" 2>/dev/null
  [ ! -f "$work/slow" ] || kill "$(cat "$work/slow")" 2>/dev/null
  ip netns del "$net" 2>/dev/null
  [ -n "${small:-}" ] && { "$WEFT" down "$small/mnt" >/dev/null 2>&1; umount -l "$small/mnt" 2>/dev/null; umount "$small" 2>/dev/null; }
  rm -rf --one-file-system "$work" "/etc/weft/$fsname".*.key "/etc/weft/${fsname}f".*.key
}
trap leave EXIT

t_up_down() {
  up
  up | grep -qi already
  mountpoint -q "$mnt"
  echo stays > "$mnt/stays"
  sync "$mnt/stays"
  down
  not mountpoint -q "$mnt"
  up
  [ "$(cat "$mnt/stays")" = stays ]
  "$WEFT" status "$mnt"
  "$WEFT" status --json "$mnt" | python3 -m json.tool >/dev/null
}

t_transcripts() {
  mkdir "$mnt/seed"
  cd "$mnt/seed"
  "$LFS" setstripe -c -1 shared-file
  "$LFS" getstripe shared-file > "$work/stripes"
  grep -q 'lmm_stripe_count:  4' "$work/stripes"
  grep -q 'lmm_stripe_size:   1048576' "$work/stripes"
  grep -q 'lmm_pattern:       raid0$' "$work/stripes"
  order=$(awk '/obdidx/ {on=1; next} on && NF {printf "%s ", $1}' "$work/stripes")
  case "$order" in "0 2 1 3 " | "2 1 3 0 " | "1 3 0 2 " | "3 0 2 1 ") ;; *) echo "order $order"; return 1 ;; esac
  "$LFS" setstripe -C 8 shared-file-OS
  "$LFS" getstripe shared-file-OS > "$work/stripes"
  grep -q 'lmm_stripe_count:  8' "$work/stripes"
  grep -q 'lmm_pattern:       raid0,overstriped$' "$work/stripes"
  order=$(awk '/obdidx/ {on=1; next} on && NF {printf "%s ", $1}' "$work/stripes")
  set -- $order
  [ "$1$2$3$4" = "$5$6$7$8" ]
  "$LFS" setstripe -c 2 -S 2M "$mnt/seed"
  [ "$("$LFS" getstripe -c "$mnt/seed")" = 2 ]
  touch inherits
  [ "$("$LFS" getstripe -S inherits)" = 2097152 ]
  "$LFS" setstripe -d "$mnt/seed"
  must_fail 1 "$LFS" setstripe -c 1 shared-file-with/no/dir
  echo data > full
  must_fail 1 "$LFS" setstripe -c 1 full
  grep -q 'File exists' "$work/err"
  must_fail 2 "$LFS" setstripe -S 65537 odd
  "$LFS" df "$mnt" | grep -c OST | grep -qx 4
  "$LFS" osts "$mnt"
  "$LFS" mdts "$mnt"
  fid=$("$LFS" path2fid inherits)
  "$LFS" fid2path "$mnt" "$fid" | grep -q 'seed/inherits'
  "$LFS" getstripe -v inherits > "$work/stripes"
  grep -qxF "lmm_fid:           $fid" "$work/stripes"
  "$LFS" check all "$mnt" > "$work/check"
  { echo "$fsname-MDT0000-mdc active."; for n in 0 1 2 3; do echo "$fsname-OST000$n-osc active."; done; } | cmp - "$work/check"
  # Of a file that is open for writing the MDT knows no size, and from a second after its close on the true one.
  exec 7> lazy
  echo text >&7
  [ "$("$LFS" getsom -f lazy)" = 4 ]
  exec 7>&-
  som_is() { [ "$("$LFS" getsom lazy)" = "file: lazy size: 5 blocks: $(stat -c %b lazy) flags: 1" ]; }
  # Not until_true: its seconds are whole ones, and the first of them may be short.
  for _ in 1 2 3 4 5 6 7 8 9; do
    if som_is; then break; fi
    sleep 0.1
  done
  som_is
  [ "$("$LFS" getsom -s lazy full)" = $'5\n5' ]
  must_fail 1 "$LFS" getsom "$mnt"
}

# As NFS servers open files, also after the mount has been new.
# Others use it, and it stays where it is; or they did not come between.
not_moved() { ! "$LFS" migrate -n -c 2 "$1" 2> "$work/err" && grep -q 'stays where it is: others use it' "$work/err"; }
# Modelled on Lustre's sanity-pfl: which components have objects, and when.
t_components() {
  mkdir "$mnt/pfl"
  cd "$mnt/pfl"
  "$LFS" setstripe -E 1M -c 1 -S 64K -E 2M -c 2 -E 4M -c -1 f
  flags() { "$LFS" getstripe --component-flags "$1" | tr '\n' ' '; }
  [ "$(flags f)" = "init 0 0 " ]
  [ "$("$LFS" getstripe -E f | tr '\n' ' ')" = "1048576 2097152 4194304 " ]
  [ "$("$LFS" getstripe -I2 -c f)" = 2 ]
  echo end | dd of=f bs=1 seek=3M conv=notrunc status=none
  [ "$(flags f)" = "init 0 init " ]
  truncate -s 1500K f
  [ "$(flags f)" = "init init init " ]
  "$LFS" getstripe f | grep -q 'lcm_entry_count:   3'
  # Behind the last component: ENODATA.
  truncate -s 4M f
  python3 -c '
import errno, os
f = os.open("f", os.O_WRONLY | os.O_APPEND)
try:
    os.write(f, b"x")
except OSError as error:
    assert error.errno == errno.ENODATA, error
else:
    raise SystemExit("it was written")'
  # Defaults of directories.
  mkdir d
  "$LFS" setstripe -E 1M -c 1 -E eof -c -1 d
  [ "$("$LFS" getstripe --component-count d)" = 2 ]
  dd if=/dev/urandom of="$work/random" bs=1M count=3 status=none
  cp "$work/random" d/f
  [ "$(flags d/f)" = "init init " ]
  [ "$("$LFS" getstripe -I2 -c d/f)" = 4 ]
  cmp "$work/random" d/f
  # Files that cannot be moved keep no others from it; each is told of.
  must_fail 1 "$LFS" migrate -c 1 d none d/f nothing
  [ "$(grep -c "stays where it is" "$work/err")" = 3 ]
  grep -q "'nothing' stays where it is: No such file" "$work/err"
  [ "$("$LFS" getstripe -c d/f)" = 1 ]
  cmp "$work/random" d/f
  # Names from a list, and no faster than is asked for: the second file waits until the first is paid for.
  cp "$work/random" $'d/two\nlines'
  "$LFS" find d -type f -print0 | "$LFS" migrate -0 -c 2
  [ "$("$LFS" getstripe -c d/f)$("$LFS" getstripe -c $'d/two\nlines')" = 22 ]
  mv $'d/two\nlines' d/g
  printf 'd/f\nd/g\n' > list
  local began=${EPOCHREALTIME/./}
  "$LFS" migrate -E 1M -c 1 -E eof -c 2 -v -W 2 --files-from list > "$work/moved"
  [ $((${EPOCHREALTIME/./} - began)) -ge 1500000 ]
  [ "$(sort "$work/moved" | xargs)" = "d/f d/g" ]
  [ "$("$LFS" getstripe --component-count d/g)" = 2 ]
  cmp "$work/random" d/f
  cmp "$work/random" d/g
  must_fail 1 "$LFS" migrate -c 1 --files-from nothing
  must_fail 2 "$LFS" migrate -c 1 --files-from list d/f
  must_fail 2 "$LFS" migrate -c 1 -W 0 d/f
  # With -n who uses a file goes before; nobody does, and then somebody all the time.
  must_fail 2 "$LFS" migrate -n -b -c 1 d/f
  dd if=/dev/urandom of=used bs=1M count=24 status=none
  "$LFS" migrate -n -c 1 used && [ "$("$LFS" getstripe -c used)" = 1 ]
  (while [ ! -e stop ]; do dd if=/dev/zero of=used bs=4k count=1 conv=notrunc status=none; done) &
  until_true 10 not_moved used
  touch stop
  wait $!
  "$LFS" migrate -n -c 1 used && [ "$("$LFS" getstripe -c used)" = 1 ]
  rm used stop
  cd /
  rm -r "$mnt/pfl"
}

# Modelled on Lustre's sanity-pfl 19: a component that extends itself, and how it is shown. What it does when OSTs are full is in
# t_room of test-osts.sh.
t_extending() {
  mkdir "$mnt/sel"
  cd "$mnt/sel"
  "$LFS" setstripe -E 1G -z 64M -c 1 -S 1M -E -1 -z 256M f
  flags() { "$LFS" getstripe --component-flags "$1" | tr '\n' ' '; }
  ends() { "$LFS" getstripe -E "$1" | tr '\n' ' '; }
  [ "$(flags f)" = "init extension 0 extension " ]
  [ "$(ends f)" = "67108864 1073741824 1073741824 EOF " ]
  [ "$("$LFS" getstripe -z f)" = 67108864 ]
  [ "$("$LFS" getstripe -z -I4 f)" = 268435456 ]
  "$LFS" getstripe -I2 f | grep -q 'lmm_extension_size: 67108864'
  echo end | dd of=f bs=1 seek=64M conv=notrunc status=none
  [ "$(ends f)" = "134217728 1073741824 1073741824 EOF " ]
  truncate -s 1G f
  [ "$(ends f)" = "1073741824 1073741824 EOF " ]
  echo end >> f
  [ "$(flags f)" = "init init extension " ]
  [ "$(ends f)" = "1073741824 1342177280 EOF " ]
  [ "$(tail -c 4 f)" = end ]
  # Moved, and as the default of a directory, it is like that again.
  mkdir d
  "$LFS" setstripe -E -1 -z 1M -c 1 d
  [ "$(flags d)" = "0 extension " ]
  dd if=/dev/urandom of="$work/random" bs=100K count=35 status=none
  cp "$work/random" d/f
  [ "$(ends d/f)" = "4194304 EOF " ]
  "$LFS" migrate d/f
  [ "$(ends d/f)" = "4194304 EOF " ]
  cmp "$work/random" d/f
  # Found as Lustre's manual has it.
  found() { "$LFS" find "$mnt/sel" "$@" | sort | tr '\n' ' '; }
  [ "$(found -z 1M)" = "$mnt/sel/d/f " ]
  [ "$(found -z +1M -type f)" = "$mnt/sel/f " ]
  [ "$(found --comp-flags extension)" = "$mnt/sel/d/f $mnt/sel/f " ]
  [ "$(found -component-count 3)" = "$mnt/sel/f " ]
  [ "$(found -E 4M)" = "$mnt/sel/d/f " ]
  must_fail 2 "$LFS" setstripe -z 64M -c 1 g
  must_fail 2 "$LFS" setstripe -E 64K -L mdt -z 64K -E -1 g
  must_fail 2 "$LFS" setstripe -E -1 -z 1000 g
  cd /
  rm -r "$mnt/sel"
}

# Data-on-MDT (FEATURES L16): a small file asks no OST for anything; a larger one goes on there.
t_on_mdt() {
  local dom=$mnt/dom before
  mkdir "$dom"
  "$LFS" setstripe -E 64K -L mdt -E -1 -c 2 "$dom"
  "$LFS" getstripe -d "$dom" | grep -q 'pattern:       mdt'
  # What the cases before have left to be told is told.
  down >/dev/null
  up >/dev/null
  asked() { "$(dirname "$WEFT")/lctl" get_param -n "obdfilter.$fsname-*.stats" | awk '$1 ~ /^(read|write|getattr|punch)$/ { n += $2 } END { print n + 0 }'; }
  before=$(asked)
  for n in $(seq 50); do head -c 3901 /dev/urandom > "$dom/small$n"; done
  sync "$dom/small50"
  cat "$dom"/small* > "$work/heads"
  cat "$dom"/small{1..6} > "$work/heads6"
  [ "$(stat -c %s "$work/heads")" = $((50 * 3901)) ]
  [ "$(stat -c %s "$dom/small7")" = 3901 ]
  truncate -s 100 "$dom/small7"
  echo more >> "$dom/small7"
  [ "$(stat -c %s "$dom/small7")" = 105 ]
  python3 -c '
import mmap, sys
with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 0) as pages:
    pages[0:5] = b"paged"' "$dom/small8"
  [ "$(head -c 5 "$dom/small8")" = paged ]
  [ "$(asked)" = "$before" ]
  "$LFS" getstripe "$dom/small1" | grep -q 'lmm_pattern:       mdt'
  [ "$("$LFS" find "$dom" -L mdt -type f | wc -l)" = 50 ]
  # An operator bounds what new files have there; those that are there stay as they are.
  local lctl
  lctl=$(dirname "$WEFT")/lctl
  [ "$("$lctl" get_param -n "lod.$fsname-*.dom_stripesize")" = 1048576 ]
  must_fail 22 "$lctl" set_param "lod.$fsname-*.dom_stripesize=65537"
  must_fail 22 "$lctl" set_param "lod.$fsname-*.dom_stripesize=2097152"
  mkdir "$dom/bound"
  "$LFS" setstripe -E 256K -L mdt -E -1 -c 2 "$dom/bound"
  ends() { rm -f "$dom/bound/f"; : > "$dom/bound/f"; [ "$("$LFS" getstripe -E "$dom/bound/f" | tr '\n' ' ')" = "$1" ]; }
  ends "262144 EOF "
  "$lctl" set_param "lod.$fsname-*.dom_stripesize=131072"
  until_true 5 ends "131072 EOF "
  head -c 300000 /dev/urandom | tee "$work/bound" > "$dom/bound/f"
  cmp "$work/bound" "$dom/bound/f"
  "$lctl" set_param "lod.$fsname-*.dom_stripesize=0"
  # A file of one component is shown as one without any.
  until_true 5 ends ""
  [ "$("$LFS" getstripe -L -c "$dom/bound/f" | tr -d ' \n')" = lmm_stripe_count:2lmm_pattern:raid0 ]
  [ "$("$LFS" getstripe -I1 -L "$dom/small1")" = mdt ]
  down
  up
  ends ""
  "$lctl" set_param "lod.$fsname-*.dom_stripesize=1048576"
  until_true 5 ends "262144 EOF "
  rm -r "$dom/bound"
  # Across the border, and with the caches of client and kernel gone.
  dd if=/dev/urandom of="$work/large" bs=1M count=3 status=none
  cp "$work/large" "$dom/large"
  dd if=/dev/urandom of="$work/patch" bs=1000 count=1 status=none
  for to in "$work/large" "$dom/large"; do dd if="$work/patch" of="$to" bs=1 seek=65000 conv=notrunc status=none; done
  down
  up
  cmp "$work/large" "$dom/large"
  head -c $((6 * 3901)) "$work/heads6" | cmp - <(cat "$dom"/small{1..6})
  [ "$(head -c 5 "$dom/small8")" = paged ]
  # Away from the MDT, and back.
  "$LFS" migrate -c 1 "$dom/large"
  [ "$("$LFS" getstripe -c "$dom/large")" = 1 ]
  cmp "$work/large" "$dom/large"
  "$LFS" migrate -E 64K -L mdt -E -1 "$dom/large"
  cmp "$work/large" "$dom/large"
  must_fail 2 "$LFS" setstripe -L mdt "$dom/x"
  must_fail 2 "$LFS" setstripe -E 64K -L mdt -c 2 -E -1 "$dom/x"
  rm -r "$dom"
  down
  for dir in $(find "$data" -name label -printf '%h\n'); do "$WEFT" check --data "$dir"; done
  up
}

t_handles() {
  python3 "$top/tests/handles.py" make "$mnt/handles" "$work/handles"
  python3 "$top/tests/handles.py" open "$mnt/handles" "$work/handles"
  down
  up
  python3 "$top/tests/handles.py" open "$mnt/handles" "$work/handles"
}

t_posix_basics() {
  python3 "$top/tests/basics.py" "$mnt"
}

t_source_tree() {
  mkdir "$mnt/src"
  git clone -q "$top" "$mnt/src/weft"
  git -C "$mnt/src/weft" fsck --full
  cp -r "$top"/. "$mnt/src/copy" 2>/dev/null || true
  cd "$mnt/src/weft"
  mkdir -p .cargo
  cargo vendor -q vendor > "$work/vendor.toml"
  cat "$work/vendor.toml" >> .cargo/config.toml
  find vendor -type f | wc -l
  export CARGO_TARGET_DIR=$mnt/src/target
  local quick='profile.dev.package."*".opt-level=0'
  cargo build --offline -q -p weft-proto --config "$quick"
  cargo test --offline -q -p weft-proto --lib --config "$quick"
  tar -cf "$work/tree.tar" -C vendor .
  mkdir "$work/plain" "$mnt/src/untar"
  tar -xf "$work/tree.tar" -C "$work/plain"
  tar -xf "$work/tree.tar" -C "$mnt/src/untar"
  diff -r "$work/plain" "$mnt/src/untar"
  rm -rf "$mnt/src" "$work/plain" "$work/tree.tar"
}

t_sqlite() {
  python3 "$top/tests/sqlite.py" "$mnt/db"
}

t_fio_verify() {
  fio --name=verify --directory="$mnt" --rw=randwrite --bs=4k-128k --size=128m --numjobs=2 --verify=crc32c --verify_state_save=0 \
    --verify_fatal=1 --fsync=64 --randseed=7 --minimal
  rm -f "$mnt"/verify.*
}

t_survives() {
  "$LFS" setstripe -c 4 "$mnt/big"
  dd if=/dev/urandom of="$work/big" bs=1M count=1024 status=none
  dd if="$work/big" of="$mnt/big" bs=1M conv=fsync,notrunc status=none
  sum=$(sha256sum < "$work/big")
  [ "$(sha256sum < "$mnt/big")" = "$sum" ]
  down
  up
  [ "$(sha256sum < "$mnt/big")" = "$sum" ]
  dd if="$work/big" of="$mnt/big2" bs=1M count=256 conv=fsync status=none
  kill -9 "$(daemon_pid "$mnt")"
  up
  [ "$(sha256sum < "$mnt/big")" = "$sum" ]
  cmp -n $((256 * 1048576)) "$work/big" "$mnt/big2"
  rm -f "$mnt/big" "$mnt/big2" "$work/big"
  down
  for dir in $(find "$data" -name label -printf '%h\n'); do "$WEFT" check "$dir"; done
  up
}

# fsync keeps names and attributes: everything is killed in the moment in which it returns.
t_fsync_keeps() {
  local lost="" row
  python3 "$top/tests/durable.py" make "$mnt/durable"
  for row in $(python3 "$top/tests/durable.py" rows); do
    python3 "$top/tests/durable.py" change "$mnt/durable" "$(daemon_pid "$mnt")" "$row"
    up
    python3 "$top/tests/durable.py" look "$mnt/durable" "$row" || lost="$lost $row"
  done
  rm -rf "$mnt/durable"
  [ -z "$lost" ] || { echo "lost:$lost"; return 1; }
}

# An OST directory that is full: the writer learns it, and what was fsynced stays.
t_full() {
  small=$work/small
  mkdir -p "$small"
  mount -t tmpfs -o size=192m tmpfs "$small"
  mkdir -p "$small/mnt"
  "$WEFT" up "$small/mnt" --data "$small/data" --fsname "${fsname}f"
  dd if=/dev/urandom of="$work/kept" bs=1M count=16 status=none
  dd if="$work/kept" of="$small/mnt/kept" bs=1M conv=fsync status=none
  if dd if=/dev/zero of="$small/mnt/fill" bs=1M count=400 conv=fsync 2> "$work/dd"; then
    echo "400 MiB fit into 192"; return 1
  fi
  grep -q 'No space left' "$work/dd"
  cmp "$work/kept" "$small/mnt/kept"
  rm "$small/mnt/fill"
  "$WEFT" down "$small/mnt"
  "$WEFT" up "$small/mnt" --data "$small/data" --fsname "${fsname}f"
  cmp "$work/kept" "$small/mnt/kept"
  dd if="$work/kept" of="$small/mnt/again" bs=1M conv=fsync status=none
  "$WEFT" down "$small/mnt"
  umount "$small"
  small=
}

# flip FILE OFFSET: changes one bit of a file; the same again brings it back.
flip() {
  python3 -c 'import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(int(sys.argv[2]))
    byte = file.read(1)[0]
    file.seek(int(sys.argv[2]))
    file.write(bytes([byte ^ 16]))' "$1" "$2"
}

# One bit is changed in any record of a log, the last one too: the target is not served, and the checker says what is wrong. Nothing
# may be missing in silence: everything was fsynced.
t_damaged_log() {
  local dir log ost at trials=0
  mkdir "$mnt/kept"
  "$LFS" setstripe -c 1 "$mnt/kept"
  for n in $(seq 20); do
    echo "content $n" > "$mnt/kept/$n"
    sync "$mnt/kept/$n"
  done
  kill -9 "$(daemon_pid "$mnt")"
  umount -l "$mnt" 2>/dev/null || true
  for dir in $(find "$data" -name label -printf '%h\n'); do
    "$WEFT" check "$dir" > "$work/clean"
    log=$(find "$dir/log" -type f | sort | tail -n 1)
    for at in $(grep -aobP '^WLR2|\x00WLR2' "$log" | cut -d: -f1); do
      at=$(((at + 4095) / 4096 * 4096))
      flip "$log" $((at + 90))
      if "$WEFT" check "$dir" > "$work/said"; then echo "$dir at $at"; cat "$work/said"; return 1; fi
      grep -q "log is damaged.*from byte $at on" "$work/said"
      flip "$log" $((at + 90))
      trials=$((trials + 1))
    done
    case $dir in
      */OST*)
        ost=$log
        continue ;;
    esac
    flip "$log" 4186
    if up 2> "$work/refused"; then echo "$dir is served"; return 1; fi
    grep -q 'log is damaged' "$work/refused"
    flip "$log" 4186
    "$WEFT" check "$dir" > "$work/clean"
  done
  # An OST is left out, and the others are served.
  flip "$ost" 4186
  if up > "$work/said" 2>&1; then echo "up says nothing of $ost"; return 1; fi
  grep -q 'FAILED: .*OST000[0-3] is not served: .*log is damaged' "$work/said"
  if "$WEFT" status "$mnt" > "$work/said"; then echo "nothing is said of $ost"; return 1; fi
  grep -q 'FAILED: .*OST000[0-3] is not served: .*log is damaged' "$work/said"
  down
  flip "$ost" 4186
  [ "$trials" -ge 20 ] || { echo "there were $trials records only"; return 1; }
  up
  for n in $(seq 20); do [ "$(cat "$mnt/kept/$n")" = "content $n" ]; done
  rm -r "$mnt/kept"
}

# fids DIR: the FIDs of the files there, in order.
fids() { for file in "$1"/*; do "$LFS" path2fid "$file"; done | sort; }

# One target is restored from a copy: it is refused, however often; accepted, it gives no FID again. All of them restored together start.
t_older_copy() {
  local n mdt whole=$work/whole
  mkdir "$mnt/older"
  down
  cp -a "$data" "$whole"
  mdt=$data/MDT0000
  cp -a "$mdt" "$work/older.mdt"
  up
  for n in $(seq 12); do echo "first $n" > "$mnt/older/$n"; sync "$mnt/older/$n"; done
  fids "$mnt/older" > "$work/first.fids"
  kill -9 "$(daemon_pid "$mnt")"
  umount -l "$mnt" 2>/dev/null || true
  mv "$mdt" "$work/newer.mdt"
  cp -a "$work/older.mdt" "$mdt"
  for n in 1 2 3; do
    if up 2> "$work/refused"; then echo "an older MDT is served"; return 1; fi
    grep -q 'holds an older copy' "$work/refused"
  done
  "$WEFT" check --accept-older-copy "$mdt"
  up
  [ "$(ls "$mnt/older" | wc -l)" = 0 ]
  for n in $(seq 12); do echo "second $n" > "$mnt/older/$n"; sync "$mnt/older/$n"; done
  fids "$mnt/older" > "$work/second.fids"
  [ -z "$(comm -12 "$work/first.fids" "$work/second.fids")" ]
  down && up
  for n in $(seq 12); do [ "$(cat "$mnt/older/$n")" = "second $n" ]; done
  down
  mv "$mdt" "$work/accepted.mdt" && mv "$work/newer.mdt" "$mdt"
  if up 2> "$work/refused"; then echo "both are served"; return 1; fi
  grep -q 'holds an older copy' "$work/refused"
  rm -rf "$data" && mv "$whole" "$data"
  up
  [ -d "$mnt/older" ] && rmdir "$mnt/older"
}

# What serves the mount, and what the kernel was told to use.
engine_of() {
  "$WEFT" status --json "$1" | python3 -c 'import json,sys; print(json.load(sys.stdin)[0]["status"]["fuse_engine"])'
}

# Basics, waits that are interrupted and a forced unmount, on every engine that there is here.
t_engines() {
  local engines=dev engine before nid second=$work/second
  [ -n "$uring_before" ] && echo Y > "$uring_switch" && engines="dev uring"
  mkdir -p "$second"
  for engine in $engines; do
    down
    up -o fuse_engine=$engine --listen 127.0.0.1:0@tcp
    [ "$(engine_of "$mnt")" = $engine ]
    mkdir "$mnt/$engine"
    python3 "$top/tests/basics.py" "$mnt/$engine"
    nid=$("$WEFT" status --json "$mnt" |
      python3 -c 'import json,sys; print(next(n for t in json.load(sys.stdin)[0]["targets"] for n in t["nids"] if "tcp" in n))')
    "$WEFT" mount -o fuse_engine=$engine "$nid:/$fsname" "$second"
    [ "$(engine_of "$second")" = $engine ]
    mkdir "$mnt/dir"
    python3 "$top/tests/interrupts.py" "$second" "$(daemon_pid "$mnt")" "$(daemon_pid "$second")"
    rm -rf "$mnt/file" "$mnt/dir" "$mnt/own"
  done
  down
  # Who switches FUSE over io_uring on leaves it as it was; who finds it on, or has chosen, leaves it alone.
  if [ -n "$uring_before" ]; then
    for before in N Y; do
      echo $before > "$uring_switch"
      WEFT_FUSE_ENGINE=auto up > "$work/greeting"
      [ "$(engine_of "$mnt") $(cat "$uring_switch")" = "uring Y" ]
      # It was read when the mount began.
      echo N > "$uring_switch"
      echo "$before" > "$mnt/switched"
      [ "$(cat "$mnt/switched")" = $before ]
      echo Y > "$uring_switch"
      down
      [ "$(cat "$uring_switch")" = $before ]
    done
  fi
  up
}

# Eight threads look up names of one directory that nobody knows yet, over a link of 1 ms: the kernel has them ask at the same time.
t_parallel_lookups() {
  local engines=dev engine address second=$work/second most count slow daemon
  [ -n "$uring_before" ] && echo Y > "$uring_switch" && engines="dev uring"
  mkdir -p "$second" "$mnt/many"
  down
  up --listen 127.0.0.1:0@tcp
  address=$("$WEFT" status --json "$mnt" |
    python3 -c 'import json,sys; print(next(n for t in json.load(sys.stdin)[0]["targets"] for n in t["nids"] if "tcp" in n))')
  ip netns add "$net"
  nsenter --net="/run/netns/$net" ip link set lo up
  for engine in $engines; do
    mkdir "$mnt/many/$engine"
    (cd "$mnt/many/$engine" && touch $(seq -f 'name%.0f' 160))
    local port=${address%@*}
    python3 "$top/tests/slowlink.py" "/run/netns/$net" "${port##*:}" 1 22 "$work/most" > "$work/slowlink" & slow=$!
    echo "$slow" > "$work/slow"
    timeout 10 bash -c "until grep -q ready '$work/slowlink'; do sleep 0.05; done"
    nsenter --net="/run/netns/$net" "$WEFT" mount -o fuse_engine=$engine "$address:/$fsname" "$second"
    # Names that are asked for ahead travel together.
    "$(dirname "$WEFT")/lctl" set_param 'llite.*.enable_statahead_fname=0' > /dev/null
    python3 - "$second/many/$engine" <<'PY'
import os, sys, threading
barrier = threading.Barrier(8)
os.stat(sys.argv[1])
def look(first):
    barrier.wait()
    for n in range(first, 160, 8):
        os.stat(f"{sys.argv[1]}/name{n + 1}")
threads = [threading.Thread(target=look, args=(first,)) for first in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
PY
    # A client that has not said goodbye would be waited for by the next servers.
    daemon=$(daemon_pid "$second")
    umount "$second"
    timeout 20 tail -s 0.1 --pid="$daemon" -f /dev/null
    kill "$slow"
    wait "$slow"
    read -r most count < "$work/most"
    echo "$engine: $most of $count lookups at the same time"
    # Each name once, and the directories on the way.
    [ "$most" -ge 6 ]
    [ "$count" -ge 160 ]
  done
  ip netns del "$net"
  down
  up
}

# What a change of data by somebody else takes from the mode, as on ext4 (Linux 6.2): setuid, and setgid of what the group may execute, or of
# the file of a group that one is not in.
# Names that end in numbers are asked for ahead, and a listing brings the attributes with the names: over a link of 1 ms.
t_statahead() {
  local address port second=$work/second slow daemon lctl most count
  lctl=$(dirname "$WEFT")/lctl
  mkdir -p "$second" "$mnt/ahead/off" "$mnt/ahead/on" "$mnt/ahead/shared"
  down
  up --listen 127.0.0.1:0@tcp
  address=$("$WEFT" status --json "$mnt" |
    python3 -c 'import json,sys; print(next(n for t in json.load(sys.stdin)[0]["targets"] for n in t["nids"] if "tcp" in n))')
  (cd "$mnt/ahead/off" && touch $(seq -f 'file.mdtest.0.%.0f' 1000))
  (cd "$mnt/ahead/on" && touch $(seq -f 'file.mdtest.0.%.0f' 1000))
  (cd "$mnt/ahead/shared" && for rank in 0 1 2 3; do touch $(seq -f "file.mdtest.$rank.%.0f" 250); done)
  mkdir "$mnt/ahead/listed"
  (cd "$mnt/ahead/listed" && seq -f 'n%.0f' 20000 | xargs -n 2000 touch)
  ip netns add "$net"
  nsenter --net="/run/netns/$net" ip link set lo up
  port=${address%@*}
  python3 "$top/tests/slowlink.py" "/run/netns/$net" "${port##*:}" 1 23 "$work/most" > "$work/slowlink" & slow=$!
  timeout 10 bash -c "until grep -q ready '$work/slowlink'; do sleep 0.05; done"
  nsenter --net="/run/netns/$net" "$WEFT" mount "$address:/$fsname" "$second"
  python3 - "$second/ahead" "$lctl" <<'PY'
import os, subprocess, sys, threading, time
ahead, lctl = sys.argv[1:]

def param(*words):
    return subprocess.run([lctl, *words], check=True, capture_output=True, text=True).stdout

def look(directory, names):
    for name in names:
        os.stat(f"{ahead}/{directory}/{name}")

def timed(directory, *all_names):
    os.stat(f"{ahead}/{directory}")
    threads = [threading.Thread(target=look, args=(directory, names)) for names in all_names]
    begin = time.monotonic()
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return time.monotonic() - begin

def stats():
    lines = (line.rsplit(": ", 1) for line in param("get_param", "-n", "llite.*.statahead_stats").splitlines() if ": " in line)
    counts = {}
    for name, count in lines:
        counts[name] = counts.get(name, 0) + int(count)
    return counts

names = [f"file.mdtest.0.{n}" for n in range(1, 1001)]
param("set_param", "llite.*.enable_statahead_fname=0")
off = timed("off", names)
param("set_param", "llite.*.enable_statahead_fname=1")
param("set_param", "llite.*.statahead_stats=clear")
on = timed("on", names)
unique = stats()
param("set_param", "llite.*.statahead_stats=clear")
shared = timed("shared", *([f"file.mdtest.{rank}.{n}" for n in range(1, 251)] for rank in range(4)))
ranks = stats()
begin = time.monotonic()
subprocess.run(["ls", "-l", f"{ahead}/listed"], check=True, stdout=subprocess.DEVNULL)
listed = time.monotonic() - begin
print(f"1,000 names: {off:.2f} s one after the other, {on:.2f} s ahead {unique}; 4 ranks: {shared:.2f} s {ranks}; ls -l of 20,000: {listed:.2f} s")
assert on * 4 < off and unique["hit_total"] >= 900 and ranks["hit_total"] >= 900, "names are not asked for ahead"
# Each of them alone would take its millisecond. How many requests it is counts below, whatever the machine is doing.
assert listed < 10.0, "the listing asks for each file"
PY
  daemon=$(daemon_pid "$second")
  umount "$second"
  timeout 20 tail -s 0.1 --pid="$daemon" -f /dev/null
  kill "$slow"
  wait "$slow"
  read -r most count < "$work/most"
  echo "$count requests for 20,000 entries"
  [ "$count" -le 375 ]
  rm -r "$mnt/ahead"
  ip netns del "$net"
  down
  up
}

# Files that are made ahead of the MDT, over a link of 1 ms: nobody waits for them, and the other mount has them all.
t_made_ahead() {
  local address port second=$work/second slow daemon lctl
  lctl=$(dirname "$WEFT")/lctl
  mkdir -p "$second"
  down
  up --listen 127.0.0.1:0@tcp
  address=$("$WEFT" status --json "$mnt" |
    python3 -c 'import json,sys; print(next(n for t in json.load(sys.stdin)[0]["targets"] for n in t["nids"] if "tcp" in n))')
  ip netns add "$net"
  nsenter --net="/run/netns/$net" ip link set lo up
  port=${address%@*}
  python3 "$top/tests/slowlink.py" "/run/netns/$net" "${port##*:}" 1 24 "$work/most" > "$work/slowlink" & slow=$!
  timeout 10 bash -c "until grep -q ready '$work/slowlink'; do sleep 0.05; done"
  nsenter --net="/run/netns/$net" "$WEFT" mount "$address:/$fsname" "$second"
  python3 - "$second" "$mnt" "$lctl" <<'PY'
import os, subprocess, sys, tempfile, time
far, near, lctl = sys.argv[1:]

def param(*words):
    return subprocess.run([lctl, *words], check=True, capture_output=True, text=True).stdout

def content(n):
    return str(n).encode() * (n % 500)

def make(directory, count):
    os.mkdir(f"{far}/{directory}")
    begin = time.monotonic()
    for n in range(count):
        with open(f"{far}/{directory}/f{n}", "xb", buffering=0) as file:
            if n % 3:
                file.write(content(n))
    made = time.monotonic() - begin
    fd = os.open(f"{far}/{directory}", os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    synced = time.monotonic() - begin
    assert len(os.listdir(f"{near}/{directory}")) == count
    for n in range(count):
        with open(f"{near}/{directory}/f{n}", "rb") as file:
            assert file.read() == (content(n) if n % 3 else b""), n
    return made, synced

def shown(path):
    """What others see of a tree."""
    seen = {}
    for top, dirs, files in os.walk(path):
        for name in dirs + files:
            at = os.path.join(top, name)
            stat = os.lstat(at)
            link = os.path.islink(at)
            said = os.readlink(at) if link else None if name in dirs else open(at, "rb").read()
            seen[os.path.relpath(at, path)] = (stat.st_mode, stat.st_uid, None if link else stat.st_mtime_ns, said)
    return seen

def unpack(archive, directory):
    os.mkdir(f"{far}/{directory}")
    begin = time.monotonic()
    subprocess.run(["tar", "xpf", archive, "-C", f"{far}/{directory}"], check=True)
    unpacked = time.monotonic() - begin
    seen = shown(f"{near}/{directory}")
    subprocess.run(["tar", "xpf", archive, "-C", f"{far}/{directory}", "--one-top-level=again"], check=True)
    begin = time.monotonic()
    subprocess.run(["rm", "-r", f"{far}/{directory}/again"], check=True)
    return unpacked, time.monotonic() - begin, seen

def pack(archive):
    with tempfile.TemporaryDirectory() as tree:
        for d in range(20):
            os.mkdir(f"{tree}/d{d}")
            for n in range(10):
                with open(f"{tree}/d{d}/f{n}", "wb") as file:
                    file.write(content(d * 10 + n))
                os.chmod(f"{tree}/d{d}/f{n}", 0o600 + n)
                os.utime(f"{tree}/d{d}/f{n}", ns=(10**18 + n, 10**18 + d))
            os.symlink(f"f{d % 10}", f"{tree}/d{d}/link")
            os.utime(f"{tree}/d{d}", ns=(10**18, 10**18 + d))
        subprocess.run(["tar", "cf", archive, "--format=posix", "-C", tree, "."], check=True)

archive = f"{near}/archive"
pack(archive)
param("set_param", "llite.*.metadata_writeback=0")
asked = make("asked", 400)
tree_asked = unpack(archive, "tree-asked")
param("set_param", "llite.*.metadata_writeback=1")
ahead = make("ahead", 400)
stats = param("get_param", "-n", "llite.*.metadata_writeback_stats")
print(f"400 files: {asked[0]:.2f} s (durable names {asked[1]:.2f} s); ahead {ahead[0]:.2f} s ({ahead[1]:.2f} s)")
assert "made: 400" in stats and "lost: 0" in stats, stats
assert ahead[0] * 5 < asked[0], "files are not made ahead"
tree = unpack(archive, "tree")
print(f"an archive of 241 entries: {tree_asked[0]:.2f} s, removed in {tree_asked[1]:.2f} s; ahead {tree[0]:.2f} s, {tree[1]:.2f} s")
assert len(tree[2]) == 240 and tree[2] == tree_asked[2], "others see another tree"
assert tree[0] * 5 < tree_asked[0], "a tree is not made ahead"
assert "lost: 0" in param("get_param", "-n", "llite.*.metadata_writeback_stats")
PY
  daemon=$(daemon_pid "$second")
  umount "$second"
  timeout 20 tail -s 0.1 --pid="$daemon" -f /dev/null
  kill "$slow"
  wait "$slow"
  rm -r "$mnt/asked" "$mnt/ahead" "$mnt/archive" "$mnt/tree" "$mnt/tree-asked"
  ip netns del "$net"
  down
  up
}

t_privileges() {
  python3 - "$mnt/privileges" <<'PY'
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
KEEP_SIZE, PUNCH, ZERO = 1, 2, 16
OWNER, GROUP, USER = 1001, 1002, 65534

def fallocate(mode):
    def call(file):
        if libc.fallocate(file, mode, ctypes.c_int64(0), ctypes.c_int64(4096)):
            raise OSError(ctypes.get_errno(), "fallocate")
    return call

def copy(file):
    source = os.open("source", os.O_RDONLY)
    assert os.copy_file_range(source, file, 5) == 5

CHANGES = {
    "write": lambda file: os.write(file, b"x"),
    "truncate": lambda file: os.ftruncate(file, 5),
    "truncate by name": lambda file: os.truncate("file", 5),
    "allocate": fallocate(0),
    "keep the size": fallocate(KEEP_SIZE),
    "hole": fallocate(PUNCH | KEEP_SIZE),
    "zeros": fallocate(ZERO),
    "copy": copy,
}

def changed(change, mode, user, groups, late):
    """The mode after a change by `user`; `late`: it got its bits after it was opened."""
    with open("file", "wb") as file:
        file.write(b"something")
    os.chown("file", OWNER, GROUP)
    os.chmod("file", mode & 0o777 if late else mode)
    told, tell = os.pipe()
    opened, go = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(groups)
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            file = os.open("file", os.O_RDWR)
            os.write(tell, b"x")
            os.read(opened, 1)
            change(file)
            os._exit(0)
        except BaseException as error:
            print(error, flush=True)
            os._exit(1)
    os.close(tell)
    os.read(told, 1)
    if late:
        os.chmod("file", mode)
    os.write(go, b"x")
    assert os.waitpid(child, 0)[1] == 0
    for end in told, opened, go:
        os.close(end)
    after = os.stat("file").st_mode & 0o7777
    os.unlink("file")
    return after

os.mkdir(sys.argv[1])
os.chmod(sys.argv[1], 0o755)
os.chdir(sys.argv[1])
with open("source", "w") as file:
    file.write("source")
wrong = 0
for name, change in CHANGES.items():
    for late in False, True:
        for mode, stranger, member in [
            (0o6666, 0o0666, 0o2666),
            (0o6676, 0o0676, 0o0676),
            (0o6766, 0o0766, 0o2766),
            (0o6777, 0o0777, 0o0777),
            (0o2666, 0o0666, 0o2666),
        ][:2 if late else None]:
            for who, user, groups, expected in [
                ("a stranger", USER, [], stranger),
                ("a member", USER, [5, GROUP], member),
                ("root", 0, [], mode),
            ]:
                after = changed(change, mode, user, groups, late)
                if after != expected:
                    wrong += 1
                    print(f"{name} by {who}{' after chmod' if late else ''}: {mode:o} becomes {after:o}, not {expected:o}")
sys.exit(wrong > 0)
PY
}

# The same files as find(1), with every test that both have.
t_find() {
  mkdir "$mnt/find"
  python3 "$top/tests/find.py" "$LFS" "$mnt/find"
  must_fail 2 "$LFS" find "$mnt" -prune
  grep -q "unknown test or action '-prune'" "$work/err"
  must_fail 1 "$LFS" find "$work"
  rm -rf "$mnt/find"
}

t_bad_input() {
  must_fail 2 "$WEFT" up
  must_fail 2 "$WEFT" frobnicate
  must_fail 2 "$WEFT" up "$work/x" --osts none
  must_fail 2 "$WEFT" up "$work/x" -o fuse_engine=fast
  must_fail 2 "$WEFT" up "$work/nosuch/dir/x" --fsname waytoolongname
  touch "$work/plainfile"
  must_fail 1 "$WEFT" up "$work/plainfile" --data "$work/d2"
  must_fail 1 "$WEFT" up "$mnt" --data "$work/d3" --fsname other
  must_fail 1 "$WEFT" serve "$work"
  if "$WEFT" check "$work"; then echo "no target is found to be one"; return 1; fi
  "$WEFT" down "$work" | grep -q "Nothing is mounted"
  must_fail 1 "$WEFT" mount 127.0.0.1:1@tcp:/nofs "$work/none"
  must_fail 1 "$LFS" getstripe "$work"
  must_fail 1 "$LFS" getstripe "$mnt/nosuch"
  must_fail 1 "$LFS" path2fid "$work"
}

all="up_down transcripts components extending on_mdt handles posix_basics sqlite fio_verify source_tree survives damaged_log older_copy fsync_keeps full engines parallel_lookups statahead privileges find bad_input"
up >/dev/null || { echo "weft up failed"; exit 1; }
down >/dev/null
check up_down t_up_down
mountpoint -q "$mnt" || up >/dev/null
for case in ${*:-$all}; do
  [ "$case" = up_down ] || { check "$case" "t_$case"; mountpoint -q "$mnt" || up >/dev/null; }
done
finish
