/* pressure_source.c: see pressure_source.h. */
#include "book/pressure_source.h"

#include <string.h>

#include "book/cgroup.h"
#include "book/lines.h"
#include "book/pressure_level.h"

/* ---- texts ---- */

/* "12.34" as 1234. */
static bool share_at(const char *at, uint32_t *ret)
{
    uint64_t whole;
    const char *end;
    if (!lines_number(at, &whole, &end) || whole > 100 || end[0] != '.' || end[1] < '0' ||
        end[1] > '9' || end[2] < '0' || end[2] > '9')
        return false;
    *ret = (uint32_t)whole * 100 + (uint32_t)(end[1] - '0') * 10 + (uint32_t)(end[2] - '0');
    return true;
}

static bool stall_line(const char *line, uint32_t *ret_avg10, uint64_t *ret_us)
{
    const char *avg10 = lines_after(line, " avg10="), *total = strstr(line, " total=");
    return avg10 && total && share_at(avg10, ret_avg10) && lines_number(total + 7, ret_us, NULL);
}

bool pressure_parse_stall(struct lines *text, struct pressure_inputs *in, uint64_t *ret_some_us)
{
    char line[LINES_LINE_MAX];
    bool cut, has_some = false, has_full = false;
    uint32_t some = 0, full = 0;
    uint64_t some_us = 0, full_us;
    while (lines_next(text, line, sizeof(line), &cut)) {
        const char *rest;
        if ((rest = lines_after(line, "some")))
            has_some = stall_line(rest, &some, &some_us);
        else if ((rest = lines_after(line, "full")))
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
    const char *at = lines_after(line, key);
    uint64_t kilobytes;
    if (!at)
        return false;
    while (*at == ' ' || *at == '\t')
        at++;
    if (!lines_number(at, &kilobytes, NULL) || kilobytes > UINT64_MAX / 1024)
        return false;
    *ret_bytes = kilobytes * 1024;
    return true;
}

bool pressure_parse_meminfo(struct lines *text, struct pressure_inputs *in)
{
    char line[LINES_LINE_MAX];
    uint64_t total = 0, available = 0;
    bool cut, has_total = false, has_available = false;
    /* They are among the first lines: the rest need not be read. */
    while (!(has_total && has_available) && lines_next(text, line, sizeof(line), &cut)) {
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

/* ---- files ---- */

void pressure_source_machine(const char *proc, struct pressure_inputs *in, uint64_t *ret_some_us)
{
    struct lines text;
    *ret_some_us = 0;
    if (lines_open(&text, proc, "pressure/memory") == 0) {
        (void)pressure_parse_stall(&text, in, ret_some_us);
        lines_close(&text);
    }
    if (lines_open(&text, proc, "meminfo") == 0) {
        (void)pressure_parse_meminfo(&text, in);
        lines_close(&text);
    }
}

/* A limit counts if it leaves a smaller share than those before. */
static void limit_take(const struct cgroup_memory *memory, void *context)
{
    struct pressure_inputs *in = context;
    uint64_t headroom = cgroup_memory_headroom(memory);
    if (memory->limit_bytes == 0 ||
        (in->valid & PRESSURE_HAS_LIMIT && pressure_share(in->headroom_bytes, in->limit_bytes) <=
                                               pressure_share(headroom, memory->limit_bytes)))
        return;
    in->limit_bytes = memory->limit_bytes;
    in->headroom_bytes = headroom;
    in->valid |= PRESSURE_HAS_LIMIT;
}

/* Apart from its caller: its buffers need not be on the stack together with others. */
static __attribute__((noinline)) bool own_cgroup(const char *proc, char *path, size_t size,
                                                 bool *ret_v1)
{
    struct lines lines;
    if (lines_open(&lines, proc, "self/cgroup") < 0)
        return false;
    bool found = cgroup_path_parse(&lines, path, size, ret_v1);
    lines_close(&lines);
    return found;
}

void pressure_source_cgroup(const char *proc, const char *cgroups, bool own,
                            struct pressure_inputs *in)
{
    char folder[CGROUP_FOLDER_MAX], *path = folder + CGROUP_ROOT_MAX;
    bool v1 = false;
    if (!own_cgroup(proc, path, sizeof(folder) - CGROUP_ROOT_MAX, &v1))
        return;
    if (!own || cgroup_path_outside(path)) /* as far as we can see: the root */
        path[0] = '\0';
    int top = cgroup_folder(cgroups, v1, path, folder, sizeof(folder));
    if (top >= 0)
        (void)cgroup_memory_each(folder, (size_t)top, v1, limit_take, in);
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
