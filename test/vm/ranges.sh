# shellcheck shell=sh
# A heap at fixed addresses on two nodes, from a process on one node to a process on the other.
set -e
[ -n "$MALLOC" ] || exit 77
export LD_PRELOAD="$MALLOC:${MALLOC%.so}-ranges.so"
plan=range=auto,range_bytes=1G,slot=5
for node in 0 1; do
    MEMOIR_MALLOC=$plan taskset $((node + 1)) vm_range send image
    for other in 0 1; do
        MEMOIR_MALLOC=$plan,receive=1 taskset $((other + 1)) vm_range receive image
    done
done
