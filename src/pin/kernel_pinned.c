/* kernel_pinned.c: see kernel_pinned.h. */
#include "pin/kernel_pinned.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* True if the line is this counter, whose value is stored. */
static bool counter(const char *line, const char *name, uint64_t *ret)
{
    size_t n = strlen(name);
    return strncmp(line, name, n) == 0 && line[n] == ' ' && sscanf(line + n, "%" SCNu64, ret) == 1;
}

int pin_kernel_pinned(const char *vmstat, uint64_t *ret_bytes)
{
    FILE *file = fopen(vmstat, "re");
    char line[128];
    uint64_t acquired = 0, released = 0;
    unsigned found = 0;
    if (!file)
        return -errno;
    while (found < 2 && fgets(line, sizeof(line), file))
        found += counter(line, "nr_foll_pin_acquired", &acquired) ||
                 counter(line, "nr_foll_pin_released", &released);
    fclose(file);
    if (found < 2)
        return -ENOENT;
    /* Counters of processors are added at different times: the difference may be below 0. */
    *ret_bytes = acquired > released ? (acquired - released) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
    return 0;
}
