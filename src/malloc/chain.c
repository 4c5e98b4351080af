/* The life of a chain: making, ending, entering, judging what was found. Blocks are in chain_block.c. */
#include "malloc/chain.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "malloc/chain_bin.h"
#include "malloc/chain_default.h"
#include "malloc/chain_enter.h"
#include "malloc/chain_fit.h"
#include "malloc/chain_region.h"
#include "malloc/chain_registry.h"
#include "malloc/chain_walk.h"
#include "malloc/chain_watch.h"

enum {
    FLAGS_KNOWN = MEMOIR_CHAIN_THREAD_SAFE | MEMOIR_CHAIN_SHARED | MEMOIR_CHAIN_ABORT |
                  MEMOIR_CHAIN_REGISTER | MEMOIR_CHAIN_NO_FALLBACK,
};

uint32_t chain_constants(const struct memoir_chain *c)
{
    uint64_t mix = (c->magic ^ c->key) * UINT64_C(0x9e3779b97f4a7c15);
    mix = (mix ^ mix >> 29 ^ c->flags) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(mix >> 32);
}

uint64_t chain_seal_next(const struct memoir_chain *c)
{
    uint64_t mix = (c->seal + c->key) * UINT64_C(0xbf58476d1ce4e5b9) + 1;
    return mix ^ mix >> 31;
}

/* ---- judging ---- */

static size_t put_hex(char *out, uintptr_t value)
{
    size_t n = 0;
    for (int shift = 60; shift >= 0; shift -= 4)
        if (n || value >> shift || shift == 0)
            out[n++] = "0123456789abcdef"[value >> shift & 15];
    return n;
}

static size_t put_text(char *out, const char *text)
{
    size_t n = strlen(text);
    memcpy(out, text, n);
    return n;
}

static _Noreturn void die(const struct memoir_chain *c, const char *what, const void *block)
{
    char line[256];
    size_t n = put_text(line, "memoir: chain 0x");
    n += put_hex(line + n, (uintptr_t)c);
    n += put_text(line + n, ", block 0x");
    n += put_hex(line + n, (uintptr_t)block);
    n += put_text(line + n, ": ");
    n += put_text(line + n, what);
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, n) < 0)
        n = 0; /* nobody to tell */
    kill(getpid(), SIGABRT);
    __builtin_trap();
}

int chain_judge_slowly(struct memoir_chain *c, int result, const void *block)
{
    const char *what;
    switch (result) {
    case -EUCLEAN:
        c->state = CHAIN_BROKEN;
        what =
            "words of the chain are overwritten, by a write past the end of a block or after its free";
        break;
    case -EFAULT:
        what = "freed, but it is no block of this chain, or the word before it is overwritten";
        fetch_add_relaxed(&c->bad_frees, 1);
        break;
    case -EALREADY:
        what = "freed twice";
        fetch_add_relaxed(&c->bad_frees, 1);
        break;
    default:
        return result;
    }
    if (c->flags & MEMOIR_CHAIN_ABORT)
        die(c, what, block);
    return result;
}

/* ---- entering ---- */

/* The last owner of the lock is gone, and so is the rest of its operation. */
static void mend(struct memoir_chain *c)
{
    if (c->state != CHAIN_WHOLE)
        return;
    if (chain_rebuild(c) < 0)
        c->state = CHAIN_BROKEN;
    c->recoveries++;
}

static int lock(struct memoir_chain *c)
{
    if (!c || (uintptr_t)c % CHAIN_GRAIN)
        return -EINVAL;
    if (load_relaxed(&c->magic) != CHAIN_MAGIC)
        return load_relaxed(&c->magic) == ~CHAIN_MAGIC ? -EIDRM : -EINVAL;
    const struct mapped *known = mapped_find(c);
    if (!known && (c->flags & MEMOIR_CHAIN_SHARED))
        return -EINVAL; /* not by this process */
    int r = known ? mapped_compare(c, known) : 0;
    if (r < 0)
        return r;
    r = chain_lock_take(c);
    if (r < 0)
        return r;
    int sound = known ? mapped_compare(c, known) : 0; /* others may have added buffers, or worse */
    if (r > 0 && sound == 0)
        mend(c);
    if (sound < 0)
        chain_lock_drop(c);
    return sound;
}

int chain_enter_any(struct memoir_chain *c)
{
    int r = lock(c);
    if (r < 0)
        return r;
    if (c->state != CHAIN_DESTROYED)
        return 0;
    chain_lock_drop(c);
    return -EIDRM;
}

int chain_enter_slowly(struct memoir_chain *c)
{
    int r = lock(c);
    if (r < 0)
        return r;
    if (__builtin_expect(c->state != CHAIN_WHOLE, 0)) {
        r = c->state == CHAIN_DESTROYED ? -EIDRM : -ENOTRECOVERABLE;
        chain_lock_drop(c);
        return r;
    }
    if (__builtin_expect(load_relaxed(&c->remote) != 0, 0) && !chain_is_locked(c)) {
        r = chain_judge(c, chain_drain_locked(c), NULL);
        if (r < 0) {
            chain_leave(c);
            return r;
        }
    }
    return 0;
}

static void give_back_retired(struct memoir_chain *c, struct region *r,
                              const struct chain_source *source)
{
    uint64_t bytes;
    bool sourced;
    for (struct region *next; r; r = next) {
        if (!region_look(c, r, &bytes, &sourced, &next))
            return;
        if (registry_has(c))
            registry_remove(r);
        region_give_back(source, r, bytes);
    }
}

void chain_leave_slowly(struct memoir_chain *c)
{
    struct chain_source *source = chain_source(c);
    if (__builtin_expect(!source || !source->retired, 1)) {
        chain_lock_drop(c);
        return;
    }
    struct region *retired = source->retired;
    source->retired = NULL;
    chain_lock_drop(c);
    give_back_retired(c, retired, source);
}

int chain_merge(struct memoir_chain *c, uint64_t *b, uint64_t header)
{
    struct region *empty;
    int r = fit_give(c, b, header, &empty);
    return r < 0 || __builtin_expect(!empty, 1) ? r : region_emptied(c, empty);
}

int chain_idle(struct memoir_chain *c)
{
    return c->regions > 2 && chain_source(c) ? bin_drain(c) : 0;
}

int chain_give_slowly(struct memoir_chain *c, uint64_t *b, uint64_t header)
{
    c->used_bytes -= header_bytes(header);
    c->frees++;
    int r = chain_merge(c, b, header);
    if (r == 0 && bin_of(header_bytes(header)) < chain_bins(c))
        r = bin_drain(c); /* they are full */
    return r == 0 && c->used_bytes == 0 ? chain_idle(c) : r;
}

/* ---- making ---- */

/* Unlike any chain that was in the same memory before. */
static uint64_t key_make(const void *where)
{
    static uint64_t made;
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t mix = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    mix ^= ((uint64_t)(uintptr_t)where << 20) + fetch_add_relaxed(&made, 1);
    mix = (mix ^ mix >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return mix ^ mix >> 27;
}

/* The table for what is in the buffer and what is expected, if it fits into its share. */
static unsigned lists_for(uint64_t bytes, uint64_t expect_bytes)
{
    unsigned wanted = fit_lists(bytes > expect_bytes ? bytes : expect_bytes);
    uint64_t share = bytes / CHAIN_TABLE_SHARE / 8;
    if (wanted > share)
        wanted = (unsigned)share;
    return wanted < 1 ? 1 : wanted;
}

/* Bins take their share from the smallest size on. */
static unsigned bins_for(uint64_t bytes)
{
    uint64_t share = bytes / CHAIN_BINS_SHARE / 8;
    return share < CHAIN_BINS_MAX ? (unsigned)share : CHAIN_BINS_MAX;
}

static int options_take(const struct memoir_chain_options *options,
                        struct memoir_chain_options *ret_options)
{
    struct memoir_chain_options known = {.struct_size = sizeof(known)};
    if (options) {
        /* A caller of a later version may set what this one does not know: it must be 0. */
        const unsigned char *bytes = (const unsigned char *)options;
        if (options->struct_size < offsetof(struct memoir_chain_options, expect_bytes))
            return -EINVAL;
        for (size_t i = sizeof(known); i < options->struct_size; i++)
            if (bytes[i])
                return -EINVAL;
        memcpy(&known, options,
               options->struct_size < sizeof(known) ? options->struct_size : sizeof(known));
    }
    if (known.flags & MEMOIR_CHAIN_SHARED)
        known.flags |= MEMOIR_CHAIN_THREAD_SAFE;
    if ((known.flags & ~(unsigned)FLAGS_KNOWN) ||
        (known.request && (known.flags & MEMOIR_CHAIN_SHARED)) ||
        (known.give_back && !known.request))
        return -EINVAL;
    *ret_options = known;
    return 0;
}

static int lay_out(void *buffer, size_t bytes, const struct memoir_chain_options *options,
                   bool sourced, struct memoir_chain **ret_chain)
{
    uintptr_t start = ((uintptr_t)buffer + CHAIN_GRAIN - 1) & ~(uintptr_t)(CHAIN_GRAIN - 1);
    uint64_t room = (bytes - (start - (uintptr_t)buffer)) & ~(uint64_t)(CHAIN_GRAIN - 1);
    uint32_t flags = options->flags | (options->request ? CHAIN_HAS_SOURCE : 0) |
                     lists_for(room, options->expect_bytes) << CHAIN_LISTS_SHIFT |
                     bins_for(room) << CHAIN_BINS_SHIFT;
    size_t control = chain_control_bytes(flags);
    if (room < control + sizeof(struct region) + CHAIN_BLOCK_MIN + CHAIN_HEADER)
        return -ENOSPC;

    struct memoir_chain *c = (struct memoir_chain *)start;
    mapped_remove(c); /* one that was unmapped without a word lay here */
    memset(c, 0, control);
    c->key = c->seal = key_make(c);
    c->flags = flags;
    c->magic = CHAIN_MAGIC;
    c->constants = chain_constants(c);
    c->owner = chain_thread();
    c->magic = 0; /* until all of it is there */
    int r = chain_lock_init(c);
    if (r < 0)
        return r;
    if (options->request)
        *chain_source(c) = (struct chain_source){
            .request = options->request,
            .give_back = options->give_back,
            .user = options->user,
            .buffer = sourced ? buffer : NULL,
            .buffer_bytes = bytes,
        };
    struct region *first = chain_first_region(c);
    region_span(c, first, room - control);
    region_lay(c, first, room - control, false);
    link_put_by(c, c->key, &first->next, NULL);
    link_put_by(c, c->key, &first->before, NULL);
    store_release(&c->magic, CHAIN_MAGIC);
    r = chain_rebuild(c);
    if (r == 0 && (flags & MEMOIR_CHAIN_SHARED))
        r = mapped_add(c, room, flags);
    if (r == 0 && (flags & MEMOIR_CHAIN_REGISTER))
        r = registry_add(c, room, c);
    if (r > 0)
        r = -EBUSY; /* a chain that was never destroyed lay here */
    if (r < 0) {
        mapped_remove(c);
        store_relaxed(&c->magic, 0);
        return r;
    }
    *ret_chain = c;
    return 0;
}

int memoir_chain_init(void *buffer, size_t bytes, const struct memoir_chain_options *options,
                      struct memoir_chain **ret_chain)
{
    struct memoir_chain_options known;
    int r = options_take(options, &known);
    if (r < 0)
        return r;
    if (!ret_chain || (!buffer && !known.request))
        return -EINVAL;
    if (buffer && bytes < MEMOIR_CHAIN_BYTES_MIN)
        return -ENOSPC;
    if (bytes > CHAIN_BYTES_MAX || (uintptr_t)buffer + bytes < (uintptr_t)buffer)
        return -EINVAL;
    struct chain_source source = {
        .request = known.request, .give_back = known.give_back, .user = known.user};
    bool sourced = !buffer;
    if (sourced) {
        r = region_source_first(
            &source, bytes < MEMOIR_CHAIN_BYTES_MIN * 2 ? MEMOIR_CHAIN_BYTES_MIN * 2 : bytes,
            &buffer, &bytes);
        if (r < 0)
            return r;
    }
    r = lay_out(buffer, bytes, &known, sourced, ret_chain);
    if (r < 0 && sourced)
        region_give_back(&source, buffer, bytes);
    return r;
}

/* The machine may have gone down in the middle of an operation. */
static int revive(struct memoir_chain *c)
{
    int r = chain_lock_revive(c);
    if (r <= 0)
        return r;
    mend(c);
    chain_lock_revived(c);
    return 0;
}

static int attach_magic(uint64_t magic)
{
    if (magic == CHAIN_MAGIC)
        return 0;
    if (magic == ~CHAIN_MAGIC)
        return -EIDRM;
    bool other =
        ((magic ^ CHAIN_MAGIC) & CHAIN_VALUE_MASK) == 0; /* but for the number at its end */
    return other ? -EPROTONOSUPPORT : -ENOENT;
}

int memoir_chain_attach(void *buffer, size_t bytes, unsigned flags, struct memoir_chain **ret_chain)
{
    uintptr_t start = ((uintptr_t)buffer + CHAIN_GRAIN - 1) & ~(uintptr_t)(CHAIN_GRAIN - 1);
    struct memoir_chain *c = (struct memoir_chain *)start;
    if (!buffer || !ret_chain || (flags & ~(unsigned)MEMOIR_CHAIN_REGISTER))
        return -EINVAL;
    if (bytes < MEMOIR_CHAIN_BYTES_MIN)
        return -ENOSPC;
    bytes -= start - (uintptr_t)buffer;
    int r = attach_magic(load_acquire(&c->magic));
    if (r < 0)
        return r;
    uint32_t shape = load_relaxed(&c->flags), plain = shape & 0xffff, lists = chain_lists(c);
    if (c->constants != chain_constants(c) || !(plain & MEMOIR_CHAIN_SHARED) ||
        (plain & ~(uint32_t)FLAGS_KNOWN) || lists == 0 || lists > CHAIN_LISTS_MAX)
        return -EINVAL;
    size_t control = chain_control_bytes(shape);
    /* Before anything is mended by words that lead where they like. */
    if (control > bytes || bytes - control < sizeof(struct region) || !mapped_fits(c, bytes))
        return -ENOSPC;
    bool had = mapped_find(c) != NULL;
    r = mapped_add(c, bytes, shape);
    if (r < 0)
        return r;
    r = revive(c);
    if (r == 0)
        r = chain_enter_any(c);
    if (r == 0) {
        chain_leave(c);
        if (flags & MEMOIR_CHAIN_REGISTER)
            r = registry_add(c, bytes, c); /* all of it: others may refill the chain within */
    }
    if (r < 0) {
        if (!had)
            mapped_remove(c);
        return r;
    }
    *ret_chain = c;
    return 0;
}

/* Nobody's free() or malloc() leads here any more. */
static void forget(struct memoir_chain *c)
{
    if (memoir_chain_default() == c)
        memoir_chain_restore_default(NULL);
    registry_remove_chain(c);
}

int memoir_chain_detach(struct memoir_chain *c)
{
    if (!mapped_find(c))
        return -EINVAL;
    int r = chain_enter_any(c);
    if (r == 0)
        chain_leave(c);
    forget(c); /* whatever others did to it */
    mapped_remove(c);
    return r;
}

int memoir_chain_refill(struct memoir_chain *c, void *buffer, size_t bytes)
{
    if (!buffer || (uintptr_t)buffer + bytes < (uintptr_t)buffer)
        return -EINVAL;
    if (mapped_find(c)) {
        if ((uintptr_t)buffer < (uintptr_t)c)
            return -ERANGE;
        mapped_widen(c, chain_distance(c, (char *)buffer + bytes));
    }
    return region_enter(c, buffer, bytes, false);
}

/* ---- ending ---- */

int memoir_chain_reset(struct memoir_chain *c)
{
    int r = chain_enter_any(c);
    if (r < 0)
        return r;
    chain_watch_drop_all(c);
    store_relaxed(&c->remote, 0);
    r = region_pull_all(c);
    if (r == 0)
        r = chain_clear(c);
    if (r == 0)
        c->state = CHAIN_WHOLE;
    r = chain_judge(c, r, NULL);
    chain_leave(c);
    return r;
}

int memoir_chain_destroy(struct memoir_chain *c)
{
    struct chain_source source = {0};
    int r = chain_enter_any(c);
    if (r < 0)
        return r;
    forget(c);
    chain_watch_drop_all(c);
    /* Of a chain whose list of buffers is overwritten, those before the damage go back. */
    region_pull_all(c);
    if (chain_source(c))
        source = *chain_source(c);
    c->state = CHAIN_DESTROYED;
    store_release(&c->magic, ~CHAIN_MAGIC);
    chain_leave(c);
    mapped_remove(c);
    if (source.buffer)
        region_give_back(&source, source.buffer, source.buffer_bytes);
    return 0;
}

int memoir_chain_adopt(struct memoir_chain *c)
{
    int r = chain_enter_any(c);
    if (r < 0)
        return r;
    store_relaxed(&c->owner, chain_thread());
    r = c->state == CHAIN_WHOLE ? chain_judge(c, chain_rebuild(c), NULL) : -ENOTRECOVERABLE;
    chain_leave(c);
    return r;
}
