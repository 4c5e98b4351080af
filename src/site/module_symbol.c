/* A symbol by its name, through the table that the loader itself uses. */
#include "site/module_symbol.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>

#include "site/module.h"

enum { DYNAMIC_MAX = 512, CHAIN_MAX = 4096 };

/* What lookups need of the dynamic section. */
struct tables {
    const struct module_object *object;
    uintptr_t hash, symbols, strings;
};

/* Where `len` bytes at an address lie in one readable segment, or NULL. */
static const void *bytes_at(const struct tables *t, uintptr_t addr, size_t len)
{
    const uint8_t *lo, *hi;
    if (module_segment_find(t->object, addr, &lo, &hi) < 0 || (size_t)((uintptr_t)hi - addr) < len)
        return NULL;
    return (const void *)addr;
}

static bool tables_find(const struct module_object *object, struct tables *ret)
{
    struct tables t = {.object = object};
    const struct link_map *map = object->map;
    const ElfW(Dyn) *dynamic = map ? map->l_ld : NULL;
    for (int n = 0; dynamic && n < DYNAMIC_MAX && dynamic[n].d_tag != DT_NULL; n++) {
        uintptr_t addr = dynamic[n].d_un.d_ptr;
        if (addr < object->map_start) /* the loader left it as in the file */
            addr += map->l_addr;
        if (dynamic[n].d_tag == DT_GNU_HASH)
            t.hash = addr;
        else if (dynamic[n].d_tag == DT_SYMTAB)
            t.symbols = addr;
        else if (dynamic[n].d_tag == DT_STRTAB)
            t.strings = addr;
    }
    *ret = t;
    return t.hash && t.symbols && t.strings && t.symbols % sizeof(ElfW(Addr)) == 0 &&
           t.hash % sizeof(uint32_t) == 0;
}

static uint32_t gnu_hash(const char *name)
{
    uint32_t hash = 5381;
    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static bool symbol_check(const struct tables *t, uint32_t index, const char *name,
                         struct module_symbol *ret)
{
    const ElfW(Sym) *symbol =
        bytes_at(t, t->symbols + (uintptr_t)index * sizeof(*symbol), sizeof(*symbol));
    if (!symbol || symbol->st_shndx == SHN_UNDEF || symbol->st_value == 0)
        return false;
    size_t len = strlen(name) + 1;
    const char *text = bytes_at(t, t->strings + symbol->st_name, len);
    if (!text || memcmp(text, name, len) != 0)
        return false;
    ret->addr = t->object->map->l_addr + symbol->st_value;
    ret->bytes = symbol->st_size;
    ret->entry = symbol;
    return true;
}

int module_symbol_find(const struct module_object *object, const char *name,
                       struct module_symbol *ret_symbol)
{
    struct tables t;
    if (!tables_find(object, &t))
        return -ENOENT;
    /* Four words, the Bloom filter (which may be left out), the buckets, and a chain for each symbol. */
    const uint32_t *head = bytes_at(&t, t.hash, 4 * sizeof(uint32_t));
    if (!head || head[0] == 0)
        return -ENOENT;
    uint32_t n_buckets = head[0], first = head[1], hash = gnu_hash(name);
    uintptr_t buckets = t.hash + 4 * sizeof(uint32_t) + (uintptr_t)head[2] * sizeof(ElfW(Addr));
    uintptr_t chains = buckets + (uintptr_t)n_buckets * sizeof(uint32_t);
    const uint32_t *bucket =
        bytes_at(&t, buckets + hash % n_buckets * sizeof(uint32_t), sizeof(uint32_t));
    uint32_t index = bucket ? *bucket : 0;
    for (int n = 0; index >= first && index != 0 && n < CHAIN_MAX; n++, index++) {
        const uint32_t *chain =
            bytes_at(&t, chains + (uintptr_t)(index - first) * sizeof(uint32_t), sizeof(uint32_t));
        if (!chain)
            return -ENOENT;
        if ((*chain | 1) == (hash | 1) && symbol_check(&t, index, name, ret_symbol))
            return 0;
        if (*chain & 1)
            return -ENOENT;
    }
    return -ENOENT;
}

/* ---- in any module ---- */

struct any {
    struct module_object beside;
    const char *name;
    struct module_symbol *ret;
};

static int any_check(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct any *any = argument;
    struct module_object object;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD)
            return module_object_find(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, &object) == 0 &&
                   object.map_start != any->beside.map_start &&
                   module_symbol_find(&object, any->name, any->ret) == 0;
    return 0;
}

int module_symbol_find_any(uintptr_t beside, const char *name, struct module_symbol *ret_symbol)
{
    struct any any = {.name = name, .ret = ret_symbol};
    if (module_object_find(beside, &any.beside) < 0)
        return -ENOENT;
    return dl_iterate_phdr(any_check, &any) ? 0 : -ENOENT;
}
