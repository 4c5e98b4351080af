/* Modules by address. The program headers are read from memory, where the loader mapped them, and
 * believed only as far as they stay inside the module's mapping. */
#include "site/module.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

#include "site/stack.h"

enum {
    PHDR_MAX = 128,   /* program headers looked at */
    CHAIN_MAX = 4096, /* modules loaded at start */
    DYNAMIC_MAX = 512 /* entries of a dynamic section looked at */
};

#ifdef DLFO_EH_SEGMENT_TYPE
#pragma weak _dl_find_object

int module_object_find(uintptr_t pc, struct module_object *ret_object)
{
    struct dl_find_object found;
    if (!_dl_find_object)
        return -ENOSYS;
    if (_dl_find_object((void *)pc, &found) != 0)
        return -ENOENT;
    *ret_object = (struct module_object){.map_start = (uintptr_t)found.dlfo_map_start,
                                         .map_end = (uintptr_t)found.dlfo_map_end,
                                         .eh_frame_hdr = found.dlfo_eh_frame,
                                         .map = found.dlfo_link_map};
    return 0;
}
#else
int module_object_find(uintptr_t pc, struct module_object *ret_object)
{
    return -ENOSYS;
}
#endif

/* The loader appends to its list what is dlopened, and its own entry is there from the start. So what
 * comes before that entry was loaded with the program and is never unloaded: walking this part of the
 * list needs no lock, and whoever is on it is permanent. Libraries loaded at start may also come after
 * it; those just count as not known. */
static bool before_loader(const struct link_map *map)
{
    struct module_object loader;
    uintptr_t base = getauxval(AT_BASE);
    if (base == 0 || module_object_find(base, &loader) < 0)
        return false;
    const struct link_map *at = loader.map;
    for (int n = 0; at && n < CHAIN_MAX; n++, at = at->l_prev)
        if (at == map)
            return true;
    return false;
}

static bool marked_nodelete(const struct link_map *map)
{
    const ElfW(Dyn) *dynamic = map->l_ld;
    for (int n = 0; dynamic && n < DYNAMIC_MAX && dynamic[n].d_tag != DT_NULL; n++)
        if (dynamic[n].d_tag == DT_FLAGS_1)
            return dynamic[n].d_un.d_val & DF_1_NODELETE;
    return false;
}

bool module_object_permanent(const struct module_object *object)
{
    return object->map && (before_loader(object->map) || marked_nodelete(object->map));
}

static bool object_has(const struct module_object *o, uintptr_t addr, size_t len)
{
    return addr >= o->map_start && addr < o->map_end && o->map_end - addr >= len;
}

/* The program headers, from the ELF header that begins the mapping. */
static int phdrs_find(const struct module_object *o, const ElfW(Phdr) * *ret_phdrs, size_t *ret_n)
{
    const ElfW(Ehdr) *ehdr = (const void *)o->map_start;
    if (o->map_start % sizeof(ElfW(Addr)) != 0 || !object_has(o, o->map_start, sizeof(*ehdr)) ||
        !stack_probe(o->map_start, sizeof(*ehdr)))
        return -ENOENT;
    if (memcmp(ehdr->e_ident, ELFMAG, SELFMAG) != 0 || ehdr->e_phentsize != sizeof(ElfW(Phdr)) ||
        ehdr->e_phnum == 0 || ehdr->e_phnum > PHDR_MAX)
        return -ENOENT;
    size_t len = ehdr->e_phnum * sizeof(ElfW(Phdr));
    uintptr_t at = o->map_start + ehdr->e_phoff;
    if (ehdr->e_phoff > o->map_end - o->map_start || at % sizeof(ElfW(Addr)) != 0 ||
        !object_has(o, at, len))
        return -ENOENT;
    /* Nearly always they follow the header, in its page. */
    if (at + len > (o->map_start | (STACK_PAGE - 1)) && !stack_probe(at, len))
        return -ENOENT;
    *ret_phdrs = (const ElfW(Phdr) *)at;
    *ret_n = ehdr->e_phnum;
    return 0;
}

static const ElfW(Phdr) *
    segment_of(const struct module_object *o, const ElfW(Phdr) * phdrs, size_t n, uintptr_t addr)
{
    for (size_t i = 0; i < n; i++) {
        uintptr_t start = o->map->l_addr + phdrs[i].p_vaddr;
        if (phdrs[i].p_type == PT_LOAD && (phdrs[i].p_flags & PF_R) && addr >= start &&
            addr - start < phdrs[i].p_memsz && object_has(o, start, phdrs[i].p_memsz))
            return &phdrs[i];
    }
    return NULL;
}

static int segment_find(const struct module_object *o, const ElfW(Phdr) * phdrs, size_t n,
                        uintptr_t addr, const uint8_t **ret_lo, const uint8_t **ret_hi)
{
    const ElfW(Phdr) *segment = segment_of(o, phdrs, n, addr);
    if (!segment)
        return -ENOENT;
    *ret_lo = (const uint8_t *)(o->map->l_addr + segment->p_vaddr);
    *ret_hi = *ret_lo + segment->p_memsz;
    return 0;
}

uint32_t module_segment_flags(const struct module_object *object, uintptr_t addr)
{
    const ElfW(Phdr) * phdrs, *segment = NULL;
    size_t n;
    if (phdrs_find(object, &phdrs, &n) == 0)
        segment = segment_of(object, phdrs, n, addr);
    return segment ? segment->p_flags : 0;
}

int module_segment_find(const struct module_object *object, uintptr_t addr, const uint8_t **ret_lo,
                        const uint8_t **ret_hi)
{
    const ElfW(Phdr) * phdrs;
    size_t n;
    int r = phdrs_find(object, &phdrs, &n);
    return r < 0 ? r : segment_find(object, phdrs, n, addr, ret_lo, ret_hi);
}

int module_note_build_id(const uint8_t *notes, size_t len, const uint8_t **ret_id, size_t *ret_len)
{
    size_t at = 0;
    while (len - at >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, notes + at, sizeof(note));
        at += sizeof(note);
        /* Sizes are padded to 4 bytes; GNU notes stay so in 8-byte aligned segments too. */
        size_t name_len = ((size_t)note.n_namesz + 3) & ~(size_t)3;
        size_t id_len = ((size_t)note.n_descsz + 3) & ~(size_t)3;
        if (name_len > len - at || id_len > len - at - name_len)
            return -ENOENT;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            memcmp(notes + at, "GNU", 4) == 0 && note.n_descsz > 0) {
            *ret_id = notes + at + name_len;
            *ret_len = note.n_descsz;
            return 0;
        }
        at += name_len + id_len;
    }
    return -ENOENT;
}

int module_build_id_find(const struct module_object *object, const uint8_t **ret_id,
                         size_t *ret_len)
{
    const ElfW(Phdr) * phdrs;
    size_t n;
    int r = phdrs_find(object, &phdrs, &n);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *lo, *hi;
        uintptr_t start = object->map->l_addr + phdrs[i].p_vaddr;
        if (phdrs[i].p_type != PT_NOTE || segment_find(object, phdrs, n, start, &lo, &hi) < 0)
            continue;
        size_t room = (size_t)(hi - (const uint8_t *)start);
        size_t len = phdrs[i].p_memsz < room ? phdrs[i].p_memsz : room;
        if (module_note_build_id((const uint8_t *)start, len, ret_id, ret_len) == 0)
            return 0;
    }
    return -ENOENT;
}

int module_find(uintptr_t pc, struct module_info *ret_info)
{
    struct module_object object;
    int r = module_object_find(pc, &object);
    if (r < 0)
        return r;
    if (!object.map || object.map_start == getauxval(AT_SYSINFO_EHDR))
        return -ENOENT;
    struct module_info info = {.base = object.map->l_addr,
                               .map_start = object.map_start,
                               .map_end = object.map_end,
                               .path = object.map->l_name ? object.map->l_name : "",
                               .permanent = module_object_permanent(&object)};
    const uint8_t *id;
    size_t len;
    if (module_build_id_find(&object, &id, &len) == 0) {
        info.build_id_len = (uint8_t)(len < MODULE_BUILD_ID_MAX ? len : MODULE_BUILD_ID_MAX);
        memcpy(info.build_id, id, info.build_id_len);
    }
    *ret_info = info;
    return 0;
}
