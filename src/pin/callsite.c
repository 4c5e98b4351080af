/* callsite.c: see callsite.h. */
#include "pin/callsite.h"

#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "pin/lock.h"
#include "pin/region.h"
#include "site/key.h"
#include "site/module.h"

enum { INDEX = 2 * CALLSITE_MAX };

struct callsites *callsites;

bool callsite_init(void)
{
    struct callsites *made = region_table(sizeof(*made));
    if (made) {
        made->n_sites = made->n_modules = 1;
        callsites = made;
    }
    return made != NULL;
}

static uint32_t lookup(const struct callsites *s, uint64_t hash, uint32_t *ret_at)
{
    for (uint32_t at = (uint32_t)hash % INDEX, tries = 0; tries < INDEX;
         at = (at + 1) % INDEX, tries++) {
        uint32_t number = load_acquire(&s->index[at]);
        *ret_at = at;
        if (number == 0)
            return 0;
        if (s->site[number].hash == hash)
            return number;
    }
    *ret_at = INDEX;
    return 0;
}

/* Under the lock. A module that was unloaded, with another in its place, has another key. */
static uint32_t module_number(struct callsites *s, uintptr_t pc, uint64_t *ret_offset)
{
    struct module_info info;
    if (module_find(pc - 1, &info) < 0)
        return 0;
    *ret_offset = module_offset(&info, pc);
    uint64_t key = site_key_module(info.build_id, info.build_id_len, info.path);
    for (uint32_t i = 1; i < s->n_modules; i++)
        if (s->module[i].key == key && s->module[i].start == info.map_start)
            return i;
    if (s->n_modules == CALLSITE_MODULES_MAX)
        return 0;
    struct callsite_module *m = &s->module[s->n_modules];
    m->key = key;
    m->start = info.map_start;
    m->end = info.map_end;
    m->build_id_len = info.build_id_len < CALLSITE_ID_MAX ? info.build_id_len : CALLSITE_ID_MAX;
    memcpy(m->build_id, info.build_id, m->build_id_len);
    size_t n = strnlen(info.path, CALLSITE_PATH_MAX - 1);
    memcpy(m->path, info.path, n);
    if (n == 0) /* the program itself */
        (void)!readlink("/proc/self/exe", m->path, CALLSITE_PATH_MAX - 1);
    store_release(&s->n_modules, s->n_modules + 1);
    return s->n_modules - 1;
}

static uint32_t enter(struct callsites *s, uint64_t hash, const uintptr_t *pcs, size_t n,
                      const struct script *script, uint32_t at)
{
    if (s->n_sites == CALLSITE_MAX || at == INDEX)
        return 0;
    uint32_t number = s->n_sites;
    struct callsite *site = &s->site[number];
    uint64_t key = SITE_KEY_SEED;
    for (size_t i = 0; i < n; i++) {
        uint64_t offset = 0;
        uint32_t module = module_number(s, pcs[i], &offset);
        site->frame[i].module = module;
        site->frame[i].offset = module ? offset : 0;
        key = site_key_add(key, module ? s->module[module].key : SITE_KEY_UNKNOWN,
                           site->frame[i].offset);
    }
    site->n = (uint32_t)n;
    if (script->hash)
        key = site_key_add(key, script->hash, 0);
    memcpy(site->script, script->label, sizeof(site->script));
    site->key = site_key_finish(key);
    site->hash = hash;
    store_release(&s->n_sites, number + 1);
    store_release(&s->index[at], number);
    return number;
}

uint32_t callsite_find(const struct unwind_state *from)
{
    struct callsites *s = load_acquire(&callsites);
    uintptr_t pcs[CALLSITE_DEPTH];
    if (!s)
        return 0;
    struct unwind_trace trace;
    struct script script = {0};
    size_t depth = unwind_stack_from(&s->unwind, from, pcs, CALLSITE_DEPTH, &trace);
    size_t n = depth < CALLSITE_FRAMES ? depth : CALLSITE_FRAMES;
    (void)script_read(pcs, depth, &script);
    uint64_t hash = hash_combine(hash_bytes(pcs, n * sizeof(pcs[0]), trace.identity), script.hash);
    uint32_t at;
    uint32_t number = lookup(s, hash ? hash : 1, &at);
    if (number || n == 0 || !pin_lock_take(&s->lock))
        return number;
    number = lookup(s, hash ? hash : 1, &at);
    if (!number)
        number = enter(s, hash ? hash : 1, pcs, n, &script, at);
    pin_lock_give(&s->lock);
    return number;
}
