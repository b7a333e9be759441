# What the prologs and epilogs of all schedulers have in common. Sourced by them, not run; it runs as root.
# shellcheck shell=sh
# The images of a job are RANKFS_DIR/JOB.MACHINE.RANK.rankfs, mounted at RANKFS_MOUNTS/JOB/RANK. RANK counts from 0 on each machine.
. "${WEFT_RANKFS_CONF:-/etc/weft/rankfs.conf}"
# Slurm's prologs have no PATH in their environment, and weft looks for mke2fs and e2fsck in it.
export PATH
node=$(uname -n)

rankfs_fail() {
  echo "weft: $1" >&2
  exit 1
}

# rankfs_bytes SIZE: "2G" in bytes; fails if it is no size. Six digits cannot overflow.
rankfs_bytes() {
  case "$1" in
    [0-9]*[KMGT]) ;;
    *) return 1 ;;
  esac
  set -- "${1%?}" "${1#"${1%?}"}"
  case "$1" in
    *[!0-9]* | ???????*) return 1 ;;
  esac
  # A leading zero would mean an octal number.
  while [ "$1" != "${1#0}" ]; do set -- "${1#0}" "$2"; done
  [ -n "$1" ] || return 1
  case "$2" in
    K) echo $(($1 * 1024)) ;;
    M) echo $(($1 * 1048576)) ;;
    G) echo $(($1 * 1073741824)) ;;
    T) echo $(($1 * 1099511627776)) ;;
  esac
}

# rankfs_size WANTED: prints the size that a rank gets, and nothing if it gets no file system. "-" and "" want nothing.
rankfs_size() {
  case "$1" in
    "" | -) echo "${RANKFS_SIZE:-}"; return ;;
  esac
  wanted=$(rankfs_bytes "$1") || rankfs_fail "rankfs=$1 is no size"
  most=$(rankfs_bytes "${RANKFS_MAX:-${RANKFS_SIZE:-}}") || rankfs_fail "$node gives ranks no file systems (no RANKFS_MAX)"
  [ "$wanted" -le "$most" ] || rankfs_fail "rankfs=$1 is more than $node gives, ${RANKFS_MAX:-$RANKFS_SIZE}"
  echo "$1"
}

# A job is a directory's name, and no more than that.
rankfs_job() {
  case "$1" in
    "" | .* | *[!A-Za-z0-9._@\[\]-]*) rankfs_fail "'$1' is no job" ;;
  esac
}

# rankfs_begin JOB UID GID TASKS SIZE: makes and mounts a file system for each task. All or none of them are there afterwards.
rankfs_begin() {
  rankfs_job "$1"
  [ -n "$5" ] || return 0
  # What is left of a run of the same job that this machine did not see end.
  [ ! -d "$RANKFS_MOUNTS/$1" ] || rankfs_end "$1"
  # Its directory first: the epilog looks at it.
  mkdir -p "$RANKFS_MOUNTS/$1"
  trap 'rankfs_end "$begun"' EXIT
  begun=$1
  # Images of these names belong to a run before the machine's last start. Before the first new one is made: it removes all of the job.
  rank=0
  while [ "$rank" -lt "$4" ]; do
    [ ! -e "$RANKFS_DIR/$1.$node.$rank.rankfs" ] || weft rankfs gc "$RANKFS_DIR" --here --ended "$1"
    rank=$((rank + 1))
  done
  rank=0
  while [ "$rank" -lt "$4" ]; do
    image=$RANKFS_DIR/$1.$node.$rank.rankfs
    mkdir -p "$RANKFS_MOUNTS/$1/$rank"
    weft rankfs create "$image" --size "$5" --job "$1" --rank "$rank" --owner "$2:$3"
    weft rankfs mount "$image" "$RANKFS_MOUNTS/$1/$rank"
    rank=$((rank + 1))
  done
  trap - EXIT
}

# rankfs_kill DIR: kills what still uses a mount below the directory. That the scheduler knows nothing of it happens when the process that
# watched it was killed.
rankfs_kill() {
  # Jobs of arrays have brackets in their names.
  below=$(echo "$1" | sed 's/[][]/\\&/g')/'*'
  for process in /proc/[0-9]*; do
    if [ -n "$(find "$process/cwd" "$process/root" "$process/exe" "$process/fd" "$process/map_files" -maxdepth 1 -lname "$below" -print -quit 2>/dev/null)" ]; then
      kill -9 "${process#/proc/}" 2>/dev/null || true
    fi
  done
}

# rankfs_end JOB: nothing of the job's file systems stays on this machine.
rankfs_end() {
  rankfs_job "$1"
  [ -d "$RANKFS_MOUNTS/$1" ] || return 0
  tries=0
  until weft rankfs gc "$RANKFS_DIR" --here --ended "$1"; do
    tries=$((tries + 1))
    [ "$tries" -lt 20 ] || rankfs_fail "job $1 has file systems on $node that cannot be unmounted"
    rankfs_kill "$RANKFS_MOUNTS/$1"
    sleep 0.5
  done
  for at in "$RANKFS_MOUNTS/$1"/*; do
    [ ! -d "$at" ] || rmdir "$at"
  done
  rmdir "$RANKFS_MOUNTS/$1"
}
