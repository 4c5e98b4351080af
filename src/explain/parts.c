/* The parts of an explanation: added, sorted, checked, divided by what the book tells. See explain.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/sum.h"
#include "explain/explain.h"

static const struct {
    const char *key, *title, *others;
} words[EXPLAIN_KINDS] = {
    [EXPLAIN_HEAP] = {"heap", "heap", "other heap"},
    [EXPLAIN_SLACK] = {"slack", "allocator slack", "other slack"},
    [EXPLAIN_OLDER] = {"older", "older than the attach", "other older memory"},
    [EXPLAIN_RUNTIME] = {"runtime", "runtime", "other runtime memory"},
    [EXPLAIN_ANONYMOUS] = {"anonymous", "anonymous", "other mappings"},
    [EXPLAIN_STACK] = {"stack", "stacks", "other stacks"},
    [EXPLAIN_FILE] = {"file", "files", "other files"},
    [EXPLAIN_SHARED] = {"shared", "shared memory", "other shared memory"},
    [EXPLAIN_DEVICE] = {"device", "devices", "other devices"},
    [EXPLAIN_MEMOIR] = {"memoir", "Memoir itself", "other"},
    [EXPLAIN_REST] = {"rest", "unexplained", "other mappings"},
};

const char *explain_kind_key(enum explain_kind kind)
{
    return kind < EXPLAIN_KINDS ? words[kind].key : "unknown";
}

const char *explain_kind_title(enum explain_kind kind)
{
    return kind < EXPLAIN_KINDS ? words[kind].title : "unknown";
}

/* ---- adding ---- */

/* Of a long path the end says more. */
static void name_set(char to[static EXPLAIN_NAME_MAX], const char *name)
{
    size_t n = strlen(name);
    if (n < EXPLAIN_NAME_MAX) {
        memcpy(to, name, n + 1);
        return;
    }
    const char *tail = name + n - (EXPLAIN_NAME_MAX - 4);
    while ((*tail & 0xc0) == 0x80) /* not in the middle of a character */
        tail++;
    snprintf(to, EXPLAIN_NAME_MAX, "...%s", tail);
}

static struct explain_part *part_find(struct explain *e, enum explain_kind kind, const char *name)
{
    char cut[EXPLAIN_NAME_MAX];
    name_set(cut, name);
    for (uint32_t i = 0; i < e->n_parts; i++)
        if (e->parts[i].kind == kind && strcmp(e->parts[i].name, cut) == 0)
            return &e->parts[i];
    return NULL;
}

static struct explain_part *part_make(struct explain *e, enum explain_kind kind, const char *name)
{
    struct explain_part *part = &e->parts[e->n_parts++];
    *part = (struct explain_part){.kind = kind};
    name_set(part->name, name);
    return part;
}

/* The last places are for the folded parts of each kind. */
static struct explain_part *part_of(struct explain *e, enum explain_kind kind, const char *name)
{
    struct explain_part *part = part_find(e, kind, name);
    if (part)
        return part;
    if (e->n_parts < EXPLAIN_PARTS_MAX - EXPLAIN_KINDS)
        return part_make(e, kind, name);
    part = part_find(e, kind, words[kind].others);
    if (!part)
        part = part_make(e, kind, words[kind].others);
    part->others++;
    return part;
}

void explain_add(struct explain *e, const struct explain_share *share)
{
    if (share->bytes == 0 && share->swap_bytes == 0)
        return;
    struct explain_part *part = part_of(e, share->kind, share->name);
    part->marks |= share->marks;
    part->mappings++;
    sum_add(&part->bytes, share->bytes);
    sum_add(&part->private_bytes, share->private_bytes);
    sum_add(&part->huge_bytes, share->huge_bytes);
    sum_add(&part->swap_bytes, share->swap_bytes);
}

static int by_kind_and_size(const void *left, const void *right)
{
    const struct explain_part *a = left, *b = right;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (!a->others != !b->others)
        return a->others ? 1 : -1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return strcmp(a->name, b->name);
}

void explain_sort(struct explain *e)
{
    qsort(e->parts, e->n_parts, sizeof(e->parts[0]), by_kind_and_size);
}

/* ---- asking ---- */

uint64_t explain_sum(const struct explain *e, enum explain_kind kind)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < e->n_parts; i++)
        if (e->parts[i].kind == kind)
            sum_add(&sum, e->parts[i].bytes);
    return sum;
}

bool explain_is_malloc(enum explain_kind kind)
{
    return kind == EXPLAIN_HEAP || kind == EXPLAIN_SLACK || kind == EXPLAIN_OLDER;
}

uint64_t explain_sum_malloc(const struct explain *e)
{
    return explain_sum(e, EXPLAIN_HEAP) + explain_sum(e, EXPLAIN_SLACK) +
           explain_sum(e, EXPLAIN_OLDER);
}

size_t explain_shown(const struct explain *e, enum explain_kind kind, size_t top, size_t *ret_first,
                     uint64_t *ret_hidden_bytes, size_t *ret_hidden)
{
    size_t first = 0, shown = 0, hidden = 0;
    uint64_t hidden_bytes = 0;
    while (first < e->n_parts && e->parts[first].kind != kind)
        first++;
    for (size_t i = first; i < e->n_parts && e->parts[i].kind == kind; i++) {
        const struct explain_part *part = &e->parts[i];
        if (i - first == shown && shown < top && !part->others &&
            (shown == 0 || part->bytes >= e->rss_bytes / 500)) {
            shown++;
            continue;
        }
        hidden += part->others ? part->others : 1;
        sum_add(&hidden_bytes, part->bytes);
    }
    *ret_first = first;
    *ret_hidden = hidden;
    *ret_hidden_bytes = hidden_bytes;
    return shown;
}

bool explain_valid(const struct explain *e)
{
    uint64_t sum = 0;
    if (e->n_parts > EXPLAIN_PARTS_MAX)
        return false;
    for (uint32_t i = 0; i < e->n_parts; i++) {
        const struct explain_part *part = &e->parts[i];
        if (part->kind >= EXPLAIN_KINDS || !memchr(part->name, '\0', sizeof(part->name)))
            return false;
        sum_add(&sum, part->bytes);
    }
    return sum == e->rss_bytes;
}

/* ---- what is in use ---- */

/* Take up to `bytes` from the parts of malloc, the smallest first, so that what stays is in the largest. */
static void heap_reduce(struct explain *e, uint64_t bytes)
{
    for (uint32_t i = e->n_parts; i-- > 0 && bytes > 0;) {
        struct explain_part *part = &e->parts[i];
        if (part->kind != EXPLAIN_HEAP)
            continue;
        uint64_t less = part->bytes < bytes ? part->bytes : bytes;
        part->bytes -= less;
        if (part->private_bytes > part->bytes)
            part->private_bytes = part->bytes;
        if (part->huge_bytes > part->bytes)
            part->huge_bytes = part->bytes;
        bytes -= less;
    }
}

void explain_live(struct explain *e, uint64_t live, bool partial)
{
    uint64_t resident = explain_sum(e, EXPLAIN_HEAP), in_use = live < resident ? live : resident;
    e->live_bytes = live;
    e->live_known = 1;
    /* Rounding costs the same share of blocks that are resident and of those that are not. */
    if (e->heap_served > live && e->heap_served > resident)
        in_use = (uint64_t)((double)live * ((double)resident / (double)e->heap_served));
    if (in_use > resident)
        in_use = resident;
    e->absent_bytes = live - in_use;
    uint64_t slack = resident - in_use;
    heap_reduce(e, slack);
    const char *name = partial          ? "blocks from before the attach, and free memory"
                       : e->memoir_heap ? "rounding of block sizes"
                                        : "free or lost to rounding";
    explain_add(e, &(struct explain_share){partial ? EXPLAIN_OLDER : EXPLAIN_SLACK,
                                           EXPLAIN_ESTIMATE, name, slack, slack});
    for (uint32_t i = 0; i < e->n_parts; i++)
        if (explain_is_malloc(e->parts[i].kind))
            e->parts[i].marks |= EXPLAIN_ESTIMATE;
    explain_sort(e);
}

/* ---- JSON ---- */

static void part_json(const struct explain_part *part, struct json *json)
{
    json_object_begin(json);
    json_field_string(json, "kind", explain_kind_key(part->kind));
    json_field_string(json, "name", part->name);
    json_field_u64(json, "bytes", part->bytes);
    json_field_u64(json, "private", part->private_bytes);
    json_field_u64(json, "huge", part->huge_bytes);
    json_field_u64(json, "swap", part->swap_bytes);
    json_field_u64(json, "mappings", part->mappings);
    json_field_u64(json, "folded", part->others);
    json_field_bool(json, "estimated", part->marks & EXPLAIN_ESTIMATE);
    json_field_bool(json, "by_shape", part->marks & EXPLAIN_BY_SHAPE);
    json_object_end(json);
}

void explain_json(const struct explain *e, struct json *json)
{
    json_field_i64(json, "pid", e->pid);
    json_field_u64(json, "rss", e->rss_bytes);
    json_field_u64(json, "swap", e->swap_bytes);
    json_field_u64(json, "hugetlb", e->hugetlb_bytes);
    json_field_u64(json, "mappings", e->n_mappings);
    json_field_u64(json, "threads", e->n_threads);
    json_field_bool(json, "memory_read", e->memory_read);
    json_key(json, "live");
    if (e->live_known)
        json_u64(json, e->live_bytes);
    else
        json_null(json);
    json_key(json, "live_absent");
    if (e->live_known)
        json_u64(json, e->absent_bytes);
    else
        json_null(json);
    json_key(json, "kinds");
    json_object_begin(json);
    for (int i = 0; i < EXPLAIN_KINDS; i++)
        json_field_u64(json, explain_kind_key(i), explain_sum(e, i));
    json_object_end(json);
    json_key(json, "parts");
    json_array_begin(json);
    for (uint32_t i = 0; i < e->n_parts; i++)
        part_json(&e->parts[i], json);
    json_array_end(json);
}
