/*
 * sites_of.c: call sites of other processes, in books that are written on their behalf.
 *
 * Nothing is looked up here: a frame comes as a module and an offset, or as a line of a script. Keys are computed as frames.c does
 * for the process itself, so that a site is the same whoever writes it down.
 */
#include <string.h>

#include "base/atomic.h"
#include "book/frames.h"
#include "book/lock.h"
#include "book/reader.h"
#include "book/writer.h"
#include "site/key.h"

static struct book_module *module_at(struct book_writer *w, uint64_t number)
{
    return &((struct book_module *)w->at[BOOK_SECTION_MODULES])[number];
}

/* A library that was closed and opened again elsewhere is the same, if its build-id tells. */
static bool module_same(const struct book_module *a, const struct book_module *b)
{
    if (a->build_id_len != b->build_id_len ||
        memcmp(a->build_id, b->build_id, a->build_id_len) != 0 ||
        strncmp(a->path, b->path, sizeof(a->path)) != 0)
        return false;
    return a->build_id_len > 0 || a->bias == b->bias;
}

/* Number of a module, entered if need be; 0 if there is no room, which counts as a loss. */
static uint64_t module_enter(struct book_writer *w, const struct book_module *module)
{
    uint64_t used = w->section[BOOK_SECTION_MODULES]->used;
    uint32_t generation = 0;
    if (module->build_id_len > sizeof(module->build_id))
        return 0;
    for (uint64_t i = 1; i < used; i++) {
        const struct book_module *known = module_at(w, i);
        if (module_same(known, module))
            return i;
        if (known->map_start < module->map_end && module->map_start < known->map_end)
            generation++;
    }
    int64_t number = book_entry_next(w, BOOK_SECTION_MODULES, BOOK_MODULES_MAX);
    if (number < 0) {
        book_lose(w, BOOK_LOSS_MODULES_FULL);
        return 0;
    }
    struct book_module *to = module_at(w, (uint64_t)number);
    *to = *module;
    to->generation = generation;
    to->flags = module->flags & BOOK_MODULE_PATH_CUT;
    to->path[sizeof(to->path) - 1] = '\0';
    book_entry_done(w, BOOK_SECTION_MODULES, number);
    return (uint64_t)number;
}

static uint64_t module_key(const struct book_module *module)
{
    return module ? site_key_module(module->build_id, module->build_id_len, module->path)
                  : SITE_KEY_UNKNOWN;
}

static uint64_t key_add(uint64_t key, const struct book_frame *frame)
{
    if (!frame->script)
        return site_key_add(key, module_key(frame->module), frame->offset);
    if (frame->script->file[0] == '\0') /* a call of which nothing is known */
        return site_key_add(key, SITE_KEY_UNKNOWN, 0);
    return site_key_add(key, site_key_script(frame->script->file),
                        site_key_line(frame->script->function, (uint32_t)frame->offset));
}

uint64_t book_frames_key(const struct book_frame *frames, size_t n)
{
    uint64_t key = SITE_KEY_SEED;
    for (size_t i = 0; i < n && i < BOOK_STACK_FRAMES_MAX; i++)
        key = key_add(key, &frames[i]);
    return site_key_finish(key);
}

/* A frame as books have it. `last` is the module before and its number. Takes the lock for scripts. */
struct entered {
    const struct book_module *module;
    uint64_t number;
};

static uint64_t frame_enter(struct book_writer *w, struct book_thread *t,
                            const struct book_frame *frame, struct entered *last)
{
    if (frame->script) {
        uint32_t number = frame->script->file[0] != '\0' ? book_script_add(w, t, frame->script) : 0;
        bool line = number > 0 && frame->offset <= BOOK_SCRIPT_LINE_MAX;
        return BOOK_SCRIPT_FRAME(number, line ? frame->offset : 0);
    }
    if (!frame->module)
        return BOOK_FRAME(BOOK_MODULE_NONE, frame->offset);
    if (frame->module != last->module) {
        if (!book_lock_take(w, t, &w->lock))
            return BOOK_SCRIPT_FRAME(0, 0);
        *last = (struct entered){frame->module, module_enter(w, frame->module)};
        book_lock_drop(t, &w->lock);
    }
    /* Without its module an offset is no address: better unknown than wrong. */
    return last->number ? BOOK_FRAME(last->number, frame->offset) : BOOK_SCRIPT_FRAME(0, 0);
}

static uint32_t site_enter(struct book_writer *w, struct book_thread *t, uint32_t account,
                           const struct book_frame *frames, size_t n, uint64_t key, uint32_t flags)
{
    struct entered last = {0};
    uint64_t words[BOOK_STACK_FRAMES_MAX];
    for (size_t i = 0; i < n; i++)
        words[i] = frame_enter(w, t, &frames[i], &last);
    uint32_t site = BOOK_SITE_NONE;
    if (book_lock_take(w, t, &w->lock)) {
        site = book_site_enter(w, account, words, n, key, flags);
        book_lock_drop(t, &w->lock);
    }
    if (site == BOOK_SITE_NONE)
        book_lose(w, BOOK_LOSS_SITES_FULL);
    return site;
}

uint32_t book_site_add_frames(struct book_writer *w, struct book_thread *t, uint32_t account,
                              const struct book_frame *frames, size_t n, uint32_t flags)
{
    if (n == 0)
        return BOOK_SITE_NONE;
    if (n > BOOK_STACK_FRAMES_MAX) {
        n = BOOK_STACK_FRAMES_MAX;
        flags |= BOOK_SITE_CUT;
    }
    return site_enter(w, t, account, frames, n, book_frames_key(frames, n), flags);
}

static struct book_frame frame_of(const struct book_sites *sites, uint64_t word)
{
    static const struct book_script unknown;
    const struct book_module *module = book_sites_module(sites, word);
    const struct book_script *script = book_sites_script(sites, word);
    if (module)
        return (struct book_frame){.module = module, .offset = BOOK_FRAME_OFFSET(word)};
    if (script)
        return (struct book_frame){.script = script, .offset = BOOK_FRAME_LINE(word)};
    if (BOOK_FRAME_MODULE(word) == BOOK_MODULE_NONE)
        return (struct book_frame){.offset = BOOK_FRAME_OFFSET(word)};
    return (struct book_frame){.script = &unknown};
}

uint32_t book_site_adopt(struct book_writer *w, struct book_thread *t, uint32_t account,
                         const struct book_sites *sites, uint32_t site)
{
    struct book_frame frames[BOOK_STACK_FRAMES_MAX];
    if (site == BOOK_SITE_NONE || site >= sites->n_sites || sites->sites[site].frames == 0)
        return BOOK_SITE_NONE;
    const struct book_site *from = &sites->sites[site];
    uint32_t flags = from->flags & (BOOK_SITE_CALLER_ONLY | BOOK_SITE_CUT);
    size_t n = from->frames < BOOK_STACK_FRAMES_MAX ? from->frames : BOOK_STACK_FRAMES_MAX;
    for (size_t i = 0; i < n; i++)
        frames[i] = frame_of(sites, sites->frames[from->first_frame + i]);
    return site_enter(w, t, account, frames, n, from->key, flags);
}
