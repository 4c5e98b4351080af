/* Following the loader's list of libraries in memory of another process, which is untrusted. See link_map.h. */
#include <assert.h>
#include <elf.h>
#include <string.h>

#include "observe/link_map.h"

struct walk {
    remote_read_fn *read;
    void *context;
};

static bool memory_read(const struct walk *w, uint64_t address, void *to, size_t bytes)
{
    return remote_read_one(w->read, w->context, address, to, (uint32_t)bytes);
}

/* Where the kernel has put the segments of the program. */
static bool segments_find(const void *auxv, size_t bytes, uint64_t *ret_address, uint64_t *ret_n)
{
    *ret_address = *ret_n = 0;
    for (size_t at = 0; bytes - at >= sizeof(Elf64_auxv_t); at += sizeof(Elf64_auxv_t)) {
        Elf64_auxv_t entry;
        memcpy(&entry, (const char *)auxv + at, sizeof(entry));
        if (entry.a_type == AT_PHDR)
            *ret_address = entry.a_un.a_val;
        else if (entry.a_type == AT_PHNUM)
            *ret_n = entry.a_un.a_val;
    }
    return *ret_address && *ret_n && *ret_n <= LINK_MAP_SEGMENTS_MAX;
}

/* The dynamic section of the program: its address, 0 for none, and how many entries of it are looked at. */
static uint64_t dynamic_find(const Elf64_Phdr *segments, uint64_t n, uint64_t address,
                             uint64_t *ret_n)
{
    uint64_t base = 0;
    for (uint64_t i = 0; i < n; i++)
        if (segments[i].p_type == PT_PHDR)
            base = address - segments[i].p_vaddr;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t entries = segments[i].p_memsz / sizeof(Elf64_Dyn);
        if (segments[i].p_type != PT_DYNAMIC || entries == 0)
            continue;
        *ret_n = entries < LINK_MAP_DYNAMIC_MAX ? entries : LINK_MAP_DYNAMIC_MAX;
        return base + segments[i].p_vaddr;
    }
    return 0;
}

/* The loader's own structure: its address is in the dynamic section. */
static uint64_t debug_find(const struct walk *w, const void *auxv, size_t auxv_bytes)
{
    Elf64_Phdr segments[LINK_MAP_SEGMENTS_MAX];
    Elf64_Dyn dynamic[LINK_MAP_DYNAMIC_MAX];
    uint64_t address, n;
    if (!segments_find(auxv, auxv_bytes, &address, &n) ||
        !memory_read(w, address, segments, n * sizeof(segments[0])))
        return 0;
    uint64_t at = dynamic_find(segments, n, address, &n);
    if (!at || !memory_read(w, at, dynamic, n * sizeof(dynamic[0])))
        return 0;
    for (uint64_t i = 0; i < n && dynamic[i].d_tag != DT_NULL; i++)
        if (dynamic[i].d_tag == DT_DEBUG)
            return dynamic[i].d_un.d_ptr;
    return 0;
}

size_t link_map_walk(const void *auxv, size_t auxv_bytes, remote_read_fn *read, void *context,
                     uint64_t ret_bases[static LINK_MAP_MAX])
{
    const struct walk w = {read, context};
    struct {
        uint64_t version, first;
    } debug;
    struct {
        uint64_t base, name, dynamic, next, previous;
    } entry;
    static_assert(sizeof(entry) == LINK_MAP_ENTRY_BYTES, "the budget counts it");
    size_t n = 0;
    uint64_t at = debug_find(&w, auxv, auxv_bytes);
    if (!at || !memory_read(&w, at, &debug, sizeof(debug)))
        return 0;
    for (at = debug.first; at && n < LINK_MAP_MAX; at = entry.next) {
        if (!memory_read(&w, at, &entry, sizeof(entry)))
            break;
        ret_bases[n++] = entry.base;
    }
    return n;
}
