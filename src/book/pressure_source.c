/* pressure_source.c: see pressure_source.h. System calls are made by hand, because open() and read() are points where a
 * thread may be cancelled, and malloc() is none. */
#include "book/pressure_source.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "book/descriptor.h"
#include "book/pressure_level.h"
#include "book/text.h"

/* Version 1 says "no limit" as a number near 2^63, rounded down to pages. */
#define V1_NO_LIMIT (UINT64_C(1) << 60)

enum { LINE_MAX_BYTES = 160, CGROUPS_DEEP = 32, TOP_MAX = 128 };

/* ---- texts ---- */

static int next_byte(struct pressure_text *text)
{
    if (text->at == text->n) {
        if (text->fd < 0 || text->read >= PRESSURE_TEXT_MAX)
            return -1;
        long n = syscall(SYS_read, text->fd, text->chunk, sizeof(text->chunk));
        if (n <= 0 || (size_t)n > sizeof(text->chunk))
            return -1;
        text->data = text->chunk;
        text->at = 0;
        text->n = (size_t)n;
        text->read += (size_t)n;
    }
    return (unsigned char)text->data[text->at++];
}

bool pressure_text_line(struct pressure_text *text, char *line, size_t size, bool *ret_cut)
{
    size_t len = 0;
    int c = next_byte(text);
    if (c < 0)
        return false;
    *ret_cut = false;
    for (; c >= 0 && c != '\n'; c = next_byte(text)) {
        if (c == 0)
            c = '?'; /* a string's end would hide the rest */
        if (len + 1 < size)
            line[len++] = (char)c;
        else
            *ret_cut = true;
    }
    line[len] = '\0';
    return true;
}

/* Digits, however many; false: there are none. */
static bool number_at(const char *at, uint64_t *ret, const char **ret_end)
{
    uint64_t value = 0;
    if (*at < '0' || *at > '9')
        return false;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            value = UINT64_MAX;
    *ret = value;
    if (ret_end)
        *ret_end = at;
    return true;
}

static const char *after(const char *line, const char *word)
{
    size_t len = strlen(word);
    return strncmp(line, word, len) == 0 ? line + len : NULL;
}

/* "12.34" as 1234. */
static bool share_at(const char *at, uint32_t *ret)
{
    uint64_t whole;
    const char *end;
    if (!number_at(at, &whole, &end) || whole > 100 || end[0] != '.' || end[1] < '0' ||
        end[1] > '9' || end[2] < '0' || end[2] > '9')
        return false;
    *ret = (uint32_t)whole * 100 + (uint32_t)(end[1] - '0') * 10 + (uint32_t)(end[2] - '0');
    return true;
}

static bool stall_line(const char *line, uint32_t *ret_avg10, uint64_t *ret_us)
{
    const char *avg10 = after(line, " avg10="), *total = strstr(line, " total=");
    return avg10 && total && share_at(avg10, ret_avg10) && number_at(total + 7, ret_us, NULL);
}

bool pressure_parse_stall(struct pressure_text *text, struct pressure_inputs *in,
                          uint64_t *ret_some_us)
{
    char line[LINE_MAX_BYTES];
    bool cut, has_some = false, has_full = false;
    uint32_t some = 0, full = 0;
    uint64_t some_us = 0, full_us;
    while (pressure_text_line(text, line, sizeof(line), &cut)) {
        const char *rest;
        if ((rest = after(line, "some")))
            has_some = stall_line(rest, &some, &some_us);
        else if ((rest = after(line, "full")))
            has_full = stall_line(rest, &full, &full_us);
    }
    if (!has_some || !has_full)
        return false;
    in->some_avg10 = some;
    in->full_avg10 = full;
    in->valid |= PRESSURE_HAS_STALL;
    *ret_some_us = some_us;
    return true;
}

static bool kilobytes_line(const char *line, const char *key, uint64_t *ret_bytes)
{
    const char *at = after(line, key);
    uint64_t kilobytes;
    if (!at)
        return false;
    while (*at == ' ' || *at == '\t')
        at++;
    if (!number_at(at, &kilobytes, NULL) || kilobytes > UINT64_MAX / 1024)
        return false;
    *ret_bytes = kilobytes * 1024;
    return true;
}

bool pressure_parse_meminfo(struct pressure_text *text, struct pressure_inputs *in)
{
    char line[LINE_MAX_BYTES];
    uint64_t total = 0, available = 0;
    bool cut, has_total = false, has_available = false;
    /* They are among the first lines: the rest need not be read. */
    while (!(has_total && has_available) && pressure_text_line(text, line, sizeof(line), &cut)) {
        has_total |= kilobytes_line(line, "MemTotal:", &total);
        has_available |= kilobytes_line(line, "MemAvailable:", &available);
    }
    if (!has_total || !has_available || total == 0)
        return false;
    in->total_bytes = total;
    in->available_bytes = available < total ? available : total;
    in->valid |= PRESSURE_HAS_MEMORY;
    return true;
}

/* Is "memory" in "cpu,memory:..."? */
static bool has_memory(const char *list, const char *end)
{
    while (list < end) {
        const char *comma = memchr(list, ',', (size_t)(end - list));
        size_t len = (size_t)((comma ? comma : end) - list);
        if (len == 6 && memcmp(list, "memory", 6) == 0)
            return true;
        list += len + 1;
    }
    return false;
}

bool pressure_parse_cgroup(struct pressure_text *text, char path[static PRESSURE_PATH_MAX],
                           bool *ret_v1)
{
    char line[PRESSURE_PATH_MAX];
    bool cut, found = false;
    while (pressure_text_line(text, line, sizeof(line), &cut)) {
        const char *list = strchr(line, ':'), *where = list ? strchr(list + 1, ':') : NULL;
        if (!where || cut || where[1] != '/')
            continue;
        bool v1 = list + 1 != where;
        if (v1 && !has_memory(list + 1, where))
            continue;
        if (strstr(where, "/..")) /* outside of what we may see */
            where = ":/";
        memcpy(path, where + 1, strlen(where));
        *ret_v1 = v1;
        found = true;
        if (v1)
            break;
    }
    return found;
}

/* ---- files ---- */

static __attribute__((noinline)) bool text_open(struct pressure_text *text, const char *folder,
                                                const char *name)
{
    char path[PRESSURE_PATH_MAX + 128];
    struct text whole = text_begin(path, sizeof(path));
    text_add(&whole, folder);
    text_add(&whole, "/");
    text_add(&whole, name);
    if (whole.cut)
        return false;
    text->at = text->n = text->read = 0;
    text->data = text->chunk;
    text->fd = book_openat(AT_FDCWD, path, O_RDONLY | O_NOCTTY | O_NONBLOCK, 0);
    return text->fd >= 0;
}

static void text_close(struct pressure_text *text)
{
    (void)syscall(SYS_close, text->fd);
}

void pressure_source_machine(const char *proc, struct pressure_inputs *in, uint64_t *ret_some_us)
{
    struct pressure_text text;
    *ret_some_us = 0;
    if (text_open(&text, proc, "pressure/memory")) {
        (void)pressure_parse_stall(&text, in, ret_some_us);
        text_close(&text);
    }
    if (text_open(&text, proc, "meminfo")) {
        (void)pressure_parse_meminfo(&text, in);
        text_close(&text);
    }
}

/* Each of these has buffers of its own: not all of them on the stack at once, which may be that of a signal handler. */
#define APART __attribute__((noinline))

/* The number that a file holds; false also for "max". */
static APART bool number_in(const char *folder, const char *name, uint64_t *ret)
{
    struct pressure_text text;
    char line[LINE_MAX_BYTES];
    bool cut, found = false;
    if (!text_open(&text, folder, name))
        return false;
    if (pressure_text_line(&text, line, sizeof(line), &cut))
        found = number_at(line, ret, NULL);
    text_close(&text);
    return found;
}

/* The number after a word at the start of a line. */
static APART uint64_t number_after(const char *folder, const char *name, const char *word)
{
    struct pressure_text text;
    char line[LINE_MAX_BYTES];
    bool cut;
    uint64_t number = 0;
    if (!text_open(&text, folder, name))
        return 0;
    while (pressure_text_line(&text, line, sizeof(line), &cut)) {
        const char *at = after(line, word);
        if (at && *at == ' ') {
            (void)number_at(at + 1, &number, NULL);
            break;
        }
    }
    text_close(&text);
    return number;
}

/* One cgroup: its limit counts if it leaves a smaller share than those before. */
static void cgroup_look(const char *folder, bool v1, struct pressure_inputs *in)
{
    uint64_t limit, used;
    if (!number_in(folder, v1 ? "memory.limit_in_bytes" : "memory.max", &limit) || limit == 0 ||
        limit >= V1_NO_LIMIT ||
        !number_in(folder, v1 ? "memory.usage_in_bytes" : "memory.current", &used))
        return;
    /* Files are the kernel's to drop: asked for only where they could make a difference. */
    if (limit / 2 < used) {
        uint64_t files =
            number_after(folder, "memory.stat", v1 ? "total_inactive_file" : "inactive_file");
        used = used > files ? used - files : 0;
    }
    uint64_t headroom = limit > used ? limit - used : 0;
    if (in->valid & PRESSURE_HAS_LIMIT &&
        pressure_share(in->headroom_bytes, in->limit_bytes) <= pressure_share(headroom, limit))
        return;
    in->limit_bytes = limit;
    in->headroom_bytes = headroom;
    in->valid |= PRESSURE_HAS_LIMIT;
}

static APART bool own_cgroup(const char *proc, char path[static PRESSURE_PATH_MAX], bool *ret_v1)
{
    struct pressure_text text;
    if (!text_open(&text, proc, "self/cgroup"))
        return false;
    bool found = pressure_parse_cgroup(&text, path, ret_v1);
    text_close(&text);
    return found;
}

void pressure_source_cgroup(const char *proc, const char *cgroups, bool own,
                            struct pressure_inputs *in)
{
    char folder[TOP_MAX + PRESSURE_PATH_MAX], *path = folder + TOP_MAX;
    bool v1 = false;
    if (!own_cgroup(proc, path, &v1))
        return;
    struct text whole = text_begin(folder, TOP_MAX);
    text_add(&whole, cgroups);
    text_add(&whole, v1 ? "/memory" : "");
    size_t top = strlen(folder);
    if (own)
        memmove(folder + top, path, strlen(path) + 1);
    for (int deep = 0; !whole.cut && deep < CGROUPS_DEEP; deep++) {
        size_t len = strlen(folder);
        while (len > top && folder[len - 1] == '/')
            folder[--len] = '\0';
        cgroup_look(folder, v1, in);
        char *slash = strrchr(folder + top, '/');
        if (!slash)
            break;
        *slash = '\0';
    }
}

uint32_t pressure_source_share(uint64_t before_us, uint64_t before_ns, uint64_t now_us,
                               uint64_t now_ns)
{
    if (before_ns == 0 || now_ns <= before_ns || now_us < before_us)
        return 0;
    uint64_t passed_us = (now_ns - before_ns) / 1000, waited_us = now_us - before_us;
    if (passed_us == 0)
        return 0;
    return waited_us >= passed_us ? 10000 : (uint32_t)(waited_us * 10000 / passed_us);
}
