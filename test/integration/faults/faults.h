/* What the programs of the fault tests share: they do something unkind to themselves, report blocks,
 * and tell in one line of JSON how libmemoir sees it. */
#pragma once

#include <memoir/memoir.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRAM MEMOIR_SPACE_DRAM
#define HEAP MEMOIR_SPACE_HEAP

struct scenario {
    const char *name;
    int (*run)(int argc, char **argv); /* arguments after the name */
};

static inline int declare(int ordinal)
{
    return memoir_device(&(struct memoir_device_options){
        .struct_size = sizeof(struct memoir_device_options),
        .kind = MEMOIR_DEVICE_SIMULATED,
        .ordinal = ordinal,
        .name = "Card",
        .capacity = {{DRAM, UINT64_C(1) << 34}},
    });
}

static inline void report(int device, uint64_t first, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        memoir_alloc(device, device ? DRAM : HEAP, first + i, 1000);
}

/* No stdio, so that it works in sandboxes and without standard streams of stdio's own. */
static inline void tell_to(int fd, const char *who, int device)
{
    struct memoir_status s = {.struct_size = sizeof(s)};
    struct memoir_totals t = {.struct_size = sizeof(t)};
    char line[1024];
    memoir_status(&s);
    int known = memoir_totals(device, device ? DRAM : HEAP, &t) == 0;
    int n = snprintf(line, sizeof(line),
                     "{\"who\":\"%s\",\"state\":%d,\"error\":%d,\"reason\":\"%s\",\"path\":\"%s\","
                     "\"lost\":%llu,\"known\":%d,\"device\":%d,\"alloc_blocks\":%llu,"
                     "\"live_blocks\":%llu,\"live_bytes\":%llu}\n",
                     who, s.state, s.error, s.reason, s.path, (unsigned long long)s.lost, known,
                     device, (unsigned long long)t.alloc_blocks, (unsigned long long)t.live_blocks,
                     (unsigned long long)t.live_bytes);
    if (write(fd, line, (size_t)n) != n)
        _exit(99);
}

static inline void tell(const char *who, int device)
{
    tell_to(1, who, device);
}

/* Until a line comes, or the end of input. */
static inline void wait_line(void)
{
    char byte;
    while (read(0, &byte, 1) == 1 && byte != '\n')
        ;
}

static inline void must(int ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    _exit(98);
}

static inline int scenario_run(const struct scenario *scenarios, int argc, char **argv)
{
    for (; argc > 1 && scenarios->name; scenarios++)
        if (strcmp(scenarios->name, argv[1]) == 0)
            return scenarios->run(argc - 2, argv + 2);
    fprintf(stderr, "no such scenario\n");
    return 97;
}
