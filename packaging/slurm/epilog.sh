#!/bin/sh
# Slurm's Epilog: nothing of the job's file systems stays on this machine. Runs as root, and also after a job that was cancelled or killed.
set -eu
. "$(dirname "$(readlink -f "$0")")/../jobs/rankfs.sh"
rankfs_end "$SLURM_JOB_ID"
