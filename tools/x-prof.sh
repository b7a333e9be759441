#!/usr/bin/env bash
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"
leave() { two_down; rm -rf --one-file-system "$work" "/etc/weft/$two_fsname".*.key; }
trap leave EXIT
two_up >"$work/start.log" 2>&1 || { cat "$work/start.log"; exit 1; }
oss=$(sed -n 3p "$work/two.pids")
"$LFS" setstripe -c -1 "$two_a/f"
dd if=/dev/zero of="$two_a/f" bs=1M count=${1:-4096} conv=fsync,notrunc 2>/dev/null &
sleep 0.5
bash "$top/tools/profile-server.sh" "$oss" 5
wait %1
