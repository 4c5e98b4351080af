/* Sites put together. See rows.h. */
#include "profile/rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "profile/headline.h"
#include "profile/names.h"

const char *const rows_by_words[] = {"caller", "stack", "function", "file",
                                     "module", "space", "device",   NULL};

#define SEED_ROW UINT64_C(0x726f77)

/* ---- keys: the same in two profiles for what is the same ---- */

static uint64_t device_key(const struct profile *p, const struct profile_account *a, uint64_t key)
{
    if (!a->has_device)
        return hash_combine(key, 1);
    if (a->device_uid)
        return hash_string(profile_text(p, a->device_uid), key);
    return hash_combine(hash_string(profile_text(p, a->device_name), key), (uint32_t)a->ordinal);
}

static uint64_t account_key(const struct profile *p, uint32_t account)
{
    const struct profile_account *a = &p->accounts[account];
    return device_key(p, a, hash_combine(SEED_ROW, a->space));
}

static uint64_t stack_key(const struct profile *p, const struct stack *s, uint64_t key)
{
    for (size_t i = 0; i < s->n_frames; i++)
        key = hash_combine(key, p->frames[s->frames[i]].key);
    return key;
}

static uint64_t function_key(const struct profile *p, uint32_t frame, uint64_t key)
{
    char text[PROFILE_LABEL_MAX];
    key = hash_string(profile_function(p, frame, headline_line(p, frame), text), key);
    return hash_string(profile_base_name(profile_module_path(p, frame)), key);
}

static uint64_t file_key(const struct profile *p, uint32_t frame, uint64_t key)
{
    const struct profile_frame *f = &p->frames[frame];
    const struct profile_line *line =
        f->n_lines ? &p->lines[f->first_line + headline_line(p, frame)] : NULL;
    if (line && line->file)
        return hash_string(profile_text(p, line->file), key);
    return hash_string(profile_module_path(p, frame), ~key);
}

static uint64_t row_key(const struct profile *p, const struct stack *s, enum rows_by by)
{
    if (by == ROWS_BY_SPACE)
        return hash_combine(SEED_ROW, p->accounts[s->account].space);
    if (by == ROWS_BY_DEVICE)
        return device_key(p, &p->accounts[s->account], SEED_ROW);
    uint64_t key = account_key(p, s->account);
    if (s->n_frames == 0)
        return key;
    switch (by) {
    case ROWS_BY_STACK:
        return stack_key(p, s, key);
    case ROWS_BY_FUNCTION:
        return function_key(p, s->frames[0], key);
    case ROWS_BY_FILE:
        return file_key(p, s->frames[0], key);
    case ROWS_BY_MODULE:
        return hash_string(profile_module_path(p, s->frames[0]), key);
    default:
        return hash_combine(key, p->frames[s->frames[0]].key);
    }
}

/* ---- adding ---- */

static struct row *row_find(struct rows *rows, uint64_t key)
{
    struct numbers_walk walk;
    uint32_t n = numbers_first(&rows->by_key, key, &walk);
    if (n != NUMBERS_NONE)
        return &rows->list[n];
    if (rows->n == rows->room) {
        size_t room = rows->room ? rows->room * 2 : 256;
        struct row *list = reallocarray(rows->list, room, sizeof(*list));
        if (!list)
            return NULL;
        rows->list = list;
        rows->room = room;
    }
    if (numbers_add(&rows->by_key, key, (uint32_t)rows->n) < 0)
        return NULL;
    struct row *row = &rows->list[rows->n++];
    *row = (struct row){.key = key};
    return row;
}

/* The stack that speaks for the row: the largest, and a newer moment's rather than an older one's. */
static void speak(struct row *row, const struct profile *p, const struct stack *s)
{
    if (row->profile == p && s->figures.live_bytes <= row->largest)
        return;
    row->profile = p;
    row->frames = s->n_frames ? s->frames : NULL;
    row->n_frames = s->n_frames;
    row->inside = s->inside;
    row->cut = s->cut;
    row->bare = s->bare;
    row->account = s->account;
    row->largest = s->figures.live_bytes;
}

static void row_join(struct row *row, const struct profile *p, const struct stack *s, bool before)
{
    speak(row, p, s);
    profile_figures_add(before ? &row->before : &row->now, &s->figures);
    row->estimate |= s->estimate;
    row->sites += !before;
    if (s->first_seen_ns && (!row->first_seen_ns || s->first_seen_ns < row->first_seen_ns))
        row->first_seen_ns = s->first_seen_ns;
}

/* ---- who asked ---- */

static uint64_t caller_hash(const struct profile *p, const struct stack *s)
{
    return hash_combine(hash_combine(p->seed, s->account), stack_caller(p, s->frames[0]));
}

static bool passes(const struct numbers *passing, const struct profile *p, const struct stack *s)
{
    struct numbers_walk walk;
    return s->n_frames && (s->estimate || s->bare) &&
           numbers_first(passing, caller_hash(p, s), &walk) != NUMBERS_NONE;
}

/* Does the stack tell another line than its caller does? Of code made at run time only stacks know which it is. */
static bool tells_more(const struct profile *p, const struct stack *s)
{
    const struct profile_frame *f = &p->frames[s->frames[0]];
    return headline_frame(p, s->frames, s->n_frames) > 0 ||
           (f->n_lines && p->modules[f->module].kind == PROFILE_MODULE_ADDRESS);
}

/* Callers that were sampled at work for a line of the program further out: which line they worked for is known from the
 * samples only. */
static int find_passing(const struct profile *p, const struct stacks *stacks,
                        struct numbers *passing)
{
    for (size_t i = 0; i < stacks->n; i++) {
        const struct stack *s = &stacks->list[i];
        if (s->estimate && s->n_frames && tells_more(p, s) && !passes(passing, p, s) &&
            numbers_add(passing, caller_hash(p, s), 0) < 0)
            return -ENOMEM;
    }
    return 0;
}

static void asked_add(struct stacks *to, const struct profile *p, struct stack s)
{
    size_t inside = headline_frame(p, s.frames, s.n_frames);
    s.frames = inside ? s.frames + inside : s.frames; /* which may be NULL */
    s.inside = (uint16_t)inside;
    s.n_frames = (uint16_t)(s.n_frames - inside);
    to->list[to->n++] = s;
}

/* Each site from the frame on that asked: exact ones, but for callers that pass on what others ask for their stacks. */
static int take_asked(const struct profile *p, struct stacks *ret_stacks)
{
    MEMOIR_CLEANUP(stacks_release)
    struct stacks all = {0};
    MEMOIR_CLEANUP(stacks_release)
    struct stacks asked = {.list = calloc(2 * p->n_sites + 1, sizeof(*asked.list))};
    MEMOIR_CLEANUP(numbers_release)
    struct numbers passing = {0};
    int r = asked.list ? stacks_take(p, &all) : -ENOMEM;
    if (r == 0)
        r = find_passing(p, &all, &passing);
    if (r < 0)
        return r;
    for (size_t i = 0; i < p->n_sites; i++) {
        struct stack s = stack_of(p, &p->sites[i]);
        if (!(p->sites[i].flags & PROFILE_SITE_SAMPLED) && !passes(&passing, p, &s))
            asked_add(&asked, p, s);
    }
    for (size_t i = 0; i < all.n; i++)
        if (passes(&passing, p, &all.list[i]))
            asked_add(&asked, p, all.list[i]);
    *ret_stacks = asked;
    asked = (struct stacks){0};
    return 0;
}

int rows_add(struct rows *rows, const struct profile *p, const struct rows_filter *filter,
             bool before)
{
    struct stacks *grown = reallocarray(rows->stacks, rows->n_stacks + 1, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    rows->stacks = grown;
    struct stacks *s = &rows->stacks[rows->n_stacks];
    int r = filter->by == ROWS_BY_STACK ? stacks_take(p, s) : take_asked(p, s);
    if (r < 0)
        return r;
    rows->n_stacks++;
    for (size_t i = 0; i < s->n; i++) {
        const struct stack *stack = &s->list[i];
        if (filter->space && p->accounts[stack->account].space != filter->space)
            continue;
        struct row *row = row_find(rows, row_key(p, stack, filter->by));
        if (!row)
            return -ENOMEM;
        row_join(row, p, stack, before);
        profile_figures_add(before ? &rows->before : &rows->now, &stack->figures);
        if (stack->estimate && !before)
            profile_figures_add(&rows->estimated, &stack->figures);
    }
    if (!before)
        profile_figures_add(&rows->bare, &s->bare);
    return 0;
}

void rows_release(struct rows *rows)
{
    for (size_t i = 0; i < rows->n_stacks; i++)
        stacks_release(&rows->stacks[i]);
    free(rows->stacks);
    free(rows->list);
    numbers_release(&rows->by_key);
    *rows = (struct rows){0};
}

uint32_t row_headline(const struct row *row, enum rows_by by)
{
    if (!row->frames || row->n_frames == 0)
        return UINT32_MAX;
    size_t at = by == ROWS_BY_STACK ? headline_frame(row->profile, row->frames, row->n_frames) : 0;
    return row->frames[at];
}

/* ---- order ---- */

uint64_t rows_value(const struct profile_figures *figures, enum rows_measure measure)
{
    switch (measure) {
    case ROWS_ALLOCATED:
        return figures->alloc_bytes;
    case ROWS_BLOCKS:
        return figures->live_blocks;
    default:
        return figures->live_bytes;
    }
}

int64_t rows_change(uint64_t now, uint64_t before)
{
    uint64_t by = now >= before ? now - before : before - now;
    int64_t change = by > INT64_MAX ? INT64_MAX : (int64_t)by;
    return now >= before ? change : -change;
}

struct order {
    enum rows_measure measure;
    bool growth;
};

static int64_t change_of(const struct row *row, enum rows_measure measure)
{
    return rows_change(rows_value(&row->now, measure), rows_value(&row->before, measure));
}

static int compare(const void *a, const void *b, void *context)
{
    const struct row *x = a, *y = b;
    const struct order *order = context;
    if (order->growth) {
        int64_t grown_x = change_of(x, order->measure), grown_y = change_of(y, order->measure);
        if (grown_x != grown_y)
            return grown_x > grown_y ? -1 : 1;
    }
    uint64_t value_x = rows_value(&x->now, order->measure);
    uint64_t value_y = rows_value(&y->now, order->measure);
    if (value_x != value_y)
        return value_x > value_y ? -1 : 1;
    if (x->now.alloc_bytes != y->now.alloc_bytes)
        return x->now.alloc_bytes > y->now.alloc_bytes ? -1 : 1;
    return (x->key > y->key) - (x->key < y->key);
}

void rows_sort(struct rows *rows, enum rows_measure measure, bool growth)
{
    struct order order = {measure, growth};
    if (rows->n)
        qsort_r(rows->list, rows->n, sizeof(*rows->list), compare, &order);
    numbers_release(&rows->by_key); /* its numbers are no longer right */
}

void rows_min(struct rows *rows, enum rows_measure measure, bool growth, uint64_t min)
{
    size_t kept = 0;
    for (size_t i = 0; i < rows->n; i++) {
        const struct row *row = &rows->list[i];
        int64_t change = change_of(row, measure);
        uint64_t value =
            growth ? (uint64_t)(change < 0 ? -change : change) : rows_value(&row->now, measure);
        if (value >= min)
            rows->list[kept++] = *row;
    }
    rows->n = kept;
    numbers_release(&rows->by_key);
}
