/* See find.h. */
#include "scan/find.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "scan/heap.h"
#include "scan/words.h"

enum {
    EACH_HELD = 4096,          /* blocks that may still have to make way for another, */
    EACH_KEEP = 256,           /* and those that stay when the others are told of */
    PAGE = 4096,               /* of the index, whatever the machine's are */
    INDEX_PAGES_MAX = 1 << 26, /* of one region: 256 GB; what is larger is searched by halves */
    CHANCE_BYTES = 1 << 20,    /* in so much data chance makes no short trailer: one in 64 MB */
    GRAINS = SCAN_WINDOW / BOOK_BESIDE_GRAIN + 1,
};

struct search {
    struct scan *scan;
    const struct scan_options *options;
    struct scan_memory *memory;
    const struct scan_run *run; /* that is searched */
    size_t room;
    size_t run_first;     /* first block of this run */
    uint64_t all_bytes;   /* to be read, for progress */
    uint64_t *beside;     /* words of what is being looked at, GRAINS; NULL: there are none */
    uint64_t beside_from; /* where their first 32 bytes begin, */
    size_t n_beside;      /* and how many there are */
    const struct scan_heap *heap; /* of our own allocator, */
    struct scan_words *words;     /* and what reads it; NULL: another one */
    /* Of scan_each(): */
    void (*each)(const struct scan_block *block, void *context);
    void *each_context;
    uint64_t deadline_ns;
};

/* A pointer right behind a block does not count: glibc keeps such ones itself, to its next piece. */
static uint64_t end_of(const struct scan_block *block)
{
    return block->start + (block->bytes ? block->bytes : 1);
}

/* Where glibc's word does not tell, data of a large block may pass for a few short ones: they do not speak against it. One that
 * was given back, and its memory used again, has more of them. */
static void drop_chance(struct search *s, const struct book_trailer *new)
{
    struct scan *scan = s->scan;
    size_t n = scan->n;
    if (new->is_short || s->options->glibc)
        return;
    while (n > s->run_first && scan->blocks[n - 1].is_short &&
           scan->blocks[n - 1].start >= new->start)
        n--;
    if ((scan->n - n) * CHANCE_BYTES >= new->bytes)
        return;
    scan->overlaps += scan->n - n;
    scan->n = n;
}

/* Trailers come by their addresses. Where one lies inside the block of another, the memory of one of them was
 * given back without our knowing: the one that is older. */
static bool make_way(struct search *s, const struct book_trailer *new)
{
    struct scan *scan = s->scan;
    drop_chance(s, new);
    while (scan->n > s->run_first) {
        const struct scan_block *last = &scan->blocks[scan->n - 1];
        if (end_of(last) <= new->start)
            return true;
        scan->overlaps++;
        if (last->time >= new->time)
            return false;
        scan->n--;
    }
    return true;
}

/* Tell of all blocks but the last `keep`: only these can turn out to be none. */
static void tell(struct search *s, size_t keep)
{
    struct scan *scan = s->scan;
    size_t n = scan->n > keep ? scan->n - keep : 0;
    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++)
        s->each(&scan->blocks[i], s->each_context);
    memmove(scan->blocks, scan->blocks + n, (scan->n - n) * sizeof(*scan->blocks));
    scan->n -= n;
}

static int block_add(struct search *s, const struct book_trailer *trailer)
{
    struct scan *scan = s->scan;
    if (trailer->site >= s->options->sites && !trailer->inherited && trailer->site != 0)
        return 0; /* no site of the book: passed the check by chance */
    if (s->options->time_max && trailer->time > s->options->time_max && !trailer->inherited)
        return 0; /* nor is one that was made later than now */
    if (!make_way(s, trailer))
        return 0;
    if (s->each && scan->n == EACH_HELD)
        tell(s, EACH_KEEP);
    if (scan->n == SCAN_BLOCKS_MAX) {
        scan->left_out++;
        return 0;
    }
    if (scan->n == s->room) {
        size_t room = s->room ? s->room * 2 : 1024;
        struct scan_block *grown = reallocarray(scan->blocks, room, sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        scan->blocks = grown;
        s->room = room;
    }
    scan->blocks[scan->n++] = (struct scan_block){
        .start = trailer->start,
        .bytes = trailer->bytes,
        .site = trailer->inherited ? 0 : trailer->site,
        .time = trailer->time,
        .state = SCAN_STATES,
        .inherited = trailer->inherited,
        .is_short = trailer->is_short,
    };
    return 0;
}

/* Does glibc's own word before a short block agree? `n_before` words before `last` are there; where it is not among
 * them, nothing speaks against it. */
static bool chunk_agrees(const struct search *s, const struct book_trailer *trailer,
                         const uint64_t *last, size_t n_before)
{
    size_t to_chunk = trailer->usable / sizeof(uint64_t) + 1;
    if (!trailer->is_short || !s->options->glibc)
        return true;
    return trailer->start > s->run->start && trailer->start % 16 == 0 &&
           (to_chunk > n_before || book_trailer_chunk_fits(*(last - to_chunk), trailer->usable));
}

/* ---- words beside ---- */

static bool is_array(const struct scan_options *options, const struct scan_region *region)
{
    return options->beside.span &&
           region->start - options->beside.words < book_beside_offset(options->beside.span);
}

/* Where there is an array, room for a part of it. */
static int beside_begin(struct search *s)
{
    if (s->options->beside.span == 0 || s->options->beside.heap % BOOK_BESIDE_GRAIN)
        return 0;
    s->beside = malloc(GRAINS * sizeof(*s->beside));
    return s->beside ? 0 : -ENOMEM;
}

/* The words for `bytes` from `start` on. Pages of the array that were never used cannot be read, and say nothing. */
static void beside_read(struct search *s, uint64_t start, size_t bytes)
{
    const struct scan_beside *beside = &s->options->beside;
    uint64_t from = start & ~(uint64_t)(BOOK_BESIDE_GRAIN - 1);
    s->n_beside = 0;
    if (!s->beside)
        return;
    if (start - beside->heap >= beside->span) {
        if (beside->heap - start >= bytes)
            return;
        from = beside->heap;
    }
    uint64_t offset = book_beside_offset(from - beside->heap);
    size_t len = book_beside_offset(start + bytes - from);
    s->n_beside =
        scan_memory_peek(s->memory, beside->words + offset, s->beside, len) / sizeof(*s->beside);
    s->beside_from = from;
}

/* The block whose 32 bytes begin at `word`, which is at `at`; there are `n_before` words before it, and one after it. */
static int beside_look(struct search *s, const uint64_t *word, uint64_t at, size_t n_before)
{
    struct book_trailer trailer;
    uint64_t number = (at - s->beside_from) / BOOK_BESIDE_GRAIN;
    if (number >= s->n_beside || !s->beside[number] ||
        !book_beside_read(s->options->key, s->beside[number], at, &trailer))
        return 0;
    const uint64_t *chunk = trailer.start == at ? word - 1 : word + 1;
    if ((chunk > word || n_before > 0) && !book_beside_chunk_fits(*chunk, trailer.bytes))
        return 0;
    return block_add(s, &trailer);
}

/* ---- words of the process ---- */

/* `words` are `n` words of the process from `at` on; of the process are also `n_before` words before them. Two that
 * are there anyway may be looked at. */
static int search_words(struct search *s, const uint64_t *words, size_t n, uint64_t at,
                        size_t n_before)
{
    uint64_t lowest = s->run->start;
    for (size_t i = 0; i < n; i++, at += sizeof(uint64_t)) {
        struct book_trailer trailer;
        int r = 0;
        /* Most words are zero, or would be that of more than there is. */
        if (words[i] &&
            ((words[i] & BOOK_TRAILER_SHORT_MARK) ||
             ((&words[i])[-1] & BOOK_TRAILER_SIZE_MAX) <= at - lowest) &&
            book_trailer_read(s->options->key, at, &words[i], lowest, &trailer) &&
            chunk_agrees(s, &trailer, &words[i], n_before + i))
            r = block_add(s, &trailer);
        /* What ends here comes before what begins here. */
        if (r == 0 && s->n_beside && at % BOOK_BESIDE_GRAIN == 0)
            r = beside_look(s, &words[i], at, n_before + i);
        if (r < 0)
            return r;
    }
    return 0;
}

static int search_stretch(void *context, uint64_t start, uint64_t end)
{
    struct search *s = context;
    size_t before_max = SCAN_WINDOW_BEFORE / sizeof(uint64_t), before = 0;
    uint64_t *words = (uint64_t *)s->memory->window + before_max;
    memset(s->memory->window, 0, SCAN_WINDOW_BEFORE);
    while (start < end) {
        size_t len = end - start < SCAN_WINDOW ? (size_t)(end - start) : SCAN_WINDOW;
        size_t n = scan_memory_read(s->memory, start, words, len) / sizeof(uint64_t);
        if (n == 0) { /* one page that cannot be read: blocks in it are not known */
            start = scan_memory_skip(s->memory, start);
            before = 0;
            memset(s->memory->window, 0, SCAN_WINDOW_BEFORE);
            continue;
        }
        beside_read(s, start, n * sizeof(uint64_t));
        int r = search_words(s, words, n, start, before);
        if (r < 0)
            return r;
        memmove(words - before_max, words + n - before_max, SCAN_WINDOW_BEFORE);
        before = before + n < before_max ? before + n : before_max;
        start += n * sizeof(uint64_t);
        s->scan->searched_bytes += n * sizeof(uint64_t);
        if (s->deadline_ns && clock_monotonic_ns() > s->deadline_ns)
            return -ETIME;
        if (s->options->progress)
            s->options->progress("looking for blocks", s->scan->searched_bytes, s->all_bytes,
                                 s->options->context);
    }
    return 0;
}

/* ---- a region ---- */

static int word_found(void *context, const struct book_trailer *block)
{
    return block_add(context, block);
}

/* What is not our allocator's is searched for trailers, macro-blocks have words. */
static int search_run(struct search *s)
{
    const struct scan_run *run = s->run;
    int r = 0;
    for (uint64_t at = run->start, next; at < run->end && r == 0; at = next) {
        bool own = false;
        next = s->heap ? scan_heap_stretch(s->heap, at, &own) : run->end;
        next = next < run->end ? next : run->end;
        uint64_t macro = own ? scan_heap_macro(s->heap, at) : 0;
        if (!own)
            r = scan_memory_runs(s->memory, at, next, search_stretch, s);
        else if (macro)
            r = scan_words_macro(s->words, s->memory, macro, run->start, run->end, s->each != NULL,
                                 s->options->key.generation, word_found, s,
                                 &s->scan->searched_bytes);
        if (r == 0 && s->deadline_ns && clock_monotonic_ns() > s->deadline_ns)
            return -ETIME;
    }
    return r;
}

int scan_find_heap(const struct scan_options *options, struct scan_memory *memory,
                   const struct scan_regions *regions, struct scan_heap **ret_heap)
{
    *ret_heap = NULL;
    int r = scan_heap_read_from(memory, regions, true, ret_heap);
    if (!options->words) /* then it only tells what is no root */
        return 0;
    return r == -ENOENT ? -EPROTO : r;
}

/* ---- runs ---- */

/* The first block that ends behind the start of each page. */
static void index_run(const struct scan *scan, struct scan_run *run)
{
    const struct scan_block *blocks = &scan->blocks[run->first_block];
    const struct scan_block *last = &blocks[run->n_blocks - 1];
    run->first_page = blocks[0].start / PAGE;
    uint64_t pages = (end_of(last) - 1) / PAGE - run->first_page + 1;
    if (pages > INDEX_PAGES_MAX)
        return;
    run->page_first = malloc(pages * sizeof(*run->page_first));
    if (!run->page_first)
        return; /* slower */
    run->n_pages = pages;
    size_t i = 0;
    for (uint64_t page = 0; page < pages; page++) {
        while (i + 1 < run->n_blocks && end_of(&blocks[i]) <= (run->first_page + page) * PAGE)
            i++;
        run->page_first[page] = (uint32_t)i;
    }
}

/* Protected or not: a program may do that to memory with blocks, too. */
static bool has_blocks(const struct scan_options *options, const struct scan_memory *memory,
                       const struct scan_region *region)
{
    return !is_array(options, region) && region->anonymous && !region->shared &&
           scan_memory_may(memory, region->end - region->start);
}

static int runs_make(struct scan_regions *regions, const struct scan_options *options,
                     const struct scan_memory *memory)
{
    struct scan_run *last = NULL;
    regions->runs = calloc(regions->n ? regions->n : 1, sizeof(*regions->runs));
    if (!regions->runs)
        return -ENOMEM;
    for (size_t i = 0; i < regions->n; i++) {
        const struct scan_region *region = &regions->regions[i];
        if (!has_blocks(options, memory, region))
            continue;
        if (last && last->end == region->start &&
            scan_memory_may(memory, region->end - last->start)) {
            last->end = region->end;
            continue;
        }
        last = &regions->runs[regions->n_runs++];
        *last = (struct scan_run){.start = region->start, .end = region->end};
    }
    return 0;
}

/* Tell the regions of a run which of its blocks lie in them. */
static void regions_tell(const struct scan *scan, struct scan_regions *regions,
                         const struct scan_run *run)
{
    const struct scan_block *blocks = &scan->blocks[run->first_block];
    struct scan_region *region = scan_region_of(regions, run->start);
    size_t first = 0;
    for (; region && region < regions->regions + regions->n && region->start < run->end; region++) {
        while (first < run->n_blocks && end_of(&blocks[first]) <= region->start)
            first++;
        size_t behind = first;
        while (behind < run->n_blocks && blocks[behind].start < region->end)
            behind++;
        region->first_block = run->first_block + first;
        region->n_blocks = behind - first;
        first = behind > first ? behind - 1 : first; /* the last may reach into the next one */
    }
}

/* ---- all of it ---- */

/* Room for what is read beside blocks, wherever that is. */
static int search_begin(struct search *s, const struct scan_heap *heap)
{
    s->heap = s->options->words ? heap : NULL;
    return s->heap ? scan_words_new(&s->words) : beside_begin(s);
}

static void search_end(struct search *s)
{
    scan_words_free(s->words);
    free(s->beside);
}

int scan_find(struct scan *scan, const struct scan_options *options, struct scan_memory *memory,
              struct scan_regions *regions, const struct scan_heap *heap)
{
    struct search s = {.scan = scan, .options = options, .memory = memory};
    int r = search_begin(&s, heap);
    if (r == 0)
        r = runs_make(regions, options, memory);
    for (size_t i = 0; i < regions->n; i++)
        regions->regions[i].root =
            regions->regions[i].root && !is_array(options, &regions->regions[i]);
    for (size_t i = 0; i < regions->n_runs; i++)
        s.all_bytes += regions->runs[i].end - regions->runs[i].start;
    for (size_t i = 0; i < regions->n_runs && r == 0; i++) {
        struct scan_run *run = &regions->runs[i];
        s.run = run;
        s.run_first = scan->n;
        r = search_run(&s);
        run->first_block = s.run_first;
        run->n_blocks = scan->n - s.run_first;
        if (r == 0 && run->n_blocks) {
            index_run(scan, run);
            regions_tell(scan, regions, run);
        }
    }
    search_end(&s);
    return r;
}

int scan_each(const struct scan_options *options, uint64_t deadline_ns,
              void (*each)(const struct scan_block *block, void *context), void *context,
              uint64_t *ret_searched)
{
    struct scan scan = {0};
    struct scan_regions regions = {0};
    struct scan_heap *heap = NULL;
    struct scan_memory memory;
    int r = scan_memory_open(&memory, options->pid);
    if (r < 0)
        return r;
    struct search s = {.scan = &scan,
                       .options = options,
                       .memory = &memory,
                       .each = each,
                       .each_context = context,
                       .deadline_ns = deadline_ns};
    memory.deadline_ns = deadline_ns;
    r = scan_regions_read(options->pid, &regions);
    if (r == 0 && options->words)
        r = scan_find_heap(options, &memory, &regions, &heap);
    if (r == 0)
        r = search_begin(&s, heap);
    if (r == 0)
        r = runs_make(&regions, options, &memory);
    for (size_t i = 0; i < regions.n_runs && r == 0; i++) {
        s.run = &regions.runs[i];
        r = search_run(&s);
        tell(&s, 0);
    }
    *ret_searched = scan.searched_bytes;
    free(scan.blocks);
    search_end(&s);
    scan_heap_free(heap);
    scan_regions_release(&regions);
    scan_memory_close(&memory);
    return r;
}

static struct scan_run *run_around(const struct scan_regions *regions, uint64_t address)
{
    size_t lo = 0, hi = regions->n_runs;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (regions->runs[middle].end <= address)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < regions->n_runs && regions->runs[lo].start <= address ? &regions->runs[lo] : NULL;
}

size_t scan_block_around(const struct scan *scan, const struct scan_regions *regions,
                         uint64_t address, struct scan_run **hint)
{
    struct scan_run *run = *hint;
    if (!run || address < run->start || address >= run->end) {
        run = run_around(regions, address);
        if (!run || run->n_blocks == 0)
            return SIZE_MAX;
        *hint = run;
    }
    const struct scan_block *blocks = &scan->blocks[run->first_block];
    size_t lo = 0, hi = run->n_blocks; /* the last one that starts at or below: in [lo, hi) */
    if (run->page_first) {
        uint64_t page = address / PAGE - run->first_page; /* wraps below the first: too large */
        if (page >= run->n_pages)
            return SIZE_MAX;
        lo = run->page_first[page];
        if (page + 1 < run->n_pages)
            hi = run->page_first[page + 1] + (size_t)1;
    }
    while (hi - lo > 1) {
        size_t middle = lo + (hi - lo) / 2;
        if (blocks[middle].start <= address)
            lo = middle;
        else
            hi = middle;
    }
    if (address < blocks[lo].start || address >= end_of(&blocks[lo]))
        return SIZE_MAX;
    return run->first_block + lo;
}
