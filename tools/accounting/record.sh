#!/bin/bash
# record.sh VM_DIR [TABLE]: records the accounting table anew.
#
# VM_DIR holds rdma-guest.sh (boots a Debian kernel under qemu and runs a script in it) and
# fetch-kernel.sh (unpacks Debian's kernel of a suite). TABLE is where the table goes; by default
# it replaces the one that the tests replay. KERNEL_DIR=DIR uses a kernel that is unpacked already.
set -eu -o pipefail
[ $# -ge 1 ] || { sed -n 2,6p "$0" >&2; exit 2; }
here=$(realpath "$(dirname "$0")")
vm=$(realpath "$1")
table=${2:-$here/../../crates/mkey-os/tests/data/accounting-rxe-6.1.json}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

kernel=${KERNEL_DIR:-}
if [ -z "$kernel" ]; then
  kernel=$work/kernel
  "$vm/fetch-kernel.sh" bookworm "$kernel" >&2
fi

mkdir "$work/share"
${CC:-cc} -std=gnu11 -O1 -Wall -Wextra -Werror -o "$work/share/record" "$here/record.c" -libverbs -lpthread
cp "$here/cases.txt" "$work/share/"
"$vm/rdma-guest.sh" -k "$kernel" -u -s "$work/share" -m 1024 -t 300 "$here/guest.sh" >&2

mkdir -p "$(dirname "$table")"
{
  echo '{"what": "ibv_reg_mr on soft-RoCE: outcomes, and pinned and locked memory of the process before and after",'
  echo ' "recorder": "tools/accounting",'
  echo " \"kernel\": $(cat "$work/share/kernel.json"),"
  echo ' "device": "rxe", "page_size": 4096,'
  echo ' "cases": ['
  cat "$work/share/cases.json"
  echo ']}'
} >"$work/table.json"
python3 -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["cases"]), "cases recorded")' "$work/table.json" >&2
mv "$work/table.json" "$table"
