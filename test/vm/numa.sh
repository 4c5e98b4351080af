# shellcheck shell=sh
# Two nodes, and memory that lies where it was asked for.
set -e
[ "$(cat /sys/devices/system/node/online)" = 0-1 ] || {
    echo "nodes: $(cat /sys/devices/system/node/online)"
    exit 1
}
for node in 0 1; do
    numactl --cpunodebind=$node vm_node facts $node
done
