#!/bin/sh
# PJM's epilogue on each machine of a job: nothing of the job's file systems stays there. Runs as root.
set -eu
# The job has no say in these.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export WEFT_RANKFS_CONF=/etc/weft/rankfs.conf
. "$(dirname "$(readlink -f "$0")")/../jobs/rankfs.sh"
rankfs_end "$PJM_JOBID"
