/*
 * memoir.c: the calls of memoir.h.
 *
 * Each report has a fast way, taken when the book is open, this thread is known, no report is under
 * way and the account exists: then it is all loads and stores. Everything else goes through
 * client_report(), which may take microseconds.
 */
#include "memoir/memoir.h"

#include <errno.h>
#include <string.h>

#include "book/lock.h"
#include "book/peak.h"
#include "book/report.h"
#include "client/client.h"

#define unlikely(x) __builtin_expect(!!(x), 0)
#define likely(x)   __builtin_expect(!!(x), 1)

/* ---- inside and out ---- */

static void drain(struct client_thread *t);

static inline void enter(struct client_thread *t)
{
    t->inside = 1;
    fence_signal();
}

static inline void leave(struct client_thread *t)
{
    fence_signal();
    t->inside = 0;
    fence_signal();
    if (unlikely(t->n_pending))
        drain(t);
}

static inline uint32_t account_fast(const struct client *c, int device, int space)
{
    if (unlikely((unsigned)device >= BOOK_RECORDS_MAX || (unsigned)space >= CLIENT_SPACES))
        return 0;
    return load_relaxed(&c->account_of[device][space]);
}

static inline uint64_t make_place(const struct client *c, uint32_t account, uint32_t site)
{
    return (uint64_t)book_time(&c->writer) << 32 | (uint64_t)site << 12 | account;
}

/* ---- the long way ---- */

uint32_t client_account(struct client *c, struct client_thread *t, int device, int space)
{
    uint32_t account = account_fast(c, device, space);
    if (account)
        return account;
    struct book_writer *w = &c->writer;
    bool host = space < MEMOIR_SPACE_DRAM; /* the host's, whatever device uses them */
    bool valid = space > 0 && space < CLIENT_SPACES && device >= 0 && device < BOOK_RECORDS_MAX &&
                 (device > 0 || host);
    if (valid && device > 0)
        valid = (uint64_t)device < load_acquire(&w->section[BOOK_SECTION_REGISTRY]->used) &&
                book_account_at(w, (uint32_t)device)->type == BOOK_RECORD_DEVICE;
    if (!valid) {
        book_lose(w, BOOK_LOSS_BAD_ARGUMENT);
        return 0;
    }
    int r = book_account_add(w, &t->book, (uint32_t)space,
                             host ? BOOK_DEVICE_HOST : (uint32_t)device, client_space_name(space));
    if (r < 0) {
        book_lose(w, BOOK_LOSS_ACCOUNTS_FULL);
        return 0;
    }
    store_relaxed(&c->account_of[device][space], (uint16_t)r);
    return (uint32_t)r;
}

static void apply_transfer(struct client *c, struct client_thread *t, const struct report *report)
{
    uint32_t from = client_account(c, t, report->device, report->space);
    uint32_t to = client_account(c, t, report->to_device, report->to_space);
    uint32_t time = book_time(&c->writer);
    if (from)
        book_transfer(&c->writer, &t->book, from, report->id, report->bytes, false, time);
    if (to)
        book_transfer(&c->writer, &t->book, to, report->new_id, report->bytes, true, time);
}

static void apply(struct client *c, struct client_thread *t, const struct report *report)
{
    if (report->kind == REPORT_TRANSFER) {
        apply_transfer(c, t, report);
        return;
    }
    uint32_t account = client_account(c, t, report->device, report->space);
    if (!account)
        return;
    if (report->kind == REPORT_FREE) {
        book_free(&c->writer, &t->book, account, report->id);
        return;
    }
    if (report->bytes > BOOK_BLOCK_SIZE_MAX) {
        book_lose(&c->writer, BOOK_LOSS_BAD_ARGUMENT);
        return;
    }
    uint32_t site = report->state && c->stacks == CLIENT_STACKS_ALL
                        ? client_stack_site(c, t, account, report->state)
                        : client_site(c, t, account, report->caller);
    uint32_t tag = report->tag < 0 ? t->tag : (uint32_t)report->tag;
    bool again = report->kind == REPORT_REALLOC;
    uint64_t size_tag = report->bytes | (uint64_t)tag << 48;
    uint64_t place = make_place(c, account, site);
    if (again)
        book_realloc(&c->writer, &t->book, report->id, report->new_id, size_tag, place);
    else
        book_alloc(&c->writer, &t->book, report->id, size_tag, place);
}

/* Does what was reported so far deserve a file? */
static bool worth_a_book(struct client *c, const struct report *report)
{
    c->early_calls++;
    if (report->kind == REPORT_ALLOC || report->kind == REPORT_REALLOC)
        c->early_bytes += report->bytes;
    return report->device > 0 || report->to_device > 0 || c->early_calls >= CLIENT_EARLY_CALLS ||
           c->early_bytes >= CLIENT_EARLY_BYTES || book_writer_wanted(&c->writer);
}

/* Inside a report; t belongs to c. */
static void perform(struct client *c, struct client_thread *t, const struct report *report)
{
    bool early = load_acquire(&c->phase) == CLIENT_EARLY;
    if (early && !book_lock_take(&c->writer, &t->book, &c->early_lock))
        return;
    uint32_t phase = load_acquire(&c->phase);
    if (phase == CLIENT_OFF) {
        fetch_add_relaxed(&c->dropped, 1);
    } else if (load_relaxed(&c->writer.control->flags) & BOOK_CONTROL_SUSPENDED) {
        book_lose(&c->writer, BOOK_LOSS_SUSPENDED);
    } else {
        apply(c, t, report);
        if (phase == CLIENT_EARLY && worth_a_book(c, report))
            client_publish(c);
    }
    if (early)
        book_lock_drop(&t->book, &c->early_lock);
}

/* Reports that signal handlers left while this thread was busy, oldest first. A handler may add
 * more meanwhile; the compare-and-swap is for it, not for other threads. */
static void drain(struct client_thread *t)
{
    int saved = errno;
    do {
        t->inside = 1;
        fence_signal();
        uint32_t done = 0, seen;
        do {
            for (; done < load_relaxed(&t->n_pending); done++)
                perform(t->client, t, &t->pending[done]);
            seen = done;
        } while (!cas_relaxed(&t->n_pending, &seen, 0));
        t->inside = 0;
        fence_signal();
    } while (load_relaxed(&t->n_pending) != 0);
    errno = saved;
}

void client_end(struct client_thread *t)
{
    leave(t);
}

static void leave_for_later(struct client *c, struct client_thread *t, const struct report *report)
{
    /* Another handler may interrupt this one: the place is taken first. Who drains sees only
     * finished entries, because handlers end before what they interrupted goes on. */
    uint32_t n = fetch_add_relaxed(&t->n_pending, 1);
    if (n >= CLIENT_PENDING_MAX) {
        fetch_sub_relaxed(&t->n_pending, 1);
        book_lose(&c->writer, BOOK_LOSS_REENTRY);
        return;
    }
    t->pending[n] = *report;
    t->pending[n].state = NULL; /* that stack will be gone */
}

struct client_thread *client_enter(struct client **ret_client, const struct report *report)
{
    struct client *c = client_get();
    *ret_client = c;
    if (!c) {
        if (report)
            fetch_add_relaxed(&client_dropped, 1);
        return NULL;
    }
    struct client_thread *t = load_acquire(&c->phase) == CLIENT_OFF ? NULL : client_thread_get(c);
    if (!t) {
        if (report)
            fetch_add_relaxed(&c->dropped, 1);
        return NULL;
    }
    if (!client_begin(t)) {
        if (report)
            leave_for_later(c, t, report);
        return NULL;
    }
    return t;
}

void client_report(struct report *report)
{
    int saved = errno;
    struct client *c;
    struct client_thread *t = client_enter(&c, report);
    if (t) {
        perform(c, t, report);
        client_end(t);
    }
    errno = saved;
}

/* ---- memoir.h: reports ---- */

/*
 * The fast way: book open, thread known, nothing under way, one thread in the process, block where
 * it is looked for first. It ends in a call of one of the functions below for everything else, so
 * that the compiler saves no registers for calls that do not happen.
 */

__attribute__((noinline)) static void alloc_slowly(int device, int space, uint64_t id,
                                                   uint64_t bytes, const struct unwind_state *state)
{
    client_report(&(struct report){.kind = REPORT_ALLOC,
                                   .device = device,
                                   .space = space,
                                   .id = id,
                                   .bytes = bytes,
                                   .tag = -1,
                                   .caller = unwind_state_caller(state),
                                   .state = state});
}

__attribute__((noinline)) static void free_slowly(int device, int space, uint64_t id)
{
    client_report(
        &(struct report){.kind = REPORT_FREE, .device = device, .space = space, .id = id});
}

/* The rest of a report that is inside already. It may ask the kernel for pages, in vain. */
__attribute__((noinline)) static void alloc_inside(struct client_thread *t, uint64_t id,
                                                   uint64_t size_tag, uint64_t place)
{
    int saved = errno;
    book_alloc(&t->client->writer, &t->book, id, size_tag, place);
    errno = saved;
    leave(t);
}

__attribute__((noinline)) static void enter_inside(struct client_thread *t, uint64_t id,
                                                   uint64_t size_tag, uint64_t place, bool due)
{
    int saved = errno;
    if (due)
        book_fold(&t->client->writer, &t->book, book_place_account(place));
    book_enter(&t->client->writer, &t->book, id, size_tag, place);
    errno = saved;
    leave(t);
}

__attribute__((noinline)) static void free_inside(struct client_thread *t, uint32_t account,
                                                  uint64_t id)
{
    int saved = errno;
    book_free(&t->client->writer, &t->book, account, id);
    errno = saved;
    leave(t);
}

__attribute__((noinline)) static void count_free_inside(struct client_thread *t, uint64_t size_tag,
                                                        uint64_t place)
{
    int saved = errno;
    book_count_free_any(&t->client->writer, &t->book, size_tag, place);
    errno = saved;
    leave(t);
}

__attribute__((noinline)) static void fold_inside(struct client_thread *t, uint32_t account)
{
    int saved = errno;
    book_fold(&t->client->writer, &t->book, account);
    errno = saved;
    leave(t);
}

/* This thread, if it may take the fast way. After fork the root is wiped, so that a thread struct
 * of the parent's never fits. */
static inline struct client_thread *fast_thread(void)
{
    struct client_thread *t = client_self;
    if (unlikely(!t || t->client != load_acquire(&client_root_now()->fast) || t->inside ||
                 (load_relaxed(&t->control->flags) & BOOK_CONTROL_SUSPENDED)))
        return NULL;
    return t;
}

void memoir_alloc(int device, int space, uint64_t id, uint64_t bytes)
{
    struct client_thread *t = fast_thread();
    uint32_t account = likely(t) ? account_fast(t->client, device, space) : 0;
    if (unlikely(!account || bytes > BOOK_BLOCK_SIZE_MAX)) {
        struct unwind_state state = UNWIND_STATE_CALLER();
        alloc_slowly(device, space, id, bytes, &state);
        return;
    }
    enter(t);
    struct client *c = t->client;
    uint32_t site = client_site(c, t, account, (uintptr_t)__builtin_return_address(0));
    uint64_t place = make_place(c, account, site), size_tag = bytes | (uint64_t)t->tag << 48;
    struct table *table = &c->writer.table;
    bool due;
    if (unlikely(!table->plain || !__libc_single_threaded ||
                 !book_count_alloc(&t->book, size_tag, place, &due))) {
        alloc_inside(t, id, size_tag, place);
        return;
    }
    uint64_t hash = table_hash(table, account, id);
    if (unlikely(!table_put_at_home(table_shard_of(table, hash), hash, id, size_tag, place))) {
        enter_inside(t, id, size_tag, place, due);
        return;
    }
    if (unlikely(due)) {
        fold_inside(t, account);
        return;
    }
    leave(t);
}

void memoir_free(int device, int space, uint64_t id)
{
    struct client_thread *t = fast_thread();
    uint32_t account = likely(t) ? account_fast(t->client, device, space) : 0;
    if (unlikely(!account)) {
        free_slowly(device, space, id);
        return;
    }
    enter(t);
    struct table *table = &t->client->writer.table;
    uint64_t hash = table_hash(table, account, id), size_tag, place;
    if (unlikely(!table->plain || !__libc_single_threaded ||
                 !table_take_at_home(table_shard_of(table, hash), hash, account, id, &size_tag,
                                     &place))) {
        free_inside(t, account, id);
        return;
    }
    bool due;
    if (unlikely((size_tag & BOOK_BLOCK_SIZE_MAX) >= BOOK_PEAK_LARGE_BYTES ||
                 !book_count_free(&t->book, size_tag, place, &due))) {
        count_free_inside(t, size_tag, place);
        return;
    }
    if (unlikely(due)) {
        fold_inside(t, account);
        return;
    }
    leave(t);
}

/* A report whose struct makes no sense: counted as one of a device that cannot be. */
static void report_refused(void)
{
    client_report(&(struct report){.kind = REPORT_FREE, .device = -1});
}

void memoir_realloc(int device, int space, uint64_t old_id, uint64_t new_id, uint64_t new_bytes)
{
    struct unwind_state state = UNWIND_STATE_CALLER();
    client_report(&(struct report){.kind = REPORT_REALLOC,
                                   .device = device,
                                   .space = space,
                                   .id = old_id,
                                   .new_id = new_id,
                                   .bytes = new_bytes,
                                   .tag = -1,
                                   .caller = (uintptr_t)__builtin_return_address(0),
                                   .state = &state});
}

static int32_t tag_number(const char *tag)
{
    struct client *c;
    struct client_thread *t = client_enter(&c, NULL);
    if (!t)
        return -1;
    bool early = load_acquire(&c->phase) == CLIENT_EARLY;
    int number = -EBUSY;
    if (!early || book_lock_take(&c->writer, &t->book, &c->early_lock)) {
        if (load_acquire(&c->phase) != CLIENT_OFF)
            number = book_tag_add(&c->writer, &t->book, tag);
        if (early)
            book_lock_drop(&t->book, &c->early_lock);
    }
    if (number == -ENOSPC || number == -ENOMEM)
        book_lose(&c->writer, BOOK_LOSS_TAGS_FULL);
    client_end(t);
    return number;
}

void memoir_alloc_with(const struct memoir_alloc_options *options)
{
    struct memoir_alloc_options o;
    int saved = errno;
    struct unwind_state state = UNWIND_STATE_CALLER();
    if (client_options_take(&o, sizeof(o), options, offsetof(struct memoir_alloc_options, tag))) {
        uintptr_t own = (uintptr_t)__builtin_return_address(0);
        client_report(&(struct report){.kind = REPORT_ALLOC,
                                       .device = o.device,
                                       .space = o.space,
                                       .id = o.id,
                                       .bytes = o.bytes,
                                       .tag = o.tag ? tag_number(o.tag) : -1,
                                       .caller = o.caller ? (uintptr_t)o.caller : own,
                                       .state = o.caller ? NULL : &state});
    } else {
        report_refused();
    }
    errno = saved;
}

void memoir_transfer(const struct memoir_transfer_options *options)
{
    struct memoir_transfer_options o;
    if (!client_options_take(&o, sizeof(o), options, sizeof(o))) {
        report_refused();
        return;
    }
    client_report(&(struct report){.kind = REPORT_TRANSFER,
                                   .device = o.from_device,
                                   .space = o.from_space,
                                   .id = o.from_id,
                                   .to_device = o.to_device,
                                   .to_space = o.to_space,
                                   .new_id = o.to_id,
                                   .bytes = o.bytes});
}

void memoir_tag_push(const char *tag)
{
    int saved = errno;
    int32_t number = tag ? tag_number(tag) : -1;
    struct client_thread *t = client_self;
    if (t && t->client == load_acquire(&client_root_now()->client)) {
        if (t->n_tags < CLIENT_TAGS_NESTED)
            t->tags[t->n_tags] = t->tag;
        t->n_tags++;
        t->tag = number > 0 ? (uint32_t)number : t->tag;
    }
    errno = saved;
}

void memoir_tag_pop(void)
{
    struct client_thread *t = client_self;
    if (!t || t->n_tags == 0)
        return;
    t->n_tags--;
    if (t->n_tags < CLIENT_TAGS_NESTED)
        t->tag = t->tags[t->n_tags];
}
