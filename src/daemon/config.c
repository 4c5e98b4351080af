/* The table of keys, and how words become values. */
#include "daemon/config.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/units.h"
#include "daemon/config_words.h"

#define AT(field) offsetof(struct config, field)

static const struct config_key keys[] = {
    {"config", CONFIG_PATH, AT(config), "FILE", "",
     "Read settings from FILE. Without it, /etc/memoir/memoird.conf as root, or "
     "$XDG_CONFIG_HOME/memoir/memoird.conf (~/.config/memoir/memoird.conf) as a user, if it exists.",
     .flag_only = true},
    {"daemon", CONFIG_BOOL, AT(daemon), "yes|no", "no",
     "Go to the background once everything is ready. The command ends with status 0 when the daemon "
     "works, else with its error."},
    {"foreground", CONFIG_NOT_BOOL, AT(daemon), "yes|no", "yes",
     "Stay in the foreground: the opposite of daemon.", .flag_only = true},
    {"dir", CONFIG_PATH, AT(dir), "DIR", "",
     "Look for books in DIR/UID/ only. Without it, in all the usual places: /run/memoir, which "
     "memoird mounts as root, $XDG_RUNTIME_DIR/memoir and /dev/shm/memoir-UID; as root in those of "
     "all users and of containers. Programs that report need the same DIR in MEMOIR_DIR."},
    {"state", CONFIG_PATH, AT(state), "DIR", "",
     "Keep what outlives books in DIR: the list of retired processes, history, and the lock that "
     "keeps a second memoird away. Without it, /var/lib/memoir as root, else $XDG_STATE_HOME/memoir "
     "(~/.local/state/memoir)."},
    {"pid-file", CONFIG_PATH, AT(pid_file), "FILE", "",
     "Write the process id to FILE, which is removed at the end. Without it, none is written."},
    {"log-level", CONFIG_LOG_LEVEL, AT(log_level), "error|warn|info|debug", "info",
     "Minimum level of messages in the log.", .reload = true},
    {"log-format", CONFIG_LOG_FORMAT, AT(log_format), "auto|text|json|journal", "auto",
     "How a line of the log looks. Auto is the journal's form under systemd and text elsewhere; json "
     "is one object a line.",
     .reload = true},
    {"log-file", CONFIG_PATH, AT(log_file), "FILE", "",
     "Append the log to FILE, which is opened again on SIGHUP. Without it, the log goes to standard "
     "error, and in the background nowhere else than to FILE.",
     .reload = true},
    {"tmpfs-size", CONFIG_SIZE, AT(tmpfs_size), "SIZE", "1G",
     "How much memory all books in /run/memoir may take. A program whose book finds no room goes on "
     "without one.",
     .min = 1 << 20, .max = UINT64_C(1) << 50},
    {"tmpfs-inodes", CONFIG_COUNT, AT(tmpfs_inodes), "N", "100000",
     "How many files and directories /run/memoir may hold.", .min = 16, .max = 100000000},
    {"tmpfs-user-size", CONFIG_SIZE, AT(tmpfs_user_size), "SIZE", "256M",
     "How much of that the books of one user may take, and a quarter of the files: where the kernel "
     "has quotas for tmpfs (Linux 6.6).",
     .min = 1 << 20, .max = UINT64_C(1) << 50},
    {"nice", CONFIG_NICE, AT(nice), "N", "-5",
     "Run at this nice value, from -20 to 19, so that deaths are seen in time on a busy machine. "
     "Values below 0 need root, and are ignored without."},
    {"refresh", CONFIG_DURATION, AT(refresh_ns), "TIME", "1s",
     "Read figures, and look for programs that were replaced by exec, this often. Deaths are seen at "
     "once in any case.",
     .reload = true, .min = 10 * NS_PER_MS, .max = 3600 * NS_PER_S},
    {"rescan", CONFIG_DURATION, AT(rescan_ns), "TIME", "1m",
     "Search all places again this often, though the kernel tells of new books at once: for what "
     "came too early or was refused before.",
     .reload = true, .min = 100 * NS_PER_MS, .max = 24 * 3600 * NS_PER_S},
    {"foreign-scan", CONFIG_DURATION, AT(foreign_scan_ns), "TIME", "5s",
     "As root, look for books of processes in other mount namespaces (containers) this often.",
     .reload = true, .min = 100 * NS_PER_MS, .max = 24 * 3600 * NS_PER_S},
    {"books-max", CONFIG_COUNT, AT(books_max), "N", "65536", "Watch at most N books.", .min = 1,
     .max = 1000000},
    {"books-per-user-max", CONFIG_COUNT, AT(books_per_user_max), "N", "8192",
     "Watch at most N books of one user other than root.", .min = 1, .max = 1000000},
    {"retired-keep", CONFIG_COUNT, AT(retired_keep), "N", "1000",
     "Remember the last N processes that ended.", .reload = true, .min = 1, .max = 100000},
    {"retired-blocks", CONFIG_COUNT, AT(retired_blocks), "N", "100",
     "Of each, remember the N largest blocks that it held.", .reload = true, .min = 0,
     .max = 10000},
    {"retired-file-max", CONFIG_SIZE, AT(retired_file_max), "SIZE", "64M",
     "Begin a new retired.jsonl when it has this size; one older file is kept. 0 keeps no file.",
     .reload = true, .min = 0, .max = UINT64_C(1) << 40},
    {"exits", CONFIG_AUTO, AT(exits), "auto|yes|no", "auto",
     "See every process of the machine when it ends, by BPF: for memoir exited. Auto: as root, unless dir "
     "is set. Where the kernel refuses, a line tells why and the rest goes on."},
    {"trace", CONFIG_AUTO, AT(trace), "auto|yes|no", "auto",
     "Trace programs that use CUDA, by a process of its own (memoir-observe) with probes on the driver's library. Auto: as "
     "root where a driver is installed, unless dir is set."},
    {"trace-system-calls", CONFIG_BOOL, AT(trace_system_calls), "yes|no", "no",
     "Tell large mappings of host memory in traced programs, and what they advise the kernel about them. While that is on, the "
     "kernel takes a slower way for every system call of the machine. Page faults are counted in any case."},
    {"trace-library", CONFIG_PATH, AT(trace_library), "FILE", "",
     "Attach probes to this driver library, too. Those of the system and those that processes map are found."},
    {"trace-socket", CONFIG_PATH, AT(trace_socket), "PATH", "",
     "Where memoir-observe answers. Without it, /run/memoird/observe.sock."},
    {"probe-share", CONFIG_COUNT, AT(probe_share), "N", "5",
     "The part of one processor, in thousandths, that may go into costly fields of the process table "
     "(PSS, command lines, environments). The largest and those that changed come first; 0 leaves them "
     "unknown.",
     .reload = true, .max = 1000},
    {"pressure", CONFIG_BOOL, AT(pressure), "yes|no", "yes",
     "Publish how scarce memory is, in the file pressure beside the books: allocators that read it keep "
     "memory while there is plenty and give it back when other programs need it."},
    {"pressure-stall-some", CONFIG_COUNT, AT(pressure_stall[0]), "PERCENT", "2",
     "Memory is somewhat scarce while programs wait for it for this part of the time.",
     .reload = true, .min = 1, .max = 100},
    {"pressure-stall-high", CONFIG_COUNT, AT(pressure_stall[1]), "PERCENT", "10",
     "The same for high pressure. Counts only while less than half of the memory is available, as does "
     "the next.",
     .reload = true, .min = 1, .max = 100},
    {"pressure-stall-critical", CONFIG_COUNT, AT(pressure_stall[2]), "PERCENT", "30",
     "The same for critical pressure.", .reload = true, .min = 1, .max = 100},
    {"pressure-left-some", CONFIG_COUNT, AT(pressure_left[0]), "PERCENT", "20",
     "Memory is somewhat scarce also while less than this part of it is available (and less than 32 GiB), "
     "or of the limit of the container that memoird runs in. 0: never; 100: always.",
     .reload = true, .max = 100},
    {"pressure-left-high", CONFIG_COUNT, AT(pressure_left[1]), "PERCENT", "10",
     "The same for high pressure (and less than 16 GiB).", .reload = true, .max = 100},
    {"pressure-left-critical", CONFIG_COUNT, AT(pressure_left[2]), "PERCENT", "5",
     "The same for critical pressure (and less than 8 GiB).", .reload = true, .max = 100},
    {"history", CONFIG_BOOL, AT(history), "yes|no", "yes",
     "Keep the figures of every second in history.db, for memoir history."},
    {"history-size", CONFIG_SIZE, AT(history_size), "SIZE", "1G",
     "How large history.db may become; then the oldest goes first.", .reload = true, .min = 1 << 20,
     .max = UINT64_C(1) << 44},
    {"history-flush", CONFIG_DURATION, AT(history_flush_ns), "TIME", "10s",
     "Write to it this often: as much is lost when memoird or the machine is killed.",
     .reload = true, .min = 100 * NS_PER_MS, .max = 60 * NS_PER_S},
    {"history-values-per-user-max", CONFIG_COUNT, AT(history_values_per_user_max), "N", "32768",
     "Note at most N values a second of one user other than root: further processes of that user are skipped, so "
     "that one user cannot evict the history of others.",
     .reload = true, .min = 64, .max = 1 << 20},
    {"history-processes", CONFIG_COUNT, AT(history_processes), "N", "500",
     "Note the sizes of at most N processes that keep no book, the largest first; those that do are noted in "
     "any case.",
     .reload = true, .max = 65536},
    {"history-keep-1s", CONFIG_DURATION, AT(history_keep_ns[0]), "TIME", "1h",
     "Keep the value of every second for so long, and at least until the ten seconds have it.",
     .reload = true, .min = 60 * NS_PER_S, .max = 3660 * 24 * 3600 * NS_PER_S},
    {"history-keep-10s", CONFIG_DURATION, AT(history_keep_ns[1]), "TIME", "1d",
     "Keep the last and the largest value of every ten seconds for so long, and at least until the "
     "minutes have them.",
     .reload = true, .min = 60 * NS_PER_S, .max = 3660 * 24 * 3600 * NS_PER_S},
    {"history-keep-1m", CONFIG_DURATION, AT(history_keep_ns[2]), "TIME", "30d",
     "Keep the last and the largest value of every minute for so long.", .reload = true,
     .min = 60 * NS_PER_S, .max = 3660 * 24 * 3600 * NS_PER_S},
    {"growth-window", CONFIG_DURATION, AT(growth_window_ns), "TIME", "30s",
     "Growth of a process counts as steady (column growth_steady, nodes that are outliers) when it lasts so long.",
     .min = 3 * NS_PER_S, .max = 3600 * NS_PER_S},
    {"leaks", CONFIG_BOOL, AT(leaks), "yes|no", "yes",
     "Watch what every place in the code of every program holds, for memoir leaks."},
    {"leaks-interval", CONFIG_DURATION, AT(leaks_interval_ns), "TIME", "1s",
     "Look so often, as long as that takes no more than 1 % of the time; a verdict needs 36 looks.",
     .min = 10 * NS_PER_MS, .max = 3600 * NS_PER_S},
    {"leaks-untracked", CONFIG_DURATION, AT(leaks_untracked_ns), "TIME", "1min",
     "Tell that a process grows that keeps no book, and which part of it, when its resident size has risen for so long; "
     "0: do not watch such processes.",
     .max = 3600 * NS_PER_S},
    {"socket", CONFIG_SOCKET, AT(socket), "PATH", "",
     "Listen at PATH for programs that report, query and subscribe in JSON lines; none: do not. "
     "Without it, /run/memoird/memoir.sock as root, else $XDG_RUNTIME_DIR/memoird.sock."},
    {"socket-group", CONFIG_TEXT, AT(socket_group), "GROUP", "",
     "Who may connect to the sockets besides memoird's own user: the members of GROUP, a name or a "
     "number, or all. Without it, as root the members of the group memoir if there is one."},
    {"tt-socket", CONFIG_SOCKET, AT(tt_socket), "PATH", "",
     "Listen at PATH for programs that speak Tenstorrent's allocation protocol; none: do not. "
     "Without it, at /tmp/tt_allocation_server.sock, where these look."},
    {"tt-arch", CONFIG_TEXT, AT(tt_arch), "auto|wormhole|blackhole|quasar", "auto",
     "Which Tenstorrent architecture a device is that neither a process nor /sys tells of. Auto: "
     "not known, so its capacities are told as 0."},
    {"tcp", CONFIG_TEXT, AT(tcp), "HOST:PORT", "",
     "Listen there for programs of other machines, which must know a token of token-file. HOST is "
     "a number (0.0.0.0, ::1 in brackets). Without it, memoird does not listen to the network."},
    {"token-file", CONFIG_PATH, AT(token_file), "FILE", "",
     "Who may ask over HTTP, and connect over TCP: a line for each token, NAME SHA256-IN-HEX [user=UID] "
     "[role=read|control] [expires=TIME]; memoir token writes it. The token itself, at least 16 bytes, is "
     "not in it; UID is the user whose processes it may see in detail; without it totals only. FILE must belong to "
     "memoird's user with mode 0600, and is read again when it changes. Without it, tokens of HTTP are in "
     "STATE/tokens. To make a token by hand: head -c 32 /dev/urandom | base64 | tr -d '\\n' | tee token | sha256sum"},
    {"http", CONFIG_TEXT, AT(http), "HOST:PORT", "",
     "Serve the dashboard and the HTTP API there; none: do not. HOST is a number (127.0.0.1, ::1 in brackets). "
     "auto: at 127.0.0.1:7070 or, where that port is in use, at the next free one, which the log and memoir open tell. "
     "The default is auto, or none when dir is set. Clients log in by memoir open, or show a "
     "token (memoir token)."},
    {"http-socket", CONFIG_SOCKET, AT(http_socket), "PATH", "",
     "Serve the HTTP API at a Unix socket, too, where the uid of the peer tells who asks; none: do not. "
     "Without it, beside socket: /run/memoird/memoir-http.sock for /run/memoird/memoir.sock."},
    {"http-hosts", CONFIG_TEXT, AT(http_hosts), "NAME...", "",
     "Names by which browsers may ask for this machine, besides localhost and the address of http."},
    {"http-tls-cert", CONFIG_PATH, AT(http_tls_cert), "FILE", "",
     "Serve http by TLS with this certificate (PEM, including intermediate certificates)."},
    {"http-tls-key", CONFIG_PATH, AT(http_tls_key), "FILE", "",
     "The private key of http-tls-cert (PEM), which only memoird's user may be able to read."},
    {"http-plain", CONFIG_BOOL, AT(http_plain), "yes|no", "no",
     "Serve http without TLS beyond this machine, too: anyone on the network path can read everything, "
     "including tokens."},
    {"http-connections-max", CONFIG_COUNT, AT(http_connections_max), "N", "2048",
     "Serve at most N connections of HTTP at a time, three quarters of them event streams; one that only waits "
     "makes room for one that asks.",
     .min = 16, .max = 65536},
    {"connections-max", CONFIG_COUNT, AT(connections_max), "N", "16384",
     "Serve at most N connections at a time.", .reload = true, .min = 1, .max = 1000000},
    {"connections-per-user-max", CONFIG_COUNT, AT(connections_per_user_max), "N", "8192",
     "Serve at most N connections of one user other than root; subordinate uids (/etc/subuid) count for the owner of their range.",
     .reload = true, .min = 1, .max = 1000000},
    {"reports-per-second", CONFIG_COUNT, AT(reports_per_second), "N", "0",
     "Read at most N reports a second from one client, which has to wait with more; 0: no limit.",
     .reload = true, .min = 0, .max = UINT64_C(1000000000)},
    {"message-max", CONFIG_SIZE, AT(message_max), "SIZE", "64K",
     "Close connections that send a longer message (a line of JSON).", .reload = true, .min = 4096,
     .max = 192 << 10},
    {"buffers-per-client-max", CONFIG_COUNT, AT(buffers_per_client_max), "N", "1000000",
     "Account at most N live buffers of one process that reports over a socket.", .reload = true,
     .min = 1, .max = 2000000},
    {"stall", CONFIG_DURATION, AT(stall_ns), "TIME", "10s",
     "Close connections with an incomplete message or an unread answer for this long. Over HTTP, a request has to arrive in that time, and its answer to be taken in six times that.",
     .reload = true, .min = 10 * NS_PER_MS, .max = 3600 * NS_PER_S},
    {"remote-expire", CONFIG_DURATION, AT(remote_expire_ns), "TIME", "30s",
     "Forget a process of another machine when it stays away for so long after its connection "
     "closed.",
     .reload = true, .min = 10 * NS_PER_MS, .max = 24 * 3600 * NS_PER_S},
    {"cluster", CONFIG_TEXT, AT(cluster), "URL[,URL...]", "",
     "Join the cluster at these NATS servers, such as nats://host:4222 or nats.example; none: do not. Without it, the "
     "cluster that memoir cluster init or join chose, if there is one."},
    {"cluster-name", CONFIG_TEXT, AT(cluster_name), "NAME", "",
     "Name of this node in the cluster and in the column node. Without it, the host name."},
    {"cluster-user", CONFIG_TEXT, AT(cluster_user), "USER", "",
     "Log in to the NATS server as this user."},
    {"cluster-password-file", CONFIG_PATH, AT(cluster_password_file), "FILE", "",
     "The first line of FILE is that user's password. Only memoird's user may be able to read it."},
    {"cluster-nkey", CONFIG_PATH, AT(cluster_nkey), "FILE", "",
     "Log in with an NKey: FILE has the seed of a user (SU...)."},
    {"cluster-creds", CONFIG_PATH, AT(cluster_creds), "FILE", "",
     "Log in with a credentials file (a JWT and its seed), as NATS's own tools make it."},
    {"cluster-tls-ca", CONFIG_PATH, AT(cluster_tls_ca), "FILE", "",
     "Connect by TLS only, to a server whose certificate these authorities (PEM) vouch for."},
    {"cluster-tls-cert", CONFIG_PATH, AT(cluster_tls_cert), "FILE", "",
     "Show this certificate (PEM) to the server."},
    {"cluster-tls-key", CONFIG_PATH, AT(cluster_tls_key), "FILE", "",
     "The private key of cluster-tls-cert (PEM)."},
    {"cluster-trust", CONFIG_TEXT, AT(cluster_trust), "NODE[:USER=LOCAL...] ...", "",
     "Nodes that vouch for their users: a user of NODE sees here what the local user of the same name sees, and may "
     "act on that user's processes. NODE is ID+KEY as 'memoir cluster key' prints it on that node; the ID alone lets its users "
     "look, not act. NODE:ann=bob maps ann of NODE to the local user bob and trusts it for "
     "no other user. root is never matched by name: NODE:root=root says so explicitly. Without it, other nodes "
     "get totals only."},
};
enum { N_KEYS = sizeof(keys) / sizeof(*keys) };
static_assert(N_KEYS <= 8 * sizeof(config_bits), "config_differ() has a bit for each");

const struct config_key *config_keys(size_t *ret_n)
{
    *ret_n = N_KEYS;
    return keys;
}

static void *value_at(const struct config *config, const struct config_key *key)
{
    return (char *)config + key->offset;
}

/* ---- words into values ---- */

static int fail(char *error, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int fail(char *error, const char *where, const char *fmt, ...)
{
    int n = snprintf(error, CONFIG_ERROR_MAX, "%s: ", where);
    va_list args;
    va_start(args, fmt);
    if (n >= 0 && n < CONFIG_ERROR_MAX)
        vsnprintf(error + n, CONFIG_ERROR_MAX - (size_t)n, fmt, args);
    va_end(args);
    return -EINVAL;
}

static int set_bool(bool *value, const char *text, bool opposite)
{
    static const char *const yes[] = {"yes", "true", "on", "1"};
    static const char *const no[] = {"no", "false", "off", "0"};
    for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++) {
        if (strcasecmp(text, yes[i]) == 0)
            *value = !opposite;
        else if (strcasecmp(text, no[i]) == 0)
            *value = opposite;
        else
            continue;
        return 0;
    }
    return -EINVAL;
}

static int set_auto(enum config_auto *value, const char *text)
{
    bool yes;
    if (strcasecmp(text, "auto") == 0)
        *value = CONFIG_AUTO_AUTO;
    else if (set_bool(&yes, text, false) == 0)
        *value = yes ? CONFIG_AUTO_YES : CONFIG_AUTO_NO;
    else
        return -EINVAL;
    return 0;
}

/* Paths stay what they were when we were started: the background, and SIGHUP, have another directory
 * to start from. */
static char *path_absolute(const char *text)
{
    static char start[PATH_MAX];
    char *path = NULL;
    if (!start[0] && !getcwd(start, sizeof(start)))
        start[0] = '\0';
    if (!text[0] || text[0] == '/' || !start[0])
        return strdup(text);
    return asprintf(&path, "%s/%s", start, text) < 0 ? NULL : path;
}

static int set_path(char **value, const char *text)
{
    char *copy = path_absolute(text);
    if (!copy)
        return -ENOMEM;
    free(*value);
    *value = copy;
    return 0;
}

static int set_text(char **value, const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        return -ENOMEM;
    free(*value);
    *value = copy;
    return 0;
}

static int set_number(uint64_t *value, const struct config_key *key, const char *text)
{
    uint64_t number;
    int r;
    if (key->type == CONFIG_SIZE)
        r = units_parse_bytes(text, &number);
    else if (key->type == CONFIG_DURATION)
        r = units_parse_duration(text, &number);
    else {
        char *end;
        errno = 0;
        number = strtoull(text, &end, 10);
        r = errno ? -errno : *text < '0' || *text > '9' || *end ? -EINVAL : 0;
    }
    if (r < 0)
        return r;
    if (key->max && (number < key->min || number > key->max))
        return -ERANGE;
    *value = number;
    return 0;
}

static int set_nice(int64_t *value, const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || *end || number < -20 || number > 19)
        return -EINVAL;
    *value = number;
    return 0;
}

static int set_value(struct config *config, const struct config_key *key, const char *text)
{
    void *value = value_at(config, key);
    switch (key->type) {
    case CONFIG_BOOL:
    case CONFIG_NOT_BOOL:
        return set_bool(value, text, key->type == CONFIG_NOT_BOOL);
    case CONFIG_AUTO:
        return set_auto(value, text);
    case CONFIG_PATH:
        return set_path(value, text);
    case CONFIG_SOCKET:
        return strcmp(text, "none") == 0 ? set_text(value, text) : set_path(value, text);
    case CONFIG_TEXT:
        return set_text(value, text);
    case CONFIG_SIZE:
    case CONFIG_COUNT:
    case CONFIG_DURATION:
        return set_number(value, key, text);
    case CONFIG_NICE:
        return set_nice(value, text);
    case CONFIG_LOG_LEVEL:
        return log_level_parse(text, value);
    case CONFIG_LOG_FORMAT:
        return log_format_parse(text, value);
    }
    return -EINVAL;
}

static void limit_text(const struct config_key *key, uint64_t limit,
                       char text[static UNITS_TEXT_MAX])
{
    if (key->type == CONFIG_SIZE)
        units_format_bytes(text, limit, UNITS_BINARY);
    else if (key->type == CONFIG_DURATION)
        units_format_duration(text, limit);
    else
        snprintf(text, UNITS_TEXT_MAX, "%llu", (unsigned long long)limit);
}

/* Set a key, or say what is wrong with its value. */
static int set(struct config *config, const struct config_key *key, const char *text,
               const char *where, char *error)
{
    int r = set_value(config, key, text);
    if (r >= 0)
        return 0;
    if (r == -ERANGE && key->max) {
        char low[UNITS_TEXT_MAX], high[UNITS_TEXT_MAX];
        limit_text(key, key->min, low);
        limit_text(key, key->max, high);
        return fail(error, where, "%s = %s is out of range: from %s to %s", key->name, text, low,
                    high);
    }
    static const char *const wanted[] = {
        [CONFIG_BOOL] = "yes or no",          [CONFIG_NOT_BOOL] = "yes or no",
        [CONFIG_AUTO] = "auto, yes or no",    [CONFIG_PATH] = "a path",
        [CONFIG_SOCKET] = "a path, or none",  [CONFIG_TEXT] = "text",
        [CONFIG_SIZE] = "a size such as 64M", [CONFIG_NICE] = "a number from -20 to 19",
        [CONFIG_COUNT] = "a number",          [CONFIG_DURATION] = "a time such as 500ms, 10s or 1m",
    };
    if (key->type == CONFIG_LOG_LEVEL || key->type == CONFIG_LOG_FORMAT)
        return fail(error, where, "%s = %s: use one of %s", key->name, text, key->value);
    if (r == -ENOMEM)
        return fail(error, where, "out of memory");
    return fail(error, where, "%s = %s: expected %s", key->name, text, wanted[key->type]);
}

static const struct config_key *key_find(const char *name, size_t len)
{
    for (size_t i = 0; i < N_KEYS; i++)
        if (strlen(keys[i].name) == len && strncmp(keys[i].name, name, len) == 0)
            return &keys[i];
    return NULL;
}

static int fail_unknown(char *error, const char *where, const char *what, const char *dashes,
                        const char *name)
{
    const char *names[N_KEYS];
    for (size_t i = 0; i < N_KEYS; i++)
        names[i] = keys[i].name;
    const char *near = config_nearest(name, names, N_KEYS);
    const char *hint = *dashes ? " (see: memoird --help)" : "";
    if (near)
        return fail(error, where, "unknown %s '%s%s', did you mean '%s%s'?%s", what, dashes, name,
                    dashes, near, hint);
    return fail(error, where, "unknown %s '%s%s'%s", what, dashes, name, hint);
}

/* ---- the file ---- */

static int parse_line(struct config *config, char *line, const char *where, char *error)
{
    char *name, *value;
    int r = config_split_line(line, &name, &value);
    if (r == 0)
        return 0; /* empty, or a comment */
    if (r < 0)
        return fail(error, where, "expected 'key = value'");
    const struct config_key *key = key_find(name, strlen(name));
    if (!key)
        return fail_unknown(error, where, "key", "", name);
    if (key->flag_only)
        return fail(error, where, "'%s' is a flag of the command line only", name);
    return set(config, key, value, where, error);
}

static int parse_file(struct config *config, const char *path, bool must_exist, char *error)
{
    struct buffer text = BUFFER_INIT(CONFIG_FILE_MAX);
    int r = fs_read_file(path, &text);
    if (r < 0) {
        buffer_release(&text);
        /* The HOME of the user that started us may be set; it must not be used. */
        if (!must_exist && (r == -ENOENT || r == -EACCES))
            return 0;
        return fail(error, path, "cannot read the configuration: %s", strerror(-r));
    }
    if (text.data && memchr(text.data, '\0', text.len))
        r = fail(error, path, "has a byte 0, so it is no text");
    char *rest = text.data ? text.data : (char *)"";
    for (size_t number = 1; rest && *rest && r >= 0; number++) {
        char *line = strsep(&rest, "\n");
        char where[CONFIG_ERROR_MAX / 2];
        snprintf(where, sizeof(where), "%s:%zu", path, number);
        r = parse_line(config, line, where, error);
    }
    buffer_release(&text);
    return r;
}

/* ---- the command line ---- */

static const struct {
    const char *flag;
    enum config_action action;
} actions[] = {
    {"--help", CONFIG_HELP},          {"-h", CONFIG_HELP},
    {"--version", CONFIG_VERSION},    {"-V", CONFIG_VERSION},
    {"--print-config", CONFIG_PRINT}, {"--print-manual", CONFIG_MANUAL},
    {"--print-api", CONFIG_API},
};

static bool parse_action(const char *arg, enum config_action *ret_action)
{
    for (size_t i = 0; i < sizeof(actions) / sizeof(*actions); i++)
        if (strcmp(arg, actions[i].flag) == 0) {
            *ret_action = actions[i].action;
            return true;
        }
    return false;
}

static int parse_args(struct config *config, int argc, char *const argv[],
                      enum config_action *ret_action, char *error)
{
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (parse_action(arg, ret_action))
            continue;
        if (strncmp(arg, "--", 2) != 0 || !arg[2])
            return fail(error, "memoird", "unexpected argument '%s' (see: memoird --help)", arg);
        const char *name = arg + 2;
        size_t len = strcspn(name, "=");
        const struct config_key *key = key_find(name, len);
        if (!key) {
            char unknown[64];
            snprintf(unknown, sizeof(unknown), "%.*s", (int)len, name);
            return fail_unknown(error, "memoird", "flag", "--", unknown);
        }
        const char *value = name[len] ? name + len + 1 : NULL;
        if (!value && (key->type == CONFIG_BOOL || key->type == CONFIG_NOT_BOOL))
            value = "yes";
        else if (!value && ++i < argc)
            value = argv[i];
        if (!value)
            return fail(error, "memoird", "--%s needs a value: %s", key->name, key->value);
        int r = set(config, key, value, "memoird", error);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- all of it ---- */

static int defaults(struct config *config, char *error)
{
    *config = (struct config){0};
    for (size_t i = 0; i < N_KEYS; i++) {
        int r = set(config, &keys[i], keys[i].initial, "default", error);
        if (r < 0)
            return r;
    }
    return 0;
}

static int load(int argc, char *const argv[], struct config *config, enum config_action *action,
                char *error)
{
    int r = defaults(config, error);
    if (r >= 0) /* once to learn --config, once more after the file, since flags win */
        r = parse_args(config, argc, argv, action, error);
    if (r < 0 || *action != CONFIG_RUN)
        return r;
    bool must_exist = config->config[0];
    if (!must_exist) {
        char *path = config_default_file();
        if (!path)
            return 0;
        free(config->config);
        config->config = path;
    }
    MEMOIR_CLEANUP(freep)
    char *path = strdup(config->config);
    if (!path)
        return fail(error, "memoird", "out of memory");
    struct config fresh;
    r = defaults(&fresh, error);
    config_release(config);
    *config = fresh;
    if (r >= 0)
        r = parse_file(config, path, must_exist, error);
    if (r >= 0)
        r = parse_args(config, argc, argv, action, error);
    if (r >= 0)
        r = set_path(&config->config, path);
    return r;
}

int config_load(int argc, char *const argv[], struct config *ret_config,
                enum config_action *ret_action, char error[static CONFIG_ERROR_MAX])
{
    struct config config;
    enum config_action action = CONFIG_RUN;
    int r = load(argc, argv, &config, &action, error);
    if (r < 0) {
        config_release(&config);
        return r;
    }
    *ret_config = config;
    *ret_action = action;
    return 0;
}

static bool is_string(const struct config_key *key)
{
    return key->type == CONFIG_PATH || key->type == CONFIG_SOCKET || key->type == CONFIG_TEXT;
}

void config_release(struct config *config)
{
    for (size_t i = 0; i < N_KEYS; i++)
        if (is_string(&keys[i])) {
            char **value = value_at(config, &keys[i]);
            free(*value);
            *value = NULL;
        }
}

static size_t value_size(const struct config_key *key)
{
    switch (key->type) {
    case CONFIG_BOOL:
    case CONFIG_NOT_BOOL:
        return sizeof(bool);
    case CONFIG_AUTO:
        return sizeof(enum config_auto);
    case CONFIG_PATH:
    case CONFIG_SOCKET:
    case CONFIG_TEXT:
        return sizeof(char *);
    case CONFIG_LOG_LEVEL:
        return sizeof(enum log_level);
    case CONFIG_LOG_FORMAT:
        return sizeof(enum log_format);
    default:
        return sizeof(uint64_t);
    }
}

config_bits config_differ(const struct config *a, const struct config *b)
{
    config_bits bits = 0;
    for (size_t i = 0; i < N_KEYS; i++) {
        const void *x = value_at(a, &keys[i]), *y = value_at(b, &keys[i]);
        bool same = is_string(&keys[i]) ? strcmp(*(char *const *)x, *(char *const *)y) == 0
                                        : memcmp(x, y, value_size(&keys[i])) == 0;
        if (!same && keys[i].type != CONFIG_NOT_BOOL)
            bits |= (config_bits)1 << i;
    }
    return bits;
}

void config_swap(struct config *config, struct config *from, config_bits which)
{
    for (size_t i = 0; i < N_KEYS; i++) {
        if (!(which >> i & 1))
            continue;
        char kept[sizeof(uint64_t)];
        size_t size = value_size(&keys[i]);
        memcpy(kept, value_at(config, &keys[i]), size);
        memcpy(value_at(config, &keys[i]), value_at(from, &keys[i]), size);
        memcpy(value_at(from, &keys[i]), kept, size);
    }
}
