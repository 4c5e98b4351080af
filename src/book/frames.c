/*
 * frames.c: what a return address is in a book: a module and the address in its file, or a line of a script.
 *
 * Modules are entered when the first site needs them. A library that is closed and opened again is
 * the same module if its build-id and path are; anything else that appears at a known place is a
 * new one, of the next generation. Code that an interpreter runs is in no module: its frames name a
 * function of a script and a line.
 *
 * Modules that are never unloaded are kept in a short list by address, since whole stacks of them are entered, and asking
 * the loader takes system calls.
 */
#include "book/frames.h"

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

static const struct book_lasting *lasting_find(const struct book_writer *w, uintptr_t pc)
{
    for (uint32_t i = 0; i < w->n_lasting; i++)
        if (pc - w->lasting[i].start < w->lasting[i].bytes)
            return &w->lasting[i];
    return NULL;
}

static void lasting_add(struct book_writer *w, const struct module_info *info, uint64_t number,
                        uint64_t key)
{
    if (!info->permanent || w->n_lasting == BOOK_LASTING_MAX)
        return;
    w->lasting[w->n_lasting] = (struct book_lasting){
        .start = info->map_start,
        .bytes = info->map_end - info->map_start,
        .bias = info->base,
        .key = key,
        .number = number,
    };
    fence_signal(); /* torn out in between, it is not there */
    w->n_lasting++;
}

uint64_t book_frame_of(struct book_writer *w, uintptr_t pc, uint64_t *key)
{
    if (BOOK_FRAME_MODULE(pc) == BOOK_MODULE_SCRIPT)
        return frame_of_script(w, pc, key);
    const struct book_lasting *known = lasting_find(w, pc);
    if (known) {
        *key = site_key_add(*key, known->key, pc - known->bias);
        return BOOK_FRAME(known->number, pc - known->bias);
    }
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
    uint64_t module = site_key_module(info.build_id, info.build_id_len, path);
    lasting_add(w, &info, (uint64_t)number, module);
    *key = site_key_add(*key, module, offset);
    return BOOK_FRAME((uint64_t)number, offset);
}
