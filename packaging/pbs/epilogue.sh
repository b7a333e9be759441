#!/bin/sh
# PBS's epilogue (PBS_HOME/mom_priv/epilogue, a link to this file): nothing of the job's file systems stays on this machine. Runs as root.
set -eu
. "$(dirname "$(readlink -f "$0")")/../jobs/rankfs.sh"
rankfs_end "$1"
