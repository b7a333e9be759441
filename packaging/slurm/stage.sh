#!/bin/sh
# What burst_buffer.lua has done outside of slurmctld. Runs as root, by sudo if slurmctld does not. What a job can say comes in arguments
# only, and no shell reads them again.
#   stage.sh setup JOB UID GID SIZE    remembers whose job it is, and what its ranks get; SIZE is "-" for nothing
#   stage.sh in|out JOB SOURCE TARGET  copies, as the user of the job
#   stage.sh teardown JOB              forgets it, and the jobs that "tidy" would
#   stage.sh tidy                      forgets jobs that have ended: Slurm may kill their teardown when they are cancelled
set -eu
. "${WEFT_RANKFS_CONF:-/etc/weft/rankfs.conf}"
export PATH
jobs=$RANKFS_DIR/.jobs

fail() {
  echo "weft: $1" >&2
  exit 1
}

is_number() {
  case "$1" in
    "" | *[!0-9]*) return 1 ;;
  esac
}

# A job that Slurm still does something for has another state.
tidy() {
  states=$(squeue --noheader --states=all --format='%A %T') || return 0
  for record in "$jobs"/[0-9]*; do
    id=${record##*/}
    state=$(echo "$states" | awk -v id="${id%%.*}" '$1 == id { print $2 }')
    case "$state" in
      "" | BOOT_FAIL | CANCELLED | COMPLETED | DEADLINE | FAILED | NODE_FAIL | OUT_OF_MEMORY | PREEMPTED | TIMEOUT) rm -f "$record" ;;
    esac
  done
}

if [ "$*" = tidy ]; then
  tidy
  exit
fi
[ $# -ge 2 ] || fail "usage: $0 setup|in|out|teardown|tidy JOB ..."
what=$1
job=$2
is_number "$job" || fail "'$job' is no job"

case "$what" in
  setup)
    is_number "$3" || fail "'$3' is no user"
    is_number "$4" || fail "'$4' is no group"
    [ "$3" != 0 ] || fail "no job of root's is staged"
    [ -d "$jobs" ] || mkdir -m 700 "$jobs"
    echo "$3 $4 $5" > "$jobs/$job.new"
    mv "$jobs/$job.new" "$jobs/$job"
    ;;
  in | out)
    [ -e "$jobs/$job" ] || fail "$jobs/$job is missing: whose job is $job?"
    read -r user group _ < "$jobs/$job"
    [ "$user" != 0 ] || fail "no job of root's is staged"
    # A job that was cancelled is copied out when its last process is gone and its epilogs have run. Slurm's time limit bounds the wait.
    if [ "$what" = out ]; then
      while scontrol --oneliner show job "$job" 2>&1 | grep -qE 'JobState=COMPLETING|Unable to contact|Connection refused|Socket timed out'; do
        sleep 1
      done
    fi
    # The stager keeps it open: after an end of slurmctld the next one waits for the end of the one before.
    exec 9>> "$jobs/$job.lock"
    flock 9
    groups=--clear-groups
    ! getent passwd "$user" > /dev/null || groups=--init-groups
    cd /
    exec setpriv --reuid "$user" --regid "$group" "$groups" --no-new-privs --inh-caps=-all --bounding-set=-all \
      env -i PATH="$PATH" LC_ALL=C weft stage "$what" "$3" "$4"
    ;;
  teardown) rm -f "$jobs/$job" "$jobs/$job.new" "$jobs/$job.lock"; tidy ;;
  *) fail "'$what' is not known" ;;
esac
