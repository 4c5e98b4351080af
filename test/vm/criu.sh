# shellcheck shell=sh
# A program with threads and a heap is written to files, ended, brought back, goes on, and frees all that it had.
set -e
wait_for() { # wait_for SECONDS COMMAND...
    left=$(($1 * 10))
    shift
    while ! "$@"; do
        left=$((left - 1))
        [ $left -gt 0 ] || return 1
        sleep 0.1
    done
}
rounds() { cat progress 2>/dev/null || echo 0; }
further() { [ "$(rounds)" -gt "$1" ]; }
ended() { [ -s result ]; }

checkpoint() { # checkpoint NAME PRELOAD [SETTINGS]
    mkdir "$1" && cd "$1"
    LD_PRELOAD=$2 MEMOIR_MALLOC=$3 setsid vm_worker </dev/null >out 2>&1 &
    wait_for 60 further 20
    pid=$(cat pid)
    criu dump --tree "$pid" --images-dir . --log-file dump.log -v4 || {
        tail -n 20 dump.log
        return 1
    }
    if [ -d "/proc/$pid" ] && ! grep -q '^State:.Z' "/proc/$pid/status"; then
        echo "$1: still there after the dump"
        return 1
    fi
    wait # for the one that was dumped, so that its id is free for the one that is restored
    before=$(rounds)
    criu restore --images-dir . --log-file restore.log -v4 --restore-detached || {
        grep -i error restore.log
        tail -n 20 restore.log
        return 1
    }
    wait_for 60 further $((before + 20)) || {
        echo "$1: does not go on after $before rounds"
        cat out
        return 1
    }
    : >stop
    wait_for 60 ended || {
        echo "$1: does not end"
        cat out
        return 1
    }
    cat out result
    grep -q '^intact' result
    cd ..
}

checkpoint plain ""
[ -n "$MALLOC" ] || exit 0
checkpoint memoir "$MALLOC"
checkpoint ranged "$MALLOC:${MALLOC%.so}-ranges.so" range=auto,range_bytes=1G
