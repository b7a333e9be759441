#!/bin/sh
# with-rankdir.sh PROGRAM ARGUMENT...: runs the program with RANKDIR, for a scheduler that has no task prolog: mpiexec with-rankdir.sh ./solver.
. "${WEFT_RANKFS_CONF:-/etc/weft/rankfs.conf}"
job=${PJM_JOBID:-${PBS_JOBID:-${SLURM_JOB_ID:-}}}
# The rank on this machine, as Open MPI, Intel MPI and MPICH, MVAPICH2, and Slurm say it.
on_node=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-${MV2_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-0}}}}
export RANKDIR="$RANKFS_MOUNTS/$job/$on_node"
if [ -z "$job" ] || [ ! -d "$RANKDIR" ]; then
  echo "weft: $RANKDIR is not there: the job did not ask for it, or for fewer ranks" >&2
  exit 1
fi
exec "$@"
