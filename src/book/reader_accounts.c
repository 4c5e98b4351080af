/*
 * reader_accounts.c: devices, accounts and their totals.
 *
 * An account's counters lie in several places: one shard in its registry record, and one in each
 * counter page that covers its number. Refresh finds them and keeps a list of pointers per account,
 * so that a total is a walk over one to four cache lines. The list is built anew whenever something
 * was added; a process adds devices and threads rarely.
 *
 * Nothing is allocated under the guard: a fault may leave it at any read.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "book/guard.h"
#include "book/reader_internal.h"
#include "book/reader_shape.h"

/* Everything a refresh builds, until it replaces what the reader has. */
struct build {
    struct book_reader *reader;
    struct book_device_view *devices;
    struct book_account_view *accounts;
    struct book_shards *shards;
    const struct book_counters **parts;
    struct book_counter_page *page_list;
    size_t n_devices, n_accounts, n_parts, left_out;
    uint32_t records, records_settled;
    uint32_t pages, pages_settled;
};

static const union book_record *record_at(const struct book_reader *reader, uint32_t number)
{
    return (const void *)(reader->registry.base +
                          (size_t)number * reader->shape[BOOK_SECTION_REGISTRY].entry_size);
}

static const struct book_counter_page *page_at(const struct book_reader *reader, uint32_t number)
{
    return (const void *)(reader->index.base +
                          (size_t)number * reader->shape[BOOK_SECTION_COUNTER_INDEX].entry_size);
}

static uint32_t count_settled_records(const struct book_reader *reader, uint32_t n)
{
    uint32_t settled = 0;
    for (uint32_t i = 1; i < n; i++)
        settled += load_acquire(&record_at(reader, i)->type) != BOOK_RECORD_NONE;
    return settled;
}

static uint32_t count_settled_pages(const struct book_reader *reader, uint32_t n)
{
    uint32_t settled = 0;
    for (uint32_t i = 0; i < n; i++)
        settled += load_acquire(&page_at(reader, i)->what) != BOOK_COUNTERS_NONE;
    return settled;
}

/* ---- is there anything new? ---- */

struct peek {
    struct book_reader *reader;
    struct book_live registry, index, counters;
    uint32_t records, pages;
    bool changed;
};

/* A page counts when both its entry and its bytes are there. */
static void peek_pages(const struct book_reader *reader, struct peek *p)
{
    p->index = book_reader_live(reader, BOOK_SECTION_COUNTER_INDEX);
    p->counters = book_reader_live(reader, BOOK_SECTION_COUNTERS);
    const struct book_shape *counters = &reader->shape[BOOK_SECTION_COUNTERS];
    p->pages =
        counters->size ? (uint32_t)book_entries_within(counters, p->index.n, p->counters.open) : 0;
}

/* What an account's owner may tell again. */
static void views_update(struct book_reader *reader)
{
    bool child = reader->identity.compat & BOOK_COMPAT_FORK_CHILD; /* others inherited nothing */
    for (size_t i = 0; i < reader->n_accounts; i++) {
        struct book_account_view *view = &reader->accounts[i];
        const struct book_account *account = &record_at(reader, view->record)->account;
        view->capacity = load_relaxed(&account->capacity);
        view->flags = load_relaxed(&account->flags);
        if (child) {
            view->inherited_bytes = load_relaxed(&account->inherited_bytes);
            view->inherited_blocks = load_relaxed(&account->inherited_blocks);
        }
    }
}

static uint64_t used_now(const struct book_reader *reader, enum book_section_kind kind)
{
    const struct book_header *h = (const void *)reader->header.base;
    const struct book_shape *shape = &reader->shape[kind];
    return shape->size ? load_acquire(&h->sections[shape->slot].used) : 0;
}

static int peek_guarded(void *context)
{
    struct peek *p = context;
    struct book_reader *reader = p->reader;
    uint64_t used_records = used_now(reader, BOOK_SECTION_REGISTRY);
    uint64_t used_pages = used_now(reader, BOOK_SECTION_COUNTER_INDEX);
    if (reader->settled && !reader->stale && used_records == reader->used_records &&
        used_pages == reader->used_pages) {
        views_update(reader);
        return 0;
    }
    peek_pages(reader, p);
    p->registry = book_reader_live(reader, BOOK_SECTION_REGISTRY);
    p->records = (uint32_t)p->registry.n;

    p->changed = reader->stale || p->records != reader->records || p->pages != reader->pages;
    if (p->changed)
        return 0;
    bool records_whole = reader->records <= 1 || reader->records_settled == reader->records - 1;
    bool pages_whole = reader->pages_settled == reader->pages;
    if (!records_whole)
        p->changed = count_settled_records(reader, p->records) != reader->records_settled;
    if (!p->changed && !pages_whole)
        p->changed = count_settled_pages(reader, p->pages) != reader->pages_settled;
    if (p->changed)
        return 0;
    /* Where the writer's words are cut to what is there, more may come to light without a change of them. */
    reader->settled =
        records_whole && pages_whole && used_records == p->records && used_pages == p->pages;
    reader->used_records = used_records;
    reader->used_pages = used_pages;
    views_update(reader);
    return 0;
}

/* How many bytes of a mapping have no page in memory. What a writer opened a moment ago has; here is no
 * descriptor to ask the file itself. Who may not know is told that there are none. */
static size_t absent(const uint8_t *start, size_t bytes)
{
    unsigned char pages[4096];
    size_t page = book_page_round(1), missing = 0;
    for (size_t at = 0; at < bytes && missing <= BOOK_READER_HOLES_MAX;) {
        size_t len = bytes - at < sizeof(pages) * page ? bytes - at : sizeof(pages) * page;
        if (mincore((void *)(start + at), len, pages) < 0)
            return 0;
        for (size_t i = 0; i < len / page; i++)
            missing += pages[i] & 1 ? 0 : page;
        at += len;
    }
    return missing;
}

static int map_grow(struct book_reader *reader, struct book_map *map, enum book_section_kind kind,
                    uint64_t open)
{
    const struct book_shape *shape = &reader->shape[kind];
    size_t want = book_page_round(map->lead + book_mapped_bytes(shape, open));
    if (shape->size == 0 || want <= map->bytes)
        return 0;
    if (reader->mapped_max && book_reader_mapped(reader) - map->bytes + want > reader->mapped_max)
        return -EDQUOT;
    uint8_t *start = mremap((void *)(map->base - map->lead), map->bytes, want, MREMAP_MAYMOVE);
    if (start == MAP_FAILED)
        return -errno;
    map->base = start + map->lead;
    size_t holes = reader->holes + absent(start + map->bytes, want - map->bytes);
    if (holes > BOOK_READER_HOLES_MAX) {
        munmap(start + map->bytes, want - map->bytes);
        return -ENODATA;
    }
    map->bytes = want;
    reader->holes = holes; /* all that ever were: who grows by little steps gets no more */
    return 0;
}

/* ---- building the lists ---- */

static void pages_copy(struct build *b)
{
    for (uint32_t i = 0; i < b->pages; i++) {
        const struct book_counter_page *page = page_at(b->reader, i);
        uint32_t what = load_acquire(&page->what);
        b->page_list[i] =
            (struct book_counter_page){.what = what, .first = load_relaxed(&page->first)};
        b->pages_settled += what != BOOK_COUNTERS_NONE;
    }
}

static int pages_copy_guarded(void *context)
{
    pages_copy(context);
    return 0;
}

static int copy_guarded(void *context)
{
    struct build *b = context;
    for (uint32_t i = 1; i < b->records; i++) {
        const union book_record *record = record_at(b->reader, i);
        uint32_t type = load_acquire(&record->type);
        b->records_settled += type != BOOK_RECORD_NONE;
        if (type == BOOK_RECORD_DEVICE) {
            const struct book_device *d = &record->device;
            struct book_device_view *view = &b->devices[b->n_devices++];
            view->record = i;
            view->kind = load_relaxed(&d->kind);
            view->ordinal = load_relaxed(&d->ordinal);
            memcpy(view->name, d->name, sizeof(view->name));
            memcpy(view->uid, d->uid, sizeof(view->uid));
            memcpy(view->bus, d->bus, sizeof(view->bus));
        } else if (type == BOOK_RECORD_ACCOUNT) {
            const struct book_account *a = &record->account;
            struct book_account_view *view = &b->accounts[b->n_accounts++];
            view->record = i;
            view->space = load_relaxed(&a->space);
            view->device = load_relaxed(&a->device);
            view->capacity = load_relaxed(&a->capacity);
            view->flags = load_relaxed(&a->flags);
            view->inherited_bytes = load_relaxed(&a->inherited_bytes);
            view->inherited_blocks = load_relaxed(&a->inherited_blocks);
            memcpy(view->name, a->name, sizeof(view->name));
        }
    }
    pages_copy(b);
    return 0;
}

static void text_check(char *text, size_t size)
{
    char copy[64];
    memcpy(copy, text, size);
    book_text_copy(text, size, copy, size);
}

/* Strings are made printable; a device account of a device that does not exist has no meaning. Spaces of
 * the host have none, whatever stands there: a later version may name something that is none to us. */
static void views_check(struct build *b)
{
    bool is_device[BOOK_RECORDS_MAX] = {[BOOK_DEVICE_HOST] = true};
    for (size_t i = 0; i < b->n_devices; i++) {
        is_device[b->devices[i].record] = true;
        text_check(b->devices[i].name, sizeof(b->devices[i].name));
        text_check(b->devices[i].uid, sizeof(b->devices[i].uid));
        text_check(b->devices[i].bus, sizeof(b->devices[i].bus));
    }
    size_t kept = 0;
    for (size_t i = 0; i < b->n_accounts; i++) {
        struct book_account_view *view = &b->accounts[i];
        if (view->space < BOOK_SPACE_DEVICE)
            view->device = BOOK_DEVICE_HOST;
        if (view->device >= BOOK_RECORDS_MAX || !is_device[view->device])
            continue;
        text_check(view->name, sizeof(view->name));
        b->accounts[kept++] = *view;
    }
    b->left_out = b->n_accounts - kept;
    b->n_accounts = kept;
}

/* The accounts are in the order of their records: the first at or after `record`. */
static size_t account_lower_bound(const struct book_account_view *accounts, size_t n,
                                  uint64_t record)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (accounts[middle].record < record)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Call twice: with parts NULL it counts, then it fills. */
static void parts_walk(struct build *b)
{
    const struct book_reader *reader = b->reader;
    size_t step = reader->shape[BOOK_SECTION_COUNTERS].entry_size;
    for (uint32_t p = 0; p < b->pages; p++) {
        if (b->page_list[p].what != BOOK_COUNTERS_ACCOUNTS)
            continue;
        uint64_t first = b->page_list[p].first;
        const struct book_counters *page = (const void *)(reader->counters.base + p * step);
        size_t i = account_lower_bound(b->accounts, b->n_accounts, first);
        for (; i < b->n_accounts && b->accounts[i].record < first + BOOK_ACCOUNTS_PER_PAGE; i++) {
            struct book_shards *s = &b->shards[i];
            if (b->parts)
                b->parts[s->first + s->n] = &page[b->accounts[i].record - first];
            s->n++;
        }
    }
}

static int parts_build(struct build *b)
{
    for (size_t i = 0; i < b->n_accounts; i++)
        b->shards[i].n = 1; /* the one in its record */
    parts_walk(b);
    size_t total = 0;
    for (size_t i = 0; i < b->n_accounts; i++) {
        b->shards[i].first = total;
        total += b->shards[i].n;
    }
    b->parts = calloc(total + 1, sizeof(b->parts[0]));
    if (!b->parts)
        return -ENOMEM;
    b->n_parts = total;
    for (size_t i = 0; i < b->n_accounts; i++) {
        b->parts[b->shards[i].first] = &record_at(b->reader, b->accounts[i].record)->account.common;
        b->shards[i].n = 1;
    }
    parts_walk(b);
    return 0;
}

static void build_release(struct build *b)
{
    free(b->devices);
    free(b->accounts);
    free(b->shards);
    free(b->parts);
    free(b->page_list);
}

static void build_commit(struct build *b)
{
    struct book_reader *reader = b->reader;
    struct build old = {.devices = reader->devices,
                        .accounts = reader->accounts,
                        .shards = reader->shards,
                        .parts = reader->parts,
                        .page_list = reader->page_list};
    reader->devices = b->devices;
    reader->accounts = b->accounts;
    reader->shards = b->shards;
    reader->parts = b->parts;
    reader->page_list = b->page_list;
    reader->n_devices = b->n_devices;
    reader->n_accounts = b->n_accounts;
    reader->left_out = b->left_out;
    reader->n_parts = b->n_parts;
    reader->records = b->records;
    reader->records_settled = b->records_settled;
    reader->pages = b->pages;
    reader->pages_settled = b->pages_settled;
    reader->stale = false;
    *b = old;
}

static int rebuild(struct book_reader *reader, uint32_t records, uint32_t pages)
{
    MEMOIR_CLEANUP(build_release)
    struct build b = {.reader = reader, .records = records, .pages = pages};
    b.devices = calloc(records + 1u, sizeof(b.devices[0]));
    b.accounts = calloc(records + 1u, sizeof(b.accounts[0]));
    b.shards = calloc(records + 1u, sizeof(b.shards[0]));
    b.page_list = calloc(pages + 1u, sizeof(b.page_list[0]));
    if (!b.devices || !b.accounts || !b.shards || !b.page_list)
        return -ENOMEM;
    int r = book_guard_run(copy_guarded, &b);
    if (r < 0)
        return r;
    views_check(&b);
    r = parts_build(&b);
    if (r < 0)
        return r;
    build_commit(&b);
    return 0;
}

/* ---- counter pages alone ---- */

bool book_reader_pages_behind(const struct book_reader *reader)
{
    const struct book_header *h = (const void *)reader->header.base;
    const struct book_shape *index = &reader->shape[BOOK_SECTION_COUNTER_INDEX];
    if (index->size == 0)
        return false;
    /* One load where nothing is unusual: bytes are opened before they are counted. */
    if (load_acquire(&h->sections[index->slot].used) == reader->pages &&
        reader->pages_settled == reader->pages)
        return false;
    struct peek p = {0};
    peek_pages(reader, &p);
    return p.pages != reader->pages ||
           (reader->pages_settled != reader->pages &&
            count_settled_pages(reader, p.pages) != reader->pages_settled);
}

static int peek_pages_guarded(void *context)
{
    struct peek *p = context;
    peek_pages(p->reader, p);
    return 0;
}

static int pages_rebuild(struct book_reader *reader, uint32_t pages)
{
    MEMOIR_CLEANUP(build_release)
    struct build b = {.reader = reader, .pages = pages};
    b.accounts = reader->accounts; /* borrowed */
    b.n_accounts = reader->n_accounts;
    b.shards = calloc(b.n_accounts + 1u, sizeof(b.shards[0]));
    b.page_list = calloc(pages + 1u, sizeof(b.page_list[0]));
    int r = b.shards && b.page_list ? book_guard_run(pages_copy_guarded, &b) : -ENOMEM;
    if (r == 0)
        r = parts_build(&b);
    if (r == 0) {
        /* The rest of what a refresh builds stays. */
        b.devices = reader->devices;
        b.n_devices = reader->n_devices;
        b.left_out = reader->left_out;
        b.records = reader->records;
        b.records_settled = reader->records_settled;
        build_commit(&b);
        b.devices = NULL;
    }
    b.accounts = NULL;
    return r;
}

int book_reader_pages_refresh(struct book_reader *reader)
{
    struct peek p = {.reader = reader};
    int r = book_guard_run(peek_pages_guarded, &p);
    if (r < 0)
        return r;
    reader->stale = true;
    r = map_grow(reader, &reader->index, BOOK_SECTION_COUNTER_INDEX, p.index.open);
    if (r == 0)
        r = map_grow(reader, &reader->counters, BOOK_SECTION_COUNTERS, p.counters.open);
    return r < 0 ? r : pages_rebuild(reader, p.pages);
}

/* ---- everything ---- */

bool book_reader_behind(struct book_reader *reader)
{
    struct peek p = {.reader = reader};
    peek_guarded(&p);
    return p.changed;
}

int book_reader_refresh(struct book_reader *reader)
{
    struct peek p = {.reader = reader};
    int r = book_guard_run(peek_guarded, &p);
    if (r < 0 || !p.changed)
        return r;
    /* A map that moves takes the lists of pointers with it: until they are rebuilt, totals must not
     * follow them. */
    reader->stale = true;
    r = map_grow(reader, &reader->registry, BOOK_SECTION_REGISTRY, p.registry.open);
    if (r == 0)
        r = map_grow(reader, &reader->index, BOOK_SECTION_COUNTER_INDEX, p.index.open);
    if (r == 0)
        r = map_grow(reader, &reader->counters, BOOK_SECTION_COUNTERS, p.counters.open);
    if (r == 0)
        r = rebuild(reader, p.records, p.pages);
    return r;
}

const struct book_device_view *book_reader_devices(const struct book_reader *reader, size_t *ret_n)
{
    *ret_n = reader->n_devices;
    return reader->devices;
}

const struct book_account_view *book_reader_accounts(const struct book_reader *reader,
                                                     size_t *ret_n)
{
    *ret_n = reader->n_accounts;
    return reader->accounts;
}

size_t book_reader_left_out(const struct book_reader *reader)
{
    return reader->left_out;
}

ssize_t book_reader_account_index(const struct book_reader *reader, uint32_t record)
{
    size_t i = account_lower_bound(reader->accounts, reader->n_accounts, record);
    if (i < reader->n_accounts && reader->accounts[i].record == record)
        return (ssize_t)i;
    return -ENOENT;
}
