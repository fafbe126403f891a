#!/bin/sh
# Fetches a report of `mkey doctor` from each pod of the DaemonSet into a folder, and compares them.
#   gather.sh [FOLDER [NAMESPACE]]
set -eu
folder=${1:-reports}
namespace=${2:-mkey}
mkdir -p "$folder"
for pod in $(kubectl --namespace "$namespace" get pods --selector app=mkey --output name); do
    # Warnings end with 1, failures with 2: the report says more than the code.
    kubectl --namespace "$namespace" exec "$pod" -- mkey doctor --json - \
        >"$folder/${pod##*/}.json" || [ $? -le 2 ]
done
exec mkey doctor --merge "$folder"
