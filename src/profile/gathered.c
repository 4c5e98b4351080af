/* See gathered.h. */
#include "profile/gathered.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ledger/ledger.h"
#include "profile/gather.h"
#include "profile/names.h"
#include "profile/profile.h"
#include "profile/tables.h"

/* Of one book, where the answer has to be there in time: it is read at once, about 10 ms. */
enum { SITES_BYTES_MAX = 32 << 20 };

/* ---- the memory ---- */

static const struct ledger_account *account_find(const struct gathered *g, uint32_t number)
{
    const struct profile *p = g->profile;
    const struct profile_account *a = &p->accounts[number];
    for (size_t i = 0; i < g->process->n_accounts; i++) {
        const struct ledger_account *l = &g->process->accounts[i];
        if (l->space != a->space || a->has_device != (l->device != NULL))
            continue;
        if (!a->has_device || (l->device->ordinal == a->ordinal &&
                               strcmp(l->device->name, profile_text(p, a->device_name)) == 0 &&
                               strcmp(l->device->uid, profile_text(p, a->device_uid)) == 0))
            return l;
    }
    return NULL;
}

int gathered_each(struct query_scan *scan, struct gathered *g, const void *row, uint32_t account)
{
    if (!g->accounts[account])
        g->accounts[account] = account_find(g, account);
    const struct ledger_account *found = g->accounts[account];
    if (!found) /* the process has changed under our hands */
        return 0;
    return scan->each(
        scan, &(struct query_row){
                  .process = g->process, .account = found, .device = found->device, .custom = row});
}

static const struct gathered_row *row_of(const struct query_row *row)
{
    return row->custom;
}

void gathered_get_figure(const struct query_world *world, const struct query_row *row,
                         const struct query_field *field, struct query_value *ret)
{
    const struct profile_figures *f = row_of(row)->figures;
    const uint64_t figures[] = {
        [GATHERED_BYTES] = f->live_bytes,
        [GATHERED_BLOCKS] = f->live_blocks,
        [GATHERED_ALLOCATED] = f->alloc_bytes,
        [GATHERED_FREED] = f->alloc_bytes > f->live_bytes ? f->alloc_bytes - f->live_bytes : 0,
        [GATHERED_ALLOCATED_BLOCKS] = f->alloc_blocks,
        [GATHERED_FREED_BLOCKS] =
            f->alloc_blocks > f->live_blocks ? f->alloc_blocks - f->live_blocks : 0,
    };
    query_set_number(ret, figures[field->column->arg]);
    ret->marks = row_of(row)->estimate ? QUERY_ESTIMATE : 0;
}

void gathered_get_estimated(const struct query_world *world, const struct query_row *row,
                            const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, row_of(row)->estimate);
}

/* ---- names ---- */

struct symbolizer *gathered_symbols(const struct gathered *g)
{
    return g->world ? g->world->symbols : NULL;
}

void gathered_name_all(struct gathered *g)
{
    if (g->named)
        return;
    g->named = true;
    /* One that is cancelled leaves modules and offsets, and its answer is not waited for. */
    (void)profile_name_all(g->profile, gathered_symbols(g), PROFILE_NAMES_ALL,
                           g->world ? g->world->goes_on : NULL,
                           g->world ? g->world->context : NULL);
}

/* ---- processes ---- */

static void release(struct gathered *g)
{
    for (size_t i = 0; i < GATHERED_LISTS; i++)
        buffer_release(&g->lists[i]);
    free(g->accounts);
    profile_free(g->profile);
}

static int scan_process(struct query_scan *scan, const struct ledger_process *process,
                        int (*rows)(struct query_scan *scan, struct gathered *gathered))
{
    struct gathered g
        __attribute__((cleanup(release))) = {.process = process, .world = scan->world->profile};
    struct gather_losses losses = {0};
    for (size_t i = 0; i < GATHERED_LISTS; i++)
        buffer_init(&g.lists[i], GATHERED_LIST_BYTES);
    g.profile = profile_new();
    if (!g.profile)
        return -ENOMEM;
    g.profile->at_peak = g.world && g.world->at_peak;
    g.profile->sites_bytes_max = scan->deadline_ns ? SITES_BYTES_MAX : 0;
    int r = profile_gather(g.profile, process, &losses);
    if (r < 0)
        return r;
    scan->incomplete |= losses.books_unread > 0;
    if (g.world) {
        g.world->books += losses.books;
        g.world->books_unread += losses.books_unread;
        g.world->sites_full += losses.sites_full;
    }
    profile_keys(g.profile, NULL);
    g.accounts = calloc(g.profile->n_accounts + 1, sizeof(*g.accounts));
    return g.accounts ? rows(scan, &g) : -ENOMEM;
}

int gathered_scan(struct query_scan *scan,
                  int (*rows)(struct query_scan *scan, struct gathered *gathered))
{
    size_t n = 0;
    struct ledger_process *const *processes =
        scan->world->ledger ? ledger_processes(scan->world->ledger, &n) : NULL;
    int r = 0;
    for (size_t i = 0; i < n && r == 0; i++) {
        if (scan->deadline_ns && clock_monotonic_ns() > scan->deadline_ns)
            return -ETIME;
        if (scan->may_match(scan, &(struct query_row){.process = processes[i]}))
            r = scan_process(scan, processes[i], rows);
    }
    return r;
}
