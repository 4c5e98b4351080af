/*
 * reader_sites.c: a checked copy of modules, scripts, frames, sites and tags.
 *
 * A site points at frames and a frame at a module, and a writer stores them in the opposite order.
 * So the number of sites is taken first, and what it needs is there when it is counted later. What
 * points nowhere even so is a lie and loses its pointer, never the entry: its counters still count.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "book/guard.h"
#include "book/reader_internal.h"

enum { COPY_BYTES = 65536 };

/* Entries of the section's own size lie in the file as in memory: read whatever has pages. */
static int copy_plain(int fd, uint64_t start, uint64_t bytes, char *out)
{
    uint64_t end = start + bytes;
    for (uint64_t at = start; (at = book_next_data(fd, at, end)) < end;) {
        uint64_t len = end - at < COPY_BYTES ? end - at : COPY_BYTES;
        int r = book_pread_all(fd, out + (at - start), (size_t)len, at);
        if (r < 0)
            return r;
        at += len;
    }
    return 0;
}

int book_reader_copy(const struct book_reader *reader, int fd, enum book_section_kind kind,
                     uint64_t n, void *out, size_t item)
{
    const struct book_shape *s = &reader->shape[kind];
    uint64_t step = s->entry_size;
    if (n == 0)
        return 0;
    if (step == item)
        return copy_plain(fd, s->offset, n * item, out);

    /* A later version's longer entries: take the front of each. */
    MEMOIR_CLEANUP(freep)
    char *buffer = malloc(COPY_BYTES);
    if (!buffer)
        return -ENOMEM;
    uint64_t end = s->offset + n * step, batch = COPY_BYTES / step;
    for (uint64_t at = s->offset; (at = book_next_data(fd, at, end)) < end;) {
        uint64_t i = (at - s->offset) / step;
        uint64_t count = n - i < batch ? n - i : batch;
        int r = book_pread_all(fd, buffer, (size_t)(count * step), s->offset + i * step);
        if (r < 0)
            return r;
        for (uint64_t k = 0; k < count; k++)
            memcpy((char *)out + (i + k) * item, buffer + k * step, item);
        at = s->offset + (i + count) * step;
    }
    return 0;
}

/* Allocate and copy one section. Entry 0 is always there, and empty if the book has nothing. */
static int section_get(struct book_reader *reader, int fd, enum book_section_kind kind, size_t item,
                       uint64_t n, void *ret_array, size_t *ret_n)
{
    MEMOIR_CLEANUP(freep)
    void *array = calloc((size_t)n + 1, item);
    if (!array)
        return -ENOMEM;
    int r = book_reader_copy(reader, fd, kind, n, array, item);
    if (r < 0)
        return r;
    void *given = MEMOIR_TAKE(array);
    memcpy(ret_array, &given, sizeof(given)); /* a pointer to a pointer of any type */
    *ret_n = (size_t)n;
    return 0;
}

struct counts {
    const struct book_reader *reader;
    uint64_t tags, sites, frames, modules, scripts;
};

static int counts_guarded(void *context)
{
    struct counts *c = context;
    c->tags = book_reader_live(c->reader, BOOK_SECTION_TAGS).n;
    c->sites = book_reader_live(c->reader, BOOK_SECTION_SITES).n;
    c->frames = book_reader_live(c->reader, BOOK_SECTION_FRAMES).n;
    c->modules = book_reader_live(c->reader, BOOK_SECTION_MODULES).n;
    c->scripts = book_reader_live(c->reader, BOOK_SECTION_SCRIPTS).n;
    return 0;
}

static void modules_check(struct book_sites *s)
{
    for (size_t i = 1; i < s->n_modules; i++) {
        struct book_module *m = &s->modules[i];
        if (m->build_id_len > sizeof(m->build_id))
            m->build_id_len = 0;
        char path[sizeof(m->path)];
        memcpy(path, m->path, sizeof(path));
        book_text_copy(m->path, sizeof(m->path), path, sizeof(path));
    }
}

static void sites_check(struct book_sites *s)
{
    for (size_t i = 0; i < s->n_sites; i++) {
        struct book_site *site = &s->sites[i];
        if (site->frames > BOOK_READER_SITE_FRAMES_MAX) {
            site->frames = BOOK_READER_SITE_FRAMES_MAX;
            site->flags |= BOOK_SITE_CUT;
        }
        if (site->first_frame > s->n_frames || site->frames > s->n_frames - site->first_frame)
            site->first_frame = site->frames = 0;
        if (site->account >= BOOK_RECORDS_MAX)
            site->account = 0;
    }
}

/* ---- links ---- */

static bool is_link(uint64_t word)
{
    return BOOK_FRAME_MODULE(word) == BOOK_MODULE_LINK;
}

/* The frames of a site, of which `n` lie before its first link; into `out` if that is not NULL. A link to nowhere ends
 * them, and so does a ring. */
static size_t frames_follow(const struct book_sites *s, const struct book_site *site, uint64_t *out,
                            bool *ret_cut)
{
    uint64_t at = site->first_frame, end = at + site->frames;
    size_t n = 0;
    while (at < end && n < BOOK_READER_SITE_FRAMES_MAX) {
        uint64_t word = s->frames[at++];
        if (!is_link(word)) {
            if (out)
                out[n] = word;
            n++;
            continue;
        }
        at = BOOK_FRAME_OFFSET(word);
        end = s->n_frames;
        if (at == 0 || at > end || is_link(s->frames[--at]))
            break;
    }
    *ret_cut = n == BOOK_READER_SITE_FRAMES_MAX && at < end;
    return n;
}

/* Frames of the site that stand where it says, before any link. */
static uint16_t frames_before_link(const struct book_sites *s, const struct book_site *site)
{
    uint16_t n = 0;
    while (n < site->frames && !is_link(s->frames[site->first_frame + n]))
        n++;
    return n;
}

/* Give every site all its frames in one piece, as they were before links: behind the others, where they are not. What does
 * not fit into the limit of all frames is cut. */
static int links_follow(struct book_sites *s)
{
    size_t more = 0, most = BOOK_READER_FRAMES_MAX;
    bool cut;
    for (size_t i = 0; i < s->n_sites && more < most; i++) {
        size_t before = frames_before_link(s, &s->sites[i]), n = before;
        if (before < s->sites[i].frames)
            n = frames_follow(s, &s->sites[i], NULL, &cut);
        more += n > before ? n : 0;
    }
    more = more < most ? more : most;
    uint64_t *frames = realloc(s->frames, (s->n_frames + more + 1) * sizeof(*frames));
    if (!frames)
        return -ENOMEM;
    s->frames = frames;
    size_t at = s->n_frames, end = s->n_frames + more;
    uint64_t stack[BOOK_READER_SITE_FRAMES_MAX];
    for (size_t i = 0; i < s->n_sites; i++) {
        struct book_site *site = &s->sites[i];
        uint16_t before = frames_before_link(s, site);
        if (before == site->frames)
            continue;
        size_t n = frames_follow(s, site, stack, &cut);
        if (n > before && n <= end - at) {
            memcpy(frames + at, stack, n * sizeof(stack[0]));
            site->first_frame = (uint32_t)at;
            at += n;
        } else {
            cut = n > before;
            n = before;
        }
        site->frames = (uint16_t)n;
        if (cut)
            site->flags |= BOOK_SITE_CUT;
    }
    s->n_frames = at;
    return 0;
}

static void scripts_check(struct book_sites *s)
{
    for (size_t i = 1; i < s->n_scripts; i++) {
        struct book_script raw = s->scripts[i];
        struct book_script *to = &s->scripts[i];
        book_text_copy(to->function, sizeof(raw.function), raw.function, sizeof(raw.function));
        book_text_copy(to->file, sizeof(raw.file), raw.file, sizeof(raw.file));
    }
}

static void tags_check(struct book_sites *s)
{
    for (size_t i = 1; i < s->n_tags; i++) {
        struct book_tag raw = s->tags[i];
        book_text_copy(s->tags[i].name, sizeof(raw.name), raw.name, sizeof(raw.name));
    }
}

/* ---- counters ---- */

struct site_sum {
    const struct book_reader *reader;
    struct book_site_counters *counters;
    size_t n_sites;
    bool exact_only; /* sampled sites stay 0 */
    bool behind;     /* pages came while the freed counters were read */
};

static void site_pass(struct site_sum *c, bool freed)
{
    const struct book_reader *reader = c->reader;
    size_t step = reader->shape[BOOK_SECTION_COUNTERS].entry_size;
    for (uint32_t p = 0; p < reader->pages; p++) {
        uint64_t first = reader->page_list[p].first;
        uint32_t what = reader->page_list[p].what;
        /* A site counts in pages of one sort: the others have nothing but zeros for it. */
        if ((what != BOOK_COUNTERS_SITES &&
             (what != BOOK_COUNTERS_SAMPLED_SITES || c->exact_only)) ||
            first >= c->n_sites)
            continue;
        const struct book_site_counters *page = (const void *)(reader->counters.base + p * step);
        for (size_t i = 0; i < BOOK_SITES_PER_PAGE && first + i < c->n_sites; i++) {
            struct book_site_counters *sum = &c->counters[first + i];
            if (freed) {
                sum->freed_bytes += load_acquire(&page[i].freed_bytes);
                sum->freed_blocks += load_acquire(&page[i].freed_blocks);
            } else {
                sum->alloc_bytes += load_acquire(&page[i].alloc_bytes);
                sum->alloc_blocks += load_acquire(&page[i].alloc_blocks);
            }
        }
    }
}

/* Freed of all shards first, then allocated, in which pages that came meanwhile take part: see
 * reader_totals.c. */
static int site_freed_guarded(void *context)
{
    struct site_sum *c = context;
    site_pass(c, true);
    c->behind = book_reader_pages_behind(c->reader);
    return 0;
}

static int site_alloc_guarded(void *context)
{
    site_pass(context, false);
    return 0;
}

/* Into `counters`, which are all 0. */
static int counters_sum(struct book_reader *reader, struct book_site_counters *counters,
                        size_t n_sites, bool exact_only)
{
    if (reader->stale)
        return -ESTALE;
    struct site_sum c = {
        .reader = reader, .counters = counters, .n_sites = n_sites, .exact_only = exact_only};
    int r = book_guard_run(site_freed_guarded, &c);
    if (r == 0 && c.behind)
        r = book_reader_pages_refresh(reader);
    return r < 0 ? r : book_guard_run(site_alloc_guarded, &c);
}

static int counters_get(struct book_reader *reader, struct book_sites *s)
{
    s->counters = calloc(s->n_sites + 1, sizeof(s->counters[0]));
    return s->counters ? counters_sum(reader, s->counters, s->n_sites, false) : -ENOMEM;
}

int book_reader_site_counters(struct book_reader *reader, struct book_site_counters *counters,
                              size_t max, size_t *ret_n)
{
    struct book_live sites;
    int r = book_reader_live_get(reader, BOOK_SECTION_SITES, &sites);
    if (r < 0)
        return r;
    size_t n = sites.n < max ? (size_t)sites.n : max;
    memset(counters, 0, n * sizeof(*counters));
    r = counters_sum(reader, counters, n, true);
    if (r == 0)
        *ret_n = n;
    return r;
}

int book_reader_sites(struct book_reader *reader, int fd, struct book_sites *ret_sites)
{
    int r = book_reader_check_fd(reader, fd);
    if (r < 0)
        return r;
    struct counts n = {.reader = reader};
    r = book_guard_run(counts_guarded, &n);
    if (r < 0)
        return r;
    MEMOIR_CLEANUP(book_sites_release)
    struct book_sites s = {0};
    r = section_get(reader, fd, BOOK_SECTION_TAGS, sizeof(*s.tags), n.tags, &s.tags, &s.n_tags);
    if (r == 0)
        r = section_get(reader, fd, BOOK_SECTION_SITES, sizeof(*s.sites), n.sites, &s.sites,
                        &s.n_sites);
    if (r == 0)
        r = section_get(reader, fd, BOOK_SECTION_FRAMES, sizeof(*s.frames), n.frames, &s.frames,
                        &s.n_frames);
    if (r == 0)
        r = section_get(reader, fd, BOOK_SECTION_MODULES, sizeof(*s.modules), n.modules, &s.modules,
                        &s.n_modules);
    if (r == 0)
        r = section_get(reader, fd, BOOK_SECTION_SCRIPTS, sizeof(*s.scripts), n.scripts, &s.scripts,
                        &s.n_scripts);
    if (r == 0)
        r = counters_get(reader, &s);
    if (r < 0)
        return r;
    modules_check(&s);
    scripts_check(&s);
    sites_check(&s);
    tags_check(&s);
    r = book_reader_at_peak(reader, &s);
    if (r == 0)
        r = links_follow(&s);
    if (r < 0)
        return r;
    *ret_sites = s;
    s = (struct book_sites){0};
    return 0;
}

int book_reader_sites_bytes(struct book_reader *reader, int fd, uint64_t *ret_bytes)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    struct counts n = {.reader = reader};
    int r = book_guard_run(counts_guarded, &n);
    if (r < 0)
        return r;
    uint64_t bytes = n.tags * sizeof(struct book_tag) + n.frames * sizeof(uint64_t) +
                     n.modules * sizeof(struct book_module) + n.sites * sizeof(struct book_site) +
                     n.scripts * sizeof(struct book_script);
    /* Where entries are of the size that we know, their pages are all there; longer ones take more. */
    if (bytes > (uint64_t)st.st_blocks * 512 + BOOK_READER_HOLES_MAX)
        return -ENODATA;
    *ret_bytes =
        bytes + n.sites * (sizeof(struct book_site_counters) + sizeof(struct book_site_held));
    return 0;
}

void book_sites_release(struct book_sites *sites)
{
    free(sites->modules);
    free(sites->scripts);
    free(sites->frames);
    free(sites->sites);
    free(sites->counters);
    free(sites->at_peak);
    free(sites->tags);
    *sites = (struct book_sites){0};
}
