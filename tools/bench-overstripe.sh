#!/usr/bin/env bash
# Eight clients write one file in turns of 1 MiB, as IOR does with one file and segments, and read what another one wrote: with a stripe on
# each of 4 OSTs, with 8 stripes and with 32 on them. Each client has a mount of its own; servers in four processes over tcp.
# Usage: tools/bench-overstripe.sh [ROUNDS] [SEGMENTS]
. "$(dirname "$0")/lib.sh"
. "$top/tools/lib-two.sh"

rounds=${1:-3}
segments=${2:-50}
clients=8
mounts=()

leave() {
  local mount pid
  for mount in "${mounts[@]}"; do
    pid=$(daemon_pid "$mount")
    umount "$mount" || umount -l "$mount"
    timeout 20 tail --pid="$pid" -f /dev/null
  done
  two_down
  rm -rf --one-file-system "$work"
}
trap leave EXIT

two_up >/dev/null 2>&1 || exit 1
for n in $(seq $clients); do
  mkdir "$work/m$n"
  two_mount "$work/m$n" || exit 1
  mounts+=("$work/m$n")
done

# run NAME: MB/s and callbacks of writing, and of reading.
run() {
  python3 - "$1" "$segments" "${mounts[@]}" <<'PY'
import json, multiprocessing, os, sys, time
name, segments, mounts = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
count, block = len(mounts), os.urandom(1 << 20)

def total(name):
    return sum(json.loads(os.getxattr(mount, "weft.counters"))[name] for mount in mounts)

def work(rank, start, read):
    path = f"{mounts[rank]}/{name}"
    fd = os.open(path, os.O_RDONLY if read else os.O_WRONLY)
    start.wait()
    for segment in range(segments):
        if read:
            # What the next rank wrote, as "-C" of IOR.
            assert len(os.pread(fd, 1 << 20, (segment * count + (rank + 1) % count) << 20)) == 1 << 20
        else:
            os.pwrite(fd, block, (segment * count + rank) << 20)
    if not read:
        os.fsync(fd)
    os.close(fd)

def phase(read):
    before = total("lock.ranges_called_back")
    start = multiprocessing.Barrier(count + 1)
    ranks = [multiprocessing.Process(target=work, args=(rank, start, read)) for rank in range(count)]
    [rank.start() for rank in ranks]
    start.wait()
    begin = time.monotonic()
    [rank.join() for rank in ranks]
    took = time.monotonic() - begin
    assert all(rank.exitcode == 0 for rank in ranks)
    return f"{count * segments * 1.048576 / took:7.0f} {total('lock.ranges_called_back') - before:6d}"

write = phase(False)
with open("/proc/sys/vm/drop_caches", "w") as caches:
    caches.write("3")
print(write, phase(True))
PY
}

echo "weft $(git rev-parse --short HEAD), Linux $(uname -r), $(nproc) cores; $clients clients, $segments segments of $clients MiB, 4 OSTs"
echo "layout   write MB/s  callbacks   read MB/s  callbacks"
for round in $(seq "$rounds"); do
  for layout in "-c 4" "-C 8" "-C 32"; do
    # shellcheck disable=SC2086
    "$WEFT" lfs setstripe -S 1M $layout "$work/m1/file" || exit 1
    printf '%-8s %s\n' "$layout" "$(run file)"
    rm "$work/m1/file"
  done
done
