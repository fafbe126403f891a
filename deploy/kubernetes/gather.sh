#!/bin/sh
# Fetches a report of `mkey doctor` from each pod of doctor.yaml into a new folder, and compares them.
#   gather.sh [FOLDER [NAMESPACE]]
set -eu
folder=${1:-reports}
namespace=${2:-mkey}
mkdir -p "$folder"
# Reports of another day would be compared, too.
if ls "$folder"/*.json >/dev/null 2>&1; then
    echo "$folder has reports already: name another folder" >&2
    exit 3
fi
for pod in $(kubectl --namespace "$namespace" get pods --selector app=mkey-doctor --output name); do
    report=$folder/${pod##*/}.json
    # Warnings end with 1, failures with 2: the report says more than the code. All else is no report,
    # and one pod that has none must not keep those of the others.
    code=0
    kubectl --namespace "$namespace" exec "$pod" -- mkey doctor --json - >"$report" || code=$?
    if [ "$code" -gt 2 ] || [ ! -s "$report" ]; then
        rm -f "$report"
        echo "$pod: no report (exit code $code)" >&2
    fi
done
exec mkey doctor --merge "$folder"
