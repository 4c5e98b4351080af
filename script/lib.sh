# shellcheck shell=bash
# Helpers that the scripts share. Source it after `set -euo pipefail`; it changes to the checkout.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit

# What each kind of work needs, as Debian 12 names it.
build_packages=(clang gcc libbpf-dev libc6-dev meson ninja-build pkg-config libdw-dev libelf-dev libiberty-dev
  libjansson-dev libmicrohttpd-dev libnats-dev libncurses-dev libsqlite3-dev libzstd-dev nettle-dev zlib1g-dev)
test_packages=("${build_packages[@]}" binutils clang clang-format-14 g++ git libclang-rt-14-dev
  groff-base libcmocka-dev llvm locales man-db openssl perl python3 shellcheck sqlite3 tmux util-linux zsh)
# A real browser for the dashboard, and letters for it.
test_packages+=(chromium fonts-dejavu-core)
test_packages+=(libgoogle-perftools4 libjemalloc2 libmimalloc2.0 libtcmalloc-minimal4)
test_packages+=(nginx redis-server redis-tools) # programs to be tracked; nothing here wants them to run as services
test_packages+=(nats-server)                    # of clusters
test_packages+=(make php-cli vim xz-utils)      # programs that run with our allocator
malloc_packages=(gimp libopenmpi-dev libpython3.11-testsuite libreoffice-writer-nogui nodejs openmpi-bin postgresql) # script/test-malloc
test_packages+=(gdb valgrind) # that our allocator is looked at with
programs_packages=(bc bzip2 clang cmake curl default-jdk-headless ffmpeg ghostscript imagemagick jq libxml2-utils lua5.4 nodejs php-cli
  postgresql rsync ruby tcl unzip valgrind zip zstd) # script/test-programs
soak_packages=(nodejs rustc)                    # and those that take long to install
bench_packages=("${build_packages[@]}" g++ ghostscript git heaptrack libgoogle-perftools4 libjemalloc2 liblsan0 libmimalloc2.0
  libtcmalloc-minimal4 nats-server perl python3 redis-server redis-tools sqlite3 strace valgrind z3)
deb_packages=("${build_packages[@]}" debhelper dpkg-dev git)
vm_packages=("${test_packages[@]}" busybox-static criu numactl qemu-system-x86) # the kernel is unpacked by script/test-vm
# script/test-arm64; libraries and kernels of aarch64 are unpacked by it.
arm64_packages=(clang cpio g++-aarch64-linux-gnu gcc gcc-aarch64-linux-gnu libc6-dev meson ninja-build pkg-config python3 qemu-system-arm)
export programs_packages arm64_packages vm_packages build_packages test_packages malloc_packages soak_packages bench_packages deb_packages

say() { printf '==> %s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# The comment block at the top of the calling script, less its first line: its manual.
usage() { sed -n '2,/^[^#]/{s/^# \{0,1\}//;t p;b;:p;p}' "$0"; }

as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "need root or sudo for: $*"
  fi
}

# Run a command with its output in a log file that is shown only when it fails.
quietly() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  if ! "$@" >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    printf 'error: failed: %s (whole log: %s)\n' "$*" "$log" >&2
    return 1
  fi
}

package_installed() {
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# Install what is missing of the named packages; touches neither network nor privileges when nothing is.
need_packages() {
  local missing=() package
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    warn "not a Debian system, expecting the equivalents of: $*"
    return 0
  fi
  for package in "$@"; do
    package_installed "$package" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  # Before anything is redirected, so that the message is seen.
  [[ $(id -u) == 0 ]] || command -v sudo >/dev/null || die "need root or sudo to install: ${missing[*]}"
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  # A package list that is there may be current enough; it is fetched when the first try fails.
  apt_install "${missing[@]}" 2>/dev/null && return 0
  apt_run build/log/apt-update.log update -q
  apt_install "${missing[@]}"
}

apt_install() {
  apt_run build/log/apt-install.log install -q -y --no-install-recommends "$@"
}

apt_lock_timeout_s=${MEMOIR_APT_LOCK_TIMEOUT_S:-600}

# apt_run LOG ARGUMENT...: apt-get as root, with its output in LOG, which is shown only when it fails. While another apt holds
# a lock, it says so and waits. apt's own DPkg::Lock::Timeout does not cover the lock of the package lists: hence the loop.
apt_run() {
  local log=$1 deadline=$((SECONDS + apt_lock_timeout_s)) timeout=0
  shift
  mkdir -p "$(dirname "$log")"
  until quietly "$log" as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C \
    apt-get -o "DPkg::Lock::Timeout=$timeout" "$@" 2>"$log.error"; do
    if ((SECONDS >= deadline)) || ! grep -q 'Could not get lock\|Unable to acquire the dpkg frontend lock' "$log"; then
      cat "$log.error" >&2
      return 1
    fi
    ((timeout)) || say "waiting for another apt, which holds a lock, for up to $apt_lock_timeout_s s"
    timeout=$((deadline - SECONDS))
    sleep 0.5
  done
}

# The modules of the dashboard, as its lock file has them. Debian's npm is asked for only where there is no other: the two do
# not go together. Without modules, memoird is built without its dashboard.
need_web() {
  local have=web/node_modules/.package-lock.json
  if ! command -v node >/dev/null || ! command -v npm >/dev/null; then need_packages nodejs npm; fi
  if [[ -f $have && ! web/package-lock.json -nt $have ]]; then return 0; fi
  say "fetching the modules of the dashboard"
  if ! (cd web && quietly "$root/build/log/npm.log" npm ci --ignore-scripts --no-audit --no-fund); then
    warn "building without the dashboard: npm could not fetch its modules"
    return 0
  fi
  touch "$have"
}

# meson_setup DIR ARGUMENT...: configure DIR once, and again only when the arguments changed; a change
# of a meson.build is ninja's business.
meson_setup() {
  local dir=$1
  shift
  local wanted="${CC:-} $*" fresh=()
  if [[ -f $dir/build.ninja && $(cat "$dir/.arguments" 2>/dev/null) == "$wanted" ]]; then
    return 0
  fi
  [[ -d $dir ]] && fresh=(--wipe)
  # A folder that meson does not know cannot be wiped by it.
  if [[ -d $dir && ! -f $dir/meson-private/coredata.dat ]]; then
    rm -rf "$dir"
    fresh=()
  fi
  quietly "build/log/$(basename "$dir")-setup.log" meson setup "${fresh[@]}" "$dir" "$@" || return 1
  printf '%s' "$wanted" >"$dir/.arguments"
}

# compile DIR [TARGET...]
compile() {
  local dir=$1
  shift
  quietly "build/log/$(basename "$dir")-compile.log" ninja -C "$dir" "$@"
}

# machine SECONDS COMMAND...: run what emulates a machine, no longer than that. Who ends the script, by
# Ctrl-C for one, ends it, too: it is in the background because a shell heeds traps at once only in `wait`.
machine() {
  local pid status=0
  timeout --foreground -k 10 "$@" </dev/null &
  pid=$!
  trap 'kill "$pid" 2>/dev/null || true; wait "$pid" || true; exit 130' HUP INT TERM
  wait "$pid" || status=$?
  trap - HUP INT TERM
  return "$status"
}
