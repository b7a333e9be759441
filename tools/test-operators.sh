#!/usr/bin/env bash
# What an operator sees and orders: recovery_status, abort_recovery, evict_client, health_check (with a disk that fails), weft
# status, drain, dk, brw_stats, md_stats, job_stats, rpc_stats, weft stat and survey, pools, policies, HSM, weft du, imperative recovery, and the traces of evictions, with
# real processes; and the tools beside a mount that is silent, a target that is away, and words that are wrong.
# Usage: tools/test-operators.sh [CASE...]; needs root, bin/weft, iproute2.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

LCTL=$(dirname "$WEFT")/lctl
export WEFT_RUN=$work/run
# Nothing that is asked may hang.
lctl_seconds=60
mdt=$two_fsname-MDT0000
# What a case left behind when it failed.
leave_own() {
  awk -v work="$work/" '$3 == "fuse.weft" && index($2, work) == 1 { print $2 }' /proc/mounts | tac |
    while read -r mount; do timeout 60 "$WEFT" down "$mount" || umount -l "$mount"; done
  rm -f /etc/weft/[bdfhiopqrsuv]"$two_id".*.key
}
trap 'two_down; leave_own >/dev/null; kill $alone_pid; umount -l "$disk"; rm -rf --one-file-system "$work"' EXIT

lctl() { in_two timeout "$lctl_seconds" "$LCTL" "$@"; }
# The same on a host that has servers only: what is asked through a mount may have to wait for the MDT, and looking at a mount
# takes locks.
unshare --mount --propagation private sleep infinity &
alone_pid=$!
lctl_alone() { alone "$LCTL" "$@"; }
alone() {
  in_two nsenter --mount="/proc/$alone_pid/ns/mnt" timeout "$lctl_seconds" "$@" 2>>"$work/alone"
}
server_pid() { sed -n "$1p" "$work/two.pids"; }

# until_true SECONDS COMMAND...
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    # The last status is in the file, if it was one that was waited for.
    [ $SECONDS -lt $end ] || { echo "not within the time: $*"; cat "$work/status"; return 1; }
    sleep 0.1
  done
}

mdt_says() { lctl_alone get_param -n "mdt.*.recovery_status" > "$work/status"; grep -qx "$1" "$work/status"; }
mdt_is() { mdt_says "status: $1"; }

kill_mds() {
  local pid
  pid=$(server_pid 2)
  kill -9 "$pid"
  tail --pid="$pid" -f /dev/null
}

start_mds() {
  two_serve two-mds 7002 "$work/two.mdt"
  # It takes the place of the one that was killed.
  sed -i -e "2s/.*/$(tail -n 1 "$work/two.pids")/" -e '$d' "$work/two.pids"
}

t_names() {
  lctl list_param 'mdt.*' 'obdfilter.*' > "$work/names"
  grep -qx "mdt.$mdt.recovery_status" "$work/names"
  grep -qx "mdt.$mdt.evict_client" "$work/names"
  [ "$(grep -c '^obdfilter.*recovery_status$' "$work/names")" = 4 ]
  mdt_is INACTIVE
  [ "$(lctl get_param -n 'mdt.*.recovery_time_soft' 'mdt.*.recovery_time_hard' 'mdt.*.ldlm_timeout' | xargs)" = "30 170 170" ]
  [ "$(lctl get_param -n at_min at_max | xargs)" = "5 60" ]
  [ "$(lctl get_param -n 'mgs.MGS.lease_time')" = 15 ]
  must_fail 13 lctl set_param 'mdt.*.recovery_time_soft=1'
  lctl get_param 'mdt.*.recovery_status' 'obdfilter.*.recovery_status' > "$work/statuses"
  grep -qx "mdt.$mdt.recovery_status=status: INACTIVE" "$work/statuses"
  lctl dl | grep -q "UP mdt $mdt ${mdt}_UUID"
  [ "$(lctl get_param -n "mdt.*.num_exports")" = 2 ]
  must_fail 2 lctl get_param 'mdt.*.no_such_thing'
  # Who reads no more of what is printed is no bug.
  lctl list_param '*' 2> "$work/err" | true
  [ ! -s "$work/err" ]
}

t_parameters() {
  [ "$(lctl get_param 'mdt.*.commit_on_sharing' | sed 's/.*MDT0000.//')" = commit_on_sharing=1 ]
  lctl set_param 'mdt.*.commit_on_sharing=0' > /dev/null
  [ "$(lctl get_param -n 'mdt.*.commit_on_sharing')" = 0 ]
  lctl set_param 'mdt.*.commit_on_sharing=0' > /dev/null
  grep -qx 'obdfilter.*sync_journal=0' <(lctl get_param 'obdfilter.*.sync_journal')
  lctl set_param 'obdfilter.*.sync_journal=1' > /dev/null
  [ "$(lctl get_param -n 'obdfilter.*.sync_journal' | grep -cx 1)" = 4 ]
  dd if=/dev/zero of="$two_a/synced" bs=1M count=4 conv=fsync status=none
  must_fail 22 lctl set_param 'obdfilter.*.sync_journal=2'
  lctl set_param 'obdfilter.*.sync_journal=0' > /dev/null
  grep -qx 'obdfilter.*sync_lock_cancel=blocking' <(lctl get_param 'obdfilter.*.sync_lock_cancel')
  lctl set_param 'obdfilter.*.sync_lock_cancel=always' > /dev/null
  [ "$(lctl get_param -n 'obdfilter.*.sync_lock_cancel' | grep -cx always)" = 4 ]
  must_fail 22 lctl set_param 'obdfilter.*.sync_lock_cancel=sometimes'
  lctl set_param 'obdfilter.*.sync_lock_cancel=blocking' > /dev/null
}

# New files keep away from an OST that is marked.
t_degraded() {
  lctl set_param "obdfilter.$two_fsname-OST0002.degraded=1" > /dev/null
  "$LFS" df "$two_a" | grep -q "^$two_fsname-OST0002_UUID .*\[OST:2\] D$"
  [ "$("$LFS" df "$two_a" | grep -c '\] D$')" = 1 ]
  must_fail 22 lctl set_param "obdfilter.$two_fsname-OST0002.degraded=2"
  "$WEFT" status "$two_a" | grep -q "OST0002 *degraded"
  avoids() { rm -f "$two_a/avoids"; "$LFS" setstripe -c -1 "$two_a/avoids"; [ "$("$LFS" getstripe -c "$two_a/avoids")" = "$1" ]; }
  until_true 5 avoids 3
  "$LFS" setstripe -i 2 -c 1 "$two_a/named"
  [ "$("$LFS" getstripe -i "$two_a/named")" = 2 ]
  lctl set_param "obdfilter.$two_fsname-OST0002.degraded=0" > /dev/null
  until_true 5 avoids 4
}

# Kills all servers, and starts them again, each time in another order.
shuffled() {
  local line pid order
  for line in $(seq 4 | shuf); do
    pid=$(server_pid "$line")
    kill -9 "$pid"
    tail --pid="$pid" -f /dev/null
  done
  : > "$work/two.pids"
  order=$(seq 4 | shuf)
  echo "the servers start in the order" $order
  for line in $order; do
    case $line in
      1) two_serve two-mgs 7001 "$work/two.mgs" ;;
      2) two_serve two-mds 7002 "$work/two.mdt" ;;
      3) two_serve two-oss1 7003 "$work/two.ost0" "$work/two.ost1" ;;
      4) two_serve two-oss2 7004 "$work/two.ost2" "$work/two.ost3" ;;
    esac
    sleep "0.$((RANDOM % 10))"
  done
  # Line by line the MGS, the MDS and both OSSes.
  paste <(printf '%s\n' $order) "$work/two.pids" | sort -n | cut -f 2 > "$work/sorted"
  mv "$work/sorted" "$work/two.pids"
}

# Parameters that the MGS keeps: they reach what runs within a second and what starts, whatever is killed, until they are deleted.
t_kept() {
  local osc="osc.$two_fsname-*.max_dirty_mb" ost="obdfilter.$two_fsname-*.sync_journal" cos="mdt.$two_fsname-*.commit_on_sharing"
  each_is() { [ "$(lctl get_param -n "$1" | sort -u | xargs)" = "$2" ]; }
  count_is() { [ "$(lctl get_param -n "$1" | wc -l)" = "$2" ]; }
  [ -z "$(lctl llog_print params)" ]
  "$LFS" setstripe -c -1 "$two_a/kept-a"
  dd if=/dev/zero of="$two_a/kept-a" bs=1M count=8 conv=notrunc,fsync status=none
  cat "$two_b/kept-a" > /dev/null
  until_true 5 count_is "$osc" 8
  [ -z "$(lctl set_param -P 'osc.*.max_dirty_mb=8' 'obdfilter/*/sync_journal=1' 'mdt.*.commit_on_sharing=0' 'jobid_var=procname_uid')" ]
  until_true 1 each_is "$osc" 8
  until_true 1 each_is "$ost" 1
  until_true 1 each_is "$cos" 0
  until_true 1 each_is jobid_var procname_uid
  # One that is told something else keeps that until it starts again, or the parameter is kept anew.
  lctl set_param "obdfilter.$two_fsname-OST0002.sync_journal=0" > /dev/null
  lctl set_param -P 'llite.*.max_cached_mb=64'
  until_true 1 bash -c "[ \"\$(nsenter --net=/run/netns/$two_ns $LCTL get_param -n 'llite.$two_fsname-*.max_cached_mb' | grep -c 'max_cached_mb: 64')\" = 2 ]"
  [ "$(lctl get_param -n "obdfilter.$two_fsname-OST0002.sync_journal")" = 0 ]
  cat > "$work/params" << END
- { index: 1, event: set_param, device: general, parameter: osc.*.max_dirty_mb, value: 8 }
- { index: 2, event: set_param, device: general, parameter: obdfilter.*.sync_journal, value: 1 }
- { index: 3, event: set_param, device: general, parameter: mdt.*.commit_on_sharing, value: 0 }
- { index: 4, event: set_param, device: general, parameter: jobid_var, value: procname_uid }
- { index: 5, event: set_param, device: general, parameter: llite.*.max_cached_mb, value: 64 }
END
  lctl llog_print params | cmp - "$work/params"
  # What is wrong is not kept.
  must_fail 22 lctl set_param -P "$ost=7"
  must_fail 22 lctl set_param -P "mdt.*.evict_client=nid:10.0.0.7@tcp"
  must_fail 2 lctl set_param -P -d nothing.like.it
  must_fail 2 lctl set_param -P nothing.like.it=1
  must_fail 2 lctl set_param -d "$ost"
  lctl llog_print params | cmp - "$work/params"
  # What nobody has yet may come later: it is kept, with a warning.
  lctl set_param -P "osc.$two_fsname-OST0077-*.max_dirty_mb=8" 2> "$work/err"
  grep -q "^warning: osc.$two_fsname-OST0077-.*: nobody who is reached from here has such a parameter" "$work/err"
  lctl set_param -P -d "osc.$two_fsname-OST0077-*.max_dirty_mb"
  lctl llog_print params | cmp - "$work/params"
  # Other ways to write it: from a file, and with the device first.
  lctl set_param -P -d jobid_var 'llite.*.max_cached_mb'
  [ "$(lctl set_param -F "$work/params" | tail -n 1)" = "set_param: llite.*.max_cached_mb=64" ]
  lctl llog_print params | cmp - "$work/params"
  printf '%s\n' "- { index: 1, event: set_param, device: general, parameter: $ost, value: 7 }" \
    "- { index: 2, event: conf_param, device: $two_fsname, parameter: sys.jobid_var, value: nodelocal }" > "$work/some"
  must_fail 22 lctl set_param -F "$work/some"
  until_true 1 each_is jobid_var nodelocal
  must_fail 1 lctl set_param -F "$work/none"
  lctl conf_param "$two_fsname-MDT0000.lov.qos_threshold_rr=25%" "$two_fsname.sys.jobid_var=procname_uid"
  until_true 1 each_is jobid_var procname_uid
  until_true 1 each_is "lod.$two_fsname-*.qos_threshold_rr" 25%
  lctl conf_param -d "$two_fsname-MDT0000.lov.qos_threshold_rr"
  must_fail 2 lctl conf_param "$two_fsname-OST0000.mdt.commit_on_sharing=1"
  lctl set_param -P -d 'llite.*.max_cached_mb' && lctl set_param -P 'llite.*.max_cached_mb=64'
  lctl llog_print params | cmp - "$work/params"
  # Everything starts again, in any order: what its peers keep of it they hear from the MGS.
  umount "$two_a"
  shuffled
  two_mount "$two_a"
  until_true 40 count_is "$ost" 4
  until_true 2 each_is "$ost" 1
  until_true 20 each_is "$cos" 0
  [ "$(lctl get_param -n "obdfilter.$two_fsname-OST0002.sync_journal")" = 1 ]
  cat "$two_a/kept-a" > /dev/null
  until_true 5 count_is "$osc" 8
  until_true 1 each_is "$osc" 8
  until_true 1 each_is jobid_var procname_uid
  lctl llog_print params | cmp - "$work/params"
  lctl set_param -P -d 'osc.*.max_dirty_mb' 'obdfilter.*.sync_journal' 'mdt.*.commit_on_sharing' 'llite.*.max_cached_mb' jobid_var
  [ -z "$(lctl llog_print params)" ]
  # What runs keeps what it has.
  each_is "$ost" 1
  lctl set_param "$ost=0" "$cos=1" jobid_var=disable > /dev/null
}

# Pools of OSTs; they are there again after the MGS was killed, and who could not ask meanwhile knows them.
t_pools() {
  in_two python3 "$top/tests/pools.py" "$LFS" "$LCTL" "$two_fsname" "$two_a" "$two_b"
  printf 'Pool: %s.kept\n%s-OST0001_UUID\n%s-OST0003_UUID\n' "$two_fsname" "$two_fsname" "$two_fsname" > "$work/kept"
  # A host that has servers only asks the MGS itself.
  lctl_alone pool_list "$two_fsname.kept" | cmp - "$work/kept"
  local pid
  pid=$(server_pid 1)
  kill -9 "$pid"
  tail --pid="$pid" -f /dev/null
  two_serve two-mgs 7001 "$work/two.mgs"
  # It takes the place of the one that was killed.
  sed -i -e "1s/.*/$(tail -n 1 "$work/two.pids")/" -e '$d' "$work/two.pids"
  is_kept() { lctl_alone pool_list "$two_fsname.kept" > "$work/listed"; cmp "$work/listed" "$work/kept"; }
  until_true 30 is_kept
  "$LFS" pool_list "$two_b/kept" | cmp - "$work/kept"
  "$LFS" setstripe -p kept -c -1 "$two_a/kept-file"
  [ "$("$LFS" getstripe -c "$two_b/kept-file")" = 2 ]
  [ "$("$LFS" getstripe -p "$two_b/kept-file")" = kept ]
  # Who has no key of the servers changes nothing: here a mount alone is found.
  WEFT_RUN=$work/no-servers must_fail 95 in_two "$LCTL" pool_remove "$two_fsname.kept" 1
  lctl pool_list "$two_fsname.kept" | cmp - "$work/kept"
  lctl pool_remove "$two_fsname.kept" 1 3 > /dev/null
  lctl pool_destroy "$two_fsname.kept" > /dev/null
  [ "$(lctl get_param -n "lod.$two_fsname-*.numobd" "lod.$two_fsname-*.activeobd" | xargs)" = "4 4" ]
  for n in 0 1 2 3; do echo "$n: $two_fsname-OST000${n}_UUID ACTIVE"; done > "$work/osts"
  lctl get_param -n "lod.$two_fsname-*.target_obd" | cmp - "$work/osts"

  # A command ends when the MDT knows of the change.
  local n
  mdt_has() { [ "$(lctl get_param -n "lod.$two_fsname-*.pools.at$n" | sed 's/.*-OST000\(.\)_UUID/\1/' | xargs)" = "$1" ]; }
  for n in 1 2 3 4 5; do
    lctl pool_new "$two_fsname.at$n"
    mdt_has ""
    lctl pool_add "$two_fsname.at$n" 0 2 3
    mdt_has "0 2 3"
    lctl pool_remove "$two_fsname.at$n" 0 3
    mdt_has 2
    lctl pool_remove "$two_fsname.at$n" 2
    lctl pool_destroy "$two_fsname.at$n"
    must_fail 2 lctl get_param "lod.$two_fsname-*.pools.at$n"
  done
  # It waits for an MDT that does not answer, unless it is told not to.
  pid=$(server_pid 2)
  kill -STOP "$pid"
  local began=$EPOCHREALTIME
  after() { python3 -c 'import sys; sys.exit(not float(sys.argv[3]) <= float(sys.argv[2]) - float(sys.argv[1]) < float(sys.argv[4]))' "$began" "$EPOCHREALTIME" "$@"; }
  lctl pool_new --nowait "$two_fsname.late"
  after 0 2
  # Longer than one answer may take: the MDT counts as silent, and is asked again.
  ( sleep 5; kill -CONT "$pid" ) &
  began=$EPOCHREALTIME
  lctl pool_add "$two_fsname.late" 1 2> "$work/err"
  after 4.5 11
  [ ! -s "$work/err" ]
  lctl pool_remove "$two_fsname.late" 1
  lctl pool_destroy "$two_fsname.late"
}

# Rules in a file that move and remove files. POLICY_FILES: how many files it is tried with.
t_policy() {
  local own=""
  mountpoint -q "$disk" && own=own-disk
  # shellcheck disable=SC2086
  TMPDIR=$work in_two python3 "$top/tests/policy.py" "$WEFT" "$two_fsname" "$two_a" "$two_b" $own
}

# Files go to an archive and come back, while copytools are killed; the second of two mounts sees it, too.
t_hsm() {
  TMPDIR=$work in_two python3 "$top/tests/hsm.py" "$WEFT" "$two_a" "$two_b" "127.0.0.1:7001@tcp:/$two_fsname" \
    "/etc/weft/$two_fsname.client.key" "$work" "${HSM_FILES:-24}" "${HSM_KILLS:-2}"
  lctl get_param "mdt.*.hsm_control" | grep -qx "mdt.$mdt.hsm_control=enabled"
  [ "$(lctl get_param -n "mdt.*.hsm.running")" = 0 ]
}

# The same with a bucket of S3 for an archive.
t_hsm_s3() {
  local server
  server=$("$top/tools/install-s3.sh")
  mkdir "$work/hsm-s3"
  TMPDIR=$work in_two python3 "$top/tests/hsm.py" "$WEFT" "$two_a" "$two_b" "127.0.0.1:7001@tcp:/$two_fsname" \
    "/etc/weft/$two_fsname.client.key" "$work/hsm-s3" "${HSM_FILES:-24}" "${HSM_KILLS:-2}" "$server"
  [ "$(lctl get_param -n "mdt.*.hsm.running")" = 0 ]
}

# The MDS and an OSS are killed while files are moved: all of them are moved in the end, and nothing fails.
t_policy_killed() {
  local dir=$two_a/policy-killed n pid
  mkdir "$dir"
  "$LFS" setstripe -c 1 "$dir"
  for n in $(seq 300); do echo "$n" > "$dir/f$n"; done
  has_its_number() {
    local text
    text=$(cat "$1/f$2") || { echo "f$2 cannot be read on $1"; return 1; }
    [ "$text" = "$2" ] || { od -c "$1/f$2"; stat "$1/f$2"; "$LFS" getstripe "$1/f$2"; return 1; }
  }
  # A shell takes no notice of a close that fails.
  for n in $(seq 300); do has_its_number "$dir" "$n"; done
  printf '[[rule]]\nname = "wide"\nfiles = "-stripe-count 1"\naction = "migrate"\nto = "-c 2"\nlimits = { files_per_second = 20 }\n' > "$work/policy.toml"
  in_two "$WEFT" policy run "$work/policy.toml" "$dir" > "$work/policy.said" 2>&1 & local mover=$!
  sleep 3
  kill_mds
  sleep 2
  start_mds
  sleep 4
  pid=$(server_pid 3)
  kill -9 "$pid"
  tail --pid="$pid" -f /dev/null
  two_serve two-oss1 7003 "$work/two.ost0" "$work/two.ost1"
  sed -i -e "3s/.*/$(tail -n 1 "$work/two.pids")/" -e '$d' "$work/two.pids"
  wait $mover || { cat "$work/policy.said"; return 1; }
  cat "$work/policy.said"
  grep -q "^wide: 300 files matched, 300 moved" "$work/policy.said"
  [ "$("$LFS" find "$dir" -stripe-count 2 | wc -l)" = 300 ]
  for n in $(seq 300); do
    has_its_number "$dir" "$n"
    has_its_number "${dir/$two_a/$two_b}" "$n"
  done
  rm -r "$dir"
}

# Sums of what lies below a directory. DU_FILES: of how many files.
t_du() {
  in_two python3 "$top/tests/du.py" "$WEFT" "$two_a" "$two_b"
}

# How long answers took, on the client's side.
t_timeouts() {
  echo data > "$two_a/timed"
  "$WEFT" sync "$two_a"
  lctl get_param "mdc.*.timeouts" "osc.*.timeouts" > "$work/timeouts"
  cat "$work/timeouts"
  grep -qE "^mdc.$mdt-mdc-[0-9a-f]{16}.timeouts=service    : cur +[0-9]+  worst +[0-9]+ \(at [0-9]+, 0d0h[0-9]+m[0-9]+s ago\)( +[0-9]+){4}$" "$work/timeouts"
  grep -q "^osc.$two_fsname-OST000[0-3]-osc-[0-9a-f]*.timeouts=service" "$work/timeouts"
  # A file was made and written: whoever took a millisecond for it has a time to tell.
  grep -qE "worst +[1-9][0-9]* +\(at [1-9][0-9]+," "$work/timeouts"
}

# What a mount caches, and what it has written to each OST. What is written to and read is read past the kernel's cache.
used_mb() { lctl get_param -n "llite.*.max_cached_mb" | awk '/^used_mb/ { sum += $2 } END { print sum }'; }
t_cache() {
  local llite="llite.$two_fsname-[0-9a-f]{16}"
  python3 - "$two_a/cached" <<'PY'
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for mib in range(96):
    os.pwrite(file, os.urandom(1 << 20), mib << 20)
os.fsync(file)
for at in range(0, 96 << 20, 128 << 10):
    os.pread(file, 128 << 10, at)
PY
  lctl get_param "llite.*.max_cached_mb" > "$work/cached"
  [ "$(grep -cEx "$llite.max_cached_mb=" "$work/cached")" = 2 ]
  [ "$(grep -c '^[a-z_]*_mb: [0-9]*$' "$work/cached")" = 10 ]
  [ "$(grep -c '^users: [1-5]$' "$work/cached")" = 2 ]
  [ "$(used_mb)" -ge 96 ]
  [ "$(lctl set_param "llite.*.max_cached_mb=32" | grep -cEx "$llite.max_cached_mb=32")" = 2 ]
  [ "$(used_mb)" -le 64 ]
  [ "$(used_mb)" -gt 20 ]
  must_fail 22 lctl set_param "llite.*.max_cached_mb=much" 2> "$work/why"
  must_fail 22 lctl set_param "llite.*.max_cached_mb=3"
  lctl set_param "llite.*.max_cached_mb=512" "llite.*.max_dirty_mb=256" > /dev/null
  lctl get_param "osc.*.max_dirty_mb" "osc.*.cur_dirty_bytes" "osc.*.cur_grant_bytes" > "$work/osc"
  grep -qEx "osc.$two_fsname-OST000[0-3]-osc-[0-9a-f]{16}.max_dirty_mb=64" "$work/osc"
  grep -qEx "osc.*.cur_dirty_bytes=0" "$work/osc"
  grep -qEx "osc.*.cur_grant_bytes=[1-9][0-9]*" "$work/osc"
  lctl set_param "osc.*.max_dirty_mb=16" > /dev/null
  [ "$(lctl get_param -n "osc.*.max_dirty_mb" | sort -u)" = 16 ]
  lctl get_param -n "llite.*.unstable_stats" | grep -qx 'unstable_mb:  *0'
  lctl get_param -n "osc.*.unstable_stats" | grep -qx 'unstable_pages:  *0'
  lctl set_param "osc.*.max_dirty_mb=64" > /dev/null
  # The list of names is what can be read, and says what can be set.
  lctl list_param -F "llite.*" "osc.*" "mdc.*" "mgc.*" "ldlm.namespaces.*-mdc-*" "debug*" > "$work/names"
  lctl list_param "*" > "$work/all"
  sed 's/=$//' "$work/names" | sort > "$work/plain"
  [ -s "$work/plain" ] && [ -z "$(comm -23 "$work/plain" <(sort "$work/all"))" ]
  grep -qxE "osc.$two_fsname-OST000[0-3]-osc-[0-9a-f]{16}.max_dirty_mb=" "$work/names"
  grep -qxE "osc.$two_fsname-OST000[0-3]-osc-[0-9a-f]{16}.cur_dirty_bytes" "$work/names"
  [ "$(grep -cxE 'debug=|debug_mb=' "$work/names")" = 2 ]
  attributes "$two_a"
}

# What a mount says of its parameters through the kernel: in answers that fit, to everybody, and nothing of its process to others. Who
# does not administrate it sets nothing.
attributes() {
  in_two python3 - "$1" <<'PY'
import errno, json, os, sys
mount = sys.argv[1]
def page(owner, pattern, skip=0, kind="parameters"):
    return json.loads(os.getxattr(mount, f"weft.{kind}.{owner}.{skip}.{pattern}"))
def refused(do):
    try:
        do()
    except OSError as error:
        return error.errno
name = page("mount", "llite.*.max_cached_mb", kind="parameter-names")["parameters"][0]["name"]
everything = page("mount", "*")["parameters"]
assert len(everything) > 10
assert page("mount", "*", len(everything) - 1)["parameters"][0]["name"] == everything[-1]["name"]
units = {one["name"].rsplit(".", 1)[-1]: (one["kind"], one["unit"]) for one in everything}
assert units["cur_dirty_bytes"] == ("gauge", "bytes") and units["lru_max_age"] == ("gauge", "ms"), units
assert units["stats"] == ("histogram", "") and units["timeouts"] == ("text", ""), units
assert {one["name"] for one in page("process", "*")["parameters"]} == {
    "debug", "debug_mb", "mem_limit_mb", "memused", "memused_max", "memused_users"}
assert refused(lambda: os.setxattr(mount, f"weft.parameter.{name}", b"much")) == errno.EINVAL
assert refused(lambda: os.setxattr(mount, "weft.parameter.llite.none", b"64")) == errno.ENOENT
# Where the kernel lets everybody write, the mount itself has to refuse.
free = f"{mount}/free"
os.mkdir(free)
os.chmod(free, 0o777)
os.setgroups([]), os.setgid(65534), os.setuid(65534)
assert page("mount", name)["parameters"][0]["value"].startswith("users: ")
assert refused(lambda: page("process", "debug")) == errno.EPERM
assert refused(lambda: page("OST0000", "*")) == errno.EPERM
assert refused(lambda: os.setxattr(free, f"weft.parameter.{name}", b"64")) == errno.EPERM
assert refused(lambda: os.setxattr(free, "weft.process.debug", b"trace")) == errno.EPERM
PY
}

# What the kernel asked a mount for, in Lustre's format. Each call of the test is one that the kernel cannot answer by itself.
t_llite_stats() {
  local llite
  llite=$(lctl list_param "llite.*.stats" | tail -n 1)
  mkdir "$two_b/counted"
  lctl set_param "llite.*.stats=clear" > /dev/null
  python3 - "$two_b/counted" <<'PY'
import os, sys
for n in range(30):
    file = os.open(f"{sys.argv[1]}/{n}", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.pwrite(file, b"x" * 1000, 0)
    os.pread(file, 1000, 0)
    os.close(file)
    os.rename(f"{sys.argv[1]}/{n}", f"{sys.argv[1]}/new{n}")
    os.setxattr(f"{sys.argv[1]}/new{n}", "user.a", b"b")
for n in range(30):
    os.unlink(f"{sys.argv[1]}/new{n}")
PY
  until_true 5 bash -c "[ \"\$(nsenter --net=/run/netns/$two_ns $LCTL get_param -n '$llite' | awk '/^close/ { print \$2 }')\" = 30 ]"
  lctl get_param -n "$llite" > "$work/stats"
  cat "$work/stats"
  grep -qE '^snapshot_time             [0-9]+\.[0-9]{9} secs\.nsecs$' "$work/stats"
  local name
  for name in read write create close rename setxattr unlink; do
    grep -qE "^$(printf %-25s $name) 30 samples \[usecs\]( [0-9]+){4}$" "$work/stats"
  done
  grep -qE '^write_bytes               30 samples \[bytes\] 1000 1000 30000 30000000$' "$work/stats"
  grep -qE '^read_bytes                30 samples \[bytes\] 1000 1000 30000 30000000$' "$work/stats"
  # Sum and sum of the squares lie within what the extremes permit.
  awk '/usecs/ && ($7 < $2 * $5 || $7 > $2 * $6 || $8 > $7 * $6 || $8 < $7 * $5) { exit 1 }' "$work/stats"
}

# What a mount holds of each target.
t_namespaces() {
  local space="ldlm.namespaces.$two_fsname-MDT0000-mdc-*" ost="ldlm.namespaces.$two_fsname-OST*"
  count() { lctl get_param -n "$1" | awk '{ sum += $1 } END { print sum + 0 }'; }
  # What a close still tells the servers uses locks for a moment.
  is() { [ "$(count "$1")" "$2" "$3" ]; }
  cleared() { lctl set_param "$space.lru_size=clear" "$ost.lru_size=0" "$ost.lru_size=clear" > /dev/null; is "$ost.lock_count" -eq 0 && is "$space.lock_unused_count" -le 4; }
  mkdir "$two_a/held"
  for n in {1..60}; do echo "$n" > "$two_a/held/$n"; done
  "$WEFT" sync "$two_a"
  is "$space.lock_count" -ge 60
  is "$ost.lock_count" -ge 60
  until_true 10 is "$space.lock_unused_count" -ge 60
  is "$space.lru_size" -ge 60
  lctl set_param "$space.lru_size=20" "$ost.lru_size=5" > /dev/null
  until_true 10 is "$space.lock_count" -le 40
  until_true 10 is "$ost.lock_count" -le 40
  [ "$(lctl get_param -n "$space.lru_size" | sort -u)" = 20 ]
  until_true 10 cleared
  [ "$(lctl get_param -n "$space.lru_max_age" | sort -u)" = 600000 ]
  lctl set_param "$ost.lru_max_age=60s" "$space.lru_size=0" > /dev/null
  [ "$(lctl get_param -n "$ost.lru_max_age" | sort -u)" = 60000 ]
  must_fail 22 lctl set_param "$ost.lru_max_age=1h"
  must_fail 22 lctl set_param "$ost.lru_size=-1"
  must_fail 13 lctl set_param "$ost.lock_count=0"
  lctl set_param "$ost.lru_max_age=600s" > /dev/null
  [ "$(cat "$two_b/held/60")" = 60 ]
}

# A mount is connected to the OSTs that it uses, and no longer than it was told.
t_idle_sessions() {
  local ost="ldlm.namespaces.$two_fsname-OST*" mount ports
  mount=$(daemon_pid "$two_a")
  ports=$(in_two ss -Htlnp | grep -E "pid=($(server_pid 3)|$(server_pid 4))," | awk '{ sub(".*:", "", $4); print $4 }')
  to_osts() { in_two ss -Htnp state established | grep "pid=$mount," | awk '{ sub(".*:", "", $4); print $4 }' | grep -cxF "$ports" || true; }
  has() { [ "$(to_osts)" = "$1" ]; }
  [ "$(lctl get_param -n 'osc.*.idle_timeout' | sort -u)" = 20 ]
  must_fail 22 lctl set_param 'osc.*.idle_timeout=-1'
  soon() { lctl set_param 'osc.*.idle_timeout=2' "$ost.lru_max_age=1s" > /dev/null; }
  late() { lctl set_param 'osc.*.idle_timeout=20' "$ost.lru_max_age=600s" > /dev/null; }
  soon
  until_true 60 has 0 || { late; return 1; }
  late
  "$LFS" setstripe -c 1 "$two_a/idle"
  echo text > "$two_a/idle"
  "$WEFT" sync "$two_a"
  has 1
  soon
  until_true 60 has 0 || { late; return 1; }
  late
  # Nothing is missed, and nothing needs to be done by hand.
  [ "$(cat "$two_b/idle")" = text ]
  echo more >> "$two_a/idle"
  has 1
}

t_health() {
  [ "$(lctl get_param health_check)" = "health_check=healthy" ]
  "$WEFT" status "$two_a" >/dev/null
  kill -STOP "$(server_pid 4)"
  lctl get_param -n health_check > "$work/health" 2> "$work/why"
  kill -CONT "$(server_pid 4)"
  diff "$work/health" - <<END
device $two_fsname-OST0002 reported unhealthy
device $two_fsname-OST0003 reported unhealthy
NOT HEALTHY
END
  grep -q "OST0002: it does not answer" "$work/why"
  [ "$(lctl get_param -n health_check)" = healthy ]
}

# The disk of the last OST gets a scheduler that does not suit it: the tools warn, and set it only when they are permitted to.
loop_of() { basename "$(findmnt -n -o SOURCE "$disk")"; }
scheduler_of_disk() { sed 's/.*\[\(.*\)\].*/\1/' "/sys/block/$(loop_of)/queue/scheduler"; }
# The other targets are on the disk of this machine, whatever that has.
warns_of_ost3() {
  in_two "$WEFT" status "$two_a" > "$work/status"
  in_two "$WEFT" status --json "$two_a" | python3 -c '
import json, sys
of = [one["state"]["scheduler"] for one in json.load(sys.stdin)[0]["targets"] if one["name"].endswith("OST0003")]
sys.exit(of != [True])'
}
t_io_scheduler() {
  local before ost=$two_fsname-OST0003
  before=$(scheduler_of_disk)
  grep -q "the queue of its disk.*$ost\|the queue of its disk.*OST0003" "$work/two-oss2.log"
  echo mq-deadline > "/sys/block/$(loop_of)/queue/scheduler"
  [ "$(lctl get_param -n "osd-weft.$ost.io_scheduler")" = "$(loop_of): { scheduler: mq-deadline, suitable: none, rotational: $(cat "/sys/block/$(loop_of)/queue/rotational"), kind: virtual }" ]
  [ "$(lctl get_param -n "osd-weft.$ost.tune_disk")" = 0 ]
  # A warning is none of the reasons not to be well.
  warns_of_ost3
  grep -q ": the I/O scheduler of a disk does not suit it" "$work/status"
  grep -q "HEALTHY" "$work/status"
  [ "$(lctl get_param -n health_check 2> "$work/why")" = healthy ]
  grep -q "the I/O scheduler of a disk does not suit it" "$work/why"
  in_two "$WEFT" tune --check --json > "$work/tune"
  grep -q "\"I/O scheduler of $(loop_of)\"" "$work/tune"
  [ "$(scheduler_of_disk)" = mq-deadline ]
  must_fail 22 lctl set_param "osd-weft.$ost.tune_disk=yes"
  lctl set_param "osd-weft.$ost.tune_disk=1" > /dev/null
  until_true 10 eval '[ "$(scheduler_of_disk)" = none ]'
  not warns_of_ost3
  lctl set_param "osd-weft.$ost.tune_disk=0" > /dev/null
  echo mq-deadline > "/sys/block/$(loop_of)/queue/scheduler"
  [ "$(scheduler_of_disk)" = mq-deadline ]
  echo "$before" > "/sys/block/$(loop_of)/queue/scheduler"
}

# What the OST on the disk has read of it: requests to the device, and bytes of its process.
disk_reads() { echo "$(awk '{ print $1 }' "/sys/block/$(loop_of)/stat") $(awk '/^read_bytes/ { print $2 }' "/proc/$(server_pid 4)/io")"; }
# The page cache forgets the data files of that OST; a mount that has nothing reads the file.
forget_disk() { local file; sync -f "$disk"; for file in "$disk"/ost/data/*; do dd if="$file" iflag=nocache count=0 status=none; done; }
cold_read() { lctl set_param "ldlm.namespaces.*-osc-*.lru_size=clear" > /dev/null; dd if="$two_b/hot" bs=1M iflag=direct status=none | sha256sum; }
# A mount that has nothing reads the file, and nothing is read from the disk. Tried again: the file system below may read a block of its own just then,
# for what an earlier case has freed.
reads_nothing() {
  local before _
  for _ in 1 2 3; do
    before=$(disk_reads)
    [ "$(cold_read)" = "$1" ]
    echo "before: $before, after the read: $(disk_reads)"
    [ "$(disk_reads)" != "$before" ] || return 0
  done
  return 1
}
t_read_cache() {
  local before sum ost=$two_fsname-OST0003
  "$LFS" setstripe -c 1 -i 3 "$two_a/hot"
  dd if=/dev/urandom of="$two_a/hot" bs=1M count=64 conv=fsync status=none
  sum=$(cold_read)
  # Without the cache each reader goes to the disk, and advice is refused.
  [ "$(lctl get_param -n "osd-weft.$ost.read_cache_enable")" = 0 ]
  before=$(disk_reads)
  [ "$(cold_read)" = "$sum" ]
  [ "$(disk_reads)" != "$before" ]
  must_fail 1 "$LFS" ladvise -a willread "$two_b/hot"
  grep -q read_cache_enable "$work/err"
  # With it the second one finds all of it in memory.
  lctl set_param "osd-weft.$ost.read_cache_enable=1" > /dev/null
  forget_disk
  before=$(disk_reads)
  [ "$(cold_read)" = "$sum" ]
  echo "before: $before, after the first read: $(disk_reads)"
  [ "$(disk_reads)" != "$before" ]
  reads_nothing "$sum"
  # Advice is as good as a reader.
  forget_disk
  before=$(disk_reads)
  "$LFS" ladvise -a willread "$two_b/hot"
  [ "$(disk_reads)" != "$before" ]
  reads_nothing "$sum"
  # What is written anew is what is read.
  dd if=/dev/urandom of="$two_a/hot" bs=1M count=64 conv=fsync,notrunc status=none
  [ "$(cold_read)" = "$(sha256sum < "$two_a/hot")" ]
  # Nothing of a file that is larger than what may be kept.
  lctl set_param "osd-weft.$ost.readcache_max_filesize=63M" > /dev/null
  [ "$(lctl get_param -n "osd-weft.$ost.readcache_max_filesize")" = 66060288 ]
  forget_disk
  sum=$(cold_read)
  before=$(disk_reads)
  [ "$(cold_read)" = "$sum" ]
  [ "$(disk_reads)" != "$before" ]
  must_fail 1 "$LFS" ladvise -a willread "$two_b/hot"
  must_fail 22 lctl set_param "osd-weft.$ost.readcache_max_filesize=much"
  grep -q 'a number of bytes' "$work/err"
  lctl set_param "osd-weft.$ost.readcache_max_filesize=-1" > /dev/null
  # What is written through the cache is there for its readers.
  lctl set_param "osd-weft.$ost.writethrough_cache_enable=1" > /dev/null
  forget_disk
  dd if=/dev/urandom of="$two_a/hot" bs=1M count=64 conv=fsync,notrunc status=none
  reads_nothing "$(sha256sum < "$two_a/hot")"
  lctl set_param "osd-weft.$ost.writethrough_cache_enable=0" "osd-weft.$ost.read_cache_enable=0" > /dev/null
  rm "$two_a/hot"
}

# Sectors of 512 bytes that were written to the loop device of a mount point.
written_to() { awk '{ print $7 }' "/sys/block/$(basename "$(findmnt -n -o SOURCE "$1")")/stat"; }
# What the file system below has in memory, and would write some seconds later, counts.
stays_unwritten() {
  local before
  sync -f "$1"
  before=$(written_to "$1")
  sleep "$2"
  sync -f "$1"
  [ "$(written_to "$1")" = "$before" ]
}
# A file system that was just made and started writes nothing while nobody uses it.
t_idle_disk() {
  local idle=$work/idle before after seconds=10
  [ -z "${LONG:-}" ] || seconds=60
  truncate -s 1G "$work/idle.image"
  mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$work/idle.image"
  mkdir "$idle"
  # Looking at directories changes their times, and so the disk.
  mount -o loop,noatime "$work/idle.image" "$idle"
  mkdir "$idle.mnt"
  in_two "$WEFT" up "$idle.mnt" --data "$idle/data" --fsname "i$two_id" --osts 2
  until_true 30 in_two "$WEFT" status "$idle.mnt" > /dev/null
  # A start makes data files ahead of need; when a second went by without a write it is over.
  "$WEFT" sync "$idle.mnt"
  until_true 20 stays_unwritten "$idle" 1
  before=$(written_to "$idle")
  stays_unwritten "$idle" "$seconds" || true
  after=$(written_to "$idle")
  in_two "$WEFT" down "$idle.mnt"
  umount "$idle"
  rm -f "/etc/weft/i$two_id".*.key "$work/idle.image"
  echo "$(((after - before) * 512)) bytes in $seconds s"
  [ "$before" -gt 0 ]
  [ "$after" = "$before" ]
}

# What was done, and nothing else, is in the statistics of the MDT.
t_md_stats() {
  local name
  # Each change for itself, as programs make them.
  lctl set_param "llite.*.metadata_writeback=0" > /dev/null
  mkdir "$two_b/md-stats"
  lctl set_param "mdt.*.md_stats=clear" > /dev/null
  python3 - "$two_b/md-stats" <<'PY'
import os, sys
for n in range(20):
    name = f"{sys.argv[1]}/{n}"
    os.close(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    os.rename(name, f"{name}.new")
    os.mkdir(name)
    os.rename(f"{name}.new", f"{name}/file")
    os.symlink("a", f"{name}.link")
    os.unlink(f"{name}/file")
    os.rmdir(name)
PY
  lctl get_param "mdt.*.md_stats" > "$work/md"
  cat "$work/md"
  grep -qx "mdt.$mdt.md_stats=" "$work/md"
  grep -qE '^snapshot_time             [0-9]+\.[0-9]{9} secs\.nsecs$' "$work/md"
  for name in open:20 mknod:20 mkdir:20 unlink:20 rmdir:20 rename:40 samedir_rename:20 crossdir_rename:20 create:60; do
    grep -qE "^$(printf %-25s "${name%:*}") ${name#*:} samples \[usecs\]( [0-9]+){4}$" "$work/md"
  done
  lctl get_param -n "mdt.*.opcode_hist" > "$work/hist"
  grep -qE '^Create: +\{ samples: +60, unit: usecs, min: .*, hist: \{ ([0-9]+K?: [0-9]+(, )?)+ \} \}$' "$work/hist"
  # They are sums of the same counts. What a client tells the MDT on its own, such as sizes, may come meanwhile.
  lctl set_param "mdt.*.opcode_hist=0" > /dev/null
  lctl get_param -n "mdt.*.md_stats" > "$work/md"
  cat "$work/md"
  not grep -E '^(open|mknod|mkdir|unlink|rmdir|rename|create) ' "$work/md"
  lctl set_param "llite.*.metadata_writeback=1" > /dev/null
}

reads_without_a_request() {
  lctl set_param "mdt.*.md_stats=clear" > /dev/null
  for _ in 1 2 3 4; do cat "$1"; done
  lctl get_param -n "mdt.*.md_stats" > "$work/status"
  not grep -E '^(open|close|getattr) ' "$work/status"
}

# A file that was read is opened again without a request; and df answers while an OSS is silent (row C20).
t_open_again() {
  local file=$two_b/open-again stopped
  echo text > "$two_a/open-again"
  "$WEFT" sync "$two_a"
  # The first one may find that the other mount is just about to tell the size.
  cat "$file" && cat "$file"
  # Closes of cases before may still come.
  until_true 20 reads_without_a_request "$file"
  stopped=$(server_pid 4)
  kill -STOP "$stopped"
  timeout 20 df "$two_b" > "$work/df" || { kill -CONT "$stopped"; return 1; }
  kill -CONT "$stopped"
  cat "$work/df"
  rm "$file"
}

# Owners have what they made, exactly, also when the MDT is killed; and no more than their limits, on two mounts at once.
t_quotas() {
  local dir=$two_a/quotas n
  as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
  files() { "$LFS" quota -q "$1" "$2" "$two_a" | tail -n 1 | awk '{ print $(NF - 3) }'; }
  has() { [ "$(files -u 4321)" = "$1" ]; }
  mkdir -m 777 "$dir"
  as 4321 touch "$dir/a" "$dir/b"
  "$LFS" quota -u 4321 "$two_a"
  [ "$(files -u 4321)" = 2 ]
  [ "$(files -g 4321)" = 2 ]
  "$LFS" quota -u 4321 "$two_a" | grep -qx "     Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace"
  "$LFS" setquota -u 4321 -i 0 -I 50 "$two_a"
  # Both mounts make as many as they can.
  for n in a b; do
    local mount=two_$n
    as 4321 bash -c 'for n in {1..60}; do : > "$1.$n" || exit 0; done' - "${!mount}/quotas/$n" 2> "$work/refused.$n" &
  done
  wait
  grep -q "Disk quota exceeded" "$work/refused.a" "$work/refused.b"
  [ "$(files -u 4321)" = "50*" ]
  [ "$(find "$dir" -user 4321 | wc -l)" = 50 ]
  kill_mds
  start_mds
  # An MDT that restarts is waited for.
  "$LFS" quota -q -u 4321 "$two_a" > /dev/null
  until_true 20 has "50*"
  must_fail 1 as 4321 touch "$dir/more"
  chown 0:0 "$dir/a"
  [ "$(files -u 4321)" = 49 ]
  as 4321 touch "$dir/more"
  # A soft limit, whose time is over at once.
  "$LFS" setquota -t -g -i 0s "$two_a"
  [ "$("$LFS" quota -t -g "$two_a")" = "Block grace time: 1w; Inode grace time: 0s" ]
  "$LFS" setquota -g 4321 -i 40 "$two_a"
  rm "$dir/more"
  must_fail 1 as 4321 touch "$dir/more"
  must_fail 1 as 4321 "$LFS" quota -u 0 "$two_a"
  must_fail 1 as 4321 "$LFS" setquota -u 4321 -I 0 "$two_a"
  must_fail 1 "$LFS" setquota -u 4321 -i 9 -I 8 "$two_a"
  must_fail 2 "$LFS" setquota -u 4321 -B 1x "$two_a"
  must_fail 2 "$LFS" setquota -u 0 -B 1g "$two_a"
  must_fail 2 "$LFS" setquota -u 4294967296 -I 5 "$two_a"
  "$LFS" setquota -u 4321 --delete "$two_a"
  "$LFS" setquota -g 4321 --delete "$two_a"
  as 4321 touch "$dir/more"
  rm -r "$dir"
  until_true 10 has 0
}

# The space that owners have is exact, also when servers are killed, and writers on two mounts come to their limit and no further.
t_space() {
  local dir=$two_a/space n sum
  as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
  row() { "$LFS" quota -q "$1" "$2" "$two_a" | tail -n 1; }
  kbytes() { row "$1" "$2" | awk '{ print $(NF - 7) }'; }
  has() { [ "$(kbytes "$1" "$2")" = "$3" ]; }
  mkdir -m 777 "$dir"
  "$LFS" setquota -u 4444 -b 0 -B 20M "$two_a"
  # Each writes until that is refused. What was accepted is there, and no close or fsync fails.
  for n in a b; do
    local mount=two_$n
    as 4444 /usr/bin/python3 - "${!mount}/space/$n" > "$work/wrote.$n" <<'EOF' &
import errno, os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o644)
wrote = 0
try:
    for n in range(1000):
        wrote += os.write(fd, bytes([n % 251]) * 65536)
except OSError as error:
    assert error.errno == errno.EDQUOT, error
    os.fsync(fd)
    os.close(fd)
    print(wrote)
EOF
  done
  wait
  sum=$(($(cat "$work/wrote.a") + $(cat "$work/wrote.b")))
  echo "two mounts wrote $(cat "$work/wrote.a") and $(cat "$work/wrote.b") bytes"
  [ "$sum" = $((20 << 20)) ]
  [ "$(stat -c %s "$dir/a" "$two_b/space/b" | paste -sd+ | bc)" = "$sum" ]
  until_true 10 has -u 4444 "20480*"
  has -g 4444 20480
  must_fail 1 as 4444 dd if=/dev/zero of="$dir/c" bs=64k count=1
  grep -q "Disk quota exceeded" "$work/err"
  # Root has no limits. A target's part is told, and a server that was killed has it again.
  dd if=/dev/zero of="$dir/root" bs=1M count=3 conv=fsync status=none
  sum=$("$LFS" quota -q -v -u 4444 "$two_a" | awk '/_UUID$/ { getline; sum += $1 } END { print sum }')
  [ "$sum" = 20480 ]
  kill_mds
  start_mds
  until_true 20 has -u 4444 "20480*"
  must_fail 1 as 4444 dd if=/dev/zero of="$dir/c" bs=64k count=1
  grep -q "Disk quota exceeded" "$work/err"
  # What changes hands is the new owner's; what is gone is nobody's.
  n=$(sort -n "$work/wrote.a" "$work/wrote.b" | tail -n 1)
  if [ "$n" = "$(cat "$work/wrote.a")" ]; then mv "$dir/a" "$dir/more"; else mv "$dir/b" "$dir/more"; fi
  n=$((n >> 10))
  chown 4445:4445 "$dir/more"
  until_true 20 has -u 4445 "$n"
  has -g 4445 "$n"
  has -u 4444 $((20480 - n))
  as 4444 cp "$dir/root" "$dir/c"
  cmp "$dir/root" "$dir/c"
  as 4444 fallocate -l 1M "$dir/d"
  must_fail 1 as 4444 fallocate -l 100M "$dir/e"
  grep -q "Disk quota exceeded" "$work/err"
  # Blocks are counted, and not bytes. A file that was moved tells what it occupies.
  "$LFS" setquota -u 4446 -B 1M "$two_a"
  must_fail 1 as 4446 /usr/bin/python3 -c 'import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
for n in range(1000): os.pwrite(fd, b"x", n * 12288)' "$dir/holes"
  grep -q "Disk quota exceeded" "$work/err"
  sync "$dir/holes"
  has -u 4446 "1024*"
  fallocate -l 1M "$dir/moved"
  "$LFS" migrate -c 2 "$dir/moved"
  [ "$(stat -c %b "$dir/moved")" = 0 ]
  "$LFS" setquota -u 4446 --delete "$two_a"
  # A soft limit, whose time is over at once.
  "$LFS" setquota -t -u -b 0s "$two_a"
  [ "$("$LFS" quota -t -u "$two_a")" = "Block grace time: 0s; Inode grace time: 1w" ]
  "$LFS" setquota -u 4444 -b 1M -B 0 "$two_a"
  must_fail 1 as 4444 dd if=/dev/zero of="$dir/f" bs=64k count=1
  "$LFS" setquota -t -u -b 1w "$two_a"
  "$LFS" setquota -u 4444 --delete "$two_a"
  as 4444 dd if=/dev/zero of="$dir/f" bs=64k count=1 conv=fsync status=none
  rm -r "$dir"
  until_true 20 has -u 4444 0
  until_true 20 has -u 4445 0
}

# What is said of all holds for those of whom nothing was said.
t_default_quotas() {
  local dir=$two_a/defaults
  as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
  mkdir -m 777 "$dir"
  "$LFS" setquota -U -B 3M -I 4 "$two_a"
  "$LFS" quota -U "$two_a" > "$work/all"
  cat "$work/all"
  grep -qx "     Filesystem   bquota  blimit  bgrace   iquota  ilimit  igrace" "$work/all"
  grep -qE "^ +0 +3072 +1w +0 +4 +1w$" <(tail -n 1 "$work/all" | sed 's|^ *[^ ]*||')
  as 4401 touch "$dir"/{1..4}
  must_fail 1 as 4401 touch "$dir/5"
  "$LFS" quota -u 4401 "$two_a" > "$work/own"
  cat "$work/own"
  grep -qx "uid 4401 is using default block quota setting" "$work/own"
  grep -qx "uid 4401 is using default file quota setting" "$work/own"
  must_fail 1 as 4401 dd if=/dev/zero of="$dir/1" bs=1M count=8 status=none
  grep -q "Disk quota exceeded" "$work/err"
  # The other mount keeps to it, too; who was given none has none.
  must_fail 1 as 4402 dd if=/dev/zero of="$two_b/defaults/other" bs=1M count=8 status=none
  "$LFS" setquota -u 4402 -b 0 -B 0 -i 0 -I 0 "$two_b"
  as 4402 dd if=/dev/zero of="$two_b/defaults/other" bs=1M count=8 status=none
  not grep -q default <("$LFS" quota -u 4402 "$two_a")
  kill_mds
  start_mds
  until_true 20 mdt_is COMPLETE
  must_fail 1 as 4401 touch "$dir/5"
  "$LFS" setquota -u 4402 -d "$two_a"
  grep -q "^uid 4402 is using default block" <("$LFS" quota -u 4402 "$two_a")
  must_fail 1 as 4402 dd if=/dev/zero of="$dir/again" bs=1M count=1 status=none
  "$LFS" setquota -U -d "$two_a"
  as 4401 touch "$dir/5"
  rm -r "$dir"
}

# Limits of pools: EDQUOT where one is reached, room elsewhere as far as the limit of all goes, and quota is what a scan finds.
t_pool_quotas() {
  local dir=$two_a/pool_quotas n sum
  as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
  row() { "$LFS" quota -q -u 4455 "$@" "$two_a" | tail -n 1; }
  kbytes() { row "$@" | awk '{ print $(NF - 7) }'; }
  has() { [ "$(kbytes "${@:2}")" = "$1" ]; }
  scan() { find "$1" -user 4455 -type f -printf '%b\n' | awk '{ sum += $1 } END { print sum / 2 }'; }
  # Writes 64 KiB at a time until that is refused, and says how much it wrote.
  cat > "$work/until_full.py" <<'EOS'
import errno, os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o644)
wrote = 0
try:
    for n in range(1000):
        wrote += os.write(fd, bytes([n % 251]) * 65536)
except OSError as error:
    assert error.errno == errno.EDQUOT, error
    os.fsync(fd)
    os.close(fd)
    print(wrote)
EOS
  until_full() { as 4455 /usr/bin/python3 "$work/until_full.py" "$1"; }
  refused() { must_fail 1 as 4455 dd if=/dev/zero of="$1" bs=64k count=1; grep -q "Disk quota exceeded" "$work/err"; }
  for n in flash:0-1 disk:2-3; do
    lctl pool_new "$two_fsname.q${n%:*}" > /dev/null
    lctl pool_add "$two_fsname.q${n%:*}" "OST[${n#*:}]" > /dev/null
    mkdir -p "$dir/${n%:*}"
    chmod 777 "$dir/${n%:*}"
    "$LFS" setstripe -p "q${n%:*}" "$dir/${n%:*}"
  done
  must_fail 1 "$LFS" setquota -u 4455 --pool nosuch -B 8M "$two_a"
  grep -q "no such pool" "$work/err"
  must_fail 22 "$LFS" setquota -u 4455 --pool qflash -I 10 "$two_a"
  must_fail 1 as 4455 "$LFS" setquota -u 4455 --pool qflash -B 8M "$two_a"
  "$LFS" setquota -u 4455 --pool qflash -b 0 -B 8M "$two_a"
  "$LFS" setquota -u 4455 -B 12M "$two_a"
  "$LFS" quota -u 4455 --pool qflash "$two_a" > "$work/shown"
  cat "$work/shown"
  head -n 1 "$work/shown" | grep -qx "Disk quotas for usr 4455 (uid 4455):"
  grep -qE " 0 +0 +8192 +- +0 +0 +0 +-$" "$work/shown"
  # Two mounts at once are given no more than there is, each on an OST of its own.
  "$LFS" setstripe -p qflash -i 0 "$dir/flash/a"
  "$LFS" setstripe -p qflash -i 1 "$dir/flash/b"
  chown 4455:4455 "$dir"/flash/{a,b}
  until_full "$two_b/pool_quotas/flash/b" > "$work/wrote.b" &
  until_full "$dir/flash/a" > "$work/wrote.a"
  wait $!
  echo "two mounts wrote $(cat "$work/wrote.a") and $(cat "$work/wrote.b") bytes into the pool"
  [ $(($(cat "$work/wrote.a") + $(cat "$work/wrote.b"))) = $((8 << 20)) ]
  refused "$dir/flash/c"
  # The other pool has room, as much as the limit of all leaves.
  until_full "$dir/disk/a" > "$work/wrote.disk"
  echo "then $(cat "$work/wrote.disk") bytes into the other one"
  [ "$(cat "$work/wrote.disk")" = $((4 << 20)) ]
  until_true 20 has "8192*" --pool qflash
  has 4096 --pool qdisk
  has "12288*"
  [ "$(scan "$dir/flash") $(scan "$dir/disk")" = "8192 4096" ]
  [ "$("$LFS" quota -q -v -u 4455 --pool qflash "$two_a" | grep -c _UUID)" = 2 ]
  [ "$(as 4455 "$LFS" quota -u 4455 --pool "$two_a" | grep -c '^Quotas for pool: q')" = 2 ]
  # All of it is so after a crash of the MDT.
  kill_mds
  start_mds
  until_true 20 has "8192*" --pool qflash
  "$LFS" setquota -u 4455 -B 0 "$two_a"
  refused "$two_b/pool_quotas/flash/c"
  as 4455 dd if=/dev/zero of="$dir/disk/b" bs=1M count=3 conv=fsync status=none
  # An OST that leaves takes along what it has; what comes in counts.
  sum=$("$LFS" quota -q -v -u 4455 --pool qflash "$two_a" | awk '/OST0001_UUID$/ { getline; print $1 }')
  lctl pool_remove "$two_fsname.qflash" OST0001 > /dev/null
  until_true 20 has $((8192 - sum)) --pool qflash
  lctl pool_add "$two_fsname.qflash" OST0001 > /dev/null
  until_true 20 has "8192*" --pool qflash
  refused "$dir/flash/c"
  rm "$dir/flash/a"
  until_true 20 has $(($(cat "$work/wrote.b") >> 10)) --pool qflash
  [ "$(until_full "$dir/flash/c")" = "$(cat "$work/wrote.a")" ]
  # Limits of all, and times of grace.
  "$LFS" setquota -U --pool qflash -B 1M "$two_a"
  must_fail 1 as 4456 dd if=/dev/zero of="$dir/flash/other" bs=1M count=4 status=none
  grep -q "Disk quota exceeded" "$work/err"
  grep -qx "uid 4456 is using default block quota setting" <("$LFS" quota -u 4456 --pool qflash "$two_a")
  "$LFS" setquota -t -u --pool qflash -b 2d "$two_a"
  [ "$("$LFS" quota -t -u --pool qflash "$two_a")" = "Block grace time: 2d; Inode grace time: 1w" ]
  [ "$("$LFS" quota -t -u "$two_a")" = "Block grace time: 1w; Inode grace time: 1w" ]
  # A pool that is made again has no limits of before.
  lctl pool_remove "$two_fsname.qflash" 0 1 > /dev/null
  lctl pool_destroy "$two_fsname.qflash" > /dev/null
  is_gone() { not "$LFS" quota -u 4455 --pool qflash "$two_a" > "$work/status" 2>&1; }
  until_true 20 is_gone
  "$LFS" setquota -u 4455 --pool qdisk -B 0 "$two_a"
  lctl pool_new "$two_fsname.qflash" > /dev/null
  lctl pool_add "$two_fsname.qflash" 0 1 > /dev/null
  until_true 20 has 8192 --pool qflash
  as 4455 dd if=/dev/zero of="$dir/flash/d" bs=1M count=3 conv=fsync status=none
  rm -r "$dir"
  for n in flash:0-1 disk:2-3; do
    lctl pool_remove "$two_fsname.q${n%:*}" "OST[${n#*:}]" > /dev/null
    lctl pool_destroy "$two_fsname.q${n%:*}" > /dev/null
  done
}

# A pool that is used up to its threshold spills, as the MGS keeps it: also after the MDT was killed.
t_pool_spill() {
  local pool="lod.$two_fsname-*.pool.sflash" n
  spill() { lctl get_param -n "$pool.spill_$1"; }
  gets() { rm -f "$two_a/spilled"; "$LFS" setstripe -p sflash "$two_a/spilled"; [ "$("$LFS" getstripe -p "$two_a/spilled")" = "$1" ]; }
  for n in sflash:0-1 sdisk:2-3; do
    lctl pool_new "$two_fsname.${n%:*}" > /dev/null
    lctl pool_add "$two_fsname.${n%:*}" "OST[${n#*:}]" > /dev/null
  done
  until_true 10 gets sflash
  [ "$(spill threshold_pct) $(spill is_active) $(spill hit)" = "0 0 0" ]
  must_fail 22 lctl set_param "$pool.spill_target=nosuch"
  must_fail 22 lctl set_param "$pool.spill_target=sflash"
  must_fail 22 lctl set_param "$pool.spill_threshold_pct=101"
  lctl set_param -P "$pool.spill_target=sdisk" > /dev/null
  # The disk of these tests is used by a percent at least.
  lctl set_param -P "$pool.spill_threshold_pct=1" > /dev/null
  until_true 20 gets sdisk
  [ "$(spill target) $(spill is_active)" = "sdisk 1" ]
  [ "$(spill hit)" -gt 0 ]
  kill_mds
  start_mds
  until_true 30 gets sdisk
  lctl set_param -P "$pool.spill_threshold_pct=0" > /dev/null
  until_true 20 gets sflash
  lctl set_param -P -d "$pool.spill_threshold_pct" > /dev/null
  lctl set_param -P -d "$pool.spill_target" > /dev/null
  rm "$two_a/spilled"
  for n in sflash:0-1 sdisk:2-3; do
    lctl pool_remove "$two_fsname.${n%:*}" "OST[${n#*:}]" > /dev/null
    lctl pool_destroy "$two_fsname.${n%:*}" > /dev/null
  done
}

# A directory is a project: its users share its limits, nothing of another project comes in, and df shows what is left.
t_projects() {
  local dir=$two_a/projects n
  as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
  row() { "$LFS" quota -q -p "$1" "$two_a" | tail -n 1; }
  kbytes() { row "$1" | awk '{ print $(NF - 7) }'; }
  files() { row "$1" | awk '{ print $(NF - 3) }'; }
  has() { [ "$(kbytes "$1")" = "$2" ]; }
  mkdir -p "$dir/d/below" "$dir/other"
  chmod 777 "$dir/d" "$dir/d/below" "$dir/other"
  echo before > "$dir/d/before"
  must_fail 1 as 4321 "$LFS" project -p 70 "$dir/other"
  "$LFS" project -p 70 -s -r "$dir/d"
  [ "$("$LFS" project -d "$dir/d")" = "   70 P $dir/d" ]
  [ "$("$LFS" project "$dir/d" | xargs)" = "70 - $dir/d/before 70 P $dir/d/below" ]
  "$LFS" setquota -p 70 -B 8M -I 6 "$two_a"
  # On the other mount, by another user.
  until_true 10 has 70 4
  as 4321 dd if=/dev/zero of="$two_b/projects/d/below/x" bs=1M count=3 conv=fsync status=none
  has 70 3076
  must_fail 1 as 4322 dd if=/dev/zero of="$dir/d/y" bs=1M count=6 conv=fsync
  grep -q "Disk quota exceeded" "$work/err"
  as 4322 touch "$dir/d/z"
  must_fail 1 as 4321 touch "$dir/d/more"
  grep -q "Disk quota exceeded" "$work/err"
  [ "$(files 70)" = "6*" ]
  [ "$(df --output=size,itotal -k "$dir/d" | tail -n 1 | xargs)" = "8192 6" ]
  [ "$(df --output=iavail "$two_b/projects/d/below" | tail -n 1 | xargs)" = 0 ]
  [ "$(df --output=itotal "$dir/other" | tail -n 1 | xargs)" != 6 ]
  rm "$dir/d/y" "$dir/d/z"
  # Nothing comes in by its name alone. mv copies, and what it copies counts.
  echo foreign > "$dir/other/f"
  must_fail 1 ln "$dir/other/f" "$dir/d/f"
  grep -q "Invalid cross-device link" "$work/err"
  mv "$dir/other/f" "$dir/d/f"
  [ "$("$LFS" project "$dir/d/f")" = "   70 - $dir/d/f" ]
  mv "$dir/d/f" "$dir/other/f"
  "$LFS" project -c -r "$dir/d" > "$work/checked"
  [ ! -s "$work/checked" ]
  "$LFS" project -p 71 "$dir/d/before"
  [ "$("$LFS" project -c -r "$dir/d")" = "$dir/d/before - project identifier is not set (inode=71, tree=70)" ]
  until_true 20 has 71 4
  [ "$("$LFS" find "$two_b/projects" -projid 70 -type f -printf '%LP %f\n' | sort | xargs)" = "70 f 70 x" ]
  # What moves to other OSTs stays the project's.
  "$LFS" migrate -c 2 "$dir/d/below/x"
  until_true 20 has 70 3076
  kill_mds
  start_mds
  until_true 20 has 70 3076
  "$LFS" project -C -r "$dir/d"
  [ "$("$LFS" project -d "$dir/d")" = "    0 - $dir/d" ]
  until_true 20 has 70 4
  n=$(files 70)
  [ "$n" = 1 ]
  "$LFS" setquota -p 70 --delete "$two_a"
  rm -r "$dir"
  until_true 20 has 70 0
}

# What the changelog tells is what happened, while its MDT is killed, too; records go when nobody needs them.
t_changelog() {
  local reader job
  must_fail 1 "$LFS" changelog_clear "$mdt" cl99 0
  grep -q "has no reader cl99" "$work/err"
  must_fail 2 lctl changelog_register
  must_fail 2 lctl --device "$two_fsname-OST0001" changelog_register
  reader=$(lctl_alone --device "$mdt" changelog_register -n)
  lctl_alone get_param -n "mdd.$mdt.changelog_users" > "$work/users"
  cat "$work/users"
  grep -qE "^$reader +[0-9]+ \([0-9]+\)$" "$work/users"
  mkdir "$two_a/changelog"
  python3 "$top/tests/changelog.py" "$LFS" "$mdt" "$reader" "$two_a/changelog" "$two_b/changelog" --seconds 3
  rm -rf "$two_a/changelog" && sync "$two_a" && "$LFS" changelog_clear "$mdt" "$reader" 0
  mkdir "$two_a/changelog"
  python3 "$top/tests/changelog.py" "$LFS" "$mdt" "$reader" "$two_a/changelog" "$two_b/changelog" --seconds 20 &
  job=$!
  until_true 20 test -e "$two_b/changelog/a/n1"
  kill_mds
  start_mds
  wait $job
  # Kinds that are not wanted are not recorded; a user may not read what others do.
  lctl_alone set_param "mdd.$mdt.changelog_mask=-SATTR" > /dev/null
  touch "$two_a/changelog/file" && chmod 600 "$two_a/changelog/file" && mv "$two_a/changelog/file" "$two_a/changelog/moved"
  sync "$two_a/changelog/moved"
  "$LFS" changelog --user "$reader" "$mdt" > "$work/records"
  cat "$work/records"
  grep -qE " 01CREAT .* p=\[[0-9a-fx:]+\] file$" "$work/records"
  grep -qE " 08RENME .* p=\[[0-9a-fx:]+\] moved s=\[[0-9a-fx:]+\] sp=\[[0-9a-fx:]+\] file$" "$work/records"
  absent SATTR "$work/records"
  lctl_alone set_param "mdd.$mdt.changelog_mask=MARK" > /dev/null
  [ "$(lctl_alone get_param -n "mdd.$mdt.changelog_mask")" = MARK ]
  lctl_alone set_param "mdd.$mdt.changelog_mask=ALL" "mdd.$mdt.changelog_mask=-ATIME" > /dev/null
  lctl_alone list_param -F "mdd.*" | grep -qx "mdd.$mdt.changelog_max_idle_indexes="
  must_fail 1 setpriv --reuid=12345 --clear-groups "$LFS" changelog "$mdt"
  must_fail 1 "$LFS" changelog "$two_fsname-MDT0009"
  lctl_alone --device "$mdt" changelog_deregister "$reader"
  must_fail 1 lctl --device "$mdt" changelog_deregister "$reader"
  "$LFS" changelog "$mdt" > "$work/records"
  [ ! -s "$work/records" ]
}

# A check of the file system while it is in use: nothing to find at first, then every flipped bit by path and offset, and nothing else.
t_lfsck() {
  local seconds pid data datas=()
  mkdir "$two_a/scrub"
  python3 "$top/tests/scrub.py" make "$LFS" "$two_a/scrub" 200 "$work/made"
  sync "$two_a/scrub"
  in_two "$WEFT" sync "$two_a"
  lctl_alone lfsck_start -t all --rate 0
  lctl_alone lfsck_query -w > "$work/found"
  grep -qx 'layout_mdts_completed: 1' "$work/found"
  grep -qx 'namespace_mdts_completed: 1' "$work/found"
  lctl_alone get_param "mdd.$mdt.lfsck_layout" "mdd.$mdt.lfsck_namespace"
  [ "$(lctl_alone get_param -n "mdd.$mdt.lfsck_layout" | sed -n 's/^bytes_read: //p')" -ge $((200 << 20)) ]
  # No faster than it may, and it ends when it is told to.
  SECONDS=0
  lctl_alone lfsck_start -M "$mdt" -t scrub --rate 50M
  must_fail 1 lctl lfsck_start
  lctl_alone lfsck_query -w > "$work/found"
  seconds=$SECONDS
  echo "200 MiB at 50 MiB a second: $seconds s"
  [ "$seconds" -ge 3 ] && [ "$seconds" -le 20 ]
  lctl_alone lfsck_start -t scrub --rate 1M
  lctl_alone lfsck_stop
  until_true 20 lfsck_is layout stopped
  for data in "$work"/two.ost?/data; do datas+=("$data"); done
  python3 "$top/tests/scrub.py" flip "$work/made" "$work/flipped" 1000 "${datas[@]}"
  lctl_alone lfsck_start -t scrub --rate 0
  ! lctl_alone lfsck_query -w > "$work/found"
  python3 "$top/tests/scrub.py" judge "$work/flipped" "$work/found"
  python3 "$top/tests/scrub.py" back "$work/flipped"
  lctl_alone lfsck_start -t all --rate 0
  lctl_alone lfsck_query -w > "$work/found"
  must_fail 2 lctl lfsck_start -t scrub --delete-orphans
  must_fail 1 lctl lfsck_start -M "$two_fsname-OST0000"
  # A data file of an OST is gone: files that give EIO are those that are named.
  in_two "$WEFT" sync "$two_a"
  pid=$(server_pid 4)
  kill "$pid"
  tail --pid="$pid" -f /dev/null
  rm "$(find "$work/two.ost2/data" -type f -size +1M | sort | head -n 1)"
  two_serve two-oss2 7004 "$work/two.ost2" "$work/two.ost3"
  sed -i -e "4s/.*/$(tail -n 1 "$work/two.pids")/" -e '$d' "$work/two.pids"
  echo 3 > /proc/sys/vm/drop_caches
  lctl_alone lfsck_start -t all --rate 0
  ! lctl_alone lfsck_query -w > "$work/found"
  python3 "$top/tests/scrub.py" unreadable "$work/made" "$work/found"
  rm -r "$two_a/scrub"
}
lfsck_is() { lctl_alone lfsck_query > "$work/status"; grep -qx "$1_mdts_$2: 1" "$work/status"; }

# What jobs did is counted for them at the MDT and the OSTs, and the changelog names them.
# What Prometheus reads is what get_param says, by the names of lustrefs-exporter.
# What an MDT's server has done in the last ten seconds, and the hours of it, which a restart leaves there.
t_load() {
  local load begin pid
  must_fail 2 in_two "$WEFT" load --since yesterday
  must_fail 1 in_two "$WEFT" load "$work/nothing"
  begin=$(($(date +%s) / 3600 * 3600))
  looked() { [ -n "$(lctl get_param -n "mdt.$mdt.cpu_load_hours.$(date -u +%Y-%m)")" ]; }
  until_true 30 looked
  for _ in $(seq 2000); do : > "$two_a/loaded"; rm "$two_a/loaded"; done
  busy() { [ "$(lctl get_param -n "mdt.$mdt.cpu_load" | tr -d .)" -gt 10 ]; }
  until_true 30 busy
  lctl get_param -n "mdt.$mdt.cpu_load_hours.*" | tail -n 1 | grep -qE '^[0-9]+ [0-9]+ [0-9]+\.[0-9]{2} [0-9]+\.[0-9]{2}$'
  in_two "$WEFT" exporter --once > "$work/metrics"
  grep -qE "^mds_cpu_load\{component=\"mdt\",target=\"$mdt\"\} [0-9.]+$" "$work/metrics"
  in_two "$WEFT" load "$two_a" | tee "$work/load"
  grep -q '^Average MDS Load % ' "$work/load"
  in_two "$WEFT" load --hours | grep -q "^$(date -u -d @"$begin" '+%Y-%m-%d %H:00')\|^$(date -u '+%Y-%m-%d %H:00')"
  in_two "$WEFT" load --split "$(date -u +%Y-%m-%d)" --json | python3 -c '
import json, sys
told = json.load(sys.stdin)[sys.argv[1]]
assert [one["period"].split()[0] for one in told] == ["before", "from", "all"], told
assert 0 < told[2]["average"] <= 100 and told[2]["average"] <= told[2]["peak"] <= 100, told' "$mdt"
  load=$(in_two "$WEFT" load --hours --json)
  pid=$(server_pid 2)
  kill "$pid"
  tail --pid="$pid" -f /dev/null
  start_mds
  until_true 60 mdt_is COMPLETE
  in_two "$WEFT" load --hours --json | python3 -c '
import json, sys
before, after = json.loads(sys.argv[1])[sys.argv[2]], json.load(sys.stdin)[sys.argv[2]]
assert after[0]["begin"] == before[0]["begin"] and after[0]["seconds"] >= before[0]["seconds"], (before, after)' "$load" "$mdt"
}

t_exporter() {
  local pid port=32229 oss1
  oss1=$(server_pid 3)
  must_fail 2 in_two "$WEFT" exporter --listen nowhere
  must_fail 1 in_two "$WEFT" exporter --once --key "$work/no-key"
  must_fail 1 env WEFT_RUN="$work/nobody" unshare --mount sh -c 'awk "\$3 == \"fuse.weft\" { print \$2 }" /proc/mounts | xargs -r -n 1 umount -l; exec "$0" exporter --once' "$WEFT"
  grep -q 'nothing of weft runs here' "$work/err"
  lctl set_param jobid_var=procname_uid > /dev/null
  dd if=/dev/zero of="$two_a/exported" bs=1M count=3 conv=fsync status=none
  nsenter --net="/run/netns/$two_ns" "$WEFT" exporter --listen 127.0.0.1:$port --jobs-max 1 > "$work/exporter" 2>&1 &
  pid=$!
  until_true 10 grep -q "metrics at http://127.0.0.1:$port/metrics" "$work/exporter"
  must_fail 1 in_two timeout 60 "$WEFT" exporter --listen 127.0.0.1:$port
  grep -q 'cannot be listened at: Address already in use' "$work/err"
  in_two python3 "$top/tests/exporter.py" "$two_fsname" $port "$LCTL" || { kill $pid; return 1; }
  # One OSS is away: it is said, and the others are there.
  kill -STOP "$oss1"
  in_two python3 "$top/tests/exporter.py" "$two_fsname" $port "$LCTL" --silent 2 || { kill -CONT "$oss1"; kill $pid; return 1; }
  kill -CONT "$oss1"
  kill $pid
  wait $pid || true
  in_two "$WEFT" exporter --once | grep -q '^lustre_health_healthy 1$'
  lctl set_param jobid_var=disable > /dev/null
}

# The page is there for everybody, and what it shows for who has the token.
t_web() {
  local pid port=32230 at token=$work/token
  at=http://127.0.0.1:$port
  must_fail 2 in_two "$WEFT" web --listen nowhere
  echo "not a token" > "$token"
  must_fail 1 in_two "$WEFT" web --listen 127.0.0.1:$port --token "$token"
  rm "$token"
  nsenter --net="/run/netns/$two_ns" "$WEFT" web --listen 127.0.0.1:$port --token "$token" --key "/etc/weft/$two_fsname.server.key" > "$work/web" 2>&1 &
  pid=$!
  lctl pool_new "$two_fsname.shown" && lctl pool_add "$two_fsname.shown" "OST[0,2]"
  until_true 10 grep -q "page at $at/; it asks for the token in $token" "$work/web"
  in_two python3 "$top/tests/web.py" "$at" "$token" "$two_fsname" "$two_a" || { kill $pid; return 1; }
  kill $pid
  wait $pid || true
  lctl pool_remove "$two_fsname.shown" "OST[0,2]" && lctl pool_destroy "$two_fsname.shown"
  # Where only servers are.
  nsenter --net="/run/netns/$two_ns" unshare --mount sh -c 'awk "\$3 == \"fuse.weft\" { print \$2 }" /proc/mounts | xargs -r -n 1 umount -l; exec "$0" "$@"' \
    "$WEFT" web --listen 127.0.0.1:$port --token "$token" > "$work/web" 2>&1 &
  pid=$!
  until_true 10 grep -q "page at $at/" "$work/web"
  in_two python3 "$top/tests/web.py" "$at" "$token" --served $pid || { kill $pid; return 1; }
  kill $pid
  wait $pid || true
  must_fail 1 in_two "$WEFT" web --listen 127.0.0.1:$port --token "/etc/weft/$two_fsname.client.key"
  chmod 644 "$token"
  must_fail 1 in_two "$WEFT" web --listen 127.0.0.1:$port --token "$token"
  grep -q 'others can read' "$work/err"
}

t_jobs() {
  local reader opens
  [ "$(lctl get_param 'jobid_var' 'jobid_name')" = "$(printf 'jobid_var=disable\njobid_name=%%e.%%u')" ]
  [ "$(lctl list_param -F 'jobid_*')" = "$(printf 'jobid_var=\njobid_name=')" ]
  must_fail 22 lctl set_param "jobid_var=A B"
  must_fail 22 lctl set_param jobid_var=session
  clear_jobs() { lctl set_param "mdt.*.job_stats=clear" "obdfilter.*.job_stats=clear" > /dev/null; }
  # As long as nobody wants it, nobody has a job.
  clear_jobs
  SLURM_JOB_ID=4710 touch "$two_a/jobless"
  lctl get_param -n "mdt.*.job_stats" | cmp - <(echo job_stats:)
  reader=$(lctl_alone --device "$mdt" changelog_register -n)
  lctl set_param jobid_var=SLURM_JOB_ID > /dev/null
  [ "$(lctl get_param jobid_var)" = jobid_var=SLURM_JOB_ID ]
  mkdir "$two_a/jobs"
  "$LFS" setstripe -c 2 -S 65536 "$two_a/jobs"
  in_two python3 "$top/tests/jobs.py" "$LFS" "$mdt" "$reader" "$two_a/jobs" "$two_b/jobs" -- "$LCTL"
  lctl_alone --device "$mdt" changelog_deregister "$reader"
  # One of them goes; who has no such variable has a job by jobid_name.
  lctl set_param "mdt.*.job_stats=4711" > /dev/null
  touch "$two_b/jobs/by-name"
  lctl get_param "mdt.*.job_stats" > "$work/jobs"
  grep -qx "mdt.$mdt.job_stats=" "$work/jobs"
  absent '^- job_id: *"4711"$' "$work/jobs"
  grep -qx '^- job_id:          "4712"$' "$work/jobs"
  grep -qx '^- job_id:          "touch.0"$' "$work/jobs"
  # The same as a table of all targets: as many opens as the MDT counts for the job.
  in_two "$(dirname "$WEFT")/lljobstat" -n 1 -c 2 > "$work/top"
  [ "$(sed -n '1p;3p;$p' "$work/top" | xargs)" = "--- top_jobs: ..." ]
  [ "$(grep -c '^- ' "$work/top")" = 2 ]
  opens=$(sed -n '/"4712"/,/ open:/ s/^  open: *{ samples: *\([0-9]*\),.*/\1/p' "$work/jobs")
  [ "$opens" -gt 0 ]
  grep -Eq "^- 4712: +\{ops: [0-9]+, op: $opens, cl: " "$work/top"
  must_fail 1 in_two "$(dirname "$WEFT")/lljobstat" -n 1 --param 'no.such.job_stats'
  job_seen() { touch "$two_a/jobs/$1"; lctl get_param -n "mdt.*.job_stats" > "$work/jobs"; grep -qx -- "- job_id:          \"$2\"" "$work/jobs"; }
  lctl set_param jobid_var=nodelocal jobid_name=render:%u:%g > /dev/null
  job_seen node render:0:0
  lctl set_param jobid_var=procname_uid > /dev/null
  clear_jobs
  job_seen program touch.0
  lctl set_param jobid_var=SLURM_JOB_ID jobid_name=%j:%e > /dev/null
  SLURM_JOB_ID=4713 job_seen both 4713:touch
  # Bounds and times.
  [ "$(lctl get_param -n "mdt.*.job_cleanup_interval")" = 600 ]
  lctl set_param "mdt.*.job_cleanup_interval=2" > /dev/null
  is_gone() { lctl get_param -n "mdt.*.job_stats" | cmp -s - <(echo job_stats:); }
  until_true 10 is_gone
  lctl set_param "mdt.*.job_cleanup_interval=600" jobid_name=%e.%u jobid_var=disable > /dev/null
  # More than one answer has room for.
  lctl set_param jobid_var=SLURM_JOB_ID > /dev/null
  for n in $(seq 100); do SLURM_JOB_ID=many$n touch "$two_a/jobs/many"; done
  [ "$(lctl get_param -n "mdt.*.job_stats" | grep -c '^- job_id: *"many')" = 100 ]
  [ "$(lctl get_param -n "mdt.*.job_stats" | grep -c '^  open: ')" = "$(lctl get_param -n "mdt.*.job_stats" | grep -c '^- job_id:')" ]
  lctl set_param jobid_var=disable > /dev/null
}

t_rpc_stats() {
  "$LFS" setstripe -c 1 -i 0 "$two_a/rpcs"
  lctl set_param "osc.*.rpc_stats=0" "obdfilter.*.stats=0" > /dev/null
  dd if=/dev/zero of="$two_a/rpcs" bs=1M count=8 conv=fsync,notrunc status=none
  lctl get_param "osc.*OST0000*.rpc_stats" > "$work/rpcs"
  grep -qE "^osc.$two_fsname-OST0000-osc-[0-9a-f]{16}.rpc_stats=$" "$work/rpcs"
  grep -qx "write RPCs in flight: 0" "$work/rpcs"
  grep -qx "pages per rpc         rpcs   % cum % |       rpcs   % cum %" "$work/rpcs"
  # Requests are as large as they can be.
  [ "$(awk '/^[a-zR]/ { on = /^pages per rpc/ } on && /^[0-9]+:/ { sub(/:/, ""); bytes += $1 * $6 * 4096 } END { print bytes }' "$work/rpcs")" = $((8 << 20)) ]
  lctl get_param -n "mdc.*.rpc_stats" | grep -qx "modify_RPCs_in_flight:  0"
  lctl get_param -n "obdfilter.*OST0000.stats" > "$work/ost"
  [ "$(awk '/^write_bytes/ { print $7 }' "$work/ost")" = $((8 << 20)) ]
}

# All lines together say all bytes, of the client and of the servers.
# busy_rpcs FIELD: percent of a mount's requests to the first OST that made 8 or more in flight; field 2 for reads, 6 for writes.
busy_rpcs() {
  lctl get_param -n "osc.$two_fsname-OST0000-*.rpc_stats" | awk -v field="$1" '
    /^rpcs in flight/ { on = 1; next }
    !/^[0-9]+:/ { on = 0 }
    on { all += $field; if ($1 + 0 >= 8) busy += $field }
    END { print all ? int(100 * busy / all) : 0 }'
}
# One thread with O_DIRECT: records of 47,008 bytes from memory that is not aligned, and 64 MiB in one call over a link that is slower than
# both ends.
t_direct_io() {
  "$LFS" setstripe -c 1 -i 0 "$two_a/direct"
  python3 - "$two_a/direct" "$two_b/direct" <<'END'
import os, random, sys
RECORD, COUNT = 47008, 64
records = [random.Random(n).randbytes(RECORD) for n in range(COUNT)]
fd = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
for n in random.Random(0).sample(range(COUNT), COUNT):
    skew = n % 7 + 1
    memory = memoryview(bytearray(skew) + bytearray(records[n]))[skew:]
    assert os.pwritev(fd, [memory], n * RECORD) == RECORD
whole = b"".join(records)
os.fsync(fd)
for path in sys.argv[1:]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    for at, length in [(n * RECORD, RECORD) for n in range(COUNT)] + [(12345, 200000), (1, 4096), (len(whole) - 5, 100)]:
        memory = bytearray(length + 3)
        got = os.preadv(fd, [memoryview(memory)[3:]], at)
        assert memory[3:3 + got] == whole[at:at + length], (path, at)
END
  # A file that nobody else has read: its lock is asked for once.
  "$LFS" setstripe -c 1 -i 0 "$two_a/large"
  in_two tc qdisc add dev lo root tbf rate 200mbit burst 1mb latency 400ms
  lctl set_param "osc.$two_fsname-*.rpc_stats=0" > /dev/null
  dd if=/dev/zero of="$two_a/large" bs=64M count=1 oflag=direct conv=notrunc status=none
  "$WEFT" sync "$two_a"
  lctl get_param -n "osc.$two_fsname-OST0000-*.rpc_stats" | sed -n '/^rpcs in flight/,/^$/p'
  echo "writes with 8 and more in flight: $(busy_rpcs 6) %"
  [ "$(busy_rpcs 6)" -ge 50 ]
  lctl set_param "osc.$two_fsname-*.rpc_stats=0" > /dev/null
  dd if="$two_b/large" of=/dev/null bs=64M count=1 iflag=direct status=none
  in_two tc qdisc del dev lo root
  echo "reads with 8 and more in flight: $(busy_rpcs 2) %"
  [ "$(busy_rpcs 2)" -ge 50 ]
  rm "$two_a/direct" "$two_a/large"
}

t_stat() {
  "$LFS" setstripe -c 4 "$two_a/stat"
  in_two timeout 60 "$WEFT" stat -c 6 --json "$two_a" > "$work/stat.json" & local json=$!
  in_two timeout 60 "$WEFT" stat -c 6 "$two_a" > "$work/stat" & local text=$!
  until_true 20 test -s "$work/stat.json"
  until_true 20 test -s "$work/stat"
  dd if=/dev/zero of="$two_a/stat" bs=1M count=64 conv=fsync,notrunc status=none
  rm "$two_a/stat"
  wait $json
  wait $text
  cat "$work/stat"
  python3 - "$work/stat.json" <<'PY'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
total = lambda group, name: sum(line[group][name] for line in lines)
assert len(lines) == 6, lines
for group in ("client", "ost"):
    assert total(group, "write_bytes") == 64 << 20, (group, lines)
    assert total(group, "writes") == 64, (group, lines)
assert total("mds", "unlink") == 1, lines
PY
  grep -qx "#<--------Lustre Client--------><---------Lustre OST---------><-----------Lustre MDS----------->" "$work/stat"
  [ "$(grep -v '#' "$work/stat" | awk '{ client += $3; ost += $7; unlinked += $12 } END { print client, ost, unlinked }')" = "65536 65536 1" ]
  must_fail 2 "$WEFT" stat -i 0
}

# Each layer can be measured, leaves nothing behind, and says why it cannot be.
t_survey() {
  local few="--size 16M --seconds 2" shm
  mkdir "$work/survey"
  "$WEFT" survey disk "$work/survey" $few > "$work/found"
  grep -q "^AT A TIME  WRITE MB/s  READ MB/s" "$work/found"
  "$WEFT" survey store "$work/survey" $few --json | python3 -c 'import json, sys
speeds = json.load(sys.stdin)["speeds"]
assert len(speeds) == 4 and all(speed["bytes"] == 16 << 20 and speed["mb_per_s"] > 0 for speed in speeds), speeds'
  in_two "$WEFT" survey all "$work/survey" "$two_a" $few > "$work/found"
  cat "$work/found"
  [ "$(awk '{ print $1 }' "$work/found" | xargs)" = "LAYER disk store net client" ]
  [ -z "$(ls "$work/survey")" ]
  [ -z "$(ls -A "$two_a" | grep weft-survey)" ]
  # Two processes, and a key that is another one.
  (umask 077; head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \n' > "$work/survey.key"; head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \n' > "$work/other.key")
  # Without a shell between, which the signal would end instead.
  nsenter --net="/run/netns/$two_ns" "$WEFT" survey net --listen 127.0.0.1:7099@tcp --key "$work/survey.key" > "$work/listening" &
  local listening=$!
  until_true 20 grep -qs "^Answering at" "$work/listening"
  in_two "$WEFT" survey net 127.0.0.1:7099@tcp --key "$work/survey.key" $few | grep -q "^A question that moves nothing:"
  must_fail 1 in_two "$WEFT" survey net 127.0.0.1:7099@tcp --key "$work/other.key" $few
  grep -q "another key" "$work/err"
  kill "$listening"
  wait "$listening"
  shm=$(mktemp -d /dev/shm/weft-survey-test.XXXXXX)
  must_fail 1 "$WEFT" survey disk "$shm" $few
  grep -q "in memory; name a directory on a disk" "$work/err"
  rmdir "$shm"
  must_fail 1 "$WEFT" survey client "$work/survey" $few
  must_fail 1 "$WEFT" survey disk "$work/no-such-directory" $few
  must_fail 1 "$WEFT" survey disk "$work/survey" --size 999T
  grep -q "give a smaller --size" "$work/err"
}

# The disk of an OST fails: the target stops, is opened again in vain, and goes on when the disk is back.
t_disk_fails() {
  # The MDT may not have heard of the OST yet.
  until_true 20 "$LFS" setstripe -i 3 -c 1 "$two_a/on-disk"
  echo before > "$two_a/on-disk"
  "$WEFT" sync "$two_a"
  python3 - "$disk" <<'END'
import fcntl, os, struct, sys
# EXT4_IOC_SHUTDOWN without flushing: from now on every access is an I/O error.
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack("I", 2))
END
  dd if=/dev/zero of="$two_a/on-disk" bs=1M count=2 conv=fsync,notrunc status=none & local writer=$!
  until_true 20 bash -c "nsenter --net=/run/netns/$two_ns $LCTL get_param -n health_check 2>$work/why | grep -qx 'NOT HEALTHY'"
  grep -q "OST0003: " "$work/why"
  # Without its directory it is no better.
  umount -l "$disk"
  [ "$(lctl get_param -n health_check)" = "$(printf 'device %s-OST0003 reported unhealthy\nNOT HEALTHY' "$two_fsname")" ]
  # The device is used again as long as somebody has a file there open.
  until_true 10 bash -c "[ -z \"\$(losetup -j '$work/disk.image')\" ]"
  mount -o loop "$work/disk.image" "$disk"
  until_true 20 bash -c "[ \"\$(nsenter --net=/run/netns/$two_ns $LCTL get_param -n health_check 2>/dev/null)\" = healthy ]" ||
    { grep OST0003 "$work/two-oss2.log"; return 1; }
  wait $writer
  [ "$(stat -c %s "$two_a/on-disk")" = $((2 << 20)) ]
}

# Bytes that were written to disks in pieces of at most 8 KiB: how many of them there are.
small_writes() {
  lctl get_param -n "obdfilter.*.brw_stats" | awk '
    /^disk I\/O size/ { on = 1; next }
    /^[a-z]/ { on = 0 }
    on && /^(1|2|4|8|16|32|64|128|256|512|1K|2K|4K|8K):/ { sub(/.*\|/, ""); small += $1 }
    END { print small + 0 }'
}

# journal SYNC_JOURNAL: sets it, and begins to count anew.
journal() {
  lctl set_param "obdfilter.*.sync_journal=$1" > /dev/null
  lctl set_param "obdfilter.*.brw_stats=clear" > /dev/null
}

# Whether all that was written has been answered.
all_is_answered() { [ "$(lctl get_param -n 'osc.*.cur_dirty_bytes' | awk '{ sum += $1 } END { print sum + 0 }')" = 0 ]; }

t_brw_stats() {
  local async sync n
  lctl get_param "obdfilter.*OST0000.brw_stats" > "$work/brw"
  grep -qx "obdfilter.$two_fsname-OST0000.brw_stats=" "$work/brw"
  grep -Eqx "snapshot_time: {12}[0-9]+\.[0-9]{9} secs\.nsecs" "$work/brw"
  grep -qx "pages per bulk r/w     rpcs  % cum % |  rpcs        % cum %" "$work/brw"
  "$LFS" setstripe -c 4 "$two_a/brw-0"
  "$LFS" setstripe -c 4 "$two_a/brw-1"
  # Written at once, they share commits, whatever these take; how many there are is a matter of time, so the best of some runs counts.
  async=64
  for _ in 1 2 3 4 5; do
    journal 0
    dd if=/dev/zero of="$two_a/brw-0" bs=1M count=64 conv=fsync,notrunc status=none
    lctl get_param -n "obdfilter.*.brw_stats" | grep -Eqx "1M:.* [1-9][0-9]* +[0-9]+ +[0-9]+"
    async=$(small_writes)
    [ "$async" -ge 64 ] || break
  done
  # Apart: none is begun before the one before was answered, which with sync_journal=1 is after a commit of its own.
  journal 1
  for n in $(seq 0 15); do
    dd if=/dev/zero of="$two_a/brw-1" bs=1M count=1 seek="$n" conv=notrunc status=none
    until_true 20 all_is_answered
  done
  sync=$(small_writes)
  lctl set_param "obdfilter.*.sync_journal=0" > /dev/null
  echo "small writes: $async for 64 MiB at once with sync_journal=0, $sync for 16 MiB in 16 writes apart with 1"
  [ "$async" -lt 64 ]
  [ "$sync" -ge 16 ]
}

# lock_counts: the sum of all locks that servers have given.
lock_counts() { lctl_alone get_param -n "ldlm.namespaces.*.lock_count" | awk '{ sum += $1 } END { print sum + 0 }'; }

t_drain() {
  local uuid
  echo data > "$two_a/drained"
  cat "$two_b/drained"
  ls "$two_b"
  [ "$(lock_counts)" -gt 0 ]
  lctl drain 127.0.0.1@tcp > "$work/drained" || { cat "$work/drained"; return 1; }
  [ "$(grep -c ' at 127.0.0.1@tcp: nothing is held any more$' "$work/drained")" = 2 ]
  [ "$(lock_counts)" = 0 ]
  # What is in use is told, and the rest is given back.
  exec 9> "$two_a/drained"
  echo more >&9
  must_fail_quietly 1 lctl drain 127.0.0.1@tcp
  grep -q "1 open files: $("$LFS" path2fid "$two_a/drained" | sed 's/[][]/\\&/g')" "$work/out"
  must_fail_quietly 1 "$WEFT" drain "$two_a"
  exec 9>&-
  "$WEFT" drain "$two_a"
  "$WEFT" drain "$two_b"
  [ "$(lock_counts)" = 0 ]
  must_fail 2 lctl drain 10.9.9.9@tcp
  must_fail 2 lctl drain somebody
  # A client that had not to ask an OST for a while is reached by it at once when it may again, before it needs it.
  "$LFS" setstripe -c -1 "$two_a/drained-wide"
  head -c 4M /dev/zero > "$two_a/drained-wide" && sync "$two_a/drained-wide"
  cat "$two_b/drained-wide" > /dev/null
  lctl set_param "osc.$two_fsname-OST0001-*.active=0" > /dev/null
  [ "$(lctl dl | grep -c " IN osc $two_fsname-OST0001-osc ")" = 2 ]
  must_fail_quietly 1 lctl drain 127.0.0.1@tcp
  [ "$(grep -c ": it does not answer .*$two_fsname-OST0001$" "$work/out")" = 2 ]
  lctl set_param "osc.$two_fsname-OST0001-*.active=1" > /dev/null
  [ "$(lctl dl | grep -c " UP osc $two_fsname-OST000[0-3]-osc ")" = 8 ]
  all_drained() { lctl drain 127.0.0.1@tcp > "$work/status"; }
  until_true 5 all_drained
  [ "$(grep -c ' at 127.0.0.1@tcp: nothing is held any more$' "$work/status")" = 2 ]
  absent "a client is evicted" "$work"/two-*.log
  [ "$(cat "$two_b/drained")" = more ] && echo again > "$two_a/drained" && [ "$(cat "$two_b/drained")" = again ]
}

# must_fail_quietly STATUS COMMAND...: as must_fail, but what there is to say is on stdout.
must_fail_quietly() {
  local want=$1 got=0
  shift
  "$@" > "$work/out" 2>&1 || got=$?
  cat "$work/out"
  [ "$got" = "$want" ]
}

live() { lctl get_param -n "mgs.MGS.live.$two_fsname" | sed -n "s/^ *$1: //p"; }

# A new OST: every client hears of it at once, and how long that took is told.
t_imperative_recovery() {
  local count version
  until_true 20 bash -c "[ \"\$(nsenter --net=/run/netns/$two_ns $LCTL get_param -n mgs.MGS.live.$two_fsname | sed -n 's/^ *state: //p')\" = FULL ]"
  # Who holds nothing asks for no news.
  exec 9> "$two_a/kept-open"
  count=$(live notify_count)
  version=$(live nidtbl_version)
  [ "$(lctl get_param -n 'mgc.*.ir_state' | grep -c "client: $two_fsname-client, nidtbl_version: $version }")" -ge 1 ]
  "$WEFT" format --ost --fsname "$two_fsname" --index 4 --mgsnode 127.0.0.1:7001@tcp "$work/two.ost4"
  two_serve two-oss3 7005 "$work/two.ost4" 9>&-
  until_true 20 bash -c "grep -q '^serving ' $work/two-oss3.log"
  until_true 20 bash -c "nsenter --net=/run/netns/$two_ns $LCTL get_param -n 'mgc.*.ir_state' | grep -q 'nidtbl_version: $((version + 1)) }'"
  [ "$(live notify_count)" = $((count + 1)) ]
  live notify_duration_total | grep -Eqx "0\.[0-9]{9}"
  live notify_duation_max | grep -Eqx "[0-9]+\.[0-9]{9}"
  [ "$(live notify_duation_max)" != 0.000000000 ]
  exec 9>&-
  lctl set_param "mgs.MGS.live.$two_fsname=0" > /dev/null
  [ "$(live notify_count)" = 0 ]
}

# What can be read on the hosts of servers can be read through weft up, too.
t_up() {
  local up=$work/up name=u$two_id
  mkdir "$up"
  in_two "$WEFT" up "$up" --data "$work/up.data" --fsname "$name" --osts 1
  echo data > "$up/file"
  "$WEFT" sync "$up"
  lctl get_param "obdfilter.$name-OST0000.*" "mgs.MGS.live.$name" "mdt.$name-MDT0000.*" > "$work/up.parameters"
  # Its servers take orders through the mount.
  lctl set_param "obdfilter.$name-OST0000.sync_journal=1" > "$work/found"
  [ "$(lctl get_param -n "obdfilter.$name-OST0000.sync_journal")" = 1 ]
  must_fail 22 lctl set_param "obdfilter.$name-OST0000.sync_journal=often"
  lctl lfsck_start -M "$name-MDT0000" -t all
  lctl lfsck_query -M "$name-MDT0000" -w > "$work/found"
  grep -qx 'layout_mdts_completed: 1' "$work/found"
  chmod 777 "$up"
  must_fail 1 in_two setpriv --reuid=12345 --clear-groups "$LCTL" lfsck_start -M "$name-MDT0000"
  in_two "$WEFT" down "$up"
  rm -f "/etc/weft/$name".*.key
  grep -qx "obdfilter.$name-OST0000.sync_journal=0" "$work/up.parameters"
  grep -qx "obdfilter.$name-OST0000.brw_stats=" "$work/up.parameters"
  grep -qx "mdt.$name-MDT0000.recovery_time_hard=170" "$work/up.parameters"
  grep -qx "fsname: $name" "$work/up.parameters"
}

# The MDS is killed, and one of two clients does not come back: the operator looks on, and ends the wait.
# The one client that lives is back.
has_completed() { mdt_says "completed_clients: 1" || mdt_says "completed_clients: 1/2"; }

# Copytools of cases before are clients until they have held nothing for a while. One that was killed while it held something is one for
# hours, unless somebody wants that, or the MDT is started again.
has_mounts_alone() { mdt_is COMPLETE && [ "$(lctl get_param -n 'mdt.*.num_exports')" -le 2 ]; }

t_abort_recovery() {
  local away started
  kill_mds
  start_mds
  until_true 60 has_mounts_alone
  # Who holds nothing is not waited for.
  # The lease of the dead client may run out before anybody looks, on a machine that is slow: then it is tried again, when it is durable
  # that the MDT has forgotten that client.
  for _ in 1 2 3; do
    echo before > "$two_a/file"
    "$WEFT" sync "$two_a"
    mountpoint -q "$two_b" || two_mount "$two_b"
    stat "$two_b/file"
    away=$(daemon_pid "$two_b")
    kill -9 "$away"
    umount -l "$two_b"
    kill_mds
    start_mds
    until_true 40 has_completed
    ! mdt_is RECOVERING || break
  done
  mdt_is RECOVERING
  mdt_says "connected_clients: 1/2"
  mdt_says "time_remaining: [1-9][0-9]*"
  # On a host without a mount weft status tells of the targets that it serves; nothing is mounted, so it is no success.
  not alone "$WEFT" status > "$work/progress"
  cat "$work/progress"
  grep -q "^$mdt: 1 of 2 clients are back, 1 done, [0-9]* changes replayed; waits for 127.0.0.1@tcp (not back for" \
    "$work/progress"
  lctl_alone get_param -n "mdt.*.recovery_reconnect_histogram" > "$work/histogram"
  cat "$work/histogram"
  grep -qx "reconnect_delay_seconds_samples: 1" "$work/histogram"
  grep -Eqx -- "- \{ delay_sec:  *[0-9]+, clients:    1, pct: 100, cum_pct: 100 \}" "$work/histogram"
  lctl_alone get_param -n "mdt.*.recovery_reconnect_top" | grep -q 'nid:  *"127.0.0.1@tcp", delay_sec:'
  started=$SECONDS
  lctl_alone --device "$mdt" abort_recovery
  [ $((SECONDS - started)) -le 5 ]
  mdt_is COMPLETE
  mdt_says "completed_clients: 1/2"
  [ "$(cat "$two_a/file")" = before ]
  lctl_alone abort_recovery "$mdt"
  trace=$(grep -o 'trace="[^"]*"' "$work/two-mds.log" | tail -n 1 | cut -d'"' -f2)
  until_true 5 test -s "$trace"
  grep -q "why: it did not come back" "$trace"
  grep -qx "nid: 127.0.0.1@tcp" "$trace"
  lctl_alone get_param -n "mdt.*.recovery_reconnect_histogram" | grep -q "^recovery_finish: [1-9]"
  lctl_alone set_param "mdt.*.recovery_reconnect_histogram=clear" > /dev/null
  lctl_alone get_param -n "mdt.*.recovery_reconnect_histogram" | grep -qx "reconnect_delay_seconds_samples: 0"
  two_mount "$two_b"
  echo after > "$two_b/file"
  [ "$(cat "$two_a/file")" = after ]
}

# absent PATTERN FILE...: as ! grep, but noticed by set -e.
absent() {
  if grep "$@"; then return 1; fi
}

# The logs of all processes in memory: what is not printed too, in order of time, until it was fetched.
t_dk() {
  lctl clear
  [ "$(lctl get_param debug debug_mb | xargs)" = "debug=info debug_mb=5" ]
  lctl mark the test begins
  lctl mark
  lctl dk "$work/dk" > "$work/dk.said"
  cat "$work/dk.said" "$work/dk"
  # Four servers and two mounts.
  [ "$(grep -c ':warn:.*) DEBUG MARKER: the test begins$' "$work/dk")" = 6 ]
  [ "$(grep -Ec ') DEBUG MARKER: [0-9]+\.[0-9]{6}$' "$work/dk")" = 6 ]
  [ "$(grep -c "DEBUG MARKER: the test begins" "$work/two-mds.log")" = 1 ]
  grep -qx "Debug log: \([0-9]*\) lines, \1 kept, 0 dropped, 0 bad." "$work/dk.said"
  absent -Ev '^[a-z_0-9]+:(error|warn|info):[0-9]+\.0:[0-9]+\.[0-9]{6}:0:[0-9]+:[0-9]+:\([a-z_]+\.rs:[0-9]+:[a-z_:0-9]*\) ' "$work/dk"
  cut -d: -f4 "$work/dk" | sort -C -n
  # It was forgotten.
  lctl dk > "$work/dk"
  absent "the test begins" "$work/dk"
  # What is kept below what is printed; and only where it is asked for.
  lctl set_param debug=info,weft_service=trace > /dev/null
  echo data > "$two_a/traced"
  "$WEFT" sync "$two_a"
  lctl set_param debug=info debug_mb=1 > /dev/null
  lctl dk > "$work/dk"
  grep -q '^service:trace:.*) changed .*Create' "$work/dk"
  absent '^client:trace:' "$work/dk"
  absent TRACE "$work/two-mds.log"
  # The ring is bounded, and says what it had no room for.
  lctl set_param debug=trace > /dev/null
  lctl set_param "llite.*.metadata_writeback=0" > /dev/null
  mkdir "$two_a/many"
  (cd "$two_a/many" && seq 2000 | xargs touch)
  lctl set_param debug=info debug_mb=5 "llite.*.metadata_writeback=1" > /dev/null
  lctl dk "$work/dk" | tee "$work/dk.said"
  grep -Eq ' [1-9][0-9]* dropped' "$work/dk.said"
  [ "$(stat -c %s "$work/dk")" -le $((6 << 20)) ]
  # No key, no secret of a handshake.
  local key
  for key in "/etc/weft/$two_fsname".*.key; do absent -F "$(head -c 32 "$key")" "$work/dk"; done
  must_fail 22 lctl set_param debug=loud
  must_fail 22 lctl set_param debug_mb=0
  [ "$(lctl get_param -n debug debug_mb | xargs)" = "info 5" ]
  # A server that waits for its MGS serves nothing, and answers.
  "$WEFT" format --ost --fsname "$two_fsname" --index 9 --mgsnode 127.0.0.1:7999@tcp "$work/two.ost9" > /dev/null
  two_serve two-oss9 7009 "$work/two.ost9"
  local alone
  alone=$(tail -n 1 "$work/two.pids")
  until_true 10 test -s "$WEFT_RUN/serve-$alone.json"
  lctl mark 'kept'
  lctl dk > "$work/dk"
  [ "$(grep -c 'MARKER: kept$' "$work/dk")" = 7 ]
  grep -q "^weft:info:[^ ]*:$alone:([^ ]*) starting " "$work/dk"
  kill "$alone"
  tail --pid="$alone" -f /dev/null
  sed -i '$d' "$work/two.pids"
  lctl mark 'kept'
  lctl clear
  lctl dk > "$work/dk"
  absent 'MARKER: kept' "$work/dk"
}

# Evicts every client at this address: both find out at once, and go on.
t_evict_client() {
  local uuid trace
  mkdir -p "$two_b/dir"
  ls "$two_a/dir" "$two_b/dir"
  lctl get_param -n "mdt.*.exports.*.uuid" > "$work/uuids"
  [ "$(wc -l < "$work/uuids")" = 2 ]
  uuid=$(head -n 1 "$work/uuids")
  [ "$(lctl set_param "mdt.*.evict_client=$uuid")" = "mdt.$mdt.evict_client=$uuid" ]
  trace=$(grep -o 'trace="[^"]*"' "$work/two-mds.log" | tail -n 1 | cut -d'"' -f2)
  until_true 5 test -s "$trace"
  grep -qx "client: $uuid" "$trace"
  grep -q "^nid: 127.0.0.1@tcp" "$trace"
  grep -q "why: an operator at 127.0.0.1" "$trace"
  grep -q "s before: " "$trace"
  # The client that did nothing has a new session all the same.
  until_true 10 bash -c "[ \"\$(nsenter --net=/run/netns/$two_ns $LCTL get_param -n 'mdt.*.num_exports')\" = 2 ]"
  echo one > "$two_a/dir/x"
  [ "$(cat "$two_b/dir/x")" = one ]
  lctl set_param "obdfilter.*.evict_client=nid:127.0.0.1@tcp" > "$work/evicted"
  [ "$(wc -l < "$work/evicted")" -ge 1 ]
  echo two > "$two_b/dir/x"
  [ "$(cat "$two_a/dir/x")" = two ]
  must_fail 2 lctl set_param "mdt.*.evict_client=nid:10.9.9.9@tcp"
  must_fail 2 lctl set_param "mdt.*.evict_client=nobody"
}

# What was changed in a mapping under a lock that is lost is not written over what others have: it is lost, and msync says so.
t_evict_mapped() {
  printf 'old%4093s' '' > "$two_b/mapped"
  python3 - "$two_a/mapped" "$work/changed" <<'END' > "$work/mapped" &
import errno, mmap, os, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
page = mmap.mmap(file, 4096)
page[:3] = b"new"
os.close(os.open(sys.argv[2], os.O_CREAT))
while os.path.exists(sys.argv[2]):
    time.sleep(0.01)
try:
    page.flush()
    os.fsync(file)
    print("no error")
except OSError as error:
    print(errno.errorcode[error.errno])
# The kernel is told to forget the page beside that.
until = time.monotonic() + 10
while page[:3] == b"new" and time.monotonic() < until:
    time.sleep(0.01)
print(bytes(page[:3]).decode())
END
  local holder=$!
  until_true 10 test -e "$work/changed"
  lctl set_param "obdfilter.*.evict_client=nid:127.0.0.1@tcp" > "$work/evicted"
  printf 'other' | dd of="$two_b/mapped" conv=notrunc,fsync status=none
  rm "$work/changed"
  wait $holder
  diff "$work/mapped" <(printf 'EIO\noth\n')
  [ "$(head -c 5 "$two_b/mapped")" = other ]
  [ "$(head -c 5 "$two_a/mapped")" = other ]
}

# A file system of one process beside the two, which the case takes down itself.
# own_up NAME OPTION...: mounted at $work/NAME, with its data in $work/NAME.data.
own_up() {
  local name=$1
  shift
  mkdir -p "$work/$name"
  in_two "$WEFT" up "$work/$name" --data "$work/$name.data" --fsname "$name" "$@"
}
own_down() {
  in_two "$WEFT" down "$work/$1" && rm -rf "$work/$1.data" "/etc/weft/$1".*.key
}

# at_once NAME COMMAND...: runs it in the background; what it says, and its exit status, are in files of that name.
at_once() {
  local name=$work/once-$1
  shift
  (status=0; in_two timeout "$lctl_seconds" "$@" > "$name" 2> "$name.err" || status=$?; echo "$status" > "$name.status") &
}
ended() { [ "$(cat "$work/once-$1.status")" = "$2" ]; }

# The process of one mount, which has the servers of another one, says nothing: each tool says so, and what there is to say of the
# others.
t_silent() {
  local name=s$two_id client=$work/silent-client pid
  own_up "$name" --osts 1 --listen 127.0.0.1:7021@tcp
  mkdir "$client" "$work/beside"
  in_two "$WEFT" mount "127.0.0.1:7021@tcp:/$name" "$client"
  pid=$(daemon_pid "$work/$name")
  kill -STOP "$pid"
  at_once status "$WEFT" status
  at_once named "$WEFT" status "$work/$name"
  at_once down "$WEFT" down "$work/$name"
  at_once up "$WEFT" up "$work/beside" --data "$work/beside.data" --fsname "b$two_id" --osts 1
  at_once dl "$LCTL" dl
  at_once version "$LCTL" get_param -n version
  at_once stats "$LCTL" get_param "obdfilter.*.num_exports"
  at_once df "$LFS" df
  at_once inside "$LFS" df "$client/some/path"
  wait
  kill -CONT "$pid"
  tail -n 50 "$work"/once-*
  local silent="^$work/$name is left out: no answer within 3 s"
  ended status 1
  grep -q "^$work/$name: SILENT: the process behind $work/$name does not answer" "$work/once-status"
  grep -q "^$client: DEGRADED: no answer from $name-MDT0000, $name-OST0000;" "$work/once-status"
  grep -q "^$two_a: HEALTHY" "$work/once-status"
  ended named 1 && grep -q "SILENT: the process behind" "$work/once-named"
  ended down 1 && grep -q "does not answer within" "$work/once-down.err"
  ended up 0 && grep -q "is up at $work/beside" "$work/once-up"
  ended dl 0 && grep -q "$silent" "$work/once-dl.err" && grep -q "$mdt-mdc" "$work/once-dl"
  grep -q "$name-OST0000-osc" "$work/once-dl"
  ended version 0
  grep -q "^obdfilter.$two_fsname-OST0000.num_exports=" "$work/once-stats"
  grep -q "'obdfilter.$name-OST0000.num_exports': No answer" "$work/once-stats.err"
  ended df 1 && grep -q "$silent" "$work/once-df.err" && grep -q "^$two_fsname-OST0003_UUID .*OST:3" "$work/once-df"
  grep -q "^$name-OST0000_UUID *: inactive device" "$work/once-df"
  ended inside 1 && [ -s "$work/once-inside.err" ]
  in_two "$WEFT" down "$work/beside" && rm -f "/etc/weft/b$two_id".*.key
  in_two "$WEFT" down "$client"
  own_down "$name"
}

# What was up comes back as it was, by its mount point alone.
t_again() {
  local name=r$two_id
  own_up "$name" --osts 1 --listen 127.0.0.1:7022@tcp -o nosuid > "$work/greeting"
  cat "$work/greeting"
  grep -q "weft up $work/$name brings it back" "$work/greeting"
  echo stays > "$work/$name/file"
  in_two "$WEFT" down "$work/$name" > "$work/said"
  grep -q "\"weft up $work/$name\" brings it back" "$work/said"
  must_fail_quietly 1 "$WEFT" status "$work/$name"
  grep -qx "$work/$name: STOPPED: file system $name, its data in $work/$name.data; \"weft up $work/$name\" brings it back" "$work/out"
  "$WEFT" status | grep -q "^$work/$name: STOPPED"
  in_two "$WEFT" up "$work/$name"
  [ "$(cat "$work/$name/file")" = stays ]
  grep -q " $work/$name fuse.weft rw,nosuid" /proc/mounts
  "$WEFT" status "$work/$name" | grep -q "127.0.0.1:7022@tcp"
  in_two "$WEFT" status | grep STOPPED > "$work/stopped" || true
  absent "$work/$name:" "$work/stopped"
  in_two "$WEFT" down "$work/$name"
  # A disk that is away is no reason for a new, empty file system.
  mv "$work/$name.data" "$work/away"
  must_fail 1 in_two "$WEFT" up "$work/$name"
  grep -q "its data is not in $work/$name.data now" "$work/err"
  mv "$work/away" "$work/$name.data"
  in_two "$WEFT" up "$work/$name"
  own_down "$name"
}

# One target that is damaged or not there stops nobody else; what cannot be checked is not called damaged.
t_part() {
  local name=p$two_id data pid
  data=$work/$name.data
  own_up "$name" --osts 2 --oss 1
  must_fail 4 "$WEFT" check "$data/OST0000"
  grep -q "is being served" "$work/err"
  must_fail 5 "$WEFT" check "$work/run"
  must_fail 5 "$WEFT" check "$work/nosuch"
  must_fail 5 "$WEFT" check "$data/OST0000/label"
  grep -q "is no directory" "$work/err"
  "$LFS" setstripe -c 1 -i 0 "$work/$name/file"
  echo there > "$work/$name/file"
  in_two "$WEFT" down "$work/$name"
  "$WEFT" check "$data/OST0001"
  mv "$data/OST0001" "$work/ost1"
  must_fail 1 in_two "$WEFT" up "$work/$name"
  grep -q "FAILED: $name-OST0001 is not served: $data/OST0001 is empty or not there" "$work/err"
  [ "$(cat "$work/$name/file")" = there ]
  must_fail_quietly 1 "$WEFT" status "$work/$name"
  grep -q "FAILED: $name-OST0001 is not served: $data/OST0001 is empty or not there" "$work/out"
  in_two "$WEFT" down "$work/$name"
  # No empty one is put in its place.
  [ ! -e "$data/OST0001" ]
  mv "$work/ost1" "$data/OST0001"
  dd if=/dev/zero of="$data/OST0001/label" bs=1 count=4 conv=notrunc status=none
  must_fail_quietly 1 "$WEFT" check "$data/OST0001"
  grep -q DAMAGED "$work/out"
  must_fail 1 in_two "$WEFT" up "$work/$name"
  [ "$(cat "$work/$name/file")" = there ]
  must_fail_quietly 1 "$WEFT" status "$work/$name"
  grep -q "FAILED: $name-OST0001 is not served: $data/OST0001 holds no target that can be served" "$work/out"
  # A server goes on too; what it cannot serve it says.
  local other=q$two_id
  "$WEFT" format --mgs --fsname "$other" "$work/q.mgs"
  "$WEFT" format --mdt --fsname "$other" --mgsnode 127.0.0.1:7011@tcp "$work/q.mdt"
  two_serve two-q 7011 "$work/nosuch" "$work/q.mdt" "$data/OST0001" "$work/q.mgs"
  pid=$(tail -n 1 "$work/two.pids")
  until_true 20 grep -q "^serving $other-MGS $other-MDT0000 at" "$work/two-q.log"
  grep -q "not served.*$work/nosuch: No such file" "$work/two-q.log"
  alone "$WEFT" status > "$work/said" || true
  cat "$work/said"
  grep -q "$work/nosuch: No such file" "$work/said"
  grep -q "$data/OST0001 holds no target" "$work/said"
  rm -f "/etc/weft/$other".*.key
  kill "$pid" && tail --pid="$pid" -f /dev/null
  sed -i '$d' "$work/two.pids"
  must_fail 1 in_two timeout 20 "$WEFT" serve "$work/nosuch" "$data/OST0001" --listen 127.0.0.1:7012@tcp
  own_down "$name"
}

# OSTs that were not served at their very first start, so that the MGS has never heard of them, are missed all the same.
t_unserved() {
  local name=v$two_id data=$work/v$two_id.data at=$work/v$two_id n
  own_up "$name" --osts 1 --oss 1
  in_two "$WEFT" down "$at"
  sed -i 's/"osts": 1/"osts": 3/' "$data/settings.json"
  mkdir "$data/OST0002" && echo other > "$data/OST0002/label"
  local said="FAILED: $name-OST0001 is not served: $data/OST0001 is empty or not there; .*; $name-OST0002 is not served: $data/OST0002 holds no target"
  must_fail 1 in_two "$WEFT" up "$at"
  grep -q "is up at $at: 1 MDT, 3 OSTs" "$work/out"
  grep -q "^weft: $at: $said" "$work/err"
  must_fail 1 in_two "$WEFT" up "$at"
  grep -q "is up at $at already" "$work/out"
  grep -q "^weft: $at: $said" "$work/err"
  must_fail_quietly 1 "$WEFT" status "$at"
  grep -q "^$at: $said" "$work/out"
  [ "$(grep -c "^$name-OST000[12] *FAILED" "$work/out")" = 2 ]
  "$WEFT" status --json "$at" | grep -q '"healthy": true' && return 1
  in_two "$WEFT" down "$at"
  rm -r "$data/OST0002"
  for n in 1 2; do "$WEFT" format --ost --fsname "$name" --index $n --mgsnode 0@lo "$data/OST000$n"; done
  in_two "$WEFT" up "$at"
  "$WEFT" status "$at" | grep -q "HEALTHY: 1 MDT and 3 OSTs answer"
  own_down "$name"
  # The same where a process may open too few files for all: it says so, or it has all of them.
  mkdir -p "$at"
  local status=0
  in_two bash -c 'ulimit -n 40; exec "$@"' - "$WEFT" up "$at" --data "$data" --fsname "$name" --osts 8 > "$work/out" 2> "$work/err" || status=$?
  cat "$work/out" "$work/err"
  if mountpoint -q "$at"; then
    "$WEFT" status "$at" > "$work/out" || [ $? = "$status" ]
    cat "$work/out"
    [ "$(grep -cE "^$name-OST000[0-7] *(active|FAILED|SILENT)" "$work/out")" = 8 ]
    [ $status = 0 ] || [ "$(grep -o 'OST000[0-7] is not served' "$work/err" | wc -l)" = "$(grep -c "^$name-OST000[0-7] *FAILED" "$work/out")" ]
    in_two "$WEFT" down "$at"
  else
    [ $status = 1 ]
  fi
  in_two "$WEFT" up "$at" --data "$data"
  "$WEFT" status "$at" | grep -q "HEALTHY: 1 MDT and 8 OSTs answer"
  own_down "$name"
}

# What cannot be written down is not started: the next "weft up" there would make another file system, with nothing in it.
t_recorded() {
  local name=f$two_id data=$work/f$two_id.data at=$work/f$two_id records=/var/lib/weft/instances record
  mkdir -p "$records" "$at"
  # The test has its own table of mounts.
  trap "umount -l '$records' 2>/dev/null || true" EXIT
  mount -t tmpfs -o ro none "$records"
  must_fail 1 in_two "$WEFT" up "$at" --data "$data" --fsname "$name" --osts 1
  umount "$records"
  grep -q "what is served at $at cannot be written down in $records: Read-only file system; nothing is started" "$work/err"
  not mountpoint -q "$at"
  [ ! -e "$data/MGS" ]
  own_up "$name" --osts 1
  echo stays > "$at/file"
  in_two "$WEFT" down "$at"
  # It is written down as it is.
  mount --bind "$records" "$records" && mount -o remount,bind,ro "$records"
  in_two "$WEFT" up "$at"
  [ "$(cat "$at/file")" = stays ]
  in_two "$WEFT" down "$at"
  must_fail 1 in_two "$WEFT" up "$at" -o nosuid
  umount "$records"
  # One that cannot be read is not taken for none.
  record=$(grep -l "\"$at\"" "$records"/*.json)
  echo '{' > "$record"
  must_fail 1 in_two "$WEFT" up "$at"
  grep -q "$record says what was served at $at, and is damaged" "$work/err"
  in_two "$WEFT" up "$at" --data "$data"
  [ "$(cat "$at/file")" = stays ]
  in_two "$WEFT" down "$at"
  in_two "$WEFT" up "$at"
  [ "$(cat "$at/file")" = stays ]
  own_down "$name"
}

# A file system whose making is broken off, wherever, is made by the next start. What the test checks does not depend on when it is.
t_broken_off() {
  local name=h$two_id data=$work/h$two_id.data at=$work/h$two_id n up
  mkdir -p "$at"
  for n in 0 0.02 0.04 0.06 0.09 0.15; do
    in_two "$WEFT" up "$at" --data "$data" --fsname "$name" --osts 4 > /dev/null 2>&1 & up=$!
    until_true 20 test -e "$data/weft.log"
    sleep "$n"
    # It, and what it has started, some of which may end by itself before.
    pgrep -f -- "$WEFT up $at --data $data |^weft up $at --data $data " | xargs -r kill -9 || true
    wait $up || true
    ls -A "$data"
    in_two "$WEFT" up "$at" --data "$data"
    echo stays > "$at/file"
    in_two "$WEFT" down "$at"
    [ ! -e "$data/settings.json.making" ]
    in_two "$WEFT" up "$at"
    "$WEFT" status "$at" | grep -q "HEALTHY: 1 MDT and 4 OSTs answer"
    [ "$(cat "$at/file")" = stays ]
    in_two "$WEFT" down "$at"
    rm -r "$data"
  done
  # What nobody has begun is somebody else's.
  mkdir -p "$data/MGS"
  must_fail 1 in_two "$WEFT" up "$at" --data "$data"
  grep -q "holds something that is no data of weft" "$work/err"
  rm -r "$data"
}

# A host with servers and a file system of its own beside.
t_drain_beside() {
  local name=d$two_id
  own_up "$name" --osts 1
  echo data > "$two_a/beside"
  # Something of it may still be in use, which is told and has the status 1.
  lctl drain 127.0.0.1@tcp > "$work/said" 2>&1 || [ $? = 1 ]
  cat "$work/said"
  [ "$(grep -c ' at 127.0.0.1@tcp: ' "$work/said")" = 2 ]
  absent "served for this machine alone" "$work/said"
  own_down "$name"
}

# What mount(8) gives to the helper, and where mount.weft is not in /sbin to weft itself.
t_remount() {
  local helper source="127.0.0.1:7001@tcp:/$two_fsname" option
  helper=$(dirname "$WEFT")/mount.weft
  echo rw > "$two_b/remounted"
  "$helper" "$source" "$two_b" -o rw,user_id=0,group_id=0,default_permissions,allow_other,remount,ro
  grep -q " $two_b fuse.weft ro," /proc/mounts
  must_fail 1 touch "$two_b/remounted"
  [ "$(cat "$two_b/remounted")" = rw ]
  "$WEFT" "$source" "$two_b" -o remount,rw,noexec
  grep -q " $two_b fuse.weft rw,.*noexec" /proc/mounts
  "$helper" "$source" "$two_b" -o remount,exec
  echo again > "$two_b/remounted-again"
  for option in sync dirsync strictatime noacl; do
    must_fail 2 in_two "$WEFT" mount "$source" "$work/none" -o "$option"
    grep -q "\"$option\" is not available" "$work/err"
  done
  for option in noatime nodiratime sync; do
    must_fail 32 "$helper" "$source" "$two_b" -o "remount,$option"
    grep -q "\"$option\"" "$work/err"
  done
  # Access times are kept, or not, as the options say.
  local at=$work/times
  mkdir "$at"
  in_two "$WEFT" mount "$source" "$at" -o relatime,acl
  mkdir "$at/dir" && touch -a -d 2001-01-01 "$at/dir" "$at/remounted"
  in_two "$WEFT" down "$at"
  in_two "$WEFT" mount "$source" "$at" -o noatime
  cat "$at/remounted" && ls "$at/dir"
  [ "$(stat -c %X "$at/remounted")" = "$(date -d 2001-01-01 +%s)" ]
  in_two "$WEFT" down "$at"
  in_two "$WEFT" mount "$source" "$at" -o nodiratime
  cat "$at/remounted" && ls "$at/dir"
  [ "$(stat -c %X "$at/dir")" = "$(date -d 2001-01-01 +%s)" ]
  [ "$(stat -c %X "$at/remounted")" != "$(date -d 2001-01-01 +%s)" ]
  in_two "$WEFT" down "$at"
}

# A key that somebody else could change says nothing about who is let in.
t_keys() {
  local at=$work/keyed source="127.0.0.1:7001@tcp:/$two_fsname" key=$work/foreign.key
  mkdir "$at"
  cp "/etc/weft/$two_fsname.client.key" "$key"
  chmod 600 "$key"
  chown 65534 "$key"
  must_fail 1 in_two "$WEFT" mount "$source" "$at" --key "$key"
  [ "$(wc -l < "$work/err")" = 1 ]
  grep -q "the key $key belongs to user 65534" "$work/err"
  chown 0 "$key"
  in_two "$WEFT" mount "$source" "$at" --key "$key"
  in_two "$WEFT" down "$at"
  # Root's and one's own are used, as far as they can be read.
  must_fail 1 setpriv --reuid 65534 --regid 65534 --clear-groups "$WEFT" failover "$two_fsname-OST0000" --mgsnode 127.0.0.1:7001@tcp --key "$key"
  grep -q "Permission denied" "$work/err"
}

# Nobody takes what a command prints: a pipe without a reader ends it without a word, a full device with a sentence. What it has done
# stays done.
t_printing() {
  local name=o$two_id at=$work/o$two_id command
  mkdir "$at"
  # nobody_reads COMMAND...: ends as other tools do then, by SIGPIPE or having said all before.
  nobody_reads() {
    local status
    "$@" 2> "$work/err" | true
    status=${PIPESTATUS[0]}
    cat "$work/err"
    [ ! -s "$work/err" ] && { [ "$status" = 141 ] || [ "$status" = 0 ]; }
  }
  to_full() { "$@" > /dev/full; }
  up() { in_two "$WEFT" up "$at" --data "$work/$name.data" --fsname "$name" --osts 1; }
  must_fail 74 to_full in_two "$WEFT" up "$at" --data "$work/$name.data" --fsname "$name" --osts 1
  [ "$(wc -l < "$work/err")" = 1 ]
  grep -qx "weft: standard output cannot be written: No space left on device" "$work/err"
  mountpoint -q "$at"
  echo there > "$at/file"
  for command in "$WEFT up $at" "$WEFT status" "$LFS df" "$LFS osts $at" "$LFS getstripe $at/file" "$LFS path2fid $at/file" "$LCTL dl" \
    "$LCTL get_param version" "$LCTL dk" "$WEFT --help" "$WEFT drain $at"; do
    # shellcheck disable=SC2086
    must_fail 74 to_full in_two $command
    [ "$(wc -l < "$work/err")" = 1 ]
    # shellcheck disable=SC2086
    nobody_reads in_two $command
    # shellcheck disable=SC2086
    in_two $command >&-
  done
  must_fail 74 to_full in_two "$WEFT" down "$at"
  not mountpoint -q "$at"
  # What has no other place to tell it than standard error goes on without.
  for command in "$WEFT down $at/no/such" "$WEFT nosuch"; do
    bash -c "$command 2> /dev/full" && return 1 || [ $? -lt 3 ]
  done
  nobody_reads up
  mountpoint -q "$at"
  nobody_reads in_two "$WEFT" down "$at"
  not mountpoint -q "$at"
  rm -rf "$work/$name.data" "/etc/weft/$name".*.key
}

# A path that cannot be written down would not be found again.
t_mountpoint_names() {
  local name=u$two_id at
  at=$work/$(printf 'not-\xff-utf8')
  mkdir "$at"
  must_fail 1 in_two "$WEFT" up "$at" --data "$work/$name.data" --fsname "$name" --osts 1
  grep -q "a path has to be UTF-8 text here" "$work/err"
  not mountpoint -q "$at"
  [ ! -e "$work/$name.data" ]
  rmdir "$at"
}

# Words that are not understood.
t_words() {
  cd "$two_a"
  must_fail 2 "$LFS" setstripe -E 1M -N 2 worded
  grep -q -- "-N is not available yet" "$work/err"
  absent -- "-- -N" "$work/err"
  must_fail 2 "$LFS" setstripe -Q worded
  absent -- "-- -Q" "$work/err"
  [ ! -e worded ]
  must_fail 2 "$LFS" heat_get
  grep -q "not available yet" "$work/err"
  must_fail 2 "$LFS" getstirpe
  grep -q "getstirpe: no such command" "$work/err"
  must_fail 2 "$LCTL" get_parm version
  grep -q "get_parm: no such command" "$work/err"
  "$LFS" --help | head -n 1 | grep -q "layouts, space and targets"
  must_fail 2 "$WEFT" up "$work/none" --data "$work/none.data" --fsname none --oss 5 --osts 2
  grep -q -- "--oss 5" "$work/err"
  "$WEFT" format --mgs --fsname keyed --key "$work/keyed.server.key" "$work/keyed.mgs" > "$work/said"
  grep -q "the servers' key is $work/keyed.server.key, the clients' is $work/keyed.client.key" "$work/said"
  cd /
  # Another user is told why.
  must_fail 1 setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/nonexistent "$WEFT" down "$two_a"
  cat "$work/err"
  grep -q "run this as the one who mounted it, or as root" "$work/err"
  mountpoint -q "$two_a"
}

# Who cannot read the servers' key gives no orders; the clients' key is none.
t_rights() {
  local client=$work/as-client
  mkdir -p "$client"
  sed "s/\.server\.key/.client.key/" "$WEFT_RUN"/serve-"$(server_pid 2)".json > "$client/serve-1.json"
  # As long as somebody has its lock it counts.
  flock "$client/serve-1.json" sleep 60 & local holder=$!
  until_true 5 bash -c "! flock -n '$client/serve-1.json' true"
  WEFT_RUN=$client must_fail 1 lctl set_param "mdt.*.evict_client=nid:127.0.0.1@tcp"
  WEFT_RUN=$client must_fail 13 lctl dk
  kill $holder
}

# One OST has a disk of its own, which can fail.
disk=$work/disk
make_disk() {
  mkdir "$disk"
  truncate -s 1G "$work/disk.image"
  mkfs.ext4 -q -F "$work/disk.image"
  # Without it one case is left out.
  mount -o loop "$work/disk.image" "$disk" || true
  mkdir "$disk/ost"
  ln -s "$disk/ost" "$work/two.ost3"
}

check disk make_disk
check start two_up
# Nothing else could be seen then.
[ "$failed" = 0 ] || { finish; exit 1; }
for case in ${*:-words mountpoint_names printing keys remount silent again part unserved recorded broken_off drain_beside names parameters degraded timeouts cache llite_stats namespaces idle_sessions health drain io_scheduler idle_disk read_cache dk brw_stats md_stats open_again quotas space default_quotas pool_quotas projects changelog jobs load exporter web rpc_stats direct_io stat survey kept pools pool_spill policy policy_killed hsm hsm_s3 du disk_fails up imperative_recovery abort_recovery evict_client evict_mapped rights}; do
  if [[ $case = disk_fails || $case = io_scheduler || $case = idle_disk || $case = read_cache ]] && ! mountpoint -q "$disk"; then
    skip "$case" "no file system in a file can be mounted here"
    continue
  fi
  check "$case" "t_$case"
done
finish
