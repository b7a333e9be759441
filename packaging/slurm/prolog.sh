#!/bin/sh
# Slurm's Prolog: each task of a job that this machine may run gets a file system of its own. Runs as root.
set -eu
. "${WEFT_RANKFS_CONF:-/etc/weft/rankfs.conf}"
tasks=${SLURM_TASKS_PER_NODE:-1}
# "4(x2)": four tasks on each of two machines.
tasks=${tasks%%[!0-9]*}
node=$(uname -n)
group=$(id -g "$SLURM_JOB_UID" 2>/dev/null || echo "$SLURM_JOB_UID")
rank=0
while [ "$rank" -lt "${tasks:-1}" ]; do
  image=$RANKFS_DIR/$SLURM_JOB_ID.$node.$rank.rankfs
  at=$RANKFS_MOUNTS/$SLURM_JOB_ID/$rank
  weft rankfs create "$image" --size "$RANKFS_SIZE" --job "$SLURM_JOB_ID" --rank "$rank" --owner "$SLURM_JOB_UID:$group"
  mkdir -p "$at"
  weft rankfs mount "$image" "$at"
  rank=$((rank + 1))
done
