/* See link_map.h. */
#include "observe/link_map.h"

#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "observe/remote_memory.h"

enum { SEGMENTS_MAX = 64, DYNAMIC_MAX = 256, AUXV_MAX = 64 };

static bool remote_read(struct remote_memory *memory, uint64_t address, void *to, uint32_t bytes)
{
    return remote_read_one(remote_memory_read, memory, address, to, bytes);
}

/* Where the kernel has put the segments of the program, from the auxiliary vector. */
static bool segments_find(pid_t pid, uint64_t *ret_address, uint64_t *ret_n)
{
    char path[64];
    Elf64_auxv_t auxv[AUXV_MAX];
    snprintf(path, sizeof(path), "/proc/%d/auxv", (int)pid);
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, auxv, sizeof(auxv));
    *ret_address = *ret_n = 0;
    for (ssize_t i = 0; i < n / (ssize_t)sizeof(auxv[0]); i++) {
        if (auxv[i].a_type == AT_PHDR)
            *ret_address = auxv[i].a_un.a_val;
        else if (auxv[i].a_type == AT_PHNUM)
            *ret_n = auxv[i].a_un.a_val;
    }
    return *ret_address && *ret_n && *ret_n <= SEGMENTS_MAX;
}

/* The loader's own structure: its address is in the dynamic section of the program. */
static uint64_t debug_find(pid_t pid, struct remote_memory *memory)
{
    Elf64_Phdr segments[SEGMENTS_MAX];
    Elf64_Dyn dynamic[DYNAMIC_MAX];
    uint64_t address, n, base = 0, at = 0;
    if (!segments_find(pid, &address, &n) ||
        !remote_read(memory, address, segments, (uint32_t)(n * sizeof(segments[0]))))
        return 0;
    for (uint64_t i = 0; i < n; i++)
        if (segments[i].p_type == PT_PHDR)
            base = address - segments[i].p_vaddr;
    for (uint64_t i = 0; i < n; i++)
        if (segments[i].p_type == PT_DYNAMIC && segments[i].p_memsz >= sizeof(dynamic[0])) {
            at = base + segments[i].p_vaddr;
            n = segments[i].p_memsz / sizeof(dynamic[0]);
            break;
        }
    if (n > DYNAMIC_MAX)
        n = DYNAMIC_MAX;
    if (!at || !remote_read(memory, at, dynamic, (uint32_t)(n * sizeof(dynamic[0]))))
        return 0;
    for (uint64_t i = 0; i < n && dynamic[i].d_tag != DT_NULL; i++)
        if (dynamic[i].d_tag == DT_DEBUG)
            return dynamic[i].d_un.d_ptr;
    return 0;
}

size_t link_map_each(pid_t pid, void (*each)(void *context, uint64_t base, size_t order),
                     void *context)
{
    struct remote_memory memory;
    struct {
        uint64_t version, first;
    } debug;
    struct {
        uint64_t base, name, dynamic, next, previous;
    } entry;
    size_t n = 0;
    remote_memory_init(&memory, pid, NULL);
    uint64_t at = debug_find(pid, &memory);
    if (!at || !remote_read(&memory, at, &debug, sizeof(debug)))
        return 0;
    for (at = debug.first; at && n < LINK_MAP_MAX; at = entry.next) {
        if (!remote_read(&memory, at, &entry, sizeof(entry)))
            break;
        each(context, entry.base, n++);
    }
    return n;
}
