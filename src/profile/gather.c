/* From books to a profile. See gather.h. */
#include "profile/gather.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "ledger/ledger.h"
#include "profile/book_frames.h"
#include "profile/profile.h"

struct gather {
    struct profile *to;
    const struct ledger_process *process;
    const struct ledger_book *book;
    struct book_sites sites;
    uint32_t accounts[BOOK_RECORDS_MAX]; /* of the process, by record of the book */
    uint32_t *account_numbers;           /* of the profile, by account of the process */
    struct book_frames frames;
    size_t peaks_unknown;
};

static void gather_release(struct gather *g)
{
    book_sites_release(&g->sites);
    free(g->account_numbers);
    book_frames_release(&g->frames);
}

static uint32_t add_account(struct profile *to, const struct ledger_account *a)
{
    struct profile_account account = {
        .space = a->space,
        .name = profile_add_string(to, *a->name ? a->name : ledger_space_name(a->space)),
        .has_device = a->device != NULL,
        .ordinal = -1,
    };
    if (a->device) {
        account.ordinal = a->device->ordinal;
        account.device_name = profile_add_string(to, a->device->name);
        account.device_uid = profile_add_string(to, a->device->uid);
    }
    return profile_add_account(to, &account);
}

static uint64_t first_seen(const struct gather *g, const struct book_site *site)
{
    const struct book_identity *id = g->book->identity;
    uint64_t after_ns = id->time_shift < 32 ? (uint64_t)site->time << id->time_shift : 0;
    return id->created_realtime_ns ? id->created_realtime_ns + after_ns : 0;
}

static unsigned flags_of(const struct book_site *site)
{
    unsigned flags = 0;
    if (site->flags & BOOK_SITE_CALLER_ONLY)
        flags |= PROFILE_SITE_CALLER_ONLY;
    if (site->flags & BOOK_SITE_CUT)
        flags |= PROFILE_SITE_CUT;
    if (site->flags & BOOK_SITE_SAMPLED)
        flags |= PROFILE_SITE_SAMPLED;
    return flags;
}

static uint64_t above(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0; /* the book may lie */
}

static void add_site(struct gather *g, size_t i)
{
    const struct book_site *from = &g->sites.sites[i];
    const struct book_site_counters *c = &g->sites.counters[i];
    uint32_t account = g->accounts[from->account];
    uint32_t frames[PROFILE_STACK_MAX];
    struct book_site_held live = {above(c->alloc_bytes, c->freed_bytes),
                                  above(c->alloc_blocks, c->freed_blocks)};
    if (g->to->at_peak)
        live = g->sites.at_peak[i];
    if (account >= g->process->n_accounts || (c->alloc_bytes == 0 && c->alloc_blocks == 0))
        return;
    if (live.bytes == BOOK_SITES_AT_PEAK_UNKNOWN) {
        g->peaks_unknown++;
        return;
    }
    if (g->account_numbers[account] == UINT32_MAX)
        g->account_numbers[account] = add_account(g->to, &g->process->accounts[account]);
    size_t n = book_frames_stack(&g->frames, from, frames);
    struct profile_site site = {
        .account = g->account_numbers[account],
        .flags = (uint16_t)flags_of(from),
        .first_seen_ns = first_seen(g, from),
        .figures =
            {
                .live_bytes = live.bytes,
                .live_blocks = live.blocks,
                .alloc_bytes = c->alloc_bytes,
                .alloc_blocks = c->alloc_blocks,
            },
    };
    profile_add_site(g->to, &site, frames, n);
}

/* 1: it has sites; 0: it has none that count. */
static int gather_book(struct gather *g)
{
    MEMOIR_CLEANUP(closep)
    int fd = ledger_book_open(g->book);
    if (fd < 0)
        return fd;
    uint64_t bytes, max = g->to->sites_bytes_max;
    int r = max ? book_reader_sites_bytes(g->book->reader, fd, &bytes) : 0;
    if (r == 0 && max && bytes > max)
        r = -EFBIG;
    if (r == 0)
        r = book_reader_sites(g->book->reader, fd, &g->sites);
    if (r < 0)
        return r;
    g->account_numbers = malloc((g->process->n_accounts + 1) * sizeof(uint32_t));
    if (!g->account_numbers)
        return -ENOMEM;
    r = book_frames_init(&g->frames, g->to, g->book, &g->sites);
    if (r < 0)
        return r;
    memset(g->account_numbers, 0xff, (g->process->n_accounts + 1) * sizeof(uint32_t));
    ledger_book_accounts(g->book, g->accounts);
    size_t before = g->to->n_sites;
    for (size_t i = 1; i < g->sites.n_sites; i++)
        add_site(g, i);
    return g->to->n_sites > before;
}

static void about(struct profile *to, const struct ledger_process *p)
{
    to->processes++;
    to->pid = to->processes == 1 && p->valid & LEDGER_HAS_PID ? p->pid : 0;
    if (to->processes == 1) {
        to->program = profile_add_string(to, p->name);
        to->command = profile_add_string(to, p->command);
        to->host = profile_add_string(to, p->host);
    } else {
        to->command = 0;
    }
    to->taken_real_ns = clock_real_ns();
    to->taken_mono_ns = clock_monotonic_ns();
}

static void accounted(struct profile *to, const struct ledger_process *p)
{
    for (size_t i = 0; i < p->n_accounts; i++) {
        const struct book_totals *t = &p->accounts[i].totals;
        struct profile_figures figures = {to->at_peak ? t->peak_bytes : t->live_bytes,
                                          t->live_blocks, t->alloc_bytes, t->alloc_blocks};
        if (p->accounts[i].valid)
            profile_figures_add(&to->accounted, &figures);
    }
}

int profile_gather(struct profile *to, const struct ledger_process *process,
                   struct gather_losses *losses)
{
    about(to, process);
    accounted(to, process);
    losses->sites_full +=
        process->losses[BOOK_LOSS_SITES_FULL] + process->losses[BOOK_LOSS_COUNTERS_FULL];
    for (size_t i = 0; i < process->n_books; i++) {
        MEMOIR_CLEANUP(freep)
        struct gather *g = calloc(1, sizeof(*g));
        if (!g)
            return -ENOMEM;
        g->to = to;
        g->process = process;
        g->book = process->books[i];
        int r = gather_book(g);
        gather_release(g);
        losses->books++;
        losses->peaks_unknown += g->peaks_unknown;
        losses->books_no_sites += r == 0;
        losses->books_unread += r < 0;
        if (r == -ENOMEM || profile_error(to))
            return r == -ENOMEM ? r : profile_error(to);
    }
    return 0;
}
