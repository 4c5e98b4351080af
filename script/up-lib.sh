# shellcheck shell=bash
# What script/up and script/up-cluster share: processes that are started in the background and ended later. Source it after lib.sh.

up=${root:?source lib.sh first}/.up
ready_timeout_s=20
stop_timeout_s=10

# Start time of a process in clock ticks since boot: with the pid it names one process for ever. The
# command in field 2 may hold spaces and brackets, so fields are counted from its last bracket.
start_time() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  stat=${stat##*) }
  # shellcheck disable=SC2086
  set -- $stat
  printf '%s\n' "${20}"
}

# start NAME COMMAND...: in a session of its own, so that its whole group can be ended later.
start() {
  local name=$1
  shift
  setsid "$@" </dev/null >"$up/$name.log" 2>&1 &
  local pid=$!
  printf '%s %s\n' "$pid" "$(start_time "$pid" || echo gone)" >"$up/$name.pid"
}

# The pid of what was started as NAME, if that very process still runs.
running() {
  local pid started
  read -r pid started 2>/dev/null <"$up/$1.pid" || return 1
  [[ $(start_time "$pid") == "$started" ]] && printf '%s\n' "$pid"
}

# Living members of a process group, which keep its number from being given to others.
group_members() {
  local file stat
  for file in /proc/[0-9]*/stat; do
    stat=
    IFS= read -r -d '' stat 2>/dev/null <"$file" || true # no NUL in it: reads all, and says 1
    stat=${stat##*) }                                    # state, parent, group, ...
    [[ $stat =~ ^[^Z]\ [0-9]+\ $1\  ]] && basename "$(dirname "$file")"
  done
  return 0
}

# What a leader that is gone left behind: only programs of this checkout are ours to end.
orphans() {
  local pid
  for pid in $(group_members "$1"); do
    [[ $(readlink "/proc/$pid/exe") == "$root/dist/"* ]] || return 1
  done
}

stop() {
  local name=$1 pid tries
  read -r pid _ 2>/dev/null <"$up/$name.pid" || return 0
  if [[ -n $(group_members "$pid") ]] && { running "$name" >/dev/null || { [[ ! -e /proc/$pid ]] && orphans "$pid"; }; }; then
    kill -TERM -- "-$pid" 2>/dev/null || true
    for ((tries = 0; tries < stop_timeout_s * 20; tries++)); do
      [[ -n $(group_members "$pid") ]] || break
      sleep 0.05
    done
    if ((tries == stop_timeout_s * 20)); then
      warn "$name (pid $pid) did not end, killing it"
      kill -KILL -- "-$pid" 2>/dev/null || true
    fi
    say "stopped $name (pid $pid)"
  fi
  rm -f "$up/$name.pid"
}

fail() {
  tail -n 20 "$up/$1.log" >&2
  if declare -F stop_all >/dev/null; then stop_all; fi
  die "$2"
}

# until_true PROCESS CONDITION...: wait for it, but not for ever, nor when PROCESS is gone.
until_true() {
  local process=$1 tries
  shift
  for ((tries = 0; tries < ready_timeout_s * 10; tries++)); do
    "$@" && return 0
    running "$process" >/dev/null || fail "$process" "$process ended; its log is .up/$process.log"
    sleep 0.1
  done
  return 1
}
