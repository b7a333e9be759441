#!/bin/sh
# Slurm's TaskProlog: what it prints becomes the environment of the task.
. "${WEFT_RANKFS_CONF:-/etc/weft/rankfs.conf}"
echo "export RANKDIR=$RANKFS_MOUNTS/$SLURM_JOB_ID/${SLURM_LOCALID:-0}"
