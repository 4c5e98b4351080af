/* The book of an attached process: counters by caller from the kernel, and sampled stacks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

#include "base/atomic.h"
#include "base/hash.h"
#include "base/log.h"
#include "book/report.h"
#include "observe/heap_callers.h"
#include "observe/heap_internal.h"
#include "observe/stacks.h"

enum { SAMPLES_MIN = 1024, SAMPLES_MAX = 1 << 20, SLOW_CALLS = 15 };

int heap_book_open(struct heap *h)
{
    int r = process_book_open(&h->book, BOOK_SOURCE_ATTACH, h->options->pid, h->options->dir);
    if (r < 0)
        return r;
    r = book_account_add(h->book.w, h->book.thread, MEMOIR_SPACE_HEAP, BOOK_DEVICE_HOST, "");
    if (r < 0)
        return r;
    h->account = (uint32_t)r;
    book_account_at(h->book.w, h->account)->flags |= BOOK_ACCOUNT_PARTIAL;
    h->told = calloc(HEAP_NODES_MAX, sizeof(*h->told));
    h->cap_samples = SAMPLES_MIN;
    h->samples = calloc(h->cap_samples, sizeof(*h->samples));
    return h->told && h->samples ? 0 : -ENOMEM;
}

void heap_book_release(struct heap *h)
{
    bool ended = h->end == HEAP_EXITED || h->end == HEAP_EXECUTED;
    process_book_close(&h->book,
                       ended && h->options->keep_ended ? PROCESS_BOOK_CLOSED : PROCESS_BOOK_GOES);
    free(h->told);
    free(h->samples);
}

/* ---- callers ---- */

/* The kernel counts at the last node that it knows; a new one that hands on gets its hop, and from then on the nodes behind it count. */
static void node_look(struct heap *h, uint32_t number, struct heap_node *node)
{
    struct heap_told *told = &h->told[number];
    struct heap_caller caller;
    uint64_t pc = load_acquire(&node->pc);
    if (told->looked || !pc)
        return;
    heap_callers_find(h->callers, pc, &caller);
    told->looked = true;
    told->frame = caller.frame;
    if (caller.hop)
        store_relaxed(&node->hop, caller.hop);
}

static uint32_t site_of(struct heap *h, uint32_t number)
{
    struct heap_told *told = &h->told[number];
    if (!told->site && told->looked)
        told->site = book_site_add_frames(h->book.w, h->book.thread, h->account, &told->frame, 1,
                                          BOOK_SITE_CALLER_ONLY);
    return told->site;
}

static uint64_t positive(int64_t change)
{
    return change > 0 ? (uint64_t)change : 0;
}

struct heap_change heap_book_change(const struct heap_told *told, const struct heap_node *node)
{
    /* Frees first: what is counted meanwhile must not look as if more was freed than allocated. */
    struct heap_change c = {
        .freed_bytes = (int64_t)(load_acquire(&node->freed_bytes) - told->freed_bytes),
        .freed_blocks = (int64_t)(load_acquire(&node->freed_blocks) - told->freed_blocks),
        .old_bytes = (int64_t)(load_acquire(&node->old_bytes) - told->old_bytes),
        .old_blocks = (int64_t)(load_acquire(&node->old_blocks) - told->old_blocks),
    };
    c.extra_bytes = (int64_t)(load_acquire(&node->extra_bytes) - told->extra_bytes);
    c.extra_blocks = (int64_t)(load_acquire(&node->extra_blocks) - told->extra_blocks);
    c.alloc_bytes = (int64_t)(load_acquire(&node->alloc_bytes) - told->alloc_bytes);
    c.alloc_blocks = (int64_t)(load_acquire(&node->alloc_blocks) - told->alloc_blocks);
    return c;
}

static void change_take(struct heap_told *told, const struct heap_change *c)
{
    told->alloc_bytes += (uint64_t)c->alloc_bytes;
    told->alloc_blocks += (uint64_t)c->alloc_blocks;
    told->freed_bytes += (uint64_t)c->freed_bytes;
    told->freed_blocks += (uint64_t)c->freed_blocks;
    told->old_bytes += (uint64_t)c->old_bytes;
    told->old_blocks += (uint64_t)c->old_blocks;
    told->extra_bytes += (uint64_t)c->extra_bytes;
    told->extra_blocks += (uint64_t)c->extra_blocks;
}

/* Counters go back where a call undoes what it did: failed realloc, an inner malloc. The book's only grow. */
static void node_tell(struct heap *h, uint32_t number, struct heap_node *node)
{
    struct heap_told *told = &h->told[number];
    struct heap_change c = heap_book_change(told, node);
    if (!c.alloc_bytes && !c.alloc_blocks && !c.freed_bytes && !c.freed_blocks && !c.old_blocks)
        return;
    struct book_site_counters add = {
        .alloc_bytes = positive(c.alloc_bytes) + positive(-c.freed_bytes),
        .alloc_blocks = positive(c.alloc_blocks) + positive(-c.freed_blocks),
        .freed_bytes = positive(c.freed_bytes) + positive(-c.alloc_bytes),
        .freed_blocks = positive(c.freed_blocks) + positive(-c.alloc_blocks),
    };
    if (h->budget.windowed)
        heap_estimate_node(h, told, &c, &add);
    told->book.alloc_bytes += add.alloc_bytes;
    told->book.alloc_blocks += add.alloc_blocks;
    told->book.freed_bytes += add.freed_bytes;
    told->book.freed_blocks += add.freed_blocks;
    book_count_many(h->book.w, h->book.thread, h->account | (uint64_t)site_of(h, number) << 12,
                    &add);
    change_take(told, &c);
}

void heap_sums(const struct heap *h, struct heap_sums *ret_sums)
{
    *ret_sums = (struct heap_sums){0};
    for (uint32_t i = 0; i <= h->n_told; i++) {
        ret_sums->freed_bytes += h->told[i].book.freed_bytes;
        ret_sums->freed_blocks += h->told[i].book.freed_blocks;
        ret_sums->alloc_bytes += h->told[i].book.alloc_bytes;
        ret_sums->alloc_blocks += h->told[i].book.alloc_blocks;
    }
}

uint64_t heap_calls(const struct heap *h)
{
    const struct heap_node *nodes = heap_kernel_nodes(h->kernel);
    const struct heap_state *s = heap_kernel_state(h->kernel);
    uint64_t calls = load_relaxed(&s->unknown_frees) + SLOW_CALLS * load_relaxed(&s->slow_calls);
    for (uint32_t i = 0; i <= h->n_told; i++)
        calls += load_relaxed(&nodes[i].freed_blocks) + load_relaxed(&nodes[i].alloc_blocks) +
                 load_relaxed(&nodes[i].old_blocks);
    return calls;
}

/* ---- sampled stacks ---- */

static struct heap_sample *sample_slot(const struct heap *h, uint64_t address)
{
    size_t i = hash_mix(address) & (h->cap_samples - 1);
    while (h->samples[i].address && h->samples[i].address != address)
        i = (i + 1) & (h->cap_samples - 1);
    return &h->samples[i];
}

static bool samples_reserve(struct heap *h)
{
    if (h->n_samples * 2 < h->cap_samples)
        return true;
    size_t before = h->cap_samples;
    struct heap_sample *old = h->samples,
                       *larger = before < SAMPLES_MAX ? calloc(before * 2, sizeof(*larger)) : NULL;
    if (!larger)
        return h->n_samples + 1 < before;
    h->samples = larger;
    h->cap_samples = before * 2;
    for (size_t i = 0; i < before; i++)
        if (old[i].address)
            *sample_slot(h, old[i].address) = old[i];
    free(old);
    return true;
}

static void sample_remove(struct heap *h, struct heap_sample *sample)
{
    struct book_site_counters gone = {.freed_bytes = sample->bytes, .freed_blocks = sample->blocks};
    struct book_block block;
    book_count_sampled(h->book.w, h->book.thread, sample->site, &gone);
    table_take(h->book.w, h->book.thread, h->account, sample->address, &block);
    size_t hole = (size_t)(sample - h->samples), mask = h->cap_samples - 1;
    h->samples[hole].address = 0;
    h->n_samples--;
    for (size_t i = (hole + 1) & mask; h->samples[i].address; i = (i + 1) & mask) {
        struct heap_sample moved = h->samples[i];
        h->samples[i].address = 0;
        *sample_slot(h, moved.address) = moved;
    }
}

/* The stack from the node's caller on: what hands on is left out, as it is at the exact site. */
static uint32_t sample_site(struct heap *h, const struct heap_stack *s)
{
    uint8_t bytes[sizeof(uint64_t) + HEAP_STACK_BYTES];
    struct stack_result result;
    uint32_t n = s->n_bytes <= HEAP_STACK_BYTES ? s->n_bytes : 0;
    memcpy(bytes, &s->ip, sizeof(s->ip));
    memcpy(bytes + sizeof(s->ip), s->bytes, n);
    struct stack_input input = {
        .registers = {s->ip, s->sp - sizeof(uint64_t), s->bp, s->bx, s->r12, s->r13, s->r14,
                      s->r15},
        .bytes = bytes,
        .n_bytes = n + sizeof(uint64_t),
        .python = s->python.n ? &s->python : NULL,
    };
    int r = stack_resolve(h->process, &input, &result);
    const struct book_frame *own = s->node < HEAP_NODES_MAX ? &h->told[s->node].frame : NULL;
    uint32_t first = 0;
    if (r < 0 && result.n == 0)
        return BOOK_SITE_NONE;
    for (uint32_t i = 0; own && own->module && i < result.n && i < HEAP_LEVELS_MAX + 1; i++)
        if (result.frames[i].module == own->module && result.frames[i].offset == own->offset)
            first = i;
    return book_site_add_frames(h->book.w, h->book.thread, h->account, result.frames + first,
                                result.n - first,
                                BOOK_SITE_SAMPLED | (result.flags & STACK_CUT ? BOOK_SITE_CUT : 0));
}

static void on_stack(struct heap *h, const struct heap_stack *s)
{
    struct heap_sample *there = sample_slot(h, s->address);
    if (there->address == s->address) /* the record of its end was lost */
        sample_remove(h, there);
    uint32_t site = sample_site(h, s);
    h->samples_taken++;
    if (site == BOOK_SITE_NONE || !samples_reserve(h)) {
        h->stacks_lost++;
        return;
    }
    uint64_t size = s->size, mean = s->mean ? s->mean : 1;
    struct heap_sample sample = {
        .address = s->address,
        .site = site,
        .bytes = (uint64_t)((double)(size > mean ? size : mean) * h->estimate.scale),
        .blocks = size >= mean || size == 0 ? 1 : (uint32_t)((mean + size / 2) / size),
    };
    struct book_site_counters gain = {.alloc_bytes = sample.bytes, .alloc_blocks = sample.blocks};
    struct book_block old, block = {
                               .id = s->address,
                               .size_tag = size & BOOK_BLOCK_SIZE_MAX,
                               .place = h->account | (uint64_t)site << 12 |
                                        process_book_time(&h->book, s->time_ns) << 32,
                           };
    if (!book_count_sampled(h->book.w, h->book.thread, site, &gain))
        return;
    if (table_put(h->book.w, h->book.thread, &block, &old) < 0)
        book_lose(h->book.w, BOOK_LOSS_BLOCKS_FULL);
    *sample_slot(h, s->address) = sample;
    h->n_samples++;
}

void heap_book_record(void *heap, const void *record, size_t bytes)
{
    struct heap *h = heap;
    const struct heap_gone *gone = record;
    uint32_t kind = bytes >= sizeof(*gone) ? gone->record : 0;
    if (kind == HEAP_RECORD_STACK && bytes >= sizeof(struct heap_stack)) {
        const struct heap_stack *stack = record;
        if (stack->node < HEAP_NODES_MAX)
            node_look(h, stack->node, &heap_kernel_nodes(h->kernel)[stack->node]);
        on_stack(h, stack);
    } else if (kind == HEAP_RECORD_GONE) {
        struct heap_sample *sample = sample_slot(h, gone->address);
        if (sample->address)
            sample_remove(h, sample);
    } else if (kind == HEAP_RECORD_FORK) {
        heap_children_forked(h, (pid_t)gone->address);
    } else if (kind == HEAP_RECORD_EXEC) {
        h->end = HEAP_EXECUTED;
    }
}

/* After losses in the ring: sampled blocks that are gone, and nothing said so. */
static void samples_check(struct heap *h)
{
    uint64_t lost = load_relaxed(&heap_kernel_state(h->kernel)->lost_samples);
    struct heap_block block;
    if (lost == h->lost_told)
        return;
    h->lost_told = lost;
    for (size_t i = 0; i < h->cap_samples; i++) {
        struct heap_sample *sample = &h->samples[i];
        while (sample->address && (!heap_kernel_block(h->kernel, sample->address, &block) ||
                                   !(block.size_flags & HEAP_SAMPLED)))
            sample_remove(h, sample); /* may move another one here */
    }
}

static void losses_tell(struct heap *h)
{
    const struct heap_state *s = heap_kernel_state(h->kernel);
    uint64_t *losses = h->book.w->header->losses;
    store_relaxed(&losses[BOOK_LOSS_LIMIT], load_relaxed(&s->lost_blocks));
    store_relaxed(&losses[BOOK_LOSS_REPLACED], load_relaxed(&s->replaced));
    store_relaxed(&losses[BOOK_LOSS_SITES_FULL], load_relaxed(&s->lost_nodes));
}

/* While a window is open, its weight is not known yet. */
static bool tells(const struct heap *h)
{
    return !h->budget.windowed || !h->budget.in || h->budget.closing;
}

void heap_book_tell(struct heap *h)
{
    struct heap_node *nodes = heap_kernel_nodes(h->kernel);
    uint32_t n = load_acquire(&heap_kernel_state(h->kernel)->n_nodes);
    n = n < HEAP_NODES_MAX - 1 ? n : HEAP_NODES_MAX - 1;
    for (uint32_t i = 1; i <= n; i++)
        node_look(h, i, &nodes[i]);
    heap_kernel_read(h->kernel, heap_book_record, h);
    h->n_told = n;
    for (uint32_t i = 0; i <= n && tells(h); i++)
        node_tell(h, i, &nodes[i]);
    samples_check(h);
    losses_tell(h);
    if (h->end == HEAP_RUNS && load_acquire(&heap_kernel_state(h->kernel)->ended))
        h->end = HEAP_EXECUTED; /* the record that says so was lost: the ring was full */
}
