/* The arrays of a profile, each thing in them once. See profile.h. */
#include "profile/profile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/hash.h"
#include "site/key.h"

static int fail(struct profile *p, int error)
{
    if (!p->error)
        p->error = error;
    return p->error;
}

int profile_error(const struct profile *p)
{
    return p->error;
}

/* Room for `more` things of `item` bytes in an array that holds `n`. */
static bool grow(struct profile *p, void *array, size_t *room, size_t n, size_t more, size_t item,
                 size_t max)
{
    void *old;
    if (p->error)
        return false;
    if (more > max || n > max - more) {
        fail(p, -E2BIG);
        return false;
    }
    if (n + more <= *room)
        return true;
    size_t wanted = *room ? *room * 2 : 64;
    while (wanted < n + more)
        wanted *= 2;
    memcpy(&old, array, sizeof(old)); /* a pointer to a pointer of any type */
    void *grown = reallocarray(old, wanted, item);
    if (!grown) {
        fail(p, -ENOMEM);
        return false;
    }
    memcpy(array, &grown, sizeof(grown));
    *room = wanted;
    return true;
}

#define GROW(p, name, more, max) \
    grow(p, &(p)->name, &(p)->room_##name, (p)->n_##name, more, sizeof(*(p)->name), max)

static void note(struct profile *p, struct numbers *index, uint64_t hash, uint32_t number)
{
    if (numbers_add(index, hash, number) < 0)
        fail(p, -ENOMEM);
}

struct profile *profile_new(void)
{
    struct profile *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    /* Strings are strangers': with a known hash they could collide at will. */
    if (getrandom(&p->seed, sizeof(p->seed), GRND_NONBLOCK) != sizeof(p->seed))
        p->seed = (uintptr_t)p;
    if (GROW(p, strings, 1, PROFILE_STRING_BYTES_MAX)) {
        p->strings[p->n_strings++] = '\0';
        return p;
    }
    profile_free(p);
    return NULL;
}

void profile_free(struct profile *p)
{
    if (!p)
        return;
    free(p->strings);
    free(p->modules);
    free(p->lines);
    free(p->frames);
    free(p->stacks);
    free(p->accounts);
    free(p->sites);
    numbers_release(&p->by_string);
    numbers_release(&p->by_module);
    numbers_release(&p->by_frame);
    numbers_release(&p->by_account);
    numbers_release(&p->by_site);
    free(p);
}

void profile_freep(struct profile **p)
{
    profile_free(*p);
}

/* ---- strings ---- */

profile_string profile_add_string_n(struct profile *p, const char *text, size_t len)
{
    struct numbers_walk walk;
    len = strnlen(text, len < PROFILE_STRING_MAX ? len : PROFILE_STRING_MAX);
    if (len == 0 || p->error)
        return 0;
    uint64_t hash = hash_bytes(text, len, p->seed);
    for (uint32_t n = numbers_first(&p->by_string, hash, &walk); n != NUMBERS_NONE;
         n = numbers_next(&p->by_string, &walk))
        if (strncmp(p->strings + n, text, len) == 0 && p->strings[n + len] == '\0')
            return n;
    if (!GROW(p, strings, len + 1, PROFILE_STRING_BYTES_MAX))
        return 0;
    uint32_t number = (uint32_t)p->n_strings;
    memcpy(p->strings + number, text, len);
    p->strings[number + len] = '\0';
    p->n_strings += len + 1;
    note(p, &p->by_string, hash, number);
    return number;
}

profile_string profile_add_string(struct profile *p, const char *text)
{
    return profile_add_string_n(p, text, strlen(text));
}

/* ---- modules ---- */

/* A build-id says all; else the path does, of the process that has it. */
static bool module_same(const struct profile_module *a, const struct profile_module *b)
{
    return a->kind == b->kind && a->path == b->path && a->build_id_len == b->build_id_len &&
           memcmp(a->build_id, b->build_id, a->build_id_len) == 0 &&
           (a->build_id_len || a->kind != PROFILE_MODULE_FILE ||
            (a->pid == b->pid && a->started_real_ns == b->started_real_ns));
}

uint32_t profile_add_module(struct profile *p, const struct profile_module *module)
{
    struct profile_module m = *module;
    struct numbers_walk walk;
    if (p->error)
        return 0;
    if (m.build_id_len > PROFILE_BUILD_ID_MAX)
        m.build_id_len = 0;
    uint64_t hash = hash_combine(hash_bytes(m.build_id, m.build_id_len, p->seed), m.path);
    for (uint32_t n = numbers_first(&p->by_module, hash, &walk); n != NUMBERS_NONE;
         n = numbers_next(&p->by_module, &walk))
        if (module_same(&p->modules[n], &m))
            return n;
    if (!GROW(p, modules, 1, PROFILE_MODULES_MAX))
        return 0;
    p->modules[p->n_modules] = m;
    note(p, &p->by_module, hash, (uint32_t)p->n_modules);
    return (uint32_t)p->n_modules++;
}

/* ---- frames ---- */

uint32_t profile_add_frame(struct profile *p, uint32_t module, uint64_t offset)
{
    struct numbers_walk walk;
    if (p->error)
        return 0;
    uint64_t hash = hash_combine(hash_combine(p->seed, module), offset);
    for (uint32_t n = numbers_first(&p->by_frame, hash, &walk); n != NUMBERS_NONE;
         n = numbers_next(&p->by_frame, &walk))
        if (p->frames[n].module == module && p->frames[n].offset == offset)
            return n;
    if (!GROW(p, frames, 1, PROFILE_FRAMES_MAX))
        return 0;
    p->frames[p->n_frames] = (struct profile_frame){.module = module, .offset = offset};
    note(p, &p->by_frame, hash, (uint32_t)p->n_frames);
    return (uint32_t)p->n_frames++;
}

void profile_set_lines(struct profile *p, uint32_t frame, const struct profile_line *lines,
                       size_t n)
{
    if (n > PROFILE_LINES_MAX)
        n = PROFILE_LINES_MAX;
    if (p->error || !GROW(p, lines, n, UINT32_MAX))
        return;
    struct profile_frame *f = &p->frames[frame];
    if (n)
        memcpy(p->lines + p->n_lines, lines, n * sizeof(*lines));
    f->first_line = (uint32_t)p->n_lines;
    f->n_lines = (uint16_t)n;
    f->looked_up = true;
    p->n_lines += n;
}

/* ---- accounts ---- */

static bool account_same(const struct profile_account *a, const struct profile_account *b)
{
    if (a->space != b->space || a->name != b->name || a->has_device != b->has_device)
        return false;
    if (!a->has_device)
        return true;
    return a->device_uid == b->device_uid && a->device_name == b->device_name &&
           (a->device_uid || a->ordinal == b->ordinal);
}

uint32_t profile_add_account(struct profile *p, const struct profile_account *account)
{
    struct numbers_walk walk;
    if (p->error)
        return 0;
    uint64_t hash = hash_combine(hash_combine(p->seed, account->space), account->device_uid);
    for (uint32_t n = numbers_first(&p->by_account, hash, &walk); n != NUMBERS_NONE;
         n = numbers_next(&p->by_account, &walk))
        if (account_same(&p->accounts[n], account))
            return n;
    if (!GROW(p, accounts, 1, PROFILE_ACCOUNTS_MAX))
        return 0;
    p->accounts[p->n_accounts] = *account;
    note(p, &p->by_account, hash, (uint32_t)p->n_accounts);
    return (uint32_t)p->n_accounts++;
}

/* ---- sites ---- */

static bool site_same(const struct profile *p, const struct profile_site *a,
                      const struct profile_site *b, const uint32_t *frames, size_t n)
{
    return a->account == b->account && a->flags == b->flags && a->n_frames == n &&
           (n == 0 || memcmp(profile_stack(p, a), frames, n * sizeof(*frames)) == 0);
}

static void site_join(struct profile_site *to, const struct profile_site *site)
{
    profile_figures_add(&to->figures, &site->figures);
    if (site->first_seen_ns && (!to->first_seen_ns || site->first_seen_ns < to->first_seen_ns))
        to->first_seen_ns = site->first_seen_ns;
}

uint32_t profile_add_site(struct profile *p, const struct profile_site *site,
                          const uint32_t *frames, size_t n)
{
    struct numbers_walk walk;
    if (p->error)
        return 0;
    if (n > PROFILE_STACK_MAX)
        n = PROFILE_STACK_MAX;
    uint64_t hash = hash_bytes(frames, n * sizeof(*frames), p->seed);
    hash = hash_combine(hash, (uint64_t)site->account << 16 | site->flags);
    for (uint32_t k = numbers_first(&p->by_site, hash, &walk); k != NUMBERS_NONE;
         k = numbers_next(&p->by_site, &walk))
        if (site_same(p, &p->sites[k], site, frames, n)) {
            site_join(&p->sites[k], site);
            return k;
        }
    if (!GROW(p, sites, 1, PROFILE_SITES_MAX) || !GROW(p, stacks, n, PROFILE_STACKS_MAX))
        return 0;
    struct profile_site *to = &p->sites[p->n_sites];
    *to = *site;
    to->first_frame = (uint32_t)p->n_stacks;
    to->n_frames = (uint16_t)n;
    if (n)
        memcpy(p->stacks + p->n_stacks, frames, n * sizeof(*frames));
    p->n_stacks += n;
    note(p, &p->by_site, hash, (uint32_t)p->n_sites);
    return (uint32_t)p->n_sites++;
}

/* ---- looking ---- */

struct profile_figures profile_total(const struct profile *p)
{
    struct profile_figures total = {0};
    for (size_t i = 0; i < p->n_sites; i++)
        if (!(p->sites[i].flags & PROFILE_SITE_SAMPLED))
            profile_figures_add(&total, &p->sites[i].figures);
    return total;
}

const char *profile_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* ---- keys ---- */

#define SEED_NAMED  UINT64_C(0x6e616d6564)
#define SEED_OFFSET UINT64_C(0x6f6666736574)

static bool has_build(const struct profile *p, const struct profile_module *module)
{
    for (size_t i = 0; i < p->n_modules; i++)
        if (p->modules[i].build_id_len == module->build_id_len &&
            memcmp(p->modules[i].build_id, module->build_id, module->build_id_len) == 0)
            return true;
    return false;
}

static uint64_t key_by_name(const struct profile *p, const struct profile_frame *f,
                            const struct profile_module *m)
{
    uint64_t key = hash_string(profile_base_name(profile_text(p, m->path)), SEED_NAMED);
    if (f->n_lines == 0)
        return hash_combine(key, f->offset);
    for (size_t i = 0; i < f->n_lines; i++) {
        const struct profile_line *line = &p->lines[f->first_line + i];
        key = hash_string(profile_text(p, line->function), key);
        key = hash_string(profile_text(p, line->file), key);
        key = hash_combine(key, line->line);
    }
    return key;
}

static uint64_t frame_key(const struct profile *p, const struct profile_frame *f, bool diff)
{
    const struct profile_module *m = &p->modules[f->module];
    switch (m->kind) {
    case PROFILE_MODULE_ADDRESS: /* compilers move it, even in one run */
        return f->n_lines ? key_by_name(p, f, m) : SEED_OFFSET + m->kind;
    case PROFILE_MODULE_UNKNOWN: /* no two runs have the same addresses */
        return diff ? SEED_OFFSET + m->kind : hash_combine(SEED_OFFSET + m->kind, f->offset);
    case PROFILE_MODULE_SCRIPT:
        return key_by_name(p, f, m);
    case PROFILE_MODULE_FILE:
        break;
    }
    if (m->by_name)
        return key_by_name(p, f, m);
    return hash_combine(site_key_module(m->build_id, m->build_id_len, profile_text(p, m->path)),
                        f->offset);
}

void profile_keys(struct profile *p, const struct profile *other)
{
    for (size_t i = 0; i < p->n_modules; i++) {
        struct profile_module *m = &p->modules[i];
        m->by_name = other && (m->build_id_len == 0 || !has_build(other, m));
    }
    for (size_t i = 0; i < p->n_frames; i++)
        p->frames[i].key = frame_key(p, &p->frames[i], other != NULL);
}
