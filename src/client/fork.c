/*
 * fork.c: what a child takes over from its parent.
 *
 * The kernel wipes the pointer to the client, so a child can never store into its parent's book. It
 * starts a book of its own when it has something to report, with the parent's devices, accounts and
 * tags under the same numbers (the program keeps using them) and the parent's live bytes as
 * "inherited". The parent's mapping is dropped at once, by the atfork handler, because it also
 * carries the lock that says the parent lives; where fork came without handlers (_Fork, clone), it
 * is dropped at the child's first report. What the parent holds is noted before it forks, since it
 * goes on writing into the mapping that both have; without handlers the child sees it as it is when
 * it looks.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "book/making.h"
#include "client/client.h"

struct heritage {
    uint64_t records, tags; /* entries used */
    struct client_live live[BOOK_RECORDS_MAX];
    union book_record record[BOOK_RECORDS_MAX];
    struct book_tag tag[];
};

static struct client *parent; /* the newest client of this image; not wiped */
static pid_t parent_pid;      /* whose it is */
static struct heritage *heritage;
static size_t heritage_bytes;
static uint32_t handler_state;

static uint64_t difference(uint64_t allocated, uint64_t freed)
{
    return allocated > freed ? allocated - freed : 0;
}

static struct client_live live_of(struct book_writer *w, uint32_t account)
{
    struct book_counters sum;
    book_account_sum(w, account, &sum);
    const struct book_account *record = book_account_at(w, account);
    return (struct client_live){
        .bytes = difference(sum.alloc_bytes, sum.freed_bytes) + record->inherited_bytes,
        .blocks = difference(sum.alloc_blocks, sum.freed_blocks) + record->inherited_blocks,
    };
}

static void before_fork(void)
{
    book_forking_begin();
    struct client *c = load_acquire(&client_root_now()->client);
    if (!c || load_acquire(&c->phase) != CLIENT_OPEN)
        return; /* a private image is the child's own already */
    uint64_t records = load_acquire(&c->writer.section[BOOK_SECTION_REGISTRY]->used);
    for (uint32_t i = 1; i < records; i++)
        if (book_account_at(&c->writer, i)->type == BOOK_RECORD_ACCOUNT)
            c->live_at_fork[i] = live_of(&c->writer, i);
    store_relaxed(&c->records_at_fork, records);
}

static void after_fork(void)
{
    struct client *c = load_acquire(&client_root_now()->client);
    if (c)
        store_relaxed(&c->records_at_fork, 0);
    book_forking_end();
}

/* Forgotten before it is unmapped: another thread may fork in between. */
static void heritage_drop(void)
{
    struct heritage *old = heritage;
    heritage = NULL;
    book_private_free(old, heritage_bytes);
}

static void heritage_take(struct client *old)
{
    struct book_writer *w = &old->writer;
    uint64_t records = load_acquire(&w->section[BOOK_SECTION_REGISTRY]->used);
    uint64_t tags = load_acquire(&w->section[BOOK_SECTION_TAGS]->used);
    size_t bytes = sizeof(struct heritage) + tags * sizeof(struct book_tag);
    struct heritage *taken = book_private_new(bytes);
    if (!taken)
        return;
    taken->records = records;
    taken->tags = tags;
    memcpy(taken->record, w->at[BOOK_SECTION_REGISTRY], records * sizeof(union book_record));
    if (tags > 0)
        memcpy(taken->tag, w->at[BOOK_SECTION_TAGS], tags * sizeof(struct book_tag));
    for (uint32_t i = 1; i < records; i++) {
        if (taken->record[i].type != BOOK_RECORD_ACCOUNT)
            continue;
        taken->live[i] = i < old->records_at_fork ? old->live_at_fork[i] : live_of(w, i);
    }
    heritage = taken;
    heritage_bytes = bytes;
}

static void parent_drop(void)
{
    struct client *old = parent;
    parent = NULL;
    client_self = NULL;
    for (struct client_thread *t = old->threads, *next; t; t = next) {
        next = t->next;
        book_private_free(t, sizeof(*t));
    }
    book_writer_forget(&old->writer);
    book_private_free(old, sizeof(*old));
}

/* In a child: take over from the parent's client. If it was forked by a signal handler in the middle
 * of a report, that report will go on in the child too: then everything stays where it is, but not
 * shared with the parent. (After _Fork or clone in such a place nobody asks us, and the rest of that
 * one report is stored twice.) */
static void take_over(bool under_way)
{
    if (under_way)
        book_writer_detach(&parent->writer);
    if (parent->writer.header && parent->phase != CLIENT_OFF) {
        heritage_drop();
        heritage_take(parent);
    }
    if (under_way)
        parent = NULL; /* left to that report */
    else
        parent_drop();
}

static int parent_under_way(void)
{
    if (!client_self)
        return 0;
    return client_self->inside ? 1 : client_under_way(parent);
}

/* The handler. Where it cannot be told whether a report is under way, the next report decides. */
void client_forked(void)
{
    book_making_forget();
    if (client_sealed)
        return; /* the child has no client, and will make none */
    int under_way = parent ? parent_under_way() : -ENOENT;
    if (under_way >= 0)
        take_over(under_way > 0);
}

static void copy_records(struct client *c)
{
    struct book_writer *w = &c->writer;
    uint64_t records = heritage->records;
    if (book_section_open(w, BOOK_SECTION_REGISTRY, records * sizeof(union book_record)) < 0)
        return;
    for (uint64_t i = 1; i < records; i++) {
        union book_record *to = &((union book_record *)w->at[BOOK_SECTION_REGISTRY])[i];
        *to = heritage->record[i];
        if (to->type != BOOK_RECORD_ACCOUNT)
            continue;
        struct book_account *account = &to->account;
        memset(&account->common, 0, sizeof(account->common));
        account->live_folded = 0;
        account->peak_bytes = 0;
        account->inherited_bytes = heritage->live[i].bytes;
        account->inherited_blocks = heritage->live[i].blocks;
        if (account->device < BOOK_RECORDS_MAX && account->space < CLIENT_SPACES)
            c->account_of[account->device][account->space] = (uint16_t)i;
    }
    w->section[BOOK_SECTION_REGISTRY]->used = records;
}

void client_inherit(struct client *c)
{
    if (parent && parent_pid != getpid()) { /* no handler ran, or it left this to us */
        book_making_forget();
        take_over(parent_under_way() > 0);
    }
    if (!heritage)
        return;
    c->writer.header->compat |= BOOK_COMPAT_FORK_CHILD;
    copy_records(c);
    for (uint64_t i = 1; i < heritage->tags; i++)
        book_tag_add(&c->writer, &c->writer.common, heritage->tag[i].name);
    heritage_drop();
}

void client_watch_forks(struct client *c)
{
    parent_pid = getpid();
    parent = c;
    uint32_t none = 0;
    if (cas_acquire(&handler_state, &none, 1))
        pthread_atfork(before_fork, after_fork, client_forked);
}
