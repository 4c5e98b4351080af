/* Random events into a history and into a naive model of it: an array of blocks that is searched from one end to the
 * other. Whatever the model knows must come out of the history. */
#include <errno.h>

#include "trace_fixture.h"

enum { BLOCKS_MAX = 20000, PLACES = 40, SITES = 7, PLACE_BYTES = 1 << 16 };

struct model_block {
    struct trace_block b;
    unsigned layer; /* 0 driver, 1 system, 2 handle */
};

struct model {
    struct model_block blocks[BLOCKS_MAX];
    size_t n;
    struct trace_flow flow[TRACE_DIRECTIONS];
    uint64_t unknown_frees, unknown_restores, unknown_sides, superseded;
};

static uint64_t random_state;

static uint64_t random_below(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % n;
}

static unsigned layer_of(uint32_t flags)
{
    return flags & TRACE_FLAG_HANDLE ? 2 : flags & TRACE_FLAG_SYSTEM ? 1 : 0;
}

static bool overlaps(const struct trace_block *b, uint64_t address, uint64_t size)
{
    return b->address < address + size && address < b->address + b->size;
}

static void model_end(struct trace_block *b, uint64_t now, uint8_t end)
{
    b->active = false;
    b->end = end;
    b->end_ns = now;
    b->state = end == TRACE_END_LOST ? TRACE_STATE_UNKNOWN : TRACE_STATE_FREED;
}

static void model_alloc(struct model *m, const struct trace_event *e)
{
    unsigned layer = layer_of(e->flags);
    for (size_t i = 0; i < m->n; i++) {
        struct trace_block *b = &m->blocks[i].b;
        if (!b->active || m->blocks[i].layer != layer ||
            !(layer == 2 ? b->address == e->address : overlaps(b, e->address, e->size)))
            continue;
        if (e->kind == TRACE_FOUND && b->address == e->address && b->size == e->size)
            return;
        model_end(b, e->time_ns, TRACE_END_LOST);
        m->superseded++;
    }
    m->blocks[m->n++] = (struct model_block){
        .b = {.address = e->address,
              .size = e->size,
              .site = e->site,
              .device = e->device,
              .space = e->space,
              .context = e->context,
              .call = e->call,
              .start_ns = e->time_ns,
              .active = true,
              .state = TRACE_STATE_ALLOCATED,
              .found = e->kind == TRACE_FOUND,
              .class = layer == 1 ? TRACE_CLASS_SYSTEM : TRACE_CLASS_OWN},
        .layer = layer,
    };
}

/* The latest block of an address in a layer. */
static struct trace_block *model_latest(struct model *m, unsigned layer, uint64_t address)
{
    for (size_t i = m->n; i-- > 0;)
        if (m->blocks[i].layer == layer && m->blocks[i].b.address == address)
            return &m->blocks[i].b;
    return layer == 0 ? model_latest(m, 2, address) : NULL;
}

static struct trace_block *model_find(struct model *m, uint64_t address)
{
    for (unsigned layer = 0; layer < 3; layer++)
        for (size_t i = 0; i < m->n; i++) {
            struct trace_block *b = &m->blocks[i].b;
            if (b->active && m->blocks[i].layer == layer &&
                (layer == 2 ? b->address == address : overlaps(b, address, 1)))
                return b;
        }
    return NULL;
}

static void model_restore(struct model *m, const struct trace_event *e)
{
    struct trace_block *b = model_latest(m, layer_of(e->flags), e->address);
    unsigned layer = b ? ((struct model_block *)b)->layer : 0;
    if (b && b->active)
        return;
    bool taken = !b || b->end != TRACE_END_FREE;
    for (size_t i = 0; b && i < m->n; i++)
        if (m->blocks[i].b.active && m->blocks[i].layer == layer && layer != 2 &&
            overlaps(&m->blocks[i].b, b->address, b->size))
            taken = true;
    if (taken) {
        m->unknown_restores++;
        return;
    }
    b->active = true;
    b->end = b->end_ns = 0;
    b->state = TRACE_STATE_ALLOCATED;
}

static void model_side(struct model *m, const struct trace_event *e, bool target)
{
    struct trace_block *b = model_find(m, target ? e->address : e->source);
    if (!b) {
        m->unknown_sides++;
        return;
    }
    if (!target && b == model_find(m, e->address))
        return; /* counted once */
    struct trace_flow *sums[] = {&b->flow[e->direction], target ? &b->written : &b->read};
    for (unsigned i = 0; i < 2; i++) {
        sums[i]->copies++;
        sums[i]->bytes += e->size;
    }
    if (!b->first_copy_ns)
        b->first_copy_ns = e->time_ns;
    b->last_copy_ns = e->time_ns;
}

static void model_event(struct model *m, const struct trace_event *e)
{
    struct trace_block *b;
    switch (e->kind) {
    case TRACE_ALLOC:
    case TRACE_FOUND:
        model_alloc(m, e);
        break;
    case TRACE_FREE:
        b = model_latest(m, layer_of(e->flags), e->address);
        if (b && b->active)
            model_end(b, e->time_ns, TRACE_END_FREE);
        else
            m->unknown_frees++;
        break;
    case TRACE_RESTORE:
        model_restore(m, e);
        break;
    case TRACE_COPY:
        m->flow[e->direction].copies++;
        m->flow[e->direction].bytes += e->size;
        model_side(m, e, true);
        model_side(m, e, false);
        break;
    case TRACE_SET:
        m->unknown_sides += !model_find(m, e->address);
        break;
    case TRACE_RESET:
        for (size_t i = 0; i < m->n; i++)
            if (m->blocks[i].b.active && m->blocks[i].b.context == e->context)
                model_end(&m->blocks[i].b, e->time_ns, TRACE_END_RESET);
        break;
    default:
        break;
    }
}

static uint64_t random_place(void)
{
    return DEVICE_AT + random_below(PLACES) * PLACE_BYTES;
}

static struct trace_event random_event(uint64_t now)
{
    static const uint16_t kinds[] = {TRACE_ALLOC, TRACE_ALLOC,   TRACE_FOUND, TRACE_FREE,
                                     TRACE_FREE,  TRACE_RESTORE, TRACE_COPY,  TRACE_COPY,
                                     TRACE_COPY,  TRACE_COPY,    TRACE_GAP,   TRACE_SET};
    struct trace_event e = event_of(kinds[random_below(12)], now, random_place(), 0);
    if (random_below(500) == 0)
        e.kind = TRACE_RESET;
    e.context = random_below(4) + 1;
    e.site = (uint32_t)random_below(SITES) + 1;
    e.device = (int32_t)random_below(2);
    if (random_below(8) == 0)
        e.flags = random_below(2) ? TRACE_FLAG_SYSTEM : TRACE_FLAG_HANDLE;
    e.space = e.flags & TRACE_FLAG_SYSTEM ? MEMOIR_SPACE_MAPPED : MEMOIR_SPACE_DRAM;
    if (e.kind == TRACE_ALLOC || e.kind == TRACE_FOUND)
        e.size = (random_below(5) == 0 ? 2 * PLACE_BYTES : random_below(PLACE_BYTES)) + 1;
    if (e.kind == TRACE_COPY) {
        /* On the device, so that no ranges are made up. */
        e.direction = TRACE_ON_DEVICE;
        e.size = random_below(4096) + 1;
        e.address += random_below(2) ? random_below(PLACE_BYTES) : 0;
        e.source = random_place() + random_below(PLACE_BYTES);
        e.flags = 0;
    }
    return e;
}

static void compare_block(const struct trace_block *a, const struct trace_block *b)
{
    assert_int_equal(a->address, b->address);
    assert_int_equal(a->size, b->size);
    assert_int_equal(a->site, b->site);
    assert_int_equal(a->device, b->device);
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->end, b->end);
    assert_int_equal(a->active, b->active);
    assert_int_equal(a->found, b->found);
    assert_int_equal(a->start_ns, b->start_ns);
    assert_int_equal(a->end_ns, b->end_ns);
    assert_int_equal(a->first_copy_ns, b->first_copy_ns);
    assert_int_equal(a->last_copy_ns, b->last_copy_ns);
    assert_int_equal(a->class, b->class);
    assert_memory_equal(a->flow, b->flow, sizeof(a->flow));
    assert_memory_equal(&a->read, &b->read, sizeof(a->read));
    assert_memory_equal(&a->written, &b->written, sizeof(a->written));
}

static void compare_sums(struct trace_history *h, struct model *m)
{
    struct trace_totals t = trace_history_totals(h);
    uint64_t live = 0, own = 0;
    for (size_t i = 0; i < m->n; i++) {
        live += m->blocks[i].b.active;
        own += m->blocks[i].b.active && m->blocks[i].b.class == TRACE_CLASS_OWN
                   ? m->blocks[i].b.size
                   : 0;
    }
    assert_int_equal(t.active_blocks, live);
    assert_int_equal(t.live_bytes, own);
    assert_int_equal(t.unknown_frees, m->unknown_frees);
    assert_int_equal(t.unknown_restores, m->unknown_restores);
    assert_int_equal(t.superseded, m->superseded);
    assert_memory_equal(t.flow, m->flow, sizeof(t.flow));
    struct trace_holder holders[64];
    uint64_t cursor = 0;
    size_t n = trace_history_holders(h, &cursor, holders, 64);
    for (size_t k = 0; k < n; k++) {
        struct trace_holder sum = {0};
        for (size_t i = 0; i < m->n; i++) {
            const struct trace_block *b = &m->blocks[i].b;
            if (b->site != holders[k].site || b->device != holders[k].device ||
                b->class != holders[k].class || b->space != holders[k].space)
                continue;
            sum.allocated_bytes += b->size;
            sum.live_bytes += b->active ? b->size : 0;
            sum.freed_bytes += b->state == TRACE_STATE_FREED ? b->size : 0;
            sum.lost_blocks += b->end == TRACE_END_LOST;
            sum.found_blocks += b->found;
            sum.never_copied_blocks += !b->active && !b->first_copy_ns;
            sum.flow[TRACE_ON_DEVICE].bytes += b->flow[TRACE_ON_DEVICE].bytes;
        }
        assert_int_equal(sum.allocated_bytes, holders[k].allocated_bytes);
        assert_int_equal(sum.live_bytes, holders[k].live_bytes);
        assert_int_equal(sum.freed_bytes, holders[k].freed_bytes);
        assert_int_equal(sum.lost_blocks, holders[k].lost_blocks);
        assert_int_equal(sum.found_blocks, holders[k].found_blocks);
        assert_int_equal(sum.never_copied_blocks, holders[k].never_copied_blocks);
        assert_int_equal(sum.flow[TRACE_ON_DEVICE].bytes, holders[k].flow[TRACE_ON_DEVICE].bytes);
    }
}

static void compare(struct trace_history *h, struct model *m)
{
    struct trace_block b[64];
    int line = trace_history_check(h);
    if (line)
        fail_msg("check of line %d", line);
    compare_sums(h, m);
    for (unsigned i = 0; i < 200; i++) {
        uint64_t address = random_place() + random_below(2) * random_below(3 * PLACE_BYTES);
        struct trace_block *expected = model_find(m, address);
        int r = trace_history_find(h, address, b);
        assert_int_equal(r, expected ? 0 : -ENOENT);
        if (expected)
            compare_block(b, expected);
    }
    /* All histories of one address, without those of other layers at one moment: those may come in either order. */
    uint64_t address = random_place();
    size_t n = trace_history_at(h, address, b, 64), seen = 0;
    for (size_t i = 0; i < m->n; i++)
        seen += m->blocks[i].b.address == address;
    assert_int_equal(n, seen);
    for (size_t i = 1; i < n && i < 64; i++)
        assert_true(b[i - 1].start_ns >= b[i].start_ns);
}

static void random_events_leave_what_the_model_says(void **state)
{
    (void)state;
    random_state = check_seed() * UINT64_C(0x9e3779b97f4a7c15) + 1;
    struct model *m = calloc(1, sizeof(*m));
    struct trace_history *h = history_with(&(struct trace_limits){.ended = BLOCKS_MAX});
    for (uint64_t i = 1; i <= 20000; i++) {
        struct trace_event e = random_event(i);
        trace_history_event(h, &e);
        model_event(m, &e);
        if (random_below(400) == 0)
            compare(h, m);
    }
    compare(h, m);
    assert_int_equal(trace_history_totals(h).unknown_sides, m->unknown_sides);
    trace_history_free(h);
    free(m);
}

static int by_value_down(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? 1 : *x > *y ? -1 : 0;
}

/* The k hottest and coldest, against a sort of everything: exact here, since the lists at the cut are short. */
static void hot_and_cold_are_what_a_sort_says(void **state)
{
    (void)state;
    enum { N = 3000, K = 100 };
    random_state = check_seed() * UINT64_C(0x9e3779b97f4a7c15) + 1;
    static uint64_t values[2][N];
    static struct trace_block b[K];
    memset(values, 0, sizeof(values));
    struct trace_history *h = history_with(NULL);
    for (uint64_t i = 0; i < N; i++)
        alloc_at(h, 1, DEVICE_AT + i * 65536, 65536, 1);
    for (uint64_t i = 0; i < 200000; i++) {
        uint64_t at = random_below(random_below(N) + 1), size = random_below(60000) + 1;
        copy_to(h, i + 2, DEVICE_AT + at * 65536, 0, size, TRACE_TO_DEVICE);
        values[TRACE_BY_COUNT][at]++;
        values[TRACE_BY_BYTES][at] += size;
    }
    for (unsigned by = 0; by < 2; by++) {
        qsort(values[by], N, sizeof(uint64_t), by_value_down);
        assert_int_equal(trace_history_hot(h, by, NULL, b, K), K);
        for (unsigned i = 0; i < K; i++)
            assert_int_equal(trace_block_value(&b[i], by), values[by][i]);
        assert_int_equal(trace_history_cold(h, by, NULL, b, K), K);
        for (unsigned i = 0; i < K; i++)
            assert_int_equal(trace_block_value(&b[i], by), values[by][N - 1 - i]);
    }
    trace_history_free(h);
}

/* Many host ranges that overlap at random: each byte that was copied is in one range, and copies are counted once. */
static void ranges_known_from_copies_stay_disjoint_and_complete(void **state)
{
    (void)state;
    enum { PAGES = 4096 };
    static bool copied[PAGES];
    memset(copied, 0, sizeof(copied));
    random_state = check_seed() * UINT64_C(0x9e3779b97f4a7c15) + 1;
    struct trace_history *h = history_with(NULL);
    uint64_t bytes = 0;
    for (uint64_t i = 1; i <= 3000; i++) {
        uint64_t at = random_below(PAGES), n = random_below(8) + 1;
        if (at + n > PAGES)
            continue;
        copy_to(h, i, DEVICE_AT, HOST_AT + at * 64, n * 64, TRACE_TO_DEVICE);
        bytes += n * 64;
        memset(copied + at, true, n);
        if (i % 300 == 0)
            assert_int_equal(trace_history_check(h), 0);
    }
    struct trace_block b[256];
    uint64_t cursor = 0, flow = 0, covered = 0, expected = 0;
    size_t n;
    while ((n = trace_history_blocks(h, NULL, &cursor, b, 256)) > 0)
        for (size_t i = 0; i < n; i++) {
            flow += b[i].flow[TRACE_TO_DEVICE].bytes;
            covered += b[i].size;
        }
    for (unsigned i = 0; i < PAGES; i++) {
        expected += copied[i] ? 64 : 0;
        assert_int_equal(trace_history_find(h, HOST_AT + i * 64 + 5, b), copied[i] ? 0 : -ENOENT);
    }
    assert_int_equal(flow, bytes);
    assert_int_equal(covered, expected);
    trace_history_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_events_leave_what_the_model_says),
        cmocka_unit_test(hot_and_cold_are_what_a_sort_says),
        cmocka_unit_test(ranges_known_from_copies_stay_disjoint_and_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
