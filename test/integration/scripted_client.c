/* A client that reports what it is told on standard input, one command a line, and answers "ok":
 *
 *     device ORDINAL NAME DRAM L1     declare a device (capacities in bytes, 0: not told)
 *     alloc ORDINAL SPACE ID BYTES    ORDINAL is a device declared before, or -1 for the host
 *     free ORDINAL SPACE ID
 *     churn ORDINAL SPACE N BYTES     N blocks that come and go at once
 *     fill ORDINAL SPACE N BYTES      N blocks with the ids 1000000 and up
 *     tag NAME / untag
 *
 * It ends with its standard input. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

enum { DEVICES = 8, FIRST_FILLED = 1000000 };

static int devices[DEVICES];

static int handle_of(int ordinal)
{
    return ordinal >= 0 && ordinal < DEVICES ? devices[ordinal] : MEMOIR_HOST;
}

static void declare(int ordinal, const char *name, uint64_t dram, uint64_t l1)
{
    struct memoir_device_options options = {
        .struct_size = sizeof(options),
        .kind = MEMOIR_DEVICE_SIMULATED,
        .ordinal = ordinal,
        .name = name,
        .uid = name,
    };
    int n = 0;
    if (dram)
        options.capacity[n++] = (struct memoir_capacity){MEMOIR_SPACE_DRAM, dram};
    if (l1)
        options.capacity[n++] = (struct memoir_capacity){MEMOIR_SPACE_L1, l1};
    if (ordinal >= 0 && ordinal < DEVICES)
        devices[ordinal] = memoir_device(&options);
}

static void blocks(const char *verb, int device, int space, uint64_t n, uint64_t bytes)
{
    for (uint64_t i = 0; i < n; i++) {
        memoir_alloc(device, space, FIRST_FILLED + i, bytes);
        if (strcmp(verb, "churn") == 0)
            memoir_free(device, space, FIRST_FILLED + i);
    }
}

static void obey(const char *line)
{
    char verb[16], text[64];
    int ordinal, space;
    unsigned long long a = 0, b = 0;
    if (sscanf(line, "device %d %63s %llu %llu", &ordinal, text, &a, &b) == 4)
        declare(ordinal, text, a, b);
    else if (sscanf(line, "tag %63s", text) == 1)
        memoir_tag_push(text);
    else if (strncmp(line, "untag", 5) == 0)
        memoir_tag_pop();
    else if (sscanf(line, "alloc %d %d %llu %llu", &ordinal, &space, &a, &b) == 4)
        memoir_alloc(handle_of(ordinal), space, a, b);
    else if (sscanf(line, "free %d %d %llu", &ordinal, &space, &a) == 3)
        memoir_free(handle_of(ordinal), space, a);
    else if (sscanf(line, "%15s %d %d %llu %llu", verb, &ordinal, &space, &a, &b) == 5)
        blocks(verb, handle_of(ordinal), space, a, b);
    else
        exit(2);
}

int main(void)
{
    char line[256];
    memoir_open(0);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        obey(line);
        puts("ok");
        fflush(stdout);
    }
    return 0;
}
