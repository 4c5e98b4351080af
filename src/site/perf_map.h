/* Names of code that a program makes at run time, as it tells them to perf: lines "START SIZE NAME" in /tmp/perf-PID.map, numbers in
 * hexadecimal. V8 (--perf-basic-prof), the JVM (-XX:+DumpPerfMapAtExit, jcmd Compiler.perfmap), CPython 3.12 (-X perf) and others
 * write such files.
 *
 * The bytes are the program's: bounded and checked here. A line that makes no sense is passed over. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct perf_map;
struct symbol_host;

enum {
    PERF_MAP_BYTES_MAX = 64 << 20, /* of a file: the first so many are read */
    PERF_MAP_ENTRIES_MAX = 1 << 20,
    PERF_MAP_NAME_MAX = 1024,  /* longer names are cut */
    PERF_MAP_OVERLAP_MAX = 64, /* entries looked at where pieces of code lie in the same place */
};

/* Takes a copy of what it needs. 0, or -ENOMEM. */
int perf_map_parse(const char *text, size_t len, struct perf_map **ret_map);
void perf_map_free(struct perf_map *map);
size_t perf_map_entries(const struct perf_map *map);

/* The function at an address; where several were there, the one written last. NULL: none. Borrowed. */
const char *perf_map_find(const struct perf_map *map, uint64_t address);

/* Read the map of a process from its own /tmp, by its process ID there. Only a regular file that belongs to the owner of
 * the process (or root) counts. With `host` (may be NULL) it is opened with the rights of `owner`. 0; -ENOENT: there is none;
 * -EPERM: it is another user's; -errno. */
int perf_map_read(pid_t pid, const struct symbol_host *host, uint32_t owner,
                  struct perf_map **ret_map);
