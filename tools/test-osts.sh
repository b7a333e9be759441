#!/usr/bin/env bash
# OSTs come and go: one that is lost is replaced, one is emptied and taken out, its index is used again; new files go where room is; with
# real processes.
# Usage: tools/test-osts.sh [CASE...]; needs root, bin/weft, python3, iproute2.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

LCTL=$(dirname "$WEFT")/lctl
export WEFT_RUN=$work/run
more=$work/more
# The names of the file systems of the cases of these names.
sparse=${two_fsname/w2/w3} room=${two_fsname/w2/w4}
trap 'umount -l "$more" 2>/dev/null; two_down; umount -l "$work"/disk.? 2>/dev/null
  rm -rf --one-file-system "$work" "/etc/weft/$sparse".*.key "/etc/weft/$room".*.key' EXIT

lctl() { in_two timeout 60 "$LCTL" "$@"; }
kill_server() {
  local pid
  pid=$(sed -n "$1p" "$work/two.pids")
  kill -9 "$pid"
  tail --pid="$pid" -f /dev/null
}
# serve_again LINE NAME PORT DIR...: in the place of the one that was killed.
serve_again() {
  local line=$1
  shift
  two_serve "$@"
  sed -i -e "$line s/.*/$(tail -n 1 "$work/two.pids")/" -e '$d' "$work/two.pids"
}
format_ost() {
  "$WEFT" format --ost --fsname "$two_fsname" --index "$1" --mgsnode 127.0.0.1:7001@tcp "${@:2}"
}
# refused_with SENTENCE DIR: a server that does not start, and says so.
refused_with() {
  local got=0
  # Its log comes on stderr, too.
  in_two timeout 60 "$WEFT" serve "$2" --listen 127.0.0.1:7009@tcp > "$work/out" 2> "$work/err" || got=$?
  cat "$work/err"
  [ "$got" = 1 ]
  grep -q "^weft: .*$1" "$work/err"
}
# files make DIR | look DIR LIST: files of stripes of 64 KiB, each with bytes of its own. Those in LIST have lost what they had on OST 1, and
# nothing else; all others are whole.
files() { python3 "$top/tests/stripes.py" "$LFS" "$@"; }
# Makes files through a mount that is gone afterwards: the MDT knows how large they are.
make_and_leave() {
  local pid
  mkdir -p "$more"
  two_mount "$more"
  files make "$more/$1"
  pid=$(daemon_pid "$more")
  umount "$more"
  tail --pid="$pid" -f /dev/null
}
has_osts() { [ "$("$LFS" osts "$two_a" | grep -c ' ACTIVE$')" = "$1" ]; }

# Only what lay on the lost disk is lost, it is an error, and was listed before; the index is used again (conf-sanity 69).
t_lost() {
  local ost=$two_fsname-OST0001
  make_and_leave tree
  "$LFS" find "$two_a/tree" -type f --ost 1 | sed "s|.*/||" | sort > "$work/lost"
  "$LFS" find "$two_a/tree" -type f ! --ost 1 | sed "s|.*/||" | sort > "$work/whole"
  [ -s "$work/lost" ] && [ -s "$work/whole" ]
  # A program that goes on writing, to OST 0.
  "$LFS" setstripe -i 0 -c 1 "$two_a/steady"
  ( n=0; while [ ! -e "$work/enough" ]; do n=$((n + 1)); echo "$n" >> "$two_a/steady" || break; done; echo "$n" > "$work/wrote" ) > /dev/null 2>&1 &
  # Of what is open for writing nobody but its OST knows how large it is.
  "$LFS" setstripe -i 1 -c 1 "$two_a/open"
  exec 7> "$two_a/open"
  echo text >&7
  sync "$two_a/open"
  kill_server 3
  exec 7>&-
  cp -a "$work/two.ost1" "$work/old.ost1"
  rm -rf "$work/two.ost1"

  # Nobody has to wait for it.
  lctl set_param "osc.$ost-*.active=0" > /dev/null
  grep -qx 0 <(lctl get_param -n "osc.$ost-*.active")
  serve_again 3 two-oss1 7003 "$work/two.ost0"
  lctl set_param "osc.*.active=1" > /dev/null
  lctl set_param "osc.$ost-*.active=0" > /dev/null
  timeout 60 python3 "$top/tests/stripes.py" "$LFS" look "$two_b/tree" "$work/lost"
  "$LFS" df "$two_b" | grep -qx "${ost}_UUID *: inactive device"

  # A disk by mistake, and then the right one.
  format_ost 1 "$work/mistake"
  refused_with "its index is used by another target" "$work/mistake"
  format_ost 1 --replace "$work/two.ost1"
  kill_server 3
  serve_again 3 two-oss1 7003 "$work/two.ost0" "$work/two.ost1"
  lctl set_param "osc.*.active=1" > /dev/null
  until_true 60 has_osts 4
  timeout 120 python3 "$top/tests/stripes.py" "$LFS" look "$two_a/tree" "$work/lost"
  timeout 120 python3 "$top/tests/stripes.py" "$LFS" look "$two_b/tree" "$work/lost"
  refused_with "its index is used by another target" "$work/old.ost1"

  # New files lie there, through both mounts; the lost ones can be removed.
  for mount in "$two_a" "$two_b"; do
    "$LFS" setstripe -i 1 -c 1 "$mount/new"
    head -c 1000000 /dev/urandom | tee "$work/new" > "$mount/new"
    cmp "$work/new" "$two_b/new"
    cmp "$work/new" "$two_a/new"
    [ "$("$LFS" getstripe -i "$mount/new")" = 1 ]
    rm "$mount/new"
  done
  must_fail 1 stat "$two_b/open"
  grep -q "Input/output error" "$work/err"
  python3 -c 'import os, sys; os.chmod(sys.argv[1], 0o600)' "$two_b/open"
  "$LFS" find "$two_b" -maxdepth 1 -name open --ost 1 | grep -q open
  rm "$two_b/open"
  not test -e "$two_b/open"
  touch "$work/enough"
  until_true 20 test -e "$work/wrote"
  [ "$(wc -l < "$two_b/steady")" = "$(cat "$work/wrote")" ]
  xargs -I {} rm "$two_a/tree/{}" < "$work/lost"
  : > "$work/none"
  timeout 120 python3 "$top/tests/stripes.py" "$LFS" look "$two_b/tree" "$work/none"
  rm -r "$two_a/tree"
}

# An OST is emptied while files are in use, taken out, and comes back; then another one takes its index (conf-sanity 123ah).
t_removed() {
  local ost=$two_fsname-OST0003 dir=$two_a/removed limit
  mkdir "$dir"
  chmod 777 "$dir"
  lctl pool_new "$two_fsname.fast"
  lctl pool_add "$two_fsname.fast" OST0002 OST0003
  files make "$dir/tree"
  setpriv --reuid 4321 --regid 4321 --clear-groups bash -c "head -c 3000000 /dev/zero > '$dir/mine'"
  "$LFS" migrate -i 3 -c 1 "$dir/mine"
  "$LFS" setquota -u 4321 -B 1G "$two_a"
  lctl set_param "obdfilter.$ost.no_create=1" > /dev/null
  "$LFS" df "$two_a" | grep -q "^${ost}_UUID .*\[OST:3\] N$"
  avoids() { rm -f "$dir/avoids"; "$LFS" setstripe -c -1 "$dir/avoids"; [ "$("$LFS" getstripe -c "$dir/avoids")" = 3 ]; }
  until_true 5 avoids
  "$LFS" find "$two_a" -type f --ost 3 -print0 | "$LFS" migrate -0 -c 2 -S 64K
  [ -z "$("$LFS" find "$two_a" -type f --ost 3)" ]

  lctl --device MGS del_ost --dryrun --target "$ost" > "$work/dry"
  grep -qx "\[DRY RUN\] del_ost: $ost removed from pool fast" "$work/dry"
  has_osts 4
  lctl --device MGS del_ost --target "$ost"
  until_true 10 has_osts 3
  "$LFS" df "$two_a" | grep -qx "${ost}_UUID *: inactive device"
  [ "$(lctl pool_list "$two_fsname.fast" | grep -c OST)" = 1 ]
  mkdir -p "$more"
  two_mount "$more"
  [ "$("$LFS" df "$more" | grep -c '\[OST:')" = 3 ]
  not grep -q OST0003 <("$LFS" df "$more")
  "$WEFT" status "$more" | grep -q HEALTHY
  [ "$(in_two "$LFS" quota -v -u 4321 "$two_a" | grep -c 'OST000[0-9]_UUID')" = 3 ]
  # All of the limit is there for those that are left.
  limit=$(setpriv --reuid 4321 --regid 4321 --clear-groups dd if=/dev/zero of="$dir/rest" bs=1M count=1100 2>&1 || true)
  echo "$limit"
  grep -q "Disk quota exceeded" <<< "$limit"
  "$WEFT" sync "$two_a"
  [ "$("$LFS" quota -q -u 4321 "$two_a" | tail -n 1 | awk '{ print int($1) }')" -ge $((1048576 - 1024)) ]
  rm "$dir/rest"
  : > "$work/none"
  timeout 120 python3 "$top/tests/stripes.py" "$LFS" look "$two_b/removed/tree" "$work/none"

  # A mistake is taken back: whoever has it in use goes on.
  lctl --device MGS del_ost --undo --target "$ost"
  until_true 10 has_osts 4
  "$LFS" setstripe -i 3 -c 1 "$dir/back"
  echo text > "$dir/back"
  [ "$(cat "$two_b/removed/back")" = text ]
  rm "$dir/back"
  lctl --device MGS del_ost --target "$ost"
  until_true 10 has_osts 3
  must_fail 2 lctl --device MGS del_ost --target "$two_fsname-OST0009"
  kill_server 4
  refused_with "it was taken out of the file system" "$work/two.ost3"
  rm -rf "$work/two.ost3"
  format_ost 3 --replace "$work/two.ost3"
  serve_again 4 two-oss2 7004 "$work/two.ost2" "$work/two.ost3"
  until_true 60 has_osts 4
  "$LFS" setstripe -i 3 -c 1 "$dir/again"
  echo text > "$dir/again"
  [ "$(cat "$two_b/removed/again")" = text ]
  umount "$more"
  rm -r "$dir"
}

stripes_of() { "$LFS" getstripe "$1" | awk '/obdidx/ {on=1; next} on && NF {printf "%s ", $1}'; }
# has_stripes COUNT: so many has a new file on all OSTs.
has_stripes() { rm -f "$two_a/new"; "$LFS" setstripe -c -1 "$two_a/new"; [ "$("$LFS" getstripe -c "$two_b/new")" = "$1" ]; }

# Files on all OSTs, and on those that are named, while an OST is added and while it does not answer.
t_striped() {
  local state
  "$LFS" setstripe -c -1 "$two_a/old"
  [ "$("$LFS" getstripe -c "$two_a/old")" = 4 ]
  head -c 9000000 /dev/urandom | tee "$work/old" > "$two_a/old"
  format_ost 4 "$work/two.ost4"
  two_serve two-oss3 7005 "$work/two.ost4"
  until_true 60 has_osts 5
  until_true 10 has_stripes 5
  # By its size it gets so many stripes.
  cp "$work/old" "$two_a/large"
  truncate -s 5G "$two_a/large"
  [ "$("$LFS" migrate -A -v "$two_a/large")" = "$two_a/large" ]
  [ "$("$LFS" getstripe -c "$two_b/large")" = 3 ]
  cmp -n "$(stat -c %s "$work/old")" "$work/old" "$two_b/large"
  rm "$two_a/large"
  [ "$("$LFS" getstripe -c "$two_a/old")" = 4 ]
  cmp "$work/old" "$two_b/old"
  cp "$work/old" "$two_a/new"
  cmp "$work/old" "$two_b/new"
  "$LFS" check osts "$two_a" > "$work/check"
  for index in 0 1 2 3 4; do echo "$two_fsname-OST000$index-osc active."; done | cmp - "$work/check"

  # In the order of the list, or not at all.
  "$LFS" setstripe -o 4,0-1,3 "$two_a/named"
  [ "$(stripes_of "$two_b/named")" = "4 0 1 3 " ]
  cp "$work/old" "$two_a/named"
  cmp "$work/old" "$two_b/named"
  must_fail 1 "$LFS" setstripe -o 0,5 "$two_a/none"
  grep -q "there is no OST with index 5" "$work/err"
  lctl pool_new "$two_fsname.two"
  lctl pool_add "$two_fsname.two" OST0000 OST0001
  must_fail 1 "$LFS" setstripe -p two -o 1,2 "$two_a/none"
  "$LFS" setstripe -p two -o 1,0 "$two_a/pooled"
  [ "$(stripes_of "$two_b/pooled")" = "1 0 " ]

  # The one that was added does not answer any more. Nobody could say how large files are whose size the MDT does not know yet.
  knows_sizes() { [ "$("$LFS" getsom -f "$two_a/new" "$two_a/named" | sort -u)" = 1 ]; }
  until_true 30 knows_sizes
  state=$(tail -n 1 "$work/two.pids")
  kill -9 "$state"
  tail --pid="$state" -f /dev/null
  sed -i '$d' "$work/two.pids"
  until_true 30 has_stripes 4
  [ "$(stripes_of "$two_a/new" | tr ' ' '\n' | sort | tr -d '\n')" = 0123 ]
  must_fail 1 "$LFS" setstripe -o 4,0 "$two_a/none"
  grep -q "the OST with index 4 does not answer" "$work/err"
  not test -e "$two_a/none"
  "$LFS" setstripe -o 3,0 "$two_a/none"
  must_fail 1 "$LFS" migrate -o 4 "$two_a/none"
  grep -q "the OST with index 4 does not answer" "$work/err"
  "$LFS" check all "$two_a" > "$work/check" || true
  { echo "$two_fsname-MDT0000-mdc active."; for index in 0 1 2 3; do echo "$two_fsname-OST000$index-osc active."; done
    echo "$two_fsname-OST0004-osc inactive."; } | cmp - "$work/check"
  [ "$("$LFS" check mdts "$two_a")" = "$two_fsname-MDT0000-mdc active." ]

  # It is back.
  two_serve two-oss3 7005 "$work/two.ost4"
  until_true 60 has_stripes 5
  "$LFS" setstripe -o 4,0 "$two_a/again"
  cmp "$work/old" "$two_b/named"
  lctl pool_destroy "$two_fsname.two" || true
  rm "$two_a"/{old,new,named,pooled,none,again}
}

# Ends the mount at $more, and the server that was started last.
end_more() {
  local pid
  pid=$(daemon_pid "$more")
  umount "$more"
  tail --pid="$pid" -f /dev/null
  pid=$(tail -n 1 "$work/two.pids")
  kill "$pid"
  tail --pid="$pid" -f /dev/null
  sed -i '$d' "$work/two.pids"
}

# Only OSTs of indexes far from each other (conf-sanity 56a, 81).
t_sparse() {
  local name=$sparse nid=127.0.0.1:7101@tcp index dirs=("$work/s.mgs" "$work/s.mdt")
  "$WEFT" format --mgs --fsname "$name" "$work/s.mgs"
  "$WEFT" format --mdt --fsname "$name" --index 0 --mgsnode $nid "$work/s.mdt"
  for index in 0 7 4096 65500; do
    "$WEFT" format --ost --fsname "$name" --index $index --mgsnode $nid "$work/s.ost$index"
    dirs+=("$work/s.ost$index")
  done
  two_serve sparse 7101 "${dirs[@]}"
  mkdir -p "$more"
  in_two "$WEFT" mount "$nid:/$name" "$more"
  all_there() { [ "$("$LFS" osts "$more" | grep -c ' ACTIVE$')" = 4 ]; }
  until_true 60 all_there
  "$LFS" osts "$more" > "$work/osts"
  printf '%s\n' "OBDS:" "0: $name-OST0000_UUID ACTIVE" "7: $name-OST0007_UUID ACTIVE" "4096: $name-OST1000_UUID ACTIVE" \
    "65500: $name-OSTffdc_UUID ACTIVE" | cmp - "$work/osts"
  "$LFS" setstripe -c -1 "$more/all"
  [ "$("$LFS" getstripe -c "$more/all")" = 4 ]
  [ "$(stripes_of "$more/all" | tr ' ' '\n' | sort -n | tr '\n' ' ')" = "0 7 4096 65500 " ]
  "$LFS" setstripe -o 65500,0,4096 "$more/named"
  [ "$(stripes_of "$more/named")" = "65500 0 4096 " ]
  "$LFS" setstripe -i 4096 -c 1 "$more/one"
  for file in all named one; do
    head -c 9000000 /dev/urandom | tee "$work/random" > "$more/$file"
    "$WEFT" sync "$more"
    cmp "$work/random" "$more/$file"
  done
  "$LFS" df "$more" | grep -q "$more\[OST:65500\]"
  end_more
}

# room_disk INDEX MIB: a disk of that size, with an OST.
room_disk() {
  truncate -s "$2M" "$work/image.$1"
  mkfs.ext4 -q -F "$work/image.$1"
  mkdir -p "$work/disk.$1"
  mount -o loop "$work/image.$1" "$work/disk.$1"
  "$WEFT" format --ost --fsname "$room" --index "$1" --mgsnode 127.0.0.1:7201@tcp "${@:3}" "$work/disk.$1/ost"
}
room_serve() { two_serve room 7201 "$work/r.mgs" "$work/r.mdt" "$work"/disk.?/ost; }
# room_files DIR: makes 240 files there, and says how many of them lie on each OST.
room_files() {
  local index
  mkdir "$more/$1"
  touch "$more/$1/"{1..240}
  for index in 0 1 2 3; do "$LFS" find "$more/$1" -type f --ost $index | wc -l; done | tr '\n' ' '
}
# room_has FROM TO: of 240 new files OST 3 has so many, and each of the others has at least 57. The first file has the MDT ask.
room_has() {
  local dir counts
  dir=$(mktemp -u dir.XXXXXX)
  touch "$more/ask" && rm "$more/ask" && sleep 1
  read -r -a counts <<< "$(room_files "$dir")"
  say "  of 240 files each OST has: ${counts[*]}"
  [ "${counts[3]}" -ge "$1" ] && [ "${counts[3]}" -le "$2" ] && [ "${counts[0]}" -ge 57 ] && [ "${counts[1]}" -ge 57 ] && [ "${counts[2]}" -ge 57 ]
}

# OSTs of two sizes: new files go by the room, none to one that is full, and some again when it is not any more.
t_room() {
  local index pid left
  "$WEFT" format --mgs --fsname "$room" "$work/r.mgs"
  "$WEFT" format --mdt --fsname "$room" --index 0 --mgsnode 127.0.0.1:7201@tcp "$work/r.mdt"
  for index in 0 1 2; do room_disk $index 2000; done
  must_fail 2 "$WEFT" format --ost --fsname "$room" --index 3 --mgsnode 127.0.0.1:7201@tcp --param nonsense.x=1 "$work/nonsense"
  not test -e "$work/nonsense"
  room_disk 3 1000 --param obdfilter.sync_journal=1 --param llite.max_cached_mb=64
  room_serve
  mkdir -p "$more"
  in_two "$WEFT" mount "127.0.0.1:7201@tcp:/$room" "$more"
  all_there() { [ "$("$LFS" osts "$more" | grep -c ' ACTIVE$')" = 4 ]; }
  until_true 60 all_there
  # What it was given when it was made is kept, and holds.
  journals() { [ "$(lctl get_param -n "obdfilter.$room-OST000"{0,3}.sync_journal | xargs)" = "0 1" ]; }
  until_true 10 journals
  lctl get_param -n mgs.MGS.live.params | grep -qx "llite.$room-\*.max_cached_mb=64"
  [ "$(lctl get_param -n lod.$room-*.qos_threshold_rr lod.$room-*.qos_prio_free lod.$room-*.qos_maxage | tr '\n' ' ')" = "17% 90% 5 " ]
  lctl set_param "lod.$room-*.qos_maxage=1" > /dev/null
  until_true 20 room_has 5 45

  "$LFS" setstripe -E -1 -z 64M -i 3 -c 1 "$more/extends"
  head -c 3000000 "$WEFT" > "$more/extends"
  sync "$more/extends"

  # The small one has no room for another piece of 64 MiB, and nothing was made since by which the MDT would know.
  "$LFS" setstripe -E -1 -z 64M -i 3 -c 1 "$more/grows"
  head -c 3000000 "$WEFT" > "$more/grows"
  sync "$more/grows"
  "$LFS" setstripe -i 3 -c 1 "$more/large"
  left=$(($(lctl get_param -n "osd-weft.$room-OST0003.kbytesavail") / 1024 - 40))
  dd if=/dev/zero "of=$more/large" bs=1M count=$left conv=fsync status=none
  dd if=/dev/zero "of=$more/grows" bs=1M count=60 seek=64 conv=notrunc,fsync status=none
  [ "$("$LFS" getstripe -I1 -i "$more/grows")" = 3 ]
  [ "$("$LFS" getstripe -I2 -i "$more/grows")" -lt 3 ]
  head -c 3000000 "$more/grows" | cmp - <(head -c 3000000 "$WEFT")
  rm "$more/grows"

  # The small one is full: nobody has to know that but the MDT.
  must_fail 1 dd if=/dev/zero "of=$more/large" bs=1M count=1000 conv=fsync status=none
  grep -q "No space left" "$work/err"
  # What was too little for a large request is taken by small ones.
  must_fail 1 dd if=/dev/zero "of=$more/large" bs=64k count=1000 oflag=append,direct conv=notrunc status=none
  until_true 20 room_has 0 0
  lctl get_param "lod.$room-*.qos_ost_weights" | grep -q "ost_idx: 3, tgt_weight: 0,"
  # It has no turns, and is full as soon as it was asked.
  all_but_full() {
    rm -f "$more/all"
    "$LFS" setstripe -c -1 "$more/all"
    [ "$(stripes_of "$more/all" | tr ' ' '\n' | sort | tr -d '\n')" = 012 ]
  }
  until_true 20 all_but_full
  head -c 9000000 /dev/urandom | tee "$work/random" > "$more/all"
  sync "$more/all"
  cmp "$work/random" "$more/all"
  # A file that extends itself goes on elsewhere (modelled on Lustre's sanity-pfl 20 to 22), and fails where it has begun.
  dd if="$work/random" "of=$more/extends" bs=1M seek=64 conv=notrunc,fsync status=none
  [ "$("$LFS" getstripe --component-flags "$more/extends" | tr '\n' ' ')" = "init init extension " ]
  [ "$("$LFS" getstripe -I1 -i "$more/extends")" = 3 ]
  [ "$("$LFS" getstripe -I2 -i "$more/extends")" -lt 3 ]
  tail -c +$((64 * 1048576 + 1)) "$more/extends" | cmp - "$work/random"
  head -c 3000000 "$more/extends" | cmp - <(head -c 3000000 "$WEFT")
  rm "$more/extends"
  "$LFS" setstripe -i 3 -c 1 "$more/named"
  [ "$("$LFS" getstripe -i "$more/named")" = 3 ]
  rm "$more/large"
  until_true 60 room_has 5 45

  # Whoever does not want it says so, and that stays.
  must_fail 22 lctl set_param "lod.$room-*.qos_prio_free=101"
  lctl set_param -P --fsname "$room" "lod.*.qos_threshold_rr=100%" > /dev/null
  until_true 10 room_has 57 63
  pid=$(tail -n 1 "$work/two.pids")
  kill -9 "$pid"
  tail --pid="$pid" -f /dev/null
  sed -i '$d' "$work/two.pids"
  room_serve
  until_true 60 room_has 57 63
  [ "$(lctl get_param -n "lod.$room-*.qos_threshold_rr")" = 100% ]

  end_more
  umount "$work"/disk.?
}

# The layouts and names of what follows are stated here, so the root's own do not matter.
unset TWO_LAYOUT
two_up || { say "the file system does not start"; exit 1; }
for case in ${*:-lost removed striped sparse room}; do check "$case" "t_$case"; done
finish
