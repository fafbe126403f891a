#!/bin/bash
# Runs inside the guest, as root: a soft-RoCE device on a dummy interface, huge pages, the recorder.
# The share holds `record` and `cases.txt` and receives `cases.json` and `kernel.json`.
set -eu -o pipefail
modprobe rdma_rxe
modprobe ib_uverbs
modprobe dummy
ip link add dummy0 type dummy
ip link set dummy0 mtu 4200 address 02:00:00:00:00:01 up
ip addr add 192.0.2.1/24 dev dummy0
rdma link add rxe0 type rxe netdev dummy0
for _ in $(seq 100); do [ -c /dev/infiniband/uverbs0 ] && break; sleep 0.1; done
# What udev's rules give an ordinary user on a real machine.
chmod 0666 /dev/infiniband/*
echo 8 >/proc/sys/vm/nr_hugepages
[ "$(cat /proc/sys/vm/nr_hugepages)" = 8 ] || { echo "no 2 MiB pages to be had" >&2; exit 1; }
echo madvise >/sys/kernel/mm/transparent_hugepage/enabled
/share/record /share/cases.txt rxe0 >/share/cases.json
package=$(sed -n 's/.* Debian \([^ ]*\) .*/\1/p' /proc/version)
printf '{"release": "%s", "package": "%s"}\n' "$(uname -r)" "$package" >/share/kernel.json
