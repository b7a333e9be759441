#!/bin/sh
# Slurm's Prolog: each task of a job that asked for it gets a file system of its own on this machine. Runs as root.
set -eu
. "$(dirname "$(readlink -f "$0")")/../jobs/rankfs.sh"

# burst_buffer.lua has left what the job asked for: UID GID SIZE.
wanted=-
[ ! -e "$RANKFS_DIR/.jobs/$SLURM_JOB_ID" ] || read -r _ _ wanted < "$RANKFS_DIR/.jobs/$SLURM_JOB_ID"
size=$(rankfs_size "$wanted")

# most LIST: the largest number of "4(x2),3", four on each of two machines and three on a third.
most() { echo "$1" | tr ',' '\n' | sed 's/(.*//' | sort -n | tail -n 1; }

# A prolog is not told its own machine's share: as many as there can be, and no more than the job has.
tasks=${SLURM_JOB_NTASKS:-1}
if [ -n "${SLURM_TASKS_PER_NODE:-}" ]; then
  tasks=$(most "$SLURM_TASKS_PER_NODE")
elif [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
  cpus=$(most "${SLURM_JOB_CPUS_PER_NODE:-1}")
  [ "$cpus" -gt "$tasks" ] || tasks=$cpus
fi
group=${SLURM_JOB_GID:-$(id -g "$SLURM_JOB_UID" 2>/dev/null || echo "$SLURM_JOB_UID")}
rankfs_begin "$SLURM_JOB_ID" "$SLURM_JOB_UID" "$group" "$tasks" "$size"
