#!/bin/sh
# A report of `mkey doctor` from each node of an allocation into a folder that all nodes share, and
# what differs between them. In an allocation: salloc -N 16 gather.sh [FOLDER]
set -eu
folder=${1:-reports}
mkdir -p "$folder"
# One task a node, started as the job's programs are: with the limits that they have. Warnings end
# with 1, failures with 2: the report says more than the code.
srun --ntasks="${SLURM_JOB_NUM_NODES:?not in an allocation}" --ntasks-per-node=1 \
    sh -c 'mkey doctor --json "$1/$(hostname).json" || [ $? -le 2 ]' sh "$folder"
exec mkey doctor --merge "$folder"
