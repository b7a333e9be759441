#!/bin/sh
# PJM's prologue on each machine of a job, as root, with the environment of the job: each rank of a job that asked for it gets a file
# system of its own. A job asks for it by "pjsub -x WEFT_RANKFS=2G". An argument names the user, where the site's hook gives one.
set -eu
# The job has no say in these.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export WEFT_RANKFS_CONF=/etc/weft/rankfs.conf
. "$(dirname "$(readlink -f "$0")")/../jobs/rankfs.sh"
size=$(rankfs_size "${WEFT_RANKFS:-}")
user=${1:-$PJM_O_LOGNAME}
ranks=${PJM_PROC_BY_NODE:-1}
case "$ranks" in
  "" | *[!0-9]* | ????*) rankfs_fail "PJM_PROC_BY_NODE=$ranks is no number of ranks" ;;
esac
rankfs_begin "$PJM_JOBID" "$(id -u "$user")" "$(id -g "$user")" "$ranks" "$size"
