/*
 * sites.c: call sites and the modules they lie in.
 *
 * A frame is kept as (module, address in the module's file), so a site means the same in every run.
 * Modules are entered when the first site needs them. A library that is closed and opened again is
 * the same module if its build-id and path are; anything else that appears at a known place is a
 * new one, of the next generation. Code that an interpreter runs is in no module: its frames name a
 * function of a script and a line.
 */
#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "book/lock.h"
#include "book/text.h"
#include "book/writer.h"
#include "site/key.h"
#include "site/module.h"

static struct book_module *module_at(struct book_writer *w, uint64_t number)
{
    return &((struct book_module *)w->at[BOOK_SECTION_MODULES])[number];
}

static bool same_file(const struct book_module *module, const struct module_info *info)
{
    if (strncmp(module->path, info->path, sizeof(module->path) - 1) != 0)
        return false;
    if (module->build_id_len != info->build_id_len ||
        memcmp(module->build_id, info->build_id, info->build_id_len) != 0)
        return false;
    return info->build_id_len > 0 ||
           (module->map_start == info->map_start && module->map_end == info->map_end);
}

static int64_t module_add(struct book_writer *w, const struct module_info *info)
{
    uint64_t used = w->section[BOOK_SECTION_MODULES]->used;
    uint32_t generation = 0;
    for (uint64_t i = 1; i < used; i++) {
        const struct book_module *module = module_at(w, i);
        if (same_file(module, info))
            return (int64_t)i;
        if (module->map_start < info->map_end && info->map_start < module->map_end)
            generation++;
    }
    int64_t number = book_entry_next(w, BOOK_SECTION_MODULES, BOOK_MODULES_MAX);
    if (number < 0) {
        book_lose(w, BOOK_LOSS_MODULES_FULL);
        return number;
    }
    struct book_module *module = module_at(w, (uint64_t)number);
    module->bias = info->base;
    module->map_start = info->map_start;
    module->map_end = info->map_end;
    module->generation = generation;
    module->build_id_len = info->build_id_len;
    memcpy(module->build_id, info->build_id, info->build_id_len);
    struct text path = text_begin(module->path, sizeof(module->path));
    text_add(&path, info->path);
    module->flags = path.cut ? BOOK_MODULE_PATH_CUT : 0;
    book_entry_done(w, BOOK_SECTION_MODULES, number);
    return number;
}

void book_module_prepare(struct book_writer *w, struct book_thread *t, uintptr_t pc)
{
    struct module_info info;
    if (module_find(pc, &info) < 0 || !book_lock_take(w, t, &w->lock))
        return;
    module_add(w, &info);
    book_lock_drop(t, &w->lock);
}

/* Without a system call: only among the modules that are entered, the newest first. */
static uint64_t frame_of_known(struct book_writer *w, uintptr_t pc, uint64_t *key)
{
    for (uint64_t i = w->section[BOOK_SECTION_MODULES]->used; i-- > 1;) {
        const struct book_module *module = module_at(w, i);
        if (pc < module->map_start || pc >= module->map_end)
            continue;
        const char *path = module->path[0] ? module->path : w->header->exe;
        uint64_t offset = pc - module->bias;
        *key = site_key_add(*key, site_key_module(module->build_id, module->build_id_len, path),
                            offset);
        return BOOK_FRAME(i, offset);
    }
    *key = site_key_add(*key, SITE_KEY_UNKNOWN, 0);
    return BOOK_FRAME(BOOK_MODULE_NONE, pc);
}

static bool script_is(const struct book_script *a, const struct book_script *b)
{
    return a->first_line == b->first_line && strcmp(a->function, b->function) == 0 &&
           strcmp(a->file, b->file) == 0;
}

uint32_t book_script_add(struct book_writer *w, struct book_thread *t,
                         const struct book_script *script)
{
    struct book_script *scripts = (struct book_script *)w->at[BOOK_SECTION_SCRIPTS];
    if (!scripts || !book_lock_take(w, t, &w->lock))
        return 0;
    uint64_t hash = hash_string(script->file, hash_string(script->function, script->first_line));
    uint32_t cursor = 0, found;
    while ((found = index_next(&w->scripts, hash, &cursor)) != 0)
        if (script_is(&scripts[found], script))
            break;
    if (found == 0) {
        int64_t number = book_entry_next(w, BOOK_SECTION_SCRIPTS, BOOK_SCRIPTS_MAX);
        if (number > 0 && index_add(&w->scripts, hash, (uint32_t)number, w->sealed) == 0) {
            scripts[number] = *script;
            book_entry_done(w, BOOK_SECTION_SCRIPTS, number);
            found = (uint32_t)number;
        }
    }
    book_lock_drop(t, &w->lock);
    if (found == 0)
        book_lose(w, BOOK_LOSS_SCRIPTS_FULL);
    return found;
}

/* A frame of a script is what it is; one that names none is a call of which nothing is known. */
static uint64_t frame_of_script(struct book_writer *w, uint64_t frame, uint64_t *key)
{
    uint32_t number = BOOK_FRAME_SCRIPT(frame);
    const struct book_section *section = w->section[BOOK_SECTION_SCRIPTS];
    if (!section || number == 0 || number >= section->used) {
        *key = site_key_add(*key, SITE_KEY_UNKNOWN, 0);
        return BOOK_SCRIPT_FRAME(0, 0);
    }
    const struct book_script *script =
        &((const struct book_script *)w->at[BOOK_SECTION_SCRIPTS])[number];
    *key = site_key_add(*key, site_key_script(script->file),
                        site_key_line(script->function, BOOK_FRAME_LINE(frame)));
    return frame;
}

/* The frame for a return address; folds the module into the stable key. */
static uint64_t frame_of(struct book_writer *w, uintptr_t pc, uint64_t *key)
{
    if (BOOK_FRAME_MODULE(pc) == BOOK_MODULE_SCRIPT)
        return frame_of_script(w, pc, key);
    if (w->sealed)
        return frame_of_known(w, pc, key);
    struct module_info info;
    int64_t number = module_find(pc, &info) == 0 ? module_add(w, &info) : -ENOENT;
    if (number < 0) {
        *key = site_key_add(*key, SITE_KEY_UNKNOWN, 0);
        return BOOK_FRAME(BOOK_MODULE_NONE, pc);
    }
    uint64_t offset = module_offset(&info, pc);
    const char *path = info.path[0] ? info.path : w->header->exe;
    *key = site_key_add(*key, site_key_module(info.build_id, info.build_id_len, path), offset);
    return BOOK_FRAME((uint64_t)number, offset);
}

static bool same_frames(struct book_writer *w, const struct book_site *site, const uint64_t *frames,
                        size_t n)
{
    const uint64_t *all = (const uint64_t *)w->at[BOOK_SECTION_FRAMES];
    return site->frames == n && memcmp(all + site->first_frame, frames, n * sizeof(frames[0])) == 0;
}

/* Append the frames; the number of the first, or -errno. */
static int64_t frames_add(struct book_writer *w, const uint64_t *frames, size_t n)
{
    struct book_section *section = w->section[BOOK_SECTION_FRAMES];
    uint64_t first = section->used;
    int r = book_section_open(w, BOOK_SECTION_FRAMES, (first + n) * sizeof(frames[0]));
    if (r < 0)
        return r;
    memcpy((uint64_t *)w->at[BOOK_SECTION_FRAMES] + first, frames, n * sizeof(frames[0]));
    store_release(&section->used, first + n);
    return (int64_t)first;
}

static uint32_t site_add_locked(struct book_writer *w, uint32_t account, const uint64_t *frames,
                                size_t n, uint64_t key, uint32_t flags)
{
    struct book_site *sites = (struct book_site *)w->at[BOOK_SECTION_SITES];
    uint64_t hash = hash_bytes(frames, n * sizeof(frames[0]), (uint64_t)account << 32 | flags);
    uint32_t cursor = 0, found;
    while ((found = index_next(&w->sites, hash, &cursor)) != 0)
        if (sites[found].account == account && sites[found].flags == flags &&
            same_frames(w, &sites[found], frames, n))
            return found;
    int64_t number = book_entry_next(w, BOOK_SECTION_SITES, BOOK_SITES_MAX);
    int64_t first = number < 0 ? number : frames_add(w, frames, n);
    if (first < 0 || index_add(&w->sites, hash, (uint32_t)number, w->sealed) < 0)
        return BOOK_SITE_NONE;
    sites[number] = (struct book_site){
        .key = key,
        .first_frame = (uint32_t)first,
        .frames = (uint16_t)n,
        .flags = (uint16_t)flags,
        .time = book_time(w),
        .account = account,
    };
    book_entry_done(w, BOOK_SECTION_SITES, number);
    return (uint32_t)number;
}

uint32_t book_site_add(struct book_writer *w, struct book_thread *t, uint32_t account,
                       const uintptr_t *pcs, size_t n, uint32_t flags)
{
    if (n == 0)
        return BOOK_SITE_NONE;
    if (n > BOOK_SITE_FRAMES_MAX) {
        n = BOOK_SITE_FRAMES_MAX;
        flags |= BOOK_SITE_CUT;
    }
    if (!book_lock_take(w, t, &w->lock))
        return BOOK_SITE_NONE;
    uint64_t frames[BOOK_SITE_FRAMES_MAX];
    uint64_t key = SITE_KEY_SEED;
    for (size_t i = 0; i < n; i++)
        frames[i] = frame_of(w, pcs[i], &key);
    uint32_t site = site_add_locked(w, account, frames, n, site_key_finish(key), flags);
    book_lock_drop(t, &w->lock);
    if (site == BOOK_SITE_NONE)
        book_lose(w, BOOK_LOSS_SITES_FULL);
    return site;
}
