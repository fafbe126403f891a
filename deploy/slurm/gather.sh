#!/bin/sh
# A report of `mkey doctor` from each node of an allocation into a new folder that all nodes share, and
# what differs between them. In an allocation: salloc -N 16 gather.sh [FOLDER]
set -eu
folder=${1:-reports}
mkdir -p "$folder"
# Reports of another day would be compared, too.
if ls "$folder"/*.json >/dev/null 2>&1; then
    echo "$folder has reports already: name another folder" >&2
    exit 3
fi
# One task a node, started as the job's programs are: with the limits that they have. Warnings end
# with 1, failures with 2: the report says more than the code. All else is no report, and a node that
# has none must not keep those of the others.
srun --ntasks="${SLURM_JOB_NUM_NODES:?not in an allocation}" --ntasks-per-node=1 \
    sh -c 'mkey doctor --json "$1/$(hostname).json" >/dev/null || [ $? -le 2 ]' sh "$folder" ||
    echo "a node made no report" >&2
exec mkey doctor --merge "$folder"
