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

[ -n "$MALLOC" ] || exit 0
failed=0
for node in 0 1; do
    LD_PRELOAD=$MALLOC taskset $((node + 1)) vm_node heap $node || failed=1
    LD_PRELOAD=$MALLOC MEMOIR_MALLOC=harden=1 taskset $((node + 1)) vm_node heap $node || failed=1
done
LD_PRELOAD=$MALLOC MEMOIR_MALLOC=numa=off vm_node one || failed=1
# A policy from outside is left alone: all memory comes from the node that was named.
LD_PRELOAD=$MALLOC numactl --membind=1 --cpunodebind=0 vm_node one || failed=1
exit $failed
