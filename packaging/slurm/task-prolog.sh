#!/bin/sh
# Slurm's TaskProlog: what it prints becomes the environment of the task. Runs as the user of the job.
. "${WEFT_RANKFS_CONF:-/etc/weft/rankfs.conf}"
at=$RANKFS_MOUNTS/$SLURM_JOB_ID/${SLURM_LOCALID:-0}
[ ! -d "$at" ] || echo "export RANKDIR=$at"
