/* See sites.h. */
#include "explain/sites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "explain/resident.h"
#include "ledger/ledger.h"
#include "profile/book_names.h"
#include "profile/site_names.h"

enum { NAMED_SHARE = 500 }; /* sites with less than this part of the heap are not named */

struct held {
    uint32_t site;
    uint64_t bytes, blocks;
    uint64_t resident;
};

static const struct ledger_account *heap_of(const struct ledger_process *p)
{
    for (size_t i = 0; i < p->n_accounts; i++)
        if (p->accounts[i].space == MEMOIR_SPACE_HEAP && p->accounts[i].valid)
            return &p->accounts[i];
    return NULL;
}

bool explain_live_by(struct explain *explain, const struct ledger_process *process)
{
    const struct ledger_account *heap = process ? heap_of(process) : NULL;
    if (heap)
        explain_live(explain, heap->totals.live_bytes, heap->partial);
    return heap != NULL;
}

static int by_resident(const void *left, const void *right)
{
    const struct held *a = left, *b = right;
    if (a->resident != b->resident)
        return a->resident < b->resident ? 1 : -1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a->site < b->site ? -1 : a->site > b->site;
}

static bool of_heap(const struct book_reader *reader, const struct book_site *site)
{
    size_t n;
    const struct book_account_view *accounts = book_reader_accounts(reader, &n);
    ssize_t i = book_reader_account_index(reader, site->account);
    return i >= 0 && accounts[i].space == MEMOIR_SPACE_HEAP;
}

/* Sampled stacks stand at their caller's site, too. */
static struct held *held_of(const struct ledger_book *book, const struct book_sites *copy,
                            size_t *ret_n)
{
    struct held *held = calloc(copy->n_sites + 1, sizeof(*held));
    size_t n = 0;
    for (size_t i = 0; held && i < copy->n_sites; i++) {
        const struct book_site_counters *c = &copy->counters[i];
        if (c->alloc_bytes > c->freed_bytes && !(copy->sites[i].flags & BOOK_SITE_SAMPLED) &&
            of_heap(book->reader, &copy->sites[i]))
            held[n++] = (struct held){(uint32_t)i, c->alloc_bytes - c->freed_bytes,
                                      c->alloc_blocks - c->freed_blocks, 0};
    }
    *ret_n = n;
    return held;
}

static const struct ledger_book *book_of(const struct ledger_process *p)
{
    const struct ledger_account *heap = heap_of(p);
    for (size_t i = 0; heap && i < p->n_books; i++)
        if (p->books[i]->identity->source == heap->source)
            return p->books[i];
    return NULL;
}

/* What of each site is resident: of those whose share is known what it says, and all others alike, so that the sum is
 * right; where that cannot be, all by the same factor. */
static void divide(struct held *held, size_t n, const double *shares, uint64_t heap)
{
    double known = 0, rest = 0;
    for (size_t i = 0; i < n; i++) {
        double share = shares ? shares[held[i].site] : -1;
        if (share >= 0)
            known += (double)held[i].bytes * share;
        else
            rest += (double)held[i].bytes;
    }
    double left = (double)heap - known, others = rest > 0 ? left / rest : 0;
    others = others < 0 ? 0 : others > 1 ? 1 : others;
    double sum = known + rest * others, factor = sum > 0 ? (double)heap / sum : 0;
    for (size_t i = 0; i < n; i++) {
        double share = shares && shares[held[i].site] >= 0 ? shares[held[i].site] : others;
        held[i].resident = (uint64_t)((double)held[i].bytes * share * factor);
    }
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* One line may ask in several places of its library: one site for all that share a name. True: it was added to one. */
static bool same_add(struct explain_sites *sites, const struct explain_site *site)
{
    for (size_t i = 0; i < sites->n; i++) {
        struct explain_site *s = &sites->all[i];
        if (!same_text(s->text, site->text) || !same_text(s->via, site->via))
            continue;
        s->bytes += site->bytes;
        s->live_bytes += site->live_bytes;
        s->live_blocks += site->live_blocks;
        return true;
    }
    return false;
}

static int by_bytes(const void *left, const void *right)
{
    const struct explain_site *a = left, *b = right;
    return (a->bytes < b->bytes) - (a->bytes > b->bytes);
}

/* Name one more site; `bytes` of it are resident. */
static int site_add(struct explain_sites *sites, const struct held *held, uint64_t bytes,
                    const struct book_site_name *name)
{
    struct explain_site site = {.text = strdup(name ? name->text : "an unknown place"),
                                .via = name && name->via ? strdup(name->via) : NULL,
                                .bytes = bytes,
                                .live_bytes = held->bytes,
                                .live_blocks = held->blocks};
    if (!site.text || !same_add(sites, &site)) {
        sites->all[sites->n++] = site;
        return site.text ? 0 : -ENOMEM;
    }
    free(site.text);
    free(site.via);
    return 0;
}

int explain_sites_take(const struct ledger_process *process, uint32_t owner,
                       const struct explain *e, size_t top, struct site_names *symbols,
                       struct explain_sites *ret)
{
    const struct ledger_book *book = book_of(process);
    struct book_names names = {0};
    struct explain_sites sites = {0};
    size_t n = 0;
    int r = book ? book_names_load(book, &names) : -ENOENT;
    if (r < 0)
        return r;
    struct held *held = held_of(book, &names.copy, &n);
    sites.all = calloc(top + 1, sizeof(*sites.all));
    if (!held || !sites.all)
        r = -ENOMEM;
    uint64_t left = explain_sum(e, EXPLAIN_HEAP);
    double *shares = r == 0 ? resident_shares((pid_t)e->pid, owner, book, &names.copy) : NULL;
    if (r == 0) {
        divide(held, n, shares, left);
        qsort(held, n, sizeof(*held), by_resident);
    }
    free(shares);
    /* The debug information of a library takes longer to read than all else: not for a few bytes in it. */
    uint64_t worth = left / NAMED_SHARE;
    size_t named = 0;
    for (; r == 0 && named < n && named < top && (!named || held[named].resident >= worth);
         named++) {
        uint64_t bytes = held[named].resident < left ? held[named].resident : left;
        r = site_add(&sites, &held[named], bytes,
                     book_names_site(&names, held[named].site, symbols));
        left -= bytes;
    }
    if (r == 0 && sites.n)
        qsort(sites.all, sites.n, sizeof(*sites.all), by_bytes);
    sites.others = n - named;
    sites.others_bytes = left;
    free(held);
    book_names_release(&names);
    if (r < 0)
        explain_sites_release(&sites);
    else
        *ret = sites;
    return r;
}

void explain_sites_release(struct explain_sites *sites)
{
    for (size_t i = 0; i < sites->n; i++) {
        free(sites->all[i].text);
        free(sites->all[i].via);
    }
    free(sites->all);
    *sites = (struct explain_sites){0};
}

void explain_sites_json(const struct explain_sites *sites, struct json *json)
{
    json_key(json, "sites");
    if (!sites) {
        json_null(json);
        return;
    }
    json_array_begin(json);
    for (size_t i = 0; i < sites->n; i++) {
        json_object_begin(json);
        json_field_string(json, "site", sites->all[i].text);
        json_field_string(json, "via", sites->all[i].via);
        json_field_u64(json, "bytes", sites->all[i].bytes);
        json_field_u64(json, "live", sites->all[i].live_bytes);
        json_field_u64(json, "blocks", sites->all[i].live_blocks);
        json_object_end(json);
    }
    json_array_end(json);
    json_key(json, "others");
    json_object_begin(json);
    json_field_u64(json, "sites", sites->others);
    json_field_u64(json, "bytes", sites->others_bytes);
    json_object_end(json);
}
