/* meminfo.c: see meminfo.h. */
#include "book/meminfo.h"

#include <string.h>

#include "book/lines.h"

static const char *const names[MEMINFO_FIELDS] = {
    [MEMINFO_TOTAL] = "MemTotal:",
    [MEMINFO_FREE] = "MemFree:",
    [MEMINFO_AVAILABLE] = "MemAvailable:",
    [MEMINFO_BUFFERS] = "Buffers:",
    [MEMINFO_CACHED] = "Cached:",
    [MEMINFO_SWAP_CACHED] = "SwapCached:",
    [MEMINFO_ACTIVE] = "Active:",
    [MEMINFO_INACTIVE] = "Inactive:",
    [MEMINFO_SWAP_TOTAL] = "SwapTotal:",
    [MEMINFO_SWAP_FREE] = "SwapFree:",
    [MEMINFO_DIRTY] = "Dirty:",
    [MEMINFO_ANON] = "AnonPages:",
    [MEMINFO_SHMEM] = "Shmem:",
    [MEMINFO_SLAB] = "Slab:",
    [MEMINFO_SLAB_RECLAIMABLE] = "SReclaimable:",
    [MEMINFO_SLAB_UNRECLAIMABLE] = "SUnreclaim:",
    [MEMINFO_KERNEL_STACKS] = "KernelStack:",
    [MEMINFO_PAGE_TABLES] = "PageTables:",
    [MEMINFO_SECOND_PAGE_TABLES] = "SecPageTables:",
    [MEMINFO_PERCPU] = "Percpu:",
    [MEMINFO_HUGETLB] = "Hugetlb:",
};

/* "MemTotal:       16314868 kB" */
static void line_take(const char *line, uint32_t wanted, struct meminfo *meminfo)
{
    for (uint32_t field = 0; field < MEMINFO_FIELDS; field++) {
        const char *at = wanted & MEMINFO_BIT(field) ? lines_after(line, names[field]) : NULL;
        uint64_t kilobytes;
        if (!at)
            continue;
        at += strspn(at, " \t");
        if (!lines_number(at, &kilobytes, NULL) || kilobytes > UINT64_MAX / 1024)
            return;
        meminfo->bytes[field] = kilobytes * 1024;
        meminfo->valid |= MEMINFO_BIT(field);
        return;
    }
}

void meminfo_parse(struct lines *text, uint32_t wanted, struct meminfo *ret_meminfo)
{
    char line[LINES_LINE_MAX];
    bool cut;
    *ret_meminfo = (struct meminfo){0};
    while ((ret_meminfo->valid & wanted) != wanted && lines_next(text, line, sizeof(line), &cut))
        line_take(line, wanted, ret_meminfo);
}
