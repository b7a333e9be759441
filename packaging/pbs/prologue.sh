#!/bin/sh
# PBS's prologue (PBS_HOME/mom_priv/prologue, a link to this file): each rank of a job that asked for it gets a file system of its own on
# this machine. Runs as root with JOB USER GROUP as arguments. A job asks for it by "qsub -v WEFT_RANKFS=2G" and, if it has more than one
# rank on a machine, WEFT_RANKS=4.
set -eu
. "$(dirname "$(readlink -f "$0")")/../jobs/rankfs.sh"
job=$1
# variable NAME: its value in the job's Variable_List, which qstat breaks over lines that begin with a tabulator.
variables=$(qstat -f "$job" | sed -n '/^ *Variable_List/,/^ *[a-z_.A-Z]* = /p' | tr -d '\n\t' | sed 's/^.*Variable_List = //')
variable() { echo "$variables" | tr ',' '\n' | sed -n "s/^ *$1=\([0-9A-Z]*\).*/\1/p" | head -n 1; }
size=$(rankfs_size "$(variable WEFT_RANKFS)")
ranks=$(variable WEFT_RANKS)
case "${ranks:=1}" in
  *[!0-9]* | ????*) rankfs_fail "WEFT_RANKS=$ranks is no number of ranks" ;;
esac
rankfs_begin "$job" "$(id -u "$2")" "$(id -g "$2")" "$ranks" "$size"
