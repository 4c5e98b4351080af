/* memoird's settings. One table of keys drives the configuration file, the flags, --help, the sample
 * file and the manual page, so they cannot disagree. Flags win over the file, the file over defaults. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"

struct buffer;

enum config_auto { CONFIG_AUTO_AUTO, CONFIG_AUTO_YES, CONFIG_AUTO_NO };

struct config {
    bool daemon;
    char *config; /* strings are never NULL; "" is "not set" */
    char *dir;
    char *state;
    char *pid_file;
    enum log_level log_level;
    enum log_format log_format;
    char *log_file;
    uint64_t tmpfs_size;
    uint64_t tmpfs_inodes;
    uint64_t tmpfs_user_size;
    int64_t nice;
    uint64_t refresh_ns;
    uint64_t rescan_ns;
    uint64_t foreign_scan_ns;
    uint64_t books_max;
    uint64_t books_per_user_max;
    uint64_t retired_keep;
    uint64_t retired_blocks;
    uint64_t retired_file_max;
    enum config_auto exits;
    enum config_auto trace;
    bool trace_system_calls;
    char *trace_library, *trace_socket;
    uint64_t probe_share; /* thousandths of a processor */
    bool pressure;
    uint64_t pressure_stall[3]; /* per cent; some, high, critical */
    uint64_t pressure_left[3];
    bool history;
    uint64_t growth_window_ns;
    bool leaks;
    uint64_t leaks_interval_ns;
    uint64_t leaks_untracked_ns; /* 0: not */
    uint64_t history_size;
    uint64_t history_flush_ns;
    uint64_t history_values_per_user_max;
    uint64_t history_processes;
    uint64_t history_keep_ns[3]; /* by tier */
    char *socket;
    char *socket_group;
    char *tt_socket;
    char *tt_arch;
    char *tcp;
    char *token_file;
    char *http;
    char *http_socket;
    char *http_hosts;
    char *http_tls_cert;
    char *http_tls_key;
    bool http_plain;
    uint64_t http_connections_max;
    uint64_t connections_max;
    uint64_t connections_per_user_max;
    uint64_t reports_per_second;
    uint64_t message_max;
    uint64_t buffers_per_client_max;
    uint64_t stall_ns;
    uint64_t remote_expire_ns;
    char *cluster, *cluster_name, *cluster_user, *cluster_password_file, *cluster_nkey,
        *cluster_creds;
    char *cluster_tls_ca, *cluster_tls_cert, *cluster_tls_key, *cluster_trust;
};

/* A bit for each key, by its number in config_keys(). */
__extension__ typedef unsigned __int128 config_bits;

enum config_type {
    CONFIG_BOOL,     /* yes, no; as a flag its name alone is yes */
    CONFIG_NOT_BOOL, /* the opposite of a CONFIG_BOOL */
    CONFIG_AUTO,     /* auto, yes, no */
    CONFIG_PATH,     /* made absolute by where we were started */
    CONFIG_SOCKET,   /* the same, or "none" */
    CONFIG_TEXT,     /* as it is */
    CONFIG_SIZE,     /* 64M, 1GiB */
    CONFIG_COUNT,    /* 1000 */
    CONFIG_DURATION, /* 1s, 250ms */
    CONFIG_NICE,     /* -20 to 19 */
    CONFIG_LOG_LEVEL,
    CONFIG_LOG_FORMAT,
};

struct config_key {
    const char *name;
    enum config_type type;
    size_t offset;       /* in struct config */
    const char *value;   /* what to call the value: "DIR" */
    const char *initial; /* the default, as one would write it */
    const char *help;    /* sentences, the first of which is enough for --help */
    bool flag_only;      /* has no place in the file */
    bool reload;         /* takes effect on SIGHUP; others need a restart */
    uint64_t min, max;   /* of numbers, both 0: any */
};

const struct config_key *config_keys(size_t *ret_n);

/* What else the command line asked for. */
enum config_action {
    CONFIG_RUN,
    CONFIG_HELP,
    CONFIG_VERSION,
    CONFIG_PRINT,
    CONFIG_MANUAL,
    CONFIG_API
};

enum { CONFIG_ERROR_MAX = 512 };

/* Defaults, then the file (--config, else the usual one if it is there), then the flags. -EINVAL with
 * one line for people in `error`, which names file and line where there are any; the caller's config is
 * then untouched. */
int config_load(int argc, char *const argv[], struct config *ret_config,
                enum config_action *ret_action, char error[static CONFIG_ERROR_MAX]);

void config_release(struct config *config);

/* Keys that differ between two configs. */
config_bits config_differ(const struct config *a, const struct config *b);

/* Take the values of the keys in `keys` over from `from`, which gets the old ones. */
void config_swap(struct config *config, struct config *from, config_bits keys);

/* Pages made from the table. */
void config_print_help(struct buffer *out);
void config_print_sample(struct buffer *out);
void config_print_manual(struct buffer *out);
