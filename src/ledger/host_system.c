/* Memory of the machine: meminfo and, where the kernel measures it, pressure. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "book/lines.h"
#include "ledger/host_parse.h"
#include "ledger/host_rows.h"

enum { TEXT_MAX = 8192 };

static const char *const part_names[HOST_PARTS] = {
    [HOST_PART_ANON] = "anon",
    [HOST_PART_SHMEM] = "shmem",
    [HOST_PART_CACHE] = "cache",
    [HOST_PART_BUFFERS] = "buffers",
    [HOST_PART_SLAB_RECLAIMABLE] = "slab_reclaimable",
    [HOST_PART_SLAB] = "slab_unreclaimable",
    [HOST_PART_PAGE_TABLES] = "page_tables",
    [HOST_PART_STACKS] = "kernel_stacks",
    [HOST_PART_PERCPU] = "percpu",
    [HOST_PART_HUGETLB] = "hugetlb",
    [HOST_PART_FREE] = "free",
    [HOST_PART_REST] = "unattributed",
};

const char *host_part_name(enum host_part part)
{
    return part_names[part];
}

void host_system_open(struct host *host)
{
    host->meminfo_fd = openat(host->proc_fd, "meminfo", O_RDONLY | O_CLOEXEC);
    host->pressure_fd = openat(host->proc_fd, "pressure/memory", O_RDONLY | O_CLOEXEC);
}

void host_system_close(struct host *host)
{
    if (host->meminfo_fd >= 0)
        close(host->meminfo_fd);
    if (host->pressure_fd >= 0)
        close(host->pressure_fd);
}

static bool stall_take(const char *text, struct host_system *system)
{
    struct lines lines = {.fd = -1, .data = text, .n = strlen(text)};
    return pressure_parse_stall(&lines, &system->some, &system->full);
}

void host_system_read(struct host *host)
{
    char text[TEXT_MAX];
    host->system.valid = 0;
    if (host_pread(host->pressure_fd, text, sizeof(text)) > 0 && stall_take(text, &host->system))
        host->system.valid |= HOST_HAS_PSI;
    if (host_pread(host->meminfo_fd, text, sizeof(text)) > 0)
        (void)host_parse_meminfo(text, &host->system);
    host->system.read_ns = host->time_ns;
}

const struct host_system *host_system(const struct host *host)
{
    return &host->system;
}
