#!/bin/sh
# Slurm's Epilog: nothing of the job's file systems stays on this machine. Runs as root, and also after a job that was cancelled or killed.
set -eu
. "${WEFT_RANKFS_CONF:-/etc/weft/rankfs.conf}"
weft rankfs gc "$RANKFS_DIR" --here --ended "$SLURM_JOB_ID"
for at in "$RANKFS_MOUNTS/$SLURM_JOB_ID"/*; do
  [ ! -d "$at" ] || rmdir "$at"
done
[ ! -d "$RANKFS_MOUNTS/$SLURM_JOB_ID" ] || rmdir "$RANKFS_MOUNTS/$SLURM_JOB_ID"
