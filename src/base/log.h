/* The log of our programs (libraries return errors and stay silent).
 *
 * One line per event, one write(2) per line, at most LOG_LINE_MAX bytes, so lines of several threads
 * and processes never mix. A line holds no raw control bytes, whatever the arguments were. Safe in
 * any thread, not in a signal handler. errno is left as it was, and %m works.
 *
 *     2026-01-31T12:00:00.123Z info: found 3 books dir=/run/memoir
 *     {"time":"2026-01-31T12:00:00.123Z","level":"info","message":"found 3 books","dir":"/run/memoir"}
 *
 * Under systemd the text form starts with the level as "<6>" and leaves the time to the journal. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* PIPE_BUF: a pipe takes this much in one piece. A message that does not fit ends in "...", a field
 * that does not fit is left out whole, and both are counted by log_cut(). */
#define LOG_LINE_MAX 4096

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

enum log_format {
    LOG_FORMAT_AUTO, /* journal when stderr is the journal's, else text */
    LOG_FORMAT_TEXT,
    LOG_FORMAT_JSON,
    LOG_FORMAT_JOURNAL,
};

struct log_options {
    enum log_level level;   /* more verbose events are dropped before they are formatted */
    enum log_format format; /* AUTO with a path means text */
    const char *path;       /* file to append to, NULL for stderr; borrowed during the call */
};

/* Without it, or before it: info and above, AUTO, to stderr. May be called again (SIGHUP); on failure
 * (-errno) the log stays as it was. Not for two threads at a time. */
int log_open(const struct log_options *options);

/* Closes a log file, back to stderr. */
void log_close(void);

void log_set_level(enum log_level level);
bool log_enabled(enum log_level level);

/* "error", "warn", "info" or "debug"; -EINVAL for other words. */
int log_level_parse(const char *word, enum log_level *ret_level);
/* "auto", "text", "json" or "journal". */
int log_format_parse(const char *word, enum log_format *ret_format);

/* Lines that could not be written, and lines that were cut, since the start. */
uint64_t log_lost(void);
uint64_t log_cut(void);

struct log_field {
    const char *key; /* letters, digits, underscores */
    enum { LOG_FIELD_STRING, LOG_FIELD_U64, LOG_FIELD_I64 } type;
    union {
        const char *string; /* NULL leaves the field out */
        uint64_t u64;
        int64_t i64;
    };
};

#define LOG_STR(k, v) ((struct log_field){.key = (k), .type = LOG_FIELD_STRING, .string = (v)})
#define LOG_U64(k, v) ((struct log_field){.key = (k), .type = LOG_FIELD_U64, .u64 = (v)})
#define LOG_I64(k, v) ((struct log_field){.key = (k), .type = LOG_FIELD_I64, .i64 = (v)})

/* A list of fields for log_write(): LOG_FIELDS(LOG_U64("pid", pid), LOG_STR("dir", dir)). */
#define LOG_FIELDS(...)                        \
    ((const struct log_field[]){__VA_ARGS__}), \
        sizeof((const struct log_field[]){__VA_ARGS__}) / sizeof(struct log_field)
#define LOG_NO_FIELDS NULL, (size_t)0

void log_write(enum log_level level, const struct log_field *fields, size_t field_count,
               const char *fmt, ...) __attribute__((format(printf, 4, 5)));

#define log_error(...) log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* The test comes first, so that arguments of a debug line cost nothing when nobody reads it. */
#define log_at(level, ...)                                  \
    do {                                                    \
        if (log_enabled(level))                             \
            log_write((level), LOG_NO_FIELDS, __VA_ARGS__); \
    } while (0)
