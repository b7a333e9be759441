#!/usr/bin/env bash
# OSTs come and go: one that is lost is replaced, one is emptied and taken out, its index is used again; with real processes.
# Usage: tools/test-osts.sh [CASE...]; needs root, bin/weft, python3, iproute2.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

LCTL=$(dirname "$WEFT")/lctl
export WEFT_RUN=$work/run
more=$work/more
trap 'umount -l "$more" 2>/dev/null; two_down; rm -rf --one-file-system "$work"' EXIT

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
  "$LFS" find "$two_a" -type f --ost 3 -print0 | xargs -0 -n 1 "$LFS" migrate -c 2 -S 64K
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


# The layouts and names of what follows are stated here, so the root's own do not matter.
unset TWO_LAYOUT
two_up || { say "the file system does not start"; exit 1; }
for case in ${*:-lost removed}; do check "$case" "t_$case"; done
finish
