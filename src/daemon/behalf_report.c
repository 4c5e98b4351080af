/* What is written into books on behalf of others. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "book/bare.h"
#include "daemon/behalf_internal.h"
#include "daemon/daemon.h"
#include "daemon/server.h"
#include "ledger/ledger.h"

enum { PREFETCH_PAGES = 64 }; /* of block slots */

static struct book_thread *thread_of(struct behalf *b)
{
    b->active = true;
    if (__builtin_expect(!b->dirty, 0)) {
        b->dirty = true;
        LIST_INSERT_HEAD(&b->table->dirty, b, dirty_link);
    }
    return &b->table->thread;
}

static union book_record *record_at(const struct behalf *b, uint32_t number)
{
    return &((union book_record *)b->w->at[BOOK_SECTION_REGISTRY])[number];
}

static bool is_record(const struct behalf *b, int64_t number, uint32_t type)
{
    return b->w && number > 0 && (uint64_t)number < b->w->section[BOOK_SECTION_REGISTRY]->used &&
           record_at(b, (uint32_t)number)->type == type;
}

/* ---- who wants to know ---- */

void behalf_listen(struct behalf_table *table,
                   void (*call)(void *context, const struct behalf *behalf,
                                const struct behalf_event *event),
                   void *context)
{
    table->listener = call;
    table->listener_context = context;
}

static void tell(const struct behalf *b, enum behalf_event_kind kind, uint32_t account, uint64_t id,
                 uint64_t bytes, uint32_t tag)
{
    const struct book_account *record = &record_at(b, account)->account;
    const struct book_tag *tags = (const struct book_tag *)b->w->at[BOOK_SECTION_TAGS];
    struct behalf_event event = {
        .kind = kind,
        .account = account,
        .space = record->space,
        .has_device = record->device != BOOK_DEVICE_HOST,
        .ordinal = record->device ? record_at(b, record->device)->device.ordinal : 0,
        .id = id,
        .bytes = bytes,
        .tag = tag ? tags[tag].name : "",
    };
    b->table->listener(b->table->listener_context, b, &event);
}

/* Usually there is no listener, and reports are counted in nanoseconds. */
static inline bool told(const struct behalf *b)
{
    return __builtin_expect(b->table->listener != NULL, 0);
}

/* ---- devices and accounts ---- */

static void text_set(char *to, size_t size, const char *text)
{
    snprintf(to, size, "%s", text ? text : "");
}

int behalf_device(struct behalf *b, const struct behalf_device *device)
{
    if (!b->w)
        return -ESRCH;
    struct book_device record = {.kind = device->kind, .ordinal = device->ordinal};
    text_set(record.name, sizeof(record.name), device->name);
    text_set(record.uid, sizeof(record.uid), device->uid);
    text_set(record.bus, sizeof(record.bus), device->bus);
    int number = book_device_add(b->w, thread_of(b), &record);
    if (number < 0) {
        book_lose(b->w, BOOK_LOSS_ACCOUNTS_FULL);
        return number;
    }
    for (size_t i = 0; i < device->n_capacity && device->capacity[i].space; i++)
        (void)behalf_capacity(b, number, device->capacity[i].space, device->capacity[i].bytes);
    return number;
}

int behalf_account(struct behalf *b, int device, int space)
{
    if (!b->w)
        return -ESRCH;
    if (space < MEMOIR_SPACE_DRAM)
        device = MEMOIR_HOST;
    if (space <= 0 || space > MEMOIR_SPACE_MAX ||
        (device != MEMOIR_HOST && !is_record(b, device, BOOK_RECORD_DEVICE))) {
        book_lose(b->w, BOOK_LOSS_BAD_ARGUMENT);
        return -EINVAL;
    }
    int number = book_account_add(b->w, thread_of(b), (uint32_t)space, (uint32_t)device,
                                  ledger_space_name((uint32_t)space));
    if (number < 0)
        book_lose(b->w, BOOK_LOSS_ACCOUNTS_FULL);
    return number;
}

int behalf_account_lookup(const struct behalf *b, uint32_t kind, int32_t ordinal, int space)
{
    uint64_t used = b->w ? b->w->section[BOOK_SECTION_REGISTRY]->used : 0;
    for (uint32_t i = 1; i < used; i++) {
        const struct book_account *account = &record_at(b, i)->account;
        if (account->type != BOOK_RECORD_ACCOUNT || account->space != (uint32_t)space ||
            account->device == BOOK_DEVICE_HOST)
            continue;
        const struct book_device *device = &record_at(b, account->device)->device;
        if (device->kind == kind && device->ordinal == ordinal)
            return (int)i;
    }
    return -ENOENT;
}

int behalf_capacity(struct behalf *b, int device, int space, uint64_t bytes)
{
    int account = behalf_account(b, device, space);
    if (account < 0)
        return account;
    book_account_capacity(b->w, (uint32_t)account, bytes);
    return 0;
}

uint32_t behalf_tag(struct behalf *b, const char *name)
{
    if (!b->w || !name || !*name)
        return 0;
    int number = book_tag_add(b->w, thread_of(b), name);
    if (number < 0)
        book_lose(b->w, BOOK_LOSS_TAGS_FULL);
    return number < 0 ? 0 : (uint32_t)number;
}

/* ---- blocks ---- */

/* The files are root's, so no quota of the tmpfs limits a user: the books of a user do not grow beyond its share. */
static bool may_grow(struct behalf *b)
{
    const struct daemon *daemon = b->table->daemon;
    behalf_place_count(b->place, b, b->w->table.shard[0].pages);
    uint64_t pages = behalf_user_pages(b->table, b->place);
    return b->place->uid == 0 || pages * BOOK_BLOCK_PAGE_BYTES < daemon->config.tmpfs_user_size;
}

/* What every allocation has to pass. */
static int alloc_check(struct behalf *b, uint32_t account, uint64_t bytes)
{
    if (!b->w)
        return -ESRCH;
    if (bytes > BOOK_BLOCK_SIZE_MAX || !is_record(b, account, BOOK_RECORD_ACCOUNT)) {
        book_lose(b->w, BOOK_LOSS_BAD_ARGUMENT);
        return -EINVAL;
    }
    const struct table_shard *shard = &b->w->table.shard[0];
    const struct book_counters *c = &record_at(b, account)->account.common;
    if (book_bare_blocks(b->w) >= b->table->daemon->config.buffers_per_client_max ||
        c->alloc_bytes - c->freed_bytes + bytes > BEHALF_ACCOUNT_BYTES_MAX ||
        (shard->live >= shard->limit && !may_grow(b))) {
        book_lose(b->w, BOOK_LOSS_LIMIT);
        return -EDQUOT;
    }
    return 0;
}

int behalf_alloc(struct behalf *b, uint32_t account, uint64_t id, uint64_t bytes, uint32_t tag)
{
    int r = alloc_check(b, account, bytes);
    if (r < 0)
        return r;
    r = book_bare_alloc(b->w, thread_of(b), account, id,
                        bytes | (uint64_t)(tag & UINT16_MAX) << BOOK_BLOCK_SIZE_BITS,
                        book_time(b->w));
    if (r >= 0 && told(b))
        tell(b, BEHALF_ALLOC, account, id, bytes, tag & UINT16_MAX);
    return r;
}

int behalf_alloc_among(struct behalf *b, uint32_t account, const uint16_t *accounts, uint32_t n,
                       uint64_t id, uint64_t bytes)
{
    int r = alloc_check(b, account, bytes);
    if (r < 0)
        return r;
    uint32_t time = book_time(b->w);
    if (book_bare_alloc_new(b->w, account, id, bytes, time)) {
        (void)thread_of(b); /* notes that something changed */
    } else {
        while (behalf_free_among(b, accounts, n, id) == 0)
            book_lose(b->w, BOOK_LOSS_REPLACED);
        r = book_bare_alloc(b->w, thread_of(b), account, id, bytes, time);
    }
    if (r >= 0 && told(b))
        tell(b, BEHALF_ALLOC, account, id, bytes, 0);
    return r;
}

int behalf_free_among(struct behalf *b, const uint16_t *accounts, uint32_t n, uint64_t id)
{
    uint32_t account;
    if (!b->w)
        return -ESRCH;
    int64_t bytes = book_bare_free_among(b->w, thread_of(b), accounts, n, id, &account);
    if (bytes < 0)
        return -ENOENT;
    if (told(b))
        tell(b, BEHALF_FREE, account, id, (uint64_t)bytes, 0);
    return 0;
}

int behalf_free(struct behalf *b, uint32_t account, uint64_t id, uint64_t *ret_bytes)
{
    if (!b->w)
        return -ESRCH;
    struct book_thread *t = thread_of(b);
    if (!is_record(b, account, BOOK_RECORD_ACCOUNT)) {
        book_lose(b->w, BOOK_LOSS_BAD_ARGUMENT);
        return -EINVAL;
    }
    int64_t bytes = book_bare_free(b->w, t, account, id);
    if (bytes < 0)
        return (int)bytes;
    if (ret_bytes)
        *ret_bytes = (uint64_t)bytes;
    if (told(b))
        tell(b, BEHALF_FREE, account, id, (uint64_t)bytes, 0);
    return 0;
}

void behalf_prefetch(const struct behalf *b, uint32_t account, uint64_t id, enum behalf_ahead ahead)
{
    if (!b->w || b->w->table.shard[0].pages < PREFETCH_PAGES)
        return; /* it is in the cache anyway */
    if (ahead == BEHALF_AHEAD_FAR)
        book_bare_prefetch_head(b->w, account, id);
    else
        book_bare_prefetch_slot(b->w, account, id, ahead == BEHALF_AHEAD_ALLOC);
}

int behalf_transfer(struct behalf *b, uint32_t account, uint64_t id, uint64_t bytes, bool into)
{
    if (!b->w)
        return -ESRCH;
    struct book_thread *t = thread_of(b);
    if (!is_record(b, account, BOOK_RECORD_ACCOUNT)) {
        book_lose(b->w, BOOK_LOSS_BAD_ARGUMENT);
        return -EINVAL;
    }
    if (told(b))
        tell(b, into ? BEHALF_MOVED_IN : BEHALF_MOVED_OUT, account, id, bytes, 0);
    return book_bare_transfer(b->w, t, account, id, bytes, into, book_time(b->w));
}

void behalf_lose(struct behalf *b, enum book_loss cause, uint64_t n)
{
    if (b->w)
        fetch_add_relaxed(&b->w->header->losses[cause], n);
}

uint64_t behalf_drop(struct behalf *b)
{
    uint64_t n = b->w ? book_bare_blocks(b->w) : 0;
    if (n == 0)
        return 0;
    struct book_thread *t = thread_of(b);
    const struct table_shard *shard = &b->w->table.shard[0];
    /* Taking a block away moves no other, so one walk finds all; it ends with the last one, since a book
     * that once held many has room for as many. */
    for (uint32_t page = 0; page < shard->pages && book_bare_blocks(b->w) > 0; page++)
        for (uint32_t slot = 0; slot < BOOK_BLOCKS_PER_PAGE; slot++) {
            struct book_block block = shard->blocks[page].slots[slot];
            uint32_t account = book_place_account(block.place);
            if (account)
                (void)book_bare_free(b->w, t, account, block.id);
        }
    return n;
}

/* ---- figures ---- */

void behalf_refresh(struct behalf_table *table)
{
    struct behalf *b;
    while ((b = LIST_FIRST(&table->dirty))) {
        LIST_REMOVE(b, dirty_link);
        b->dirty = false;
        if (b->book)
            ledger_refresh_process(table->daemon->ledger, b->book->process);
    }
}

int behalf_figures(const struct behalf *b, uint32_t account, struct behalf_figures *ret_figures)
{
    if (!is_record(b, account, BOOK_RECORD_ACCOUNT))
        return -EINVAL;
    const struct book_account *record = &record_at(b, account)->account;
    const struct book_counters *c = &record->common;
    *ret_figures = (struct behalf_figures){
        .live_bytes = c->alloc_bytes - c->freed_bytes,
        .live_blocks = c->alloc_blocks - c->freed_blocks,
        .alloc_bytes = c->alloc_bytes,
        .alloc_blocks = c->alloc_blocks,
        .freed_bytes = c->freed_bytes,
        .freed_blocks = c->freed_blocks,
        .peak_bytes = record->peak_bytes,
        .capacity = record->capacity,
    };
    return 0;
}

uint64_t behalf_blocks(const struct behalf *b)
{
    return b->w ? book_bare_blocks(b->w) : 0;
}

uint64_t behalf_losses(const struct behalf *b, enum book_loss cause)
{
    return b->w ? b->w->header->losses[cause] : 0;
}

/* ---- sessions ---- */

static struct book_session *session_find(const struct behalf *b, uint64_t session_id)
{
    for (size_t i = 0; b->w && session_id && i < BOOK_SESSIONS_MAX; i++)
        if (b->w->header->sessions[i].id == session_id)
            return &b->w->header->sessions[i];
    return NULL;
}

/* A place for a new one: an unused, else that of the others in turn. */
static struct book_session *session_place(struct behalf *b)
{
    for (size_t i = 0; i < BOOK_SESSIONS_MAX; i++)
        if (b->w->header->sessions[i].id == 0)
            return &b->w->header->sessions[i];
    return &b->w->header->sessions[b->next_session++ % BOOK_SESSIONS_MAX];
}

uint64_t behalf_session_seq(const struct behalf *b, uint64_t session_id)
{
    const struct book_session *session = session_find(b, session_id);
    return session ? session->seq : 0;
}

void behalf_session_applied(struct behalf *b, uint64_t session_id, uint64_t seq)
{
    struct book_session *session = session_find(b, session_id);
    if (!b->w || !session_id)
        return;
    if (!session) {
        session = session_place(b);
        store_release(&session->seq, 0); /* no moment with the number of another session */
        store_release(&session->id, session_id);
    }
    store_release(&session->seq, seq);
}
