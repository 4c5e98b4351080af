/* Live blocks, picked and sorted. See buffers.h. */
#include "cli/buffers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/sum.h"
#include "cli/devices.h"
#include "ledger/ledger.h"

struct take {
    const struct buffers_filter *filter;
    struct buffers *to;
    const struct ledger_process *process;
    uint32_t book;                       /* number of the one being read */
    uint32_t accounts[BOOK_RECORDS_MAX]; /* of the process, by record; UINT32_MAX: not wanted */
    bool *tags;                          /* wanted, by number; NULL: all */
    uint64_t before_ns;                  /* made at this time or earlier; UINT64_MAX: any */
    bool any;                            /* of this process */
};

/* ---- order ---- */

static const char *tag_text(const struct buffers *b, const struct buffers_row *row)
{
    const struct book_names *names = &b->books[row->book];
    const char *tag = names->book ? book_names_tag(names, row->tag) : NULL;
    return tag ? tag : "";
}

static int order(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static pid_t pid_of(const struct buffers *b, const struct buffers_row *row)
{
    return b->owners[row->book]->process->pid;
}

/* Below 0: `x` comes first. Equal ones by size, age and id, so that the order is the same every time. */
static int compare(const struct buffers *b, const struct buffers_filter *f,
                   const struct buffers_row *x, const struct buffers_row *y)
{
    int r = 0;
    switch (f->key) {
    case BUFFERS_BY_SIZE:
        r = order(y->bytes, x->bytes);
        break;
    case BUFFERS_BY_AGE:
        r = order(x->time_ns, y->time_ns);
        break;
    case BUFFERS_BY_MOVES:
        r = order(y->moves, x->moves);
        break;
    case BUFFERS_BY_ID:
        r = order(x->id, y->id);
        break;
    case BUFFERS_BY_PID:
        r = order((uint64_t)pid_of(b, x), (uint64_t)pid_of(b, y));
        break;
    case BUFFERS_BY_TAG:
        r = strcmp(tag_text(b, x), tag_text(b, y));
        break;
    }
    if (r)
        return f->reverse ? -r : r;
    if ((r = order(y->bytes, x->bytes)) || (r = order(x->time_ns, y->time_ns)) ||
        (r = order(x->book, y->book)))
        return r;
    return order(x->id, y->id);
}

struct order_context {
    const struct buffers *buffers;
    const struct buffers_filter *filter;
};

static int compare_rows(const void *a, const void *b, void *context)
{
    const struct order_context *c = context;
    return compare(c->buffers, c->filter, a, b);
}

/* ---- keeping ---- */

/* With a limit the rows are a heap whose first is the last of those to be shown. */
static void sift_down(struct buffers *b, const struct buffers_filter *f)
{
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= b->n)
            return;
        if (child + 1 < b->n && compare(b, f, &b->rows[child + 1], &b->rows[child]) > 0)
            child++;
        if (compare(b, f, &b->rows[child], &b->rows[at]) <= 0)
            return;
        struct buffers_row row = b->rows[at];
        b->rows[at] = b->rows[child];
        b->rows[child] = row;
        at = child;
    }
}

static void sift_up(struct buffers *b, const struct buffers_filter *f)
{
    for (size_t at = b->n - 1; at > 0;) {
        size_t parent = (at - 1) / 2;
        if (compare(b, f, &b->rows[at], &b->rows[parent]) <= 0)
            return;
        struct buffers_row row = b->rows[at];
        b->rows[at] = b->rows[parent];
        b->rows[parent] = row;
        at = parent;
    }
}

static int keep(struct buffers *b, const struct buffers_filter *f, const struct buffers_row *row)
{
    if (f->limit && b->n == f->limit) {
        if (compare(b, f, row, &b->rows[0]) < 0) {
            b->rows[0] = *row;
            sift_down(b, f);
        }
        return 0;
    }
    if (b->n == BUFFERS_KEPT_MAX) {
        b->left_out++;
        return 0;
    }
    if (b->n == b->room) {
        size_t room = b->room ? b->room * 2 : 1024;
        struct buffers_row *rows = reallocarray(b->rows, room, sizeof(*rows));
        if (!rows)
            return -ENOMEM;
        b->rows = rows;
        b->room = room;
    }
    b->rows[b->n++] = *row;
    if (f->limit)
        sift_up(b, f);
    return 0;
}

/* ---- reading ---- */

static int each_block(const struct book_block_view *block, void *context)
{
    struct take *take = context;
    struct buffers *b = take->to;
    uint32_t account =
        block->account < BOOK_RECORDS_MAX ? take->accounts[block->account] : UINT32_MAX;
    if (account == UINT32_MAX || block->bytes < take->filter->min_bytes ||
        block->time_ns > take->before_ns)
        return 0;
    if (take->tags && (block->tag >= b->books[take->book].copy.n_tags || !take->tags[block->tag]))
        return 0;
    take->any = true;
    b->matched++;
    sum_add(&b->matched_bytes, block->bytes);
    if (block->time_ns < b->oldest_ns)
        b->oldest_ns = block->time_ns;
    struct buffers_row row = {
        .id = block->id,
        .bytes = block->bytes,
        .time_ns = block->time_ns,
        .book = take->book,
        .account = account,
        .site = block->site,
        .tag = block->tag,
        .moves = block->moves,
    };
    return keep(b, take->filter, &row);
}

static bool account_wanted(const struct buffers_filter *f, const struct ledger_account *a)
{
    if (f->space && f->space != a->space)
        return false;
    if (!f->device)
        return true;
    return a->device ? devices_match(a->device, f->device) : strcasecmp(f->device, "host") == 0;
}

/* Which records of the book are wanted; false when none is. */
static bool accounts_wanted(struct take *take, const struct ledger_book *book)
{
    bool any = false;
    ledger_book_accounts(book, take->accounts);
    for (size_t i = 0; i < BOOK_RECORDS_MAX; i++) {
        uint32_t account = take->accounts[i];
        if (account == UINT32_MAX)
            continue;
        if (account >= take->process->n_accounts ||
            !account_wanted(take->filter, &take->process->accounts[account]))
            take->accounts[i] = UINT32_MAX;
        any |= take->accounts[i] != UINT32_MAX;
    }
    return any;
}

/* Which tags of the book are wanted. 1, 0 when none is, or -ENOMEM. */
static int tags_wanted(struct take *take)
{
    const struct book_names *names = &take->to->books[take->book];
    int any = 0;
    free(take->tags);
    take->tags = NULL;
    if (!take->filter->tag)
        return 1;
    take->tags = calloc(names->copy.n_tags + 1, sizeof(bool));
    if (!take->tags)
        return -ENOMEM;
    for (uint32_t i = 0; i < names->copy.n_tags; i++) {
        const char *tag = book_names_tag(names, i);
        take->tags[i] = tag && strcasecmp(tag, take->filter->tag) == 0;
        any |= take->tags[i];
    }
    return any;
}

static int book_add(struct buffers *b, const struct ledger_book *book)
{
    struct book_names *books = reallocarray(b->books, b->n_books + 1, sizeof(*books));
    if (!books)
        return -ENOMEM;
    b->books = books;
    const struct ledger_book **owners =
        reallocarray(b->owners, b->n_books + 1, sizeof(struct ledger_book *));
    if (!owners)
        return -ENOMEM;
    b->owners = owners;
    books[b->n_books] = (struct book_names){0};
    owners[b->n_books] = book;
    /* Words that cannot be read leave the blocks without. */
    int r = book_names_load(book, &books[b->n_books]);
    b->n_books++;
    return r == -ENOMEM ? r : 0;
}

static int book_take(struct take *take, const struct ledger_book *book)
{
    if (!accounts_wanted(take, book))
        return 0;
    int r = book_add(take->to, book);
    if (r < 0)
        return r;
    take->book = (uint32_t)take->to->n_books - 1;
    r = tags_wanted(take);
    if (r <= 0)
        return r;
    MEMOIR_CLEANUP(closep)
    int fd = ledger_book_open(book);
    if (fd < 0)
        return 0; /* gone in this moment */
    bool exact = true;
    r = book_reader_blocks(book->reader, fd, each_block, take, &exact);
    take->to->inexact += !exact;
    return r == -ENOMEM ? r : 0;
}

static bool process_wanted(const struct ledger_process *p, uint64_t pid)
{
    if (pid)
        return p->valid & LEDGER_HAS_PID && (uint64_t)p->pid == pid;
    return ledger_process_holds(p);
}

int buffers_take(const struct ledger *ledger, const struct buffers_filter *filter,
                 struct buffers *ret_buffers)
{
    MEMOIR_CLEANUP(buffers_release)
    struct buffers b = {.now_ns = clock_monotonic_ns(), .oldest_ns = UINT64_MAX};
    MEMOIR_CLEANUP(freep)
    struct take *take = calloc(1, sizeof(*take));
    if (!take)
        return -ENOMEM;
    take->filter = filter;
    take->to = &b;
    take->before_ns = !filter->min_age_ns             ? UINT64_MAX
                      : filter->min_age_ns < b.now_ns ? b.now_ns - filter->min_age_ns
                                                      : 0;
    size_t n;
    int r = 0;
    struct ledger_process *const *processes = ledger_processes(ledger, &n);
    for (size_t i = 0; i < n && r >= 0; i++) {
        take->process = processes[i];
        take->any = false;
        if (!process_wanted(processes[i], filter->pid))
            continue;
        for (size_t j = 0; j < processes[i]->n_books && r >= 0; j++)
            r = book_take(take, processes[i]->books[j]);
        b.processes += take->any;
    }
    free(take->tags);
    if (r < 0)
        return r;
    struct order_context context = {&b, filter};
    if (b.n)
        qsort_r(b.rows, b.n, sizeof(*b.rows), compare_rows, &context);
    *ret_buffers = b;
    b = (struct buffers){0};
    return 0;
}

void buffers_release(struct buffers *b)
{
    for (size_t i = 0; i < b->n_books; i++)
        book_names_release(&b->books[i]);
    free(b->books);
    free(b->owners);
    free(b->rows);
    *b = (struct buffers){0};
}
