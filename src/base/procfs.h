/* procfs.h: the formats of files in /proc/PID. Each is parsed here and nowhere else.
 *
 * Pure functions over text, for readers and for code inside other programs alike: neither malloc nor stdio. Texts end with
 * a 0 unless `end` says where. Names in them are chosen by the process, so everything is bounded. Outputs change on success
 * only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

/* ---- numbers ---- */

/* A decimal number behind blanks, and where it ends; false if there is none. Saturates at UINT64_MAX. */
static inline bool procfs_number(const char **at, uint64_t *ret)
{
    const char *p = *at;
    uint64_t value = 0;
    while (*p == ' ' || *p == '\t')
        p++;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            value = UINT64_MAX;
    *at = p;
    *ret = value;
    return true;
}

/* Digits of base 10 or 16, as the kernel writes them, followed by `behind`, which is skipped (0: by anything). */
static inline bool procfs_digits(const char **at, const char *end, unsigned base, char behind,
                                 uint64_t *ret)
{
    const char *p = *at;
    uint64_t value = 0;
    for (; p < end; p++) {
        unsigned digit = *p >= '0' && *p <= '9'   ? (unsigned)(*p - '0')
                         : *p >= 'a' && *p <= 'f' ? (unsigned)(*p - 'a') + 10
                                                  : 16;
        if (digit >= base)
            break;
        if (__builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    if (p == *at || (behind && (p == end || *p != behind)))
        return false;
    *at = p + (behind != 0);
    *ret = value;
    return true;
}

/* ---- stat and statm ---- */

struct procfs_stat {
    char comm[16];
    char state;
    pid_t parent;
    uint64_t flags; /* PF_... of the kernel */
    uint64_t minor_faults, major_faults;
    uint32_t threads;
    uint64_t start_ticks; /* as the file has it: see ledger/proc.h for time namespaces */
    uint64_t vms_bytes, rss_pages;
    const char *rest; /* in the text: the fields from 25 on */
};
enum { PROCFS_KERNEL_THREAD = 0x00200000, PROCFS_EXITING = 0x4 }; /* of flags */

static inline bool procfs_stat_parse(const char *text, struct procfs_stat *ret_stat)
{
    enum { FIRST = 4, LAST = 24 };
    struct procfs_stat stat = {0};
    uint64_t fields[LAST + 1] = {0};
    /* The name may hold spaces, newlines and parentheses; the first and the last one enclose it. */
    const char *open = strchr(text, '('), *close = strrchr(text, ')');
    if (!open || !close || close < open || close[1] != ' ' || (close[2] | 32) < 'a' ||
        (close[2] | 32) > 'z')
        return false;
    size_t len = (size_t)(close - open - 1);
    if (len >= sizeof(stat.comm))
        len = sizeof(stat.comm) - 1;
    memcpy(stat.comm, open + 1, len);
    stat.state = close[2];
    const char *at = close + 3;
    for (int i = FIRST; i <= LAST; i++) {
        while (*at == ' ')
            at++;
        at += *at == '-'; /* of the fields that are used none is ever negative */
        if (!procfs_number(&at, &fields[i]))
            return false;
    }
    stat.parent = fields[4] <= INT32_MAX ? (pid_t)fields[4] : 0;
    stat.flags = fields[9];
    stat.minor_faults = fields[10];
    stat.major_faults = fields[12];
    stat.threads = fields[20] <= UINT32_MAX ? (uint32_t)fields[20] : UINT32_MAX;
    stat.start_ticks = fields[22];
    stat.vms_bytes = fields[23];
    stat.rss_pages = fields[24];
    stat.rest = at;
    *ret_stat = stat;
    return true;
}

/* As wait() gives it, of a zombie; 0 if the kernel does not tell. */
static inline int32_t procfs_stat_exit_status(const struct procfs_stat *stat)
{
    enum { FIRST = 25, EXIT_CODE = 52 };
    const char *at = stat->rest;
    uint64_t value = 0;
    for (int i = FIRST; i <= EXIT_CODE; i++) {
        while (*at == ' ')
            at++;
        at += *at == '-';
        if (!procfs_number(&at, &value))
            return 0;
    }
    return (int32_t)value;
}

struct procfs_statm {
    uint64_t vms, rss, shared, text, data; /* pages */
};

static inline bool procfs_statm_parse(const char *text, struct procfs_statm *ret_statm)
{
    struct procfs_statm statm;
    uint64_t lib;
    if (!procfs_number(&text, &statm.vms) || !procfs_number(&text, &statm.rss) ||
        !procfs_number(&text, &statm.shared) || !procfs_number(&text, &statm.text) ||
        !procfs_number(&text, &lib) || !procfs_number(&text, &statm.data))
        return false;
    *ret_statm = statm;
    return true;
}

/* ---- status ---- */

/* What follows a line's name, given as "\nUid:"; NULL if there is no such line. The process's own name is in the first line,
 * where the kernel writes newlines in another way. */
static inline const char *procfs_status_value(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? at + strlen(name) : NULL;
}

struct procfs_ids {
    uint32_t real, effective, saved, fs;
};

/* Of "\nUid:" or "\nGid:". */
static inline bool procfs_status_ids(const char *text, const char *name, struct procfs_ids *ret_ids)
{
    const char *at = procfs_status_value(text, name);
    uint64_t ids[4];
    for (int i = 0; i < 4; i++)
        if (!at || !procfs_number(&at, &ids[i]) || ids[i] > UINT32_MAX)
            return false;
    *ret_ids =
        (struct procfs_ids){(uint32_t)ids[0], (uint32_t)ids[1], (uint32_t)ids[2], (uint32_t)ids[3]};
    return true;
}

static inline bool procfs_ids_are(const struct procfs_ids *ids, uint32_t id)
{
    return ids->real == id && ids->effective == id && ids->saved == id && ids->fs == id;
}

/* Its PIDs from our namespace to its own (NSpid), of which `max` are stored; how many there are. */
static inline unsigned procfs_status_pids(const char *text, pid_t *ret_pids, unsigned max,
                                          pid_t *ret_inner)
{
    const char *at = procfs_status_value(text, "\nNSpid:");
    uint64_t pid;
    unsigned n = 0;
    while (at && procfs_number(&at, &pid) && pid <= INT32_MAX) {
        if (n < max)
            ret_pids[n] = (pid_t)pid;
        *ret_inner = (pid_t)pid;
        n++;
    }
    return n;
}

/* ---- maps, and the first line of each mapping in smaps ---- */

struct procfs_mapping {
    uint64_t start, end, offset, inode;
    uint32_t dev_major, dev_minor;
    bool readable, writable, executable, shared;
    const char *name; /* in the line, up to its end; empty without one */
};

/* "7f00-7f10 rw-p 00000000 08:01 1234   /path"; `end` is the end of the line. */
static inline bool procfs_mapping_parse(const char *line, const char *end,
                                        struct procfs_mapping *ret_mapping)
{
    struct procfs_mapping m = {0};
    uint64_t dev_major, dev_minor;
    const char *at = line;
    if (!procfs_digits(&at, end, 16, '-', &m.start) || !procfs_digits(&at, end, 16, ' ', &m.end) ||
        m.start >= m.end || end - at < 5 || at[4] != ' ')
        return false;
    m.readable = at[0] == 'r';
    m.writable = at[1] == 'w';
    m.executable = at[2] == 'x';
    m.shared = at[3] == 's';
    at += 5;
    if (!procfs_digits(&at, end, 16, ' ', &m.offset) ||
        !procfs_digits(&at, end, 16, ':', &dev_major) ||
        !procfs_digits(&at, end, 16, ' ', &dev_minor) ||
        !procfs_digits(&at, end, 10, '\0', &m.inode))
        return false;
    m.dev_major = (uint32_t)dev_major;
    m.dev_minor = (uint32_t)dev_minor;
    while (at < end && *at == ' ')
        at++;
    m.name = at;
    *ret_mapping = m;
    return true;
}

/* ---- others ---- */

/* "KEY:   123 kB" lines, as in status and smaps_rollup: fills in those that the table names; how many. */
struct procfs_line {
    const char *key;
    uint64_t *ret_bytes;
};

static inline unsigned procfs_lines_parse(const char *text, const struct procfs_line *lines,
                                          size_t n)
{
    unsigned found = 0;
    while (text && *text) {
        const char *end = strchr(text, '\n');
        const char *colon =
            (const char *)memchr(text, ':', end ? (size_t)(end - text) : strlen(text));
        for (size_t i = 0; colon && i < n; i++) {
            size_t len = strlen(lines[i].key);
            const char *value = colon + 1;
            uint64_t kilobytes;
            if ((size_t)(colon - text) != len || memcmp(text, lines[i].key, len) != 0 ||
                !procfs_number(&value, &kilobytes))
                continue;
            *lines[i].ret_bytes = kilobytes <= UINT64_MAX / 1024 ? kilobytes * 1024 : UINT64_MAX;
            found++;
            break;
        }
        text = end ? end + 1 : NULL;
    }
    return found;
}

/* Of timens_offsets: the offset of "monotonic" or "boottime" in nanoseconds, 0 if it is not told. */
static inline int64_t procfs_time_offset(const char *text, const char *clock)
{
    const char *at = strstr(text, clock);
    uint64_t seconds, ns;
    if (!at)
        return 0;
    at += strlen(clock);
    while (*at == ' ' || *at == '\t')
        at++;
    bool negative = *at == '-';
    at += negative;
    if (!procfs_number(&at, &seconds) || !procfs_number(&at, &ns) ||
        seconds > INT64_MAX / 2000000000)
        return 0;
    return (negative ? -(int64_t)seconds : (int64_t)seconds) * 1000000000 + (int64_t)ns;
}

/* Of cmdline: `n` bytes become one line, with spaces between the arguments and a 0 behind; its length. There must be room
 * for the 0. */
static inline size_t procfs_command_line(char *text, size_t n)
{
    while (n > 0 && text[n - 1] == '\0')
        n--;
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\0')
            text[i] = ' ';
    text[n] = '\0';
    return n;
}
