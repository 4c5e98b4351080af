/* The heap of a process for people and for programs. See heap_report.h. */
#include "cli/heap_report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/sum.h"
#include "base/units.h"
#include "book/layout.h"
#include "cli/command.h"
#include "cli/table.h"
#include "cli/term.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"
#include "query/document.h"
#include "scan/heap.h"

enum {
    SPACE_HEAP = 1,  /* MEMOIR_SPACE_HEAP */
    SPACE_CHAIN = 6, /* MEMOIR_SPACE_CHAIN */
    CHAINS_SHOWN = 20,
};

enum {
    CLASS_SIZE,
    CLASS_SLABS,
    CLASS_USED,
    CLASS_FREE,
    CLASS_BYTES,
    CLASS_FREE_BYTES,
    CLASS_REMOTE,
    CLASS_FULL,
    CLASS_POOLED,
    CLASS_UNCUT
};

const struct column heap_class_columns[] = {
    [CLASS_SIZE] = {"size", "SIZE", "bytes of a block", COLUMN_NUMBER},
    [CLASS_SLABS] = {"slabs", "SLABS", "slabs of this size", COLUMN_NUMBER},
    [CLASS_USED] = {"used_blocks", "BLOCKS", "blocks that the program has", COLUMN_NUMBER},
    [CLASS_FREE] = {"free_blocks", "FREED", "blocks that were in use and are free", COLUMN_NUMBER},
    [CLASS_BYTES] = {"used", "IN USE", "bytes of blocks that the program has", COLUMN_BYTES},
    [CLASS_FREE_BYTES] = {"free", "FREE", "bytes of free blocks among them", COLUMN_BYTES},
    [CLASS_REMOTE] = {"remote_blocks", "REMOTE",
                      "free blocks that other threads gave back and the owner has not collected",
                      COLUMN_NUMBER, 0, 10},
    [CLASS_FULL] = {"full_slabs", "FULL", "slabs without a free block, which no thread owns",
                    COLUMN_NUMBER, 0, 20},
    [CLASS_POOLED] = {"pooled_slabs", "POOLED", "slabs that wait for a thread that needs them",
                      COLUMN_NUMBER, 0, 20},
    [CLASS_UNCUT] = {"uncut_blocks", NULL, "blocks that fit and were never used", COLUMN_NUMBER,
                     COLUMN_EXPORT_ONLY},
    {0},
};

enum {
    CHAIN_TID,
    CHAIN_SLABS,
    CHAIN_USED,
    CHAIN_BYTES,
    CHAIN_FREE,
    CHAIN_SPARE,
    CHAIN_SLOW,
    CHAIN_LARGE
};

const struct column heap_chain_columns[] = {
    [CHAIN_TID] = {"tid", "THREAD", "number of the thread; absent for a chain that waits for one",
                   COLUMN_NUMBER},
    [CHAIN_SLABS] = {"slabs", "SLABS", "slabs that it owns", COLUMN_NUMBER},
    [CHAIN_USED] = {"used_blocks", "BLOCKS", "blocks in use in these", COLUMN_NUMBER},
    [CHAIN_BYTES] = {"used", "IN USE", "their bytes", COLUMN_BYTES},
    [CHAIN_FREE] = {"free", "FREE", "bytes of free blocks in these", COLUMN_BYTES},
    [CHAIN_SPARE] = {"spare", "SPARE", "bytes of empty slabs that it keeps", COLUMN_BYTES},
    [CHAIN_SLOW] = {"slow_calls", "SLOW", "calls that found no block at hand", COLUMN_NUMBER, 0,
                    10},
    [CHAIN_LARGE] = {"large_allocs", "LARGE", "large blocks that it has asked for", COLUMN_NUMBER,
                     0, 20},
    {0},
};

/* ---- sums ---- */

static void sum_up(const struct scan_heap *heap, struct heap_sums *sums)
{
    for (unsigned i = 0; i < SIZE_CLASSES; i++) {
        const struct scan_heap_class *c = &heap->classes[i];
        uint64_t bytes = size_of_class(i);
        sum_add(&sums->small_used, c->used * bytes);
        sum_add(&sums->small_free, c->free * bytes);
        sum_add(&sums->uncut, c->uncut * bytes);
        sum_add(&sums->remote_blocks, c->remote);
        sum_add(&sums->remote_bytes, c->remote * bytes);
        sum_add(&sums->slabs, c->slabs);
    }
    sums->used = sums->small_used;
    sum_add(&sums->used, heap->large_slices << SLICE_SHIFT);
    sum_add(&sums->used, heap->huge.mapped_bytes);
    sums->kept = (heap->kept_slices + heap->spare_slices) << SLICE_SHIFT;
    sums->metadata = heap->n_macros * (uint64_t)SLICE_BYTES + heap->chain_bytes + heap->lot_bytes;
}

/* The book of the process knows what it is called, and what was asked for, where it is accounted. */
static void book_find(const char *dir, pid_t pid, struct heap_sums *sums)
{
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    if (ledger_scan(dir, &ledger) < 0)
        return;
    const struct ledger_process *p = ledger_process_find(ledger, pid);
    if (p)
        snprintf(sums->name, sizeof(sums->name), "%s", p->name);
    for (size_t i = 0; p && i < p->n_accounts; i++) {
        const struct ledger_account *a = &p->accounts[i];
        if (a->source != BOOK_SOURCE_MALLOC || !a->valid)
            continue;
        if (a->space == SPACE_CHAIN) {
            sum_add(&sums->user_bytes, a->totals.live_bytes);
            sum_add(&sums->user_blocks, a->totals.live_blocks);
        }
        if (a->space != SPACE_HEAP)
            continue;
        sums->accounted = true;
        sum_add(&sums->asked_bytes, a->totals.live_bytes);
        sum_add(&sums->asked_bytes, a->inherited_bytes);
        sum_add(&sums->asked_blocks, a->totals.live_blocks);
        sum_add(&sums->asked_blocks, a->inherited_blocks);
    }
}

static int by_bytes(const void *a, const void *b)
{
    const struct scan_heap_chain *x = a, *y = b;
    if (x->used_bytes != y->used_bytes)
        return x->used_bytes > y->used_bytes ? -1 : 1;
    return (x->tid > y->tid) - (x->tid < y->tid);
}

void heap_report_sum(struct scan_heap *heap, const char *dir, pid_t pid, struct heap_sums *ret_sums)
{
    struct heap_sums sums = {0};
    sum_up(heap, &sums);
    book_find(dir, pid, &sums);
    if (heap->n_chains)
        qsort(heap->chains, heap->n_chains, sizeof(*heap->chains), by_bytes);
    *ret_sums = sums;
}

/* ---- tables ---- */

static void classes_fill(const struct scan_heap *heap, bool all, struct table *t)
{
    for (unsigned i = 0; i < SIZE_CLASSES; i++) {
        const struct scan_heap_class *c = &heap->classes[i];
        uint64_t bytes = size_of_class(i);
        if (c->slabs == 0 && !all)
            continue;
        table_row(t);
        table_set_number(t, CLASS_SIZE, bytes);
        table_set_number(t, CLASS_SLABS, c->slabs);
        table_set_number(t, CLASS_USED, c->used);
        table_set_number(t, CLASS_FREE, c->free);
        table_set_number(t, CLASS_BYTES, c->used * bytes);
        table_set_number(t, CLASS_FREE_BYTES, c->free * bytes);
        table_set_number(t, CLASS_REMOTE, c->remote);
        table_set_number(t, CLASS_FULL, c->full);
        table_set_number(t, CLASS_POOLED, c->pooled);
        table_set_number(t, CLASS_UNCUT, c->uncut);
    }
}

static void chains_fill(const struct scan_heap *heap, size_t max, struct table *t)
{
    for (size_t i = 0; i < heap->n_chains && i < max; i++) {
        const struct scan_heap_chain *c = &heap->chains[i];
        table_row(t);
        if (c->tid)
            table_set_number(t, CHAIN_TID, (uint64_t)c->tid);
        table_set_number(t, CHAIN_SLABS, c->slabs);
        table_set_number(t, CHAIN_USED, c->used_blocks);
        table_set_number(t, CHAIN_BYTES, c->used_bytes);
        table_set_number(t, CHAIN_FREE, c->free_bytes);
        table_set_number(t, CHAIN_SPARE, c->spares << SLICE_SHIFT);
        table_set_number(t, CHAIN_SLOW, c->slow_calls);
        table_set_number(t, CHAIN_LARGE, c->large_allocs);
    }
}

/* ---- text ---- */

static void line(struct buffer *out, const char *what, uint64_t bytes, const char *more, ...)
    __attribute__((format(printf, 4, 5)));
static void line(struct buffer *out, const char *what, uint64_t bytes, const char *more, ...)
{
    char text[UNITS_TEXT_MAX];
    va_list arguments;
    buffer_printf(out, "%-14s %9s", what, units_format_bytes(text, bytes, UNITS_DECIMAL));
    va_start(arguments, more);
    if (*more)
        buffer_append_str(out, "   ");
    buffer_vprintf(out, more, arguments);
    va_end(arguments);
    buffer_append_char(out, '\n');
}

static unsigned percent(uint64_t part, uint64_t whole)
{
    return whole ? (unsigned)((double)part * 100 / (double)whole + 0.5) : 0;
}

static void print_sums(const struct scan_heap *heap, const struct heap_sums *sums,
                       struct buffer *out)
{
    char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX], c[UNITS_TEXT_MAX], d[UNITS_TEXT_MAX];
    if (sums->accounted)
        line(out, "Asked", sums->asked_bytes, "%s blocks",
             units_format_count(a, sums->asked_blocks));
    if (sums->user_blocks)
        line(out, "In user chains", sums->user_bytes, "%s blocks",
             units_format_count(a, sums->user_blocks));
    line(out, "In use", sums->used, "small %s, %s large %s, %s huge %s",
         units_format_bytes(a, sums->small_used, UNITS_DECIMAL),
         units_format_count(b, heap->large_blocks),
         units_format_bytes(c, heap->large_slices << SLICE_SHIFT, UNITS_DECIMAL),
         units_format_count(d, heap->huge.blocks),
         units_format_bytes((char[UNITS_TEXT_MAX]){0}, heap->huge.mapped_bytes, UNITS_DECIMAL));
    line(out, "Free in slabs", sums->small_free, "%u %% of what small blocks take",
         percent(sums->small_free, sums->small_free + sums->small_used));
    if (sums->remote_blocks)
        line(out, "  to collect", sums->remote_bytes, "%s blocks that other threads gave back",
             units_format_count(a, sums->remote_blocks));
    line(out, "Kept", sums->kept, "free, not given back; and %s of huge blocks",
         units_format_bytes(a, heap->huge_cache.bytes, UNITS_DECIMAL));
    line(out, "Given back", heap->os.purged_bytes, "since the start, and %s unmapped",
         units_format_bytes(a, heap->os.unmapped_bytes, UNITS_DECIMAL));
    line(out, "Metadata", sums->metadata, "%s macro-block%s of 2 MiB, %s slab%s, %zu chain%s",
         units_format_count(a, heap->n_macros), heap->n_macros == 1 ? "" : "s",
         units_format_count(b, sums->slabs), sums->slabs == 1 ? "" : "s", heap->n_chains,
         heap->n_chains == 1 ? "" : "s");
    buffer_printf(out,
                  "%-14s %9s   mmap %" PRIu64 ", munmap %" PRIu64 ", mremap %" PRIu64
                  ", madvise %" PRIu64 "\n",
                  "Kernel calls", "", heap->os.map_calls, heap->os.unmap_calls,
                  heap->os.remap_calls, heap->os.advise_calls);
    if (heap->broken || heap->cut)
        buffer_printf(out,
                      "Some of it is invalid (%" PRIu64 " descriptors): it changed while it was "
                      "read, or was overwritten.\n",
                      heap->broken);
}

/* Both, for table_release(). */
static void tables_make(const struct scan_heap *heap, bool all_classes, size_t chains_most,
                        struct table *classes, struct table *chains)
{
    table_init(classes, heap_class_columns);
    table_init(chains, heap_chain_columns);
    classes_fill(heap, all_classes, classes);
    chains_fill(heap, chains_most, chains);
}

/* "shop (PID 4242)": who asked by name sees which one it is. */
static void print_title(const struct heap_sums *sums, pid_t pid, const struct term *term,
                        struct buffer *out)
{
    char name[sizeof(sums->name)] = "";
    static_assert(sizeof(name) >= PROC_COMM_MAX, "room for what the kernel calls it");
    if (sums->name[0])
        memcpy(name, sums->name, sizeof(name));
    else
        (void)proc_comm_read(pid, name);
    if (!name[0])
        return;
    term_append(term, out, name, 0);
    buffer_printf(out, " (PID %d)\n", (int)pid);
}

int heap_report_text(const struct heap_look *look, const struct scan_heap *heap,
                     const struct heap_sums *sums, pid_t pid, struct buffer *out)
{
    struct term term;
    struct table_layout layout = {.header = true};
    MEMOIR_CLEANUP(table_release)
    struct table classes;
    MEMOIR_CLEANUP(table_release)
    struct table chains;
    tables_make(heap, look->all_classes, look->all_chains ? SIZE_MAX : CHAINS_SHOWN, &classes,
                &chains);
    term_init(&term, STDOUT_FILENO, (enum term_color)look->color);
    print_title(sums, pid, &term, out);
    print_sums(heap, sums, out);
    buffer_append_char(out, '\n');
    int r = classes.n_rows ? table_print(&classes, &layout, &term, out) : 0;
    if (r < 0)
        return r;
    buffer_append_char(out, '\n');
    r = chains.n_rows ? table_print(&chains, &layout, &term, out) : 0;
    if (r == 0 && chains.n_rows < heap->n_chains)
        buffer_printf(out, "Shown: %zu of %zu chains. --chains shows all.\n", chains.n_rows,
                      heap->n_chains);
    return r < 0 ? r : out->error;
}

/* ---- JSON ---- */

static void json_kind(struct json *json, const char *key, uint64_t blocks, uint64_t asked_bytes,
                      uint64_t used_bytes)
{
    json_key(json, key);
    json_object_begin(json);
    json_field_u64(json, "blocks", blocks);
    json_field_u64(json, "asked", asked_bytes);
    json_field_u64(json, "used", used_bytes);
    json_object_end(json);
}

static void json_blocks(struct json *json, const struct scan_heap *heap)
{
    json_kind(json, "large", heap->large_blocks, heap->large_asked,
              heap->large_slices << SLICE_SHIFT);
    json_kind(json, "huge", heap->huge.blocks, heap->huge.asked_bytes, heap->huge.mapped_bytes);
    json_key(json, "kernel");
    json_object_begin(json);
    json_field_u64(json, "mmap", heap->os.map_calls);
    json_field_u64(json, "munmap", heap->os.unmap_calls);
    json_field_u64(json, "mremap", heap->os.remap_calls);
    json_field_u64(json, "madvise", heap->os.advise_calls);
    json_field_u64(json, "mprotect", heap->os.protect_calls);
    json_field_u64(json, "failed", heap->os.failed_calls);
    json_field_u64(json, "mapped", heap->os.mapped_bytes);
    json_field_u64(json, "unmapped", heap->os.unmapped_bytes);
    json_field_u64(json, "purged", heap->os.purged_bytes);
    json_object_end(json);
}

static void json_nodes(struct json *json, const struct scan_heap *heap)
{
    json_key(json, "nodes");
    json_array_begin(json);
    for (size_t i = 0; i < heap->n_nodes; i++) {
        const struct scan_heap_node *n = &heap->nodes[i];
        json_object_begin(json);
        json_field_u64(json, "numa_node", n->node);
        json_field_u64(json, "macro_blocks", n->macros);
        json_field_u64(json, "used", n->used_slices << SLICE_SHIFT);
        json_field_u64(json, "kept", n->kept_slices << SLICE_SHIFT);
        json_field_u64(json, "purges", n->purges);
        json_field_u64(json, "purged", n->purged_slices << SLICE_SHIFT);
        json_field_u64(json, "refaulted", n->refaulted_slices << SLICE_SHIFT);
        json_object_end(json);
    }
    json_array_end(json);
}

int heap_report_json(const struct scan_heap *heap, const struct heap_sums *sums, pid_t pid,
                     struct buffer *out)
{
    struct json json;
    MEMOIR_CLEANUP(table_release)
    struct table classes;
    MEMOIR_CLEANUP(table_release)
    struct table chains;
    tables_make(heap, true, SIZE_MAX, &classes, &chains);
    if (classes.error || chains.error)
        return -ENOMEM;
    command_json_begin(&json, out, "memoir.heap/2");
    json_field_i64(&json, "pid", pid);
    json_field_bool(&json, "accounting", sums->accounted);
    if (sums->accounted) {
        json_field_u64(&json, "asked", sums->asked_bytes);
        json_field_u64(&json, "asked_blocks", sums->asked_blocks);
        json_field_u64(&json, "chain", sums->user_bytes);
        json_field_u64(&json, "chain_blocks", sums->user_blocks);
    } else {
        json_field_null(&json, "asked");
        json_field_null(&json, "asked_blocks");
        json_field_null(&json, "chain");
        json_field_null(&json, "chain_blocks");
    }
    json_field_u64(&json, "used", sums->used);
    json_field_u64(&json, "small_used", sums->small_used);
    json_field_u64(&json, "free_in_slabs", sums->small_free);
    json_field_u64(&json, "uncut", sums->uncut);
    json_field_u64(&json, "remote_blocks", sums->remote_blocks);
    json_field_u64(&json, "kept", sums->kept);
    json_field_u64(&json, "kept_huge", heap->huge_cache.bytes);
    json_field_u64(&json, "metadata", sums->metadata);
    json_field_u64(&json, "macro_blocks", heap->n_macros);
    json_field_u64(&json, "broken", heap->broken);
    json_field_bool(&json, "whole", !heap->cut);
    json_blocks(&json, heap);
    json_nodes(&json, heap);
    table_json_rows(&classes, "classes", &json);
    table_json_rows(&chains, "chains", &json);
    query_document_end(&json);
    return json_finish(&json);
}
