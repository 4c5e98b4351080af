/* pressure_source.c: see pressure_source.h. */
#include "book/pressure_source.h"

#include <string.h>

#include "book/cgroup.h"
#include "book/lines.h"
#include "book/meminfo.h"
#include "book/pressure_level.h"

/* ---- texts ---- */

/* "12.34" as 1234, behind `key`; what follows it. */
static const char *share_take(const char *at, const char *key, uint32_t *ret)
{
    uint64_t whole;
    const char *end;
    at = lines_after(at, key);
    if (!at || !lines_number(at, &whole, &end) || whole > 100 || end[0] != '.' || end[1] < '0' ||
        end[1] > '9' || end[2] < '0' || end[2] > '9')
        return NULL;
    *ret = (uint32_t)whole * 100 + (uint32_t)(end[1] - '0') * 10 + (uint32_t)(end[2] - '0');
    return end + 3;
}

/* " avg10=0.00 avg60=0.00 avg300=0.00 total=0" */
static bool stall_line(const char *at, struct pressure_stall *ret)
{
    at = share_take(at, " avg10=", &ret->avg10);
    at = at ? share_take(at, " avg60=", &ret->avg60) : NULL;
    at = at ? share_take(at, " avg300=", &ret->avg300) : NULL;
    at = at ? lines_after(at, " total=") : NULL;
    return at && lines_number(at, &ret->total_us, NULL);
}

bool pressure_parse_stall(struct lines *text, struct pressure_stall *ret_some,
                          struct pressure_stall *ret_full)
{
    char line[LINES_LINE_MAX];
    bool cut, has_some = false, has_full = false;
    struct pressure_stall some = {0}, full = {0};
    while (lines_next(text, line, sizeof(line), &cut)) {
        const char *rest;
        if ((rest = lines_after(line, "some")))
            has_some = stall_line(rest, &some);
        else if ((rest = lines_after(line, "full")))
            has_full = stall_line(rest, &full);
    }
    if (!has_some || !has_full)
        return false;
    *ret_some = some;
    *ret_full = full;
    return true;
}

bool pressure_parse_meminfo(struct lines *text, struct pressure_inputs *in)
{
    const uint32_t needed = MEMINFO_BIT(MEMINFO_TOTAL) | MEMINFO_BIT(MEMINFO_AVAILABLE);
    struct meminfo m;
    meminfo_parse(text, needed, &m); /* they are among the first lines: the rest is not read */
    if (m.valid != needed || m.bytes[MEMINFO_TOTAL] == 0)
        return false;
    in->total_bytes = m.bytes[MEMINFO_TOTAL];
    in->available_bytes =
        m.bytes[MEMINFO_AVAILABLE] < in->total_bytes ? m.bytes[MEMINFO_AVAILABLE] : in->total_bytes;
    in->valid |= PRESSURE_HAS_MEMORY;
    return true;
}

/* ---- files ---- */

void pressure_source_machine(const char *proc, struct pressure_inputs *in, uint64_t *ret_some_us)
{
    struct lines text;
    struct pressure_stall some, full;
    *ret_some_us = 0;
    if (lines_open(&text, proc, "pressure/memory") == 0) {
        if (pressure_parse_stall(&text, &some, &full)) {
            in->some_avg10 = some.avg10;
            in->full_avg10 = full.avg10;
            in->valid |= PRESSURE_HAS_STALL;
            *ret_some_us = some.total_us;
        }
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

void pressure_source_cgroup(const char *proc, const char *cgroups, bool own,
                            struct pressure_inputs *in)
{
    char folder[CGROUP_FOLDER_MAX], *path = folder + CGROUP_ROOT_MAX;
    bool v1 = false;
    if (cgroup_path_read(proc, "self", path, sizeof(folder) - CGROUP_ROOT_MAX, &v1) < 0)
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
