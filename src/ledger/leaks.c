/* Suspects. See leaks.h. */
#include "ledger/leaks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "ledger/growth.h"
#include "ledger/ledger.h"

struct take {
    const struct ledger *ledger;
    const struct leaks_options *options;
    struct leaks leaks;
    size_t room;

    /* The book at hand; series come book by book. */
    uint64_t dev, ino;
    const struct ledger_book *book; /* NULL: it is gone, or not wanted */
    bool tried;                     /* to read its sites */
    bool read;
    struct book_sites sites;
    uint32_t accounts[BOOK_RECORDS_MAX];
    struct detect_ages *ages; /* n_sites; NULL: not looked at, or it has no blocks */
    bool ages_tried;
    uint64_t now_ns;
    bool has_headroom; /* of its process */
    struct headroom headroom;

    /* Sites that have given back much at once, in any book. */
    struct fall {
        const struct ledger_book *book;
        uint32_t site;
    } * falls;
    size_t n_falls;
};

/* Growth outside malloc is told when it is as unlikely by chance as a leak has to be, and worth it. */
#define OUTSIDE_Z 3.3
enum {
    OUTSIDE_RISES_MIN = 5,
    OUTSIDE_BYTES_MIN = 2 << 20,
    FALLS_MAX = 4096,    /* kept; later ones speak for no other process */
    FALLS_BOOKS_MAX = 8, /* whose sites are read for one suspect */
};

static void book_leave(struct take *take)
{
    if (take->read)
        book_sites_release(&take->sites);
    free(take->ages);
    take->ages = NULL;
    take->read = take->tried = take->ages_tried = take->has_headroom = false;
}

static void take_release(struct take *take)
{
    book_leave(take);
    leaks_release(&take->leaks);
    free(take->falls);
}

void leaks_release(struct leaks *leaks)
{
    for (size_t i = 0; i < leaks->n; i++)
        free(leaks->rows[i].frame);
    free(leaks->rows);
    *leaks = (struct leaks){0};
}

/* ---- the book at hand ---- */

static void book_change(struct take *take, const struct growth_series *series)
{
    if (take->ino == series->ino && take->dev == series->dev)
        return;
    book_leave(take);
    take->dev = series->dev;
    take->ino = series->ino;
    take->book = ledger_book_find(take->ledger, series->dev, series->ino);
    if (take->book && (!ledger_process_holds(take->book->process) ||
                       (take->options->wanted &&
                        !take->options->wanted(take->book->process, take->options->context))))
        take->book = NULL;
}

static bool sites_read(struct take *take)
{
    if (take->tried)
        return take->read;
    take->tried = true;
    uint64_t bytes;
    MEMOIR_CLEANUP(closep)
    int fd = ledger_book_open(take->book);
    if (fd < 0 || book_reader_sites_bytes(take->book->reader, fd, &bytes) < 0 ||
        bytes > LEAKS_SITES_BYTES_MAX ||
        book_reader_sites(take->book->reader, fd, &take->sites) < 0) {
        take->leaks.incomplete = true;
        return false;
    }
    ledger_book_accounts(take->book, take->accounts);
    take->read = true;
    return true;
}

/* ---- a row ---- */

/* Ten years: what comes later is no limit. */
#define LEFT_NS_MAX (3.2e8 * (double)NS_PER_S)

static bool is_suspect(const struct detect_result *result)
{
    return result->verdict == DETECT_LEAK || result->verdict == DETECT_GROWING;
}

static char *frame_text(const struct take *take, const struct book_site *site)
{
    char *text = NULL;
    if (site->frames == 0)
        return NULL;
    uint64_t frame = take->sites.frames[site->first_frame];
    const struct book_module *module = book_sites_module(&take->sites, frame);
    if (!module)
        return NULL;
    if (asprintf(&text, "%s+0x%" PRIx64, module->path[0] ? module->path : take->book->identity->exe,
                 BOOK_FRAME_OFFSET(frame)) < 0)
        return NULL;
    return text;
}

bool leaks_file_is_collected(const char *path)
{
    static const char *const files[] = {
        "libjvm.so",     "java",        "node",      "libnode.so", "libv8",       "deno",
        "bun",           "ruby",        "libruby",   "libmono",    "libmonosgen", "libmonoboehm",
        "libcoreclr.so", "libclrgc.so", "mono-sgen", "beam.smp"};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        size_t len = strlen(files[i]);
        /* "libruby-3.1.so", "node", "nodejs20": not "nodemon". */
        if (strncmp(name, files[i], len) == 0 &&
            !(name[len] >= 'a' && name[len] <= 'z' && strncmp(name + len, "js", 2) != 0))
            return true;
    }
    return false;
}

/* What a library asks for in such a process is its own to free. */
static bool is_collected(const struct take *take, const struct book_site *site)
{
    if (site->frames == 0)
        return false;
    const struct book_module *module =
        book_sites_module(&take->sites, take->sites.frames[site->first_frame]);
    return module &&
           leaks_file_is_collected(module->path[0] ? module->path : take->book->identity->exe);
}

uint64_t leaks_site_age(const struct book_identity *id, uint32_t time, uint64_t now_ns)
{
    if (time == UINT32_MAX || *id->host)
        return 0;
    uint64_t first_ns = id->created_monotonic_ns + ((uint64_t)time << id->time_shift);
    return first_ns < now_ns ? now_ns - first_ns : 0;
}

size_t leaks_age_part(uint64_t site_age_ns, uint64_t age_ns)
{
    if (age_ns >= site_age_ns)
        return 0;
    double share = (double)(site_age_ns - age_ns) / (double)site_age_ns;
    size_t part = (size_t)(share * DETECT_AGES);
    return part < DETECT_AGES ? part : DETECT_AGES - 1;
}

static int each_block(const struct book_block_view *block, void *context)
{
    struct take *take = context;
    if (block->site >= take->sites.n_sites)
        return 0;
    uint64_t site_age_ns =
        leaks_site_age(take->book->identity, take->sites.sites[block->site].time, take->now_ns);
    uint64_t age_ns = take->now_ns > block->time_ns ? take->now_ns - block->time_ns : 0;
    take->ages[block->site].bytes[leaks_age_part(site_age_ns, age_ns)] += block->bytes;
    return 0;
}

/* Of all sites of the book at once: its blocks are in no order. NULL where they are not known. */
static const struct detect_ages *ages_of(struct take *take, uint32_t site, uint64_t now_ns)
{
    if (!take->ages_tried) {
        take->ages_tried = true;
        take->now_ns = now_ns;
        take->ages = calloc(take->sites.n_sites, sizeof(*take->ages));
        MEMOIR_CLEANUP(closep)
        int fd = take->ages ? ledger_book_open(take->book) : -1;
        if (fd < 0 || book_reader_blocks(take->book->reader, fd, each_block, take, NULL) < 0) {
            free(take->ages);
            take->ages = NULL;
        }
    }
    return take->ages ? &take->ages[site] : NULL;
}

/* The last point of each part of the time; parts without one repeat the one before. */
static void spark_take(const struct growth_series *series, struct leak *leak)
{
    uint64_t first_ns = series->points[0].time_ns;
    uint64_t span_ns = series->points[series->n - 1].time_ns - first_ns;
    size_t i = 0;
    for (unsigned part = 0; part < LEAK_SPARK; part++) {
        uint64_t until_ns = first_ns + (uint64_t)((double)span_ns * (part + 1) / LEAK_SPARK);
        while (i + 1 < series->n && series->points[i + 1].time_ns <= until_ns)
            i++;
        leak->spark[part] = leak->result.empty ? detect_live_blocks(&series->points[i])
                                               : detect_live_bytes(&series->points[i]);
    }
    leak->n_spark = LEAK_SPARK;
}

/* Growth that is expected to end before it meets a limit. */
static bool goes_away(enum detect_reason reason)
{
    return reason == DETECT_TEETH || reason == DETECT_BURSTS || reason == DETECT_WAITS ||
           reason == DETECT_FREES_LATE || reason == DETECT_ONE_OFF;
}

/* Until the memory of the device, of the cgroup or of the machine is full. */
static void headroom_take(struct take *take, struct leak *leak)
{
    const struct ledger_account *a = leak->account;
    double rate = leak->result.bytes_per_s;
    leak->left_ns = UINT64_MAX;
    if (!is_suspect(&leak->result) || rate <= 0 || goes_away(leak->result.reason))
        return;
    if (a->device) {
        const struct ledger_capacity *c = &a->device->spaces[a->space];
        uint64_t capacity = ledger_capacity_for(c, leak->process->uid);
        if (capacity)
            leak->headroom = (struct headroom){
                HEADROOM_DEVICE, capacity > c->used ? capacity - c->used : 0, capacity};
    } else if (!*leak->process->host && leak->process->valid & LEDGER_HAS_PID) {
        if (!take->has_headroom)
            take->headroom = headroom_of(leak->process->pid);
        take->has_headroom = true;
        leak->headroom = take->headroom;
    }
    double left_ns = (double)leak->headroom.bytes / rate * (double)NS_PER_S;
    if (leak->headroom.kind != HEADROOM_UNKNOWN && left_ns < LEFT_NS_MAX)
        leak->left_ns = (uint64_t)left_ns;
}

static int row_add(struct take *take, const struct leak *leak)
{
    struct leaks *l = &take->leaks;
    if (l->n == take->room) {
        size_t room = take->room ? take->room * 2 : 64;
        struct leak *rows = reallocarray(l->rows, room, sizeof(*rows));
        if (!rows)
            return -ENOMEM;
        l->rows = rows;
        take->room = room;
    }
    l->rows[l->n++] = *leak;
    return 0;
}

static void fall_note(struct take *take, uint32_t site, bool fell)
{
    if (!fell || take->n_falls == FALLS_MAX)
        return;
    if (!take->falls)
        take->falls = calloc(FALLS_MAX, sizeof(*take->falls));
    if (take->falls)
        take->falls[take->n_falls++] = (struct fall){take->book, site};
}

/* The heap's, which what is outside is told beside of. */
static const struct ledger_account *heap_of(const struct ledger_process *p)
{
    for (size_t i = 0; i < p->n_accounts; i++)
        if (p->accounts[i].valid && p->accounts[i].space == MEMOIR_SPACE_HEAP)
            return &p->accounts[i];
    return NULL;
}

bool leaks_level_tells(const struct detect_result *r)
{
    return r->verdict == DETECT_GROWING && r->reason == DETECT_LEVEL_ONLY && r->z >= OUTSIDE_Z &&
           r->rises >= OUTSIDE_RISES_MIN && r->grown_bytes >= OUTSIDE_BYTES_MIN;
}

/* Growth that has no site, as far as it is worth a word. */
static int outside_take(struct take *take, const struct growth_series *series)
{
    const struct detect_point *last = &series->points[series->n - 1];
    struct leak leak = {
        .process = take->book->process,
        .book = take->book,
        .account = heap_of(take->book->process),
        .site = series->site,
        .outside = true,
        .live_bytes = last->alloc_bytes,
    };
    struct detect_options options = {.needs_ns = take->options->needs_ns, .level_only = true};
    struct detect_result *r = &leak.result;
    detect_judge(series->points, series->n, &options, r);
    if (!leaks_level_tells(r) || !leak.account)
        return 0;
    take->leaks.judged++;
    take->leaks.verdicts[r->verdict]++;
    leak.growing_ns = r->since_ns ? last->time_ns - r->since_ns : 0;
    spark_take(series, &leak);
    headroom_take(take, &leak);
    return row_add(take, &leak);
}

static int each_series(const struct growth_series *series, void *context)
{
    struct take *take = context;
    const struct leaks_options *o = take->options;
    book_change(take, series);
    if (!take->book || series->n == 0)
        return 0;
    if (o->deadline_ns && clock_monotonic_ns() > o->deadline_ns) {
        take->leaks.incomplete = true;
        return 1;
    }
    if (series->site == (uint32_t)GROWTH_OUTSIDE)
        return outside_take(take, series);
    const struct detect_point *last = &series->points[series->n - 1];
    struct leak leak = {
        .process = take->book->process,
        .book = take->book,
        .site = series->site,
        .live_bytes = detect_live_bytes(last),
        .live_blocks = detect_live_blocks(last),
    };
    struct detect_options options = {.needs_ns = o->needs_ns};
    detect_judge(series->points, series->n, &options, &leak.result);
    leak.fell = detect_fell(series->points, series->n);
    fall_note(take, series->site, leak.fell);
    bool shown = o->all || is_suspect(&leak.result);
    /* What is not shown is not worth reading the sites for: only growth can be judged differently by its past. */
    if (shown && sites_read(take) && series->site < take->sites.n_sites) {
        const struct book_site *site = &take->sites.sites[series->site];
        uint32_t account = take->accounts[site->account];
        if (account >= leak.process->n_accounts)
            return 0; /* another source counts there */
        leak.account = &leak.process->accounts[account];
        leak.key = site->key;
        options.site_age_ns = leak.age_ns =
            leaks_site_age(take->book->identity, site->time, last->time_ns);
        options.collected = is_collected(take, site);
        if (o->ages && is_suspect(&leak.result))
            options.ages = ages_of(take, series->site, last->time_ns);
        detect_judge(series->points, series->n, &options, &leak.result);
    }
    take->leaks.judged++;
    take->leaks.verdicts[leak.result.verdict]++;
    if (series->points[series->n - 1].time_ns - series->points[0].time_ns > take->leaks.span_ns)
        take->leaks.span_ns = series->points[series->n - 1].time_ns - series->points[0].time_ns;
    if (!shown || !leak.account)
        return 0;
    if (leak.result.since_ns)
        leak.growing_ns = last->time_ns - leak.result.since_ns;
    leak.frame = frame_text(take, &take->sites.sites[series->site]);
    spark_take(series, &leak);
    headroom_take(take, &leak);
    int r = row_add(take, &leak);
    if (r < 0)
        free(leak.frame);
    return r;
}

/* ---- the same place in other processes ---- */

/* Has a site with this key, in one of these falls of one book, given back much at once? */
static bool fell_in(const struct fall *falls, size_t n, uint64_t key)
{
    MEMOIR_CLEANUP(book_sites_release)
    struct book_sites sites = {0};
    uint64_t bytes;
    MEMOIR_CLEANUP(closep)
    int fd = ledger_book_open(falls->book);
    if (fd < 0 || book_reader_sites_bytes(falls->book->reader, fd, &bytes) < 0 ||
        bytes > LEAKS_SITES_BYTES_MAX || book_reader_sites(falls->book->reader, fd, &sites) < 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (falls[i].site < sites.n_sites && sites.sites[falls[i].site].key == key)
            return true;
    return false;
}

/* What another process of the program has given back at once is collected in bursts here, too. */
static bool fell_elsewhere(const struct take *take, const struct leak *leak)
{
    unsigned books = 0;
    for (size_t i = 0, n; i < take->n_falls && books < FALLS_BOOKS_MAX; i += n) {
        const struct ledger_book *book = take->falls[i].book;
        for (n = 1; i + n < take->n_falls && take->falls[i + n].book == book;)
            n++;
        if (book->process == leak->process || strcmp(book->process->name, leak->process->name) != 0)
            continue;
        books++;
        if (fell_in(&take->falls[i], n, leak->key))
            return true;
    }
    return false;
}

static void compare_processes(struct take *take)
{
    for (size_t i = 0; i < take->leaks.n; i++) {
        struct leak *leak = &take->leaks.rows[i];
        if (leak->result.verdict != DETECT_LEAK || leak->fell || !fell_elsewhere(take, leak))
            continue;
        take->leaks.verdicts[DETECT_LEAK]--;
        take->leaks.verdicts[DETECT_GROWING]++;
        detect_fell_elsewhere(&leak->result);
        leak->left_ns = UINT64_MAX;
    }
}

/* ---- order ---- */

static int compare(const void *a, const void *b)
{
    const struct leak *x = a, *y = b;
    if (x->result.verdict != y->result.verdict)
        return x->result.verdict > y->result.verdict ? -1 : 1;
    if (x->result.bytes_per_s != y->result.bytes_per_s)
        return x->result.bytes_per_s > y->result.bytes_per_s ? -1 : 1;
    if (x->live_bytes != y->live_bytes)
        return x->live_bytes > y->live_bytes ? -1 : 1;
    if (x->process->pid != y->process->pid)
        return x->process->pid < y->process->pid ? -1 : 1;
    return (x->site > y->site) - (x->site < y->site);
}

/* How fast the suspects of a book grow together. */
static double sites_grow(const struct leaks *leaks, const struct ledger_book *book)
{
    double sum = 0;
    for (size_t i = 0; i < leaks->n; i++) {
        const struct leak *leak = &leaks->rows[i];
        if (leak->book == book && !leak->outside && is_suspect(&leak->result) &&
            leak->result.bytes_per_s > 0)
            sum += leak->result.bytes_per_s;
    }
    return sum;
}

void leaks_drop_overhead(struct leaks *leaks)
{
    size_t kept = 0;
    for (size_t i = 0; i < leaks->n; i++) {
        struct leak *leak = &leaks->rows[i];
        leak->overhead = leak->outside && leak->result.bytes_per_s * LEAKS_OVERHEAD_SHARE <
                                              sites_grow(leaks, leak->book);
    }
    for (size_t i = 0; i < leaks->n; i++) {
        const struct leak *leak = &leaks->rows[i];
        if (leak->overhead) {
            leaks->judged--;
            leaks->verdicts[leak->result.verdict]--;
        } else {
            leaks->rows[kept++] = *leak;
        }
    }
    leaks->n = kept;
}

int leaks_take(struct growth *growth, const struct ledger *ledger,
               const struct leaks_options *options, struct leaks *ret_leaks)
{
    MEMOIR_CLEANUP(take_release)
    struct take take = {.ledger = ledger, .options = options};
    int r = growth_each(growth, each_series, &take);
    if (r < 0)
        return r;
    compare_processes(&take);
    leaks_drop_overhead(&take.leaks);
    if (take.leaks.n)
        qsort(take.leaks.rows, take.leaks.n, sizeof(*take.leaks.rows), compare);
    *ret_leaks = take.leaks;
    take.leaks = (struct leaks){0};
    return 0;
}
