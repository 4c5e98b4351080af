/* A program's memory at its end. See run_summary.h. */
#include "cli/run_summary.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/explain_print.h"
#include "cli/run_assert.h"
#include "cli/run_child.h"
#include "cli/run_image.h"
#include "cli/term.h"
#include "explain/outside.h"
#include "ledger/ledger.h"
#include "profile/book_names.h"
#include "profile/site_names.h"
#include "query/document.h"

enum {
    SITES_SHOWN = 5,    /* to people, */
    SITES_TOLD = 10000, /* and in JSON, */
    SITES_NAMED = 100,  /* of which so many with function and line: debug information takes time */
    SITE_COLUMNS_MAX = 100,
    PEAK_TOLD_SHARE = 16,   /* what was held at the peak is told if so much of it was freed since */
    PEAK_ERROR_SHARE = 100, /* an error of a peak that is more than this part of it is told */
};

#define NO_FIGURES                                                                                \
    "it left no figures of its heap: it asked for no memory, has an allocator of its own, loads " \
    "a sanitizer or is hardened (MEMOIR_MALLOC)"

#define NO_BOOK \
    "it left no figures of its heap: it asked for no memory, or was executed without LD_PRELOAD"

#define OTHER_NAME                                                                                \
    "it ended under another name than that of the figures: perhaps it executed another program, " \
    "which is not tracked"

/* A call site with what it still holds. */
struct held {
    uint32_t site, space;
    uint64_t bytes, blocks;
    struct book_site_held at_peak;
    struct book_site_counters counters;
};

struct picture {
    const struct ledger_process *process; /* NULL: it left no figures */
    enum run_image_verdict image;         /* is that the program that ended? */
    const struct ledger_account *heap, *mapped, *chain;
    const struct ledger_book *book;
    struct book_names names;
    struct held *sites; /* by bytes held, then by bytes ever asked */
    size_t n_sites;
    struct site_names *symbols;
    uint64_t peak_error; /* bytes by which a peak of the book may be wrong */
};

static const struct ledger_account *account_of(const struct ledger_process *p, uint32_t space)
{
    for (size_t i = 0; i < p->n_accounts; i++)
        if (p->accounts[i].space == space && p->accounts[i].valid)
            return &p->accounts[i];
    return NULL;
}

static uint32_t exec_count(const struct ledger_process *p)
{
    uint32_t most = 0;
    for (size_t i = 0; i < p->n_books; i++)
        if (p->books[i]->identity->exec_count > most)
            most = p->books[i]->identity->exec_count;
    return most;
}

/* Images may follow each other within one tick of the clock. They count those before them, but begin again at 0 where a daemon has
 * removed the book of the one before: so what is known of the last image counts first. */
static bool is_later(const struct ledger_process *p, const struct ledger_process *other,
                     const struct run_image *image)
{
    uint64_t created = run_image_created_ns(p), other_created = run_image_created_ns(other);
    unsigned proof = run_image_proof(image, p), other_proof = run_image_proof(image, other);
    if (created != other_created)
        return created > other_created;
    return proof != other_proof ? proof > other_proof : exec_count(p) > exec_count(other);
}

/* The last image that kept a book of its heap: earlier ones were replaced by exec. */
static const struct ledger_process *process_of(const struct ledger *ledger,
                                               const struct run_image *image)
{
    size_t n = 0;
    struct ledger_process *const *all = ledger ? ledger_processes(ledger, &n) : NULL;
    const struct ledger_process *last = NULL;
    for (size_t i = 0; i < n; i++)
        if (account_of(all[i], MEMOIR_SPACE_HEAP) && (!last || is_later(all[i], last, image)))
            last = all[i];
    return last;
}

static int by_held(const void *left, const void *right)
{
    const struct held *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    if (a->counters.alloc_bytes != b->counters.alloc_bytes)
        return a->counters.alloc_bytes < b->counters.alloc_bytes ? 1 : -1;
    return a->site < b->site ? -1 : a->site > b->site;
}

/* In which space a site's blocks are: 0 where that is not known. */
static uint32_t space_of(const struct book_reader *reader, const struct book_site *site)
{
    size_t n;
    const struct book_account_view *accounts = book_reader_accounts(reader, &n);
    ssize_t i = book_reader_account_index(reader, site->account);
    return i >= 0 ? accounts[i].space : 0;
}

static int sites_take(struct picture *p)
{
    int r = book_names_load(p->book, &p->names);
    if (r < 0)
        return r;
    const struct book_sites *copy = &p->names.copy;
    p->sites = calloc(copy->n_sites + 1, sizeof(*p->sites));
    if (!p->sites)
        return -ENOMEM;
    for (size_t i = 0; i < copy->n_sites; i++) {
        const struct book_site_counters *c = &copy->counters[i];
        if (c->alloc_blocks == 0 || (copy->sites[i].flags & BOOK_SITE_SAMPLED))
            continue; /* what was sampled stands at its caller's site, too */
        p->sites[p->n_sites++] = (struct held){
            .site = (uint32_t)i,
            .space = space_of(p->book->reader, &copy->sites[i]),
            .bytes = c->alloc_bytes - c->freed_bytes,
            .blocks = c->alloc_blocks - c->freed_blocks,
            .at_peak = copy->at_peak[i],
            .counters = *c,
        };
    }
    qsort(p->sites, p->n_sites, sizeof(*p->sites), by_held);
    p->symbols = site_names_new();
    return 0;
}

static void picture_take(struct picture *p, const struct run_summary *s)
{
    *p = (struct picture){.process = process_of(s->ledger, s->image)};
    if (!p->process)
        return;
    p->image = run_image_judge(s->image, s->ledger, p->process);
    p->heap = account_of(p->process, MEMOIR_SPACE_HEAP);
    p->mapped = account_of(p->process, MEMOIR_SPACE_MAPPED);
    p->chain = account_of(p->process, MEMOIR_SPACE_CHAIN);
    for (size_t i = 0; i < p->process->n_books && !p->book; i++)
        if (p->process->books[i]->identity->source == p->heap->source)
            p->book = p->process->books[i];
    struct book_status status = {0};
    if (p->book && book_reader_status(p->book->reader, &status) == 0)
        p->peak_error = status.peak_error;
    if (p->book && sites_take(p) < 0)
        p->n_sites = 0;
}

/* Why the program that ended is not in the figures; NULL: it is. */
static const char *why_not(const struct picture *p, const struct run_summary *s)
{
    if (!p->process)
        return s->why_not ? s->why_not : NO_FIGURES;
    switch (p->image) {
    case RUN_IMAGE_REPLACED:
        return s->image->why_not ? s->image->why_not : NO_BOOK;
    case RUN_IMAGE_PERHAPS:
        return OTHER_NAME;
    case RUN_IMAGE_SAME:
        break;
    }
    return NULL;
}

/* Threads add to the peak in steps, so it may be missed by this much; never by more than was allocated beside it. */
static uint64_t peak_error_of(const struct picture *p, const struct book_totals *t)
{
    uint64_t beside = t->alloc_bytes > t->peak_bytes ? t->alloc_bytes - t->peak_bytes : 0;
    return beside < p->peak_error ? beside : p->peak_error;
}

static void picture_release(struct picture *p)
{
    site_names_freep(&p->symbols);
    book_names_release(&p->names);
    free(p->sites);
}

/* ---- for people ---- */

static void how_it_ended(const struct run_summary *s, struct buffer *out)
{
    int status = s->end->status;
    if (WIFSIGNALED(status))
        buffer_printf(out, "was killed by signal %d (%s)", WTERMSIG(status),
                      strsignal(WTERMSIG(status)));
    else
        buffer_printf(out, "ended with status %d", WEXITSTATUS(status));
}

static void site_line(struct picture *p, const struct held *h, uint64_t bytes, uint64_t blocks,
                      const struct term *term, struct buffer *out)
{
    char size[UNITS_TEXT_MAX], count[UNITS_TEXT_MAX];
    const struct book_site_name *name = book_names_site(&p->names, h->site, p->symbols);
    buffer_printf(out, "memoir:   %9s in %7s block%s  ",
                  units_format_bytes(size, bytes, UNITS_DECIMAL), units_format_count(count, blocks),
                  blocks == 1 ? " " : "s");
    term_append(term, out, name ? name->text : "an unknown place", SITE_COLUMNS_MAX);
    if (name && name->via) {
        buffer_printf(out, "%s  via ", term_style(term, STYLE_DIM));
        term_append(term, out, name->via, SITE_COLUMNS_MAX);
        buffer_append_str(out, term_plain(term, STYLE_DIM));
    }
    buffer_append_char(out, '\n');
}

static void site_lines(struct picture *p, uint32_t space, const struct term *term,
                       struct buffer *out)
{
    for (size_t i = 0, n = 0; i < p->n_sites && n < SITES_SHOWN; i++) {
        const struct held *h = &p->sites[i];
        if (h->space != space || h->blocks == 0)
            continue;
        n++;
        site_line(p, h, h->bytes, h->blocks, term, out);
    }
}

/* ---- at the peak ---- */

static bool has_peak(const struct held *h, uint32_t space)
{
    return h->space == space && h->at_peak.bytes != BOOK_SITES_AT_PEAK_UNKNOWN &&
           h->at_peak.blocks > 0;
}

static int by_peak(const void *left, const void *right)
{
    const struct held *a = *(const struct held *const *)left;
    const struct held *b = *(const struct held *const *)right;
    if (a->at_peak.bytes != b->at_peak.bytes)
        return a->at_peak.bytes < b->at_peak.bytes ? 1 : -1;
    return a->site < b->site ? -1 : a->site > b->site;
}

/* The sites of a space that held something at its peak, those that held most first. NULL: none, or not known. */
static const struct held **peak_sites(const struct picture *p, uint32_t space, size_t *ret_n)
{
    const struct held **list = calloc(p->n_sites + 1, sizeof(*list));
    size_t n = 0;
    for (size_t i = 0; list && i < p->n_sites; i++)
        if (has_peak(&p->sites[i], space))
            list[n++] = &p->sites[i];
    if (n)
        qsort(list, n, sizeof(*list), by_peak);
    *ret_n = n;
    return list;
}

/* Where nearly all of it is held at the end, too, that was told. */
static void peak_lines(struct picture *p, const struct ledger_account *account,
                       const struct term *term, struct buffer *out)
{
    const struct book_totals *t = &account->totals;
    size_t n = 0;
    if (t->live_bytes >= t->peak_bytes - t->peak_bytes / PEAK_TOLD_SHARE)
        return;
    MEMOIR_CLEANUP(freep)
    const struct held **list = peak_sites(p, account->space, &n);
    if (n)
        buffer_append_str(out, "memoir: held at the peak:\n");
    for (size_t i = 0; i < n && i < SITES_SHOWN; i++)
        site_line(p, list[i], list[i]->at_peak.bytes, list[i]->at_peak.blocks, term, out);
}

/* ---- accounts ---- */

static void account_lines(struct picture *p, const char *what, const struct ledger_account *account,
                          const struct term *term, struct buffer *out)
{
    char peak[UNITS_TEXT_MAX], total[UNITS_TEXT_MAX], calls[UNITS_TEXT_MAX], live[UNITS_TEXT_MAX],
        blocks[UNITS_TEXT_MAX];
    const struct book_totals *t = &account->totals;
    uint64_t error = peak_error_of(p, t);
    buffer_printf(out, "memoir: %s: peak %s", what,
                  units_format_bytes(peak, t->peak_bytes, UNITS_DECIMAL));
    if (error * PEAK_ERROR_SHARE > t->peak_bytes)
        buffer_printf(out, " (or up to %s more)", units_format_bytes(live, error, UNITS_DECIMAL));
    buffer_printf(out, "; %s allocations, %s in all; ", units_format_count(calls, t->alloc_blocks),
                  units_format_bytes(total, t->alloc_bytes, UNITS_DECIMAL));
    if (t->live_blocks == 0) {
        buffer_append_str(out, "all were freed\n");
        peak_lines(p, account, term, out);
        return;
    }
    buffer_printf(out, "%s in %s block%s held at the end\n",
                  units_format_bytes(live, t->live_bytes, UNITS_DECIMAL),
                  units_format_count(blocks, t->live_blocks), t->live_blocks == 1 ? "" : "s");
    site_lines(p, account->space, term, out);
    peak_lines(p, account, term, out);
}

/* What was resident near the peak, and what grows outside malloc. */
static void resident_lines(const struct run_summary *s, const struct term *term, struct buffer *out)
{
    const struct explain *e = s->growth->last;
    struct outside_verdict verdict;
    char rss[UNITS_TEXT_MAX], when[UNITS_TEXT_MAX];
    if (!e)
        return;
    buffer_printf(out, "memoir: of %s resident after %s: ",
                  units_format_bytes(rss, e->rss_bytes, UNITS_DECIMAL),
                  units_format_duration(when, s->growth->last_ns));
    explain_print_line(e, term, out);
    buffer_append_char(out, '\n');
    outside_judge(s->growth, &verdict);
    if (!verdict.grows)
        return;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer line = BUFFER_INIT(4096);
    outside_tell(&verdict, &line);
    buffer_append_str(out, "memoir: ");
    term_append(term, out, buffer_string(&line), 0);
    buffer_append_char(out, '\n');
}

/* Where the figures are not those of the program that ended: whose they are, and why. */
static void image_line(const struct picture *p, const struct run_summary *s,
                       const struct term *term, struct buffer *out)
{
    if (!p->process || p->image == RUN_IMAGE_SAME)
        return;
    buffer_append_str(out, "memoir: these are the figures of ");
    term_append(term, out, p->process->exe, 0);
    buffer_append_str(out,
                      p->image == RUN_IMAGE_REPLACED ? "; it executed " : "; at the end it was ");
    term_append(term, out, run_image_last(s->image), 0);
    buffer_printf(out, p->image == RUN_IMAGE_REPLACED ? ", which is not tracked: %s\n" : ": %s\n",
                  why_not(p, s));
}

void run_summary_text(const struct run_summary *s, const struct term *term, struct buffer *out)
{
    struct picture p;
    char duration[UNITS_TEXT_MAX], rss[UNITS_TEXT_MAX];
    picture_take(&p, s);
    buffer_append_str(out, "memoir: ");
    term_append(term, out, s->program, 0);
    buffer_printf(out, " (PID %d) ", (int)s->end->pid);
    how_it_ended(s, out);
    buffer_printf(out, " after %s, at most %s resident\n",
                  units_format_duration(duration, s->end->duration_ns),
                  units_format_bytes(rss, (uint64_t)s->end->usage.ru_maxrss * 1024, UNITS_DECIMAL));
    if (p.process)
        account_lines(&p, "heap", p.heap, term, out);
    else if (!s->why_not) /* else it was said before */
        buffer_append_str(out, "memoir: " NO_FIGURES "; else see memoir doctor\n");
    if (p.chain && p.chain->totals.alloc_blocks > 0)
        account_lines(&p, "in user chains", p.chain, term, out);
    image_line(&p, s, term, out);
    resident_lines(s, term, out);
    picture_release(&p);
}

/* ---- for assertions ---- */

static void fact_set(struct run_facts *facts, enum run_fact fact, uint64_t value)
{
    facts->known[fact] = true;
    facts->values[fact] = value;
}

/* The site that held most at the end or, where nothing was held, that asked for most. */
static void peak_blame(struct picture *p, struct run_facts *facts)
{
    char bytes[UNITS_TEXT_MAX];
    size_t n = 0;
    MEMOIR_CLEANUP(freep)
    const struct held **list = peak_sites(p, MEMOIR_SPACE_HEAP, &n);
    if (!n)
        return;
    const struct book_site_name *name = book_names_site(&p->names, list[0]->site, p->symbols);
    snprintf(facts->sites[RUN_PEAK], sizeof(facts->sites[0]), "%s held most at the peak, %s",
             name ? name->text : "an unknown place",
             units_format_bytes(bytes, list[0]->at_peak.bytes, UNITS_DECIMAL));
}

static void sites_blame(struct picture *p, struct run_facts *facts)
{
    static const enum run_fact of_heap[] = {RUN_PEAK, RUN_LIVE, RUN_BLOCKS, RUN_ALLOCATED,
                                            RUN_ALLOCATIONS};
    char bytes[UNITS_TEXT_MAX];
    const struct held *holds = NULL, *asked = NULL;
    for (size_t i = 0; i < p->n_sites; i++) {
        const struct held *h = &p->sites[i];
        if (h->space != MEMOIR_SPACE_HEAP)
            continue;
        holds = holds || !h->bytes ? holds : h;
        asked = asked && asked->counters.alloc_bytes >= h->counters.alloc_bytes ? asked : h;
    }
    for (size_t i = 0; i < sizeof(of_heap) / sizeof(of_heap[0]); i++) {
        bool end = of_heap[i] <= RUN_BLOCKS && holds;
        const struct held *h = end ? holds : asked;
        if (!h)
            return;
        const struct book_site_name *name = book_names_site(&p->names, h->site, p->symbols);
        units_format_bytes(bytes, end ? h->bytes : h->counters.alloc_bytes, UNITS_DECIMAL);
        snprintf(facts->sites[of_heap[i]], sizeof(facts->sites[0]),
                 end ? "%s holds most at the end, %s" : "%s asked for most, %s in all",
                 name ? name->text : "an unknown place", bytes);
    }
}

/* {"lost": {"blocks": 1, "bytes": 2}, ...}: adds. */
static void scan_sum(struct json_read *r, struct run_facts *facts)
{
    struct json_text key;
    uint64_t value = 0;
    json_read_object(r);
    while (json_read_key(r, &key)) {
        enum run_fact fact = json_text_is(&key, "bytes") ? RUN_LOST : RUN_LOST_BLOCKS;
        if (json_read_u64(r, &value))
            fact_set(facts, fact, facts->values[fact] + value);
    }
}

/* The first site is that which lost most. */
static void scan_site(struct json_read *r, struct run_facts *facts)
{
    struct json_text key, site = {0};
    uint64_t bytes = 0;
    char text[UNITS_TEXT_MAX];
    json_read_array(r);
    for (size_t i = 0; json_read_item(r); i++) {
        if (i > 0) {
            json_read_skip(r);
            continue;
        }
        json_read_object(r);
        while (json_read_key(r, &key))
            if (json_text_is(&key, "site"))
                json_read_string(r, &site);
            else if (json_text_is(&key, "bytes"))
                json_read_u64(r, &bytes);
            else
                json_read_skip(r);
        snprintf(facts->sites[RUN_LOST], sizeof(facts->sites[0]), "%.*s lost most, %s",
                 (int)site.len, site.data ? site.data : "",
                 units_format_bytes(text, bytes, UNITS_DECIMAL));
        memcpy(facts->sites[RUN_LOST_BLOCKS], facts->sites[RUN_LOST], sizeof(facts->sites[0]));
    }
}

static void scan_facts(const struct buffer *scan, struct run_facts *facts)
{
    struct json_read r;
    struct json_text key;
    json_read_init(&r, scan->data, scan->len);
    json_read_object(&r);
    while (json_read_key(&r, &key))
        if (json_text_is(&key, "lost") || json_text_is(&key, "indirectly_lost"))
            scan_sum(&r, facts);
        else if (json_text_is(&key, "sites"))
            scan_site(&r, facts);
        else
            json_read_skip(&r);
    if (json_read_finish(&r) < 0)
        facts->known[RUN_LOST] = facts->known[RUN_LOST_BLOCKS] = false;
}

void run_summary_facts(const struct run_summary *s, struct run_facts *facts)
{
    struct picture p;
    picture_take(&p, s);
    if (p.heap && p.image == RUN_IMAGE_SAME) {
        const struct book_totals *t = &p.heap->totals;
        fact_set(facts, RUN_PEAK, t->peak_bytes);
        fact_set(facts, RUN_LIVE, t->live_bytes);
        fact_set(facts, RUN_BLOCKS, t->live_blocks);
        fact_set(facts, RUN_ALLOCATED, t->alloc_bytes);
        fact_set(facts, RUN_ALLOCATIONS, t->alloc_blocks);
        sites_blame(&p, facts);
        peak_blame(&p, facts);
    }
    fact_set(facts, RUN_RSS, (uint64_t)s->end->usage.ru_maxrss * 1024);
    fact_set(facts, RUN_DURATION, s->end->duration_ns);
    if (s->scan && s->scan->len)
        scan_facts(s->scan, facts);
    picture_release(&p);
}

/* ---- JSON ---- */

static void json_totals(struct json *j, const char *key, const struct picture *p,
                        const struct ledger_account *account)
{
    json_key(j, key);
    if (!account) {
        json_null(j);
        return;
    }
    const struct book_totals *t = &account->totals;
    json_object_begin(j);
    json_field_u64(j, "peak", t->peak_bytes);
    json_field_u64(j, "peak_error", peak_error_of(p, t));
    json_field_u64(j, "bytes", t->live_bytes);
    json_field_u64(j, "blocks", t->live_blocks);
    json_field_u64(j, "allocated", t->alloc_bytes);
    json_field_u64(j, "allocated_blocks", t->alloc_blocks);
    json_field_u64(j, "freed", t->freed_bytes);
    json_field_u64(j, "freed_blocks", t->freed_blocks);
    json_field_u64(j, "reallocs", t->reallocs);
    json_object_end(j);
}

static void json_site(struct json *j, struct picture *p, size_t i)
{
    const struct held *h = &p->sites[i];
    const struct book_site_name *name =
        book_names_site(&p->names, h->site, i < SITES_NAMED ? p->symbols : NULL);
    json_object_begin(j);
    json_field_string(j, "space", h->space ? ledger_space_name(h->space) : NULL);
    json_field_string(j, "frame", name ? name->frame : NULL);
    json_field_string(j, "site", name ? name->text : NULL);
    json_field_string(j, "via", name ? name->via : NULL);
    json_field_string(j, "function", name ? name->function : NULL);
    json_field_string(j, "source_file", name ? name->file : NULL);
    json_key(j, "line");
    if (name && name->line)
        json_u64(j, name->line);
    else
        json_null(j);
    json_field_u64(j, "bytes", h->bytes);
    json_field_u64(j, "blocks", h->blocks);
    bool peak = h->at_peak.bytes != BOOK_SITES_AT_PEAK_UNKNOWN;
    json_key(j, "at_peak");
    peak ? json_u64(j, h->at_peak.bytes) : json_null(j);
    json_key(j, "at_peak_blocks");
    peak ? json_u64(j, h->at_peak.blocks) : json_null(j);
    json_field_u64(j, "allocated", h->counters.alloc_bytes);
    json_field_u64(j, "allocated_blocks", h->counters.alloc_blocks);
    json_object_end(j);
}

static void json_losses(struct json *j, const struct ledger_process *process)
{
    uint64_t sum = 0;
    for (size_t i = 0; process && i < BOOK_LOSSES_MAX; i++)
        sum += process->losses[i];
    json_key(j, "losses");
    if (process)
        json_u64(j, sum);
    else
        json_null(j);
}

static void json_end(struct json *j, const struct run_end *end)
{
    bool killed = WIFSIGNALED(end->status);
    json_field_i64(j, "pid", end->pid);
    json_key(j, "status");
    if (killed)
        json_null(j);
    else
        json_i64(j, WEXITSTATUS(end->status));
    json_key(j, "signal");
    if (killed)
        json_i64(j, WTERMSIG(end->status));
    else
        json_null(j);
    json_field_double(j, "duration", (double)end->duration_ns / 1e9);
    json_field_u64(j, "peak_rss", (uint64_t)end->usage.ru_maxrss * 1024);
}

static void json_resident(struct json *j, const struct outside *growth)
{
    struct outside_verdict verdict;
    outside_judge(growth, &verdict);
    json_key(j, "explain");
    if (!growth->last) {
        json_null(j);
    } else {
        json_object_begin(j);
        json_field_double(j, "after", (double)growth->last_ns / 1e9);
        explain_json(growth->last, j);
        json_object_end(j);
    }
    json_key(j, "outside_growth");
    if (!verdict.grows) {
        json_null(j);
        return;
    }
    json_object_begin(j);
    json_field_double(j, "growth", verdict.rss_per_s); /* of rss, bytes a second */
    json_field_double(j, "heap_growth", verdict.heap_per_s);
    json_field_string(j, "name", verdict.name);
    json_object_end(j);
}

static void json_image(struct json *j, const struct picture *p, const struct run_summary *s)
{
    bool same = p->image == RUN_IMAGE_SAME;
    json_key(j, "tracked");
    if (p->image == RUN_IMAGE_PERHAPS)
        json_null(j);
    else
        json_bool(j, p->process && same);
    json_field_string(j, "why_not", why_not(p, s));
    json_field_string(j, "image", p->process ? p->process->exe : NULL);
    json_field_string(j, "last_image", same ? NULL : run_image_last(s->image));
}

int run_summary_json(const struct run_summary *s, struct buffer *out)
{
    struct picture p;
    struct json j;
    picture_take(&p, s);
    command_json_begin(&j, out, "memoir.run/3");
    json_field_string(&j, "program", s->program);
    json_end(&j, s->end);
    json_image(&j, &p, s);
    json_totals(&j, "heap", &p, p.heap);
    json_totals(&j, "mapped", &p, p.mapped);
    json_totals(&j, "chain", &p, p.chain);
    json_losses(&j, p.process);
    json_key(&j, "sites");
    json_array_begin(&j);
    for (size_t i = 0; i < p.n_sites && i < SITES_TOLD; i++)
        json_site(&j, &p, i);
    json_array_end(&j);
    json_key(&j, "scan");
    if (s->scan && s->scan->len)
        json_raw(&j, s->scan->data, s->scan->len);
    else
        json_null(&j);
    json_resident(&j, s->growth);
    json_field_u64(&j, "sites_left_out", p.n_sites > SITES_TOLD ? p.n_sites - SITES_TOLD : 0);
    query_document_end(&j);
    picture_release(&p);
    buffer_append_char(out, '\n');
    return json_finish(&j);
}
