/* The table of live blocks against a model: whatever comes and goes, table, totals and a reader agree. */
#include <errno.h>
#include <sys/resource.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "writer_fixture.h"

static const struct book_writer_options own = {.source = BOOK_SOURCE_CLIENT};
static const struct book_writer_options on_behalf = {.source = BOOK_SOURCE_SOCKET,
                                                     .on_behalf = true};

enum {
    ACCOUNTS = 3,
    IDS = 80000, /* per account */
    LIVE_MAX = 200000,
    BYTES_PER_BLOCK_MAX = 50,
    BYTES_MATTER_FROM = 10000, /* live blocks */
};

/* ---- the model ---- */

struct entry {
    uint64_t bytes; /* 0: not live */
    uint32_t moves;
    bool seen;
};

struct model {
    struct entry entries[ACCOUNTS][IDS];
    size_t live;
    uint64_t state; /* of the random numbers */
};

static uint64_t random_next(struct model *m)
{
    m->state += HASH_K0;
    return hash_mix(m->state);
}

/* Handles as programs have them: addresses, small numbers, random words. */
static uint64_t id_of(uint32_t account, uint32_t i)
{
    if (account == 0)
        return UINT64_C(0x7f0000000000) + (uint64_t)i * 256;
    return account == 1 ? i + 1 : hash_mix(i);
}

static uint64_t seed_get(void)
{
    const char *given = getenv("SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_nsec;
    print_message("# SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

/* One random change in table and model. `grow` of 8: how many make a block rather than end one. */
static void step(struct fixture *f, struct model *m, unsigned grow)
{
    uint64_t r = random_next(m);
    uint32_t a = (uint32_t)(r % ACCOUNTS), i = (uint32_t)((r >> 8) % IDS);
    struct entry *e = &m->entries[a][i];
    struct book_block old, block = fixture_block(a + 1, id_of(a, i), 1 + (r >> 40));
    unsigned what = (unsigned)(r >> 32) % 8;
    if (e->bytes && (r >> 36) % 16 == 0) {
        assert_true(table_move(&f->w, &f->t, a + 1, block.id, 7));
        e->moves++;
    } else if (what < grow) {
        int was_live = table_put(&f->w, &f->t, &block, &old);
        assert_int_equal(was_live, e->bytes ? 1 : 0);
        if (was_live)
            assert_int_equal(book_block_bytes(&old), e->bytes);
        else
            m->live++;
        *e = (struct entry){.bytes = book_block_bytes(&block)};
    } else {
        bool found = table_take(&f->w, &f->t, a + 1, block.id, &old);
        assert_int_equal(found, e->bytes != 0);
        if (found) {
            assert_int_equal(book_block_bytes(&old), e->bytes);
            m->live--;
        }
        *e = (struct entry){0};
    }
}

/* ---- what others see ---- */

/* Ids of the last account are random: found again in a sorted list. */
struct sorted {
    uint64_t id;
    uint32_t i;
};

static struct sorted sorted[IDS];

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const struct sorted *)a)->id, y = ((const struct sorted *)b)->id;
    return x < y ? -1 : x > y;
}

static void sort_ids(void)
{
    for (uint32_t i = 0; i < IDS; i++)
        sorted[i] = (struct sorted){id_of(2, i), i};
    qsort(sorted, IDS, sizeof(sorted[0]), by_id);
}

static uint64_t position_of(uint32_t account, uint64_t id)
{
    if (account == 0)
        return (id - id_of(0, 0)) / 256;
    if (account == 1)
        return id - 1;
    struct sorted key = {.id = id};
    const struct sorted *hit = bsearch(&key, sorted, IDS, sizeof(key), by_id);
    return hit ? hit->i : UINT64_MAX;
}

static int see_block(const struct book_block_view *block, void *context)
{
    struct model *m = context;
    uint32_t a = block->account - 1;
    assert_true(a < ACCOUNTS);
    uint64_t i = position_of(a, block->id);
    assert_true(i < IDS);
    struct entry *e = &m->entries[a][i];
    assert_int_equal(e->bytes, block->bytes);
    assert_int_equal(e->moves, block->moves);
    assert_false(e->seen); /* comes once */
    e->seen = true;
    return 0;
}

static void check_reader(struct fixture *f, struct model *m)
{
    MEMOIR_CLEANUP(closep)
    int fd = fixture_open(f);
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = NULL;
    bool exact = false;
    assert_int_equal(book_reader_open_fd(fd, &reader), 0);
    for (int a = 0; a < ACCOUNTS; a++)
        for (int i = 0; i < IDS; i++)
            m->entries[a][i].seen = false;
    assert_int_equal(book_reader_blocks(reader, fd, see_block, m, &exact), 0);
    assert_true(exact);
    for (int a = 0; a < ACCOUNTS; a++)
        for (int i = 0; i < IDS; i++)
            assert_int_equal(m->entries[a][i].seen, m->entries[a][i].bytes != 0);
    assert_int_equal(table_check(&f->w), 0);
}

/* Bytes of the file that hold blocks and their index. */
static uint64_t table_bytes(const struct book_writer *w)
{
    uint64_t bytes = 0, page = w->page_bytes;
    for (uint32_t s = 0; s < w->header->block_shards; s++) {
        uint64_t pages = w->header->block_pages[s];
        uint64_t heads = pages * TABLE_CHUNKS_PER_PAGE * sizeof(struct table_head);
        bytes += pages * BOOK_BLOCK_PAGE_BYTES + (heads + page - 1) / page * page;
    }
    return bytes;
}

/* ---- tests ---- */

static struct fixture *with_accounts(const struct book_writer_options *options)
{
    struct fixture *f = fixture_new(options);
    for (uint32_t a = 0; a < ACCOUNTS; a++)
        assert_int_equal(book_account_add(&f->w, &f->t, a + 1, 0, "space"), (int)a + 1);
    assert_int_equal(book_writer_publish(&f->w), 0);
    return f;
}

static void table_is_what_the_model_is(void **unused)
{
    struct fixture *f = with_accounts(&own);
    struct model *m = calloc(1, sizeof(*m));
    assert_non_null(m);
    m->state = seed_get();
    sort_ids();

    check_reader(f, m);
    uint64_t worst = 0;
    while (m->live < LIVE_MAX) {
        step(f, m, 7);
        uint64_t bytes = m->live >= BYTES_MATTER_FROM ? table_bytes(&f->w) / m->live : 0;
        worst = bytes > worst ? bytes : worst;
        if (m->live == 1000 || m->live == 30000)
            assert_int_equal(table_check(&f->w), 0);
    }
    print_message("# at worst %llu bytes per live block\n", (unsigned long long)worst);
    assert_true(worst <= BYTES_PER_BLOCK_MAX);
    check_reader(f, m);
    for (int i = 0; i < 300000; i++)
        step(f, m, 4);
    check_reader(f, m);
    for (uint32_t a = 0; a < ACCOUNTS; a++) {
        for (uint32_t i = 0; i < IDS; i++) {
            struct book_block old;
            bool live = m->entries[a][i].bytes != 0;
            assert_int_equal(table_take(&f->w, &f->t, a + 1, id_of(a, i), &old), live);
            m->entries[a][i] = (struct entry){0};
        }
        assert_int_equal(table_check(&f->w), 0);
    }
    m->live = 0;
    check_reader(f, m);
    for (int i = 0; i < 50000; i++) /* and up again */
        step(f, m, 6);
    check_reader(f, m);
    free(m);
    fixture_free(f);
}

/* Ids whose home is the last chunk, however far a small table grows. */
static uint64_t next_at_the_end(const struct book_writer *w, uint64_t id)
{
    do
        id++;
    while ((uint32_t)table_hash(&w->table, 1, id) < UINT32_MAX - (UINT32_C(1) << 22));
    return id;
}

static void blocks_that_all_want_one_chunk_are_found(void **unused)
{
    enum { N = 600 };
    struct fixture *f = with_accounts(&on_behalf);
    uint64_t ids[N], id = 0;
    struct book_block old;
    uint32_t stuck = 0;
    for (int i = 0; i < N; i++) {
        id = ids[i] = next_at_the_end(&f->w, id);
        struct book_block block = fixture_block(1, id, (uint64_t)i + 1);
        assert_int_equal(table_put(&f->w, &f->t, &block, &old), 0);
        if (i % 50 == 0)
            assert_int_equal(table_check(&f->w), 0);
    }
    struct table_shard *shard = &f->w.table.shard[0];
    for (uint32_t c = 0; c < shard->pages * TABLE_CHUNKS_PER_PAGE; c++)
        stuck += shard->heads[c].overflow == 255;
    assert_true(stuck > 0); /* or this test tests nothing */
    for (int i = 0; i < N; i++) {
        int at = i * 7 % N; /* 7 and 600 have no common factor */
        assert_true(table_take(&f->w, &f->t, 1, ids[at], &old));
        assert_int_equal(book_block_bytes(&old), at + 1);
        assert_false(table_take(&f->w, &f->t, 1, ids[at], &old));
        if (i % 50 == 0)
            assert_int_equal(table_check(&f->w), 0);
    }
    assert_int_equal(shard->live, 0);
    fixture_free(f);
}

static uint64_t losses(const struct fixture *f, enum book_loss cause)
{
    return f->w.header->losses[cause];
}

/* Report `n` blocks of 10 bytes; totals must count all, whatever the table keeps. */
static void report(struct fixture *f, uint64_t first, uint64_t n)
{
    struct book_counters before, after;
    book_account_sum(&f->w, 1, &before);
    for (uint64_t i = 0; i < n; i++)
        book_alloc(&f->w, &f->t, first + i, 10, 1);
    book_account_sum(&f->w, 1, &after);
    assert_int_equal(after.alloc_blocks - before.alloc_blocks, n);
    assert_int_equal(after.alloc_bytes - before.alloc_bytes, n * 10);
    assert_int_equal(table_check(&f->w), 0);
}

static uint64_t live(const struct fixture *f)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; s < f->w.header->block_shards; s++)
        sum += f->w.table.shard[s].live;
    return sum;
}

static void blocks_without_a_page_are_counted_as_lost(void **unused)
{
    struct fixture *f = with_accounts(&own);
    f->w.sealed = true; /* before the first page of any shard */
    report(f, 1, 1000);
    assert_int_equal(losses(f, BOOK_LOSS_BLOCKS_FULL), 1000);
    assert_int_equal(live(f), 0);
    f->w.sealed = false;
    report(f, 10000, 1000);
    assert_int_equal(live(f), 1000);
    f->w.sealed = true;
    report(f, 20000, 20000);
    assert_int_equal(live(f) + losses(f, BOOK_LOSS_BLOCKS_FULL), 22000);
    for (uint32_t s = 0; s < f->w.header->block_shards; s++) /* used to the last slot */
        assert_int_equal(f->w.table.shard[s].live,
                         f->w.table.shard[s].pages * BOOK_BLOCKS_PER_PAGE);
    f->w.sealed = false; /* pages come back */
    uint64_t lost = losses(f, BOOK_LOSS_BLOCKS_FULL);
    report(f, 100000, 20000);
    assert_int_equal(losses(f, BOOK_LOSS_BLOCKS_FULL), lost);
    fixture_free(f);
}

static void full_section_is_counted_as_lost(void **unused)
{
    struct rlimit limit, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = (struct rlimit){.rlim_cur = 16 << 20, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct fixture *f = with_accounts(&on_behalf);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    uint64_t slots = (uint64_t)f->w.table.max_pages * BOOK_BLOCKS_PER_PAGE;
    assert_true(slots < 500000);
    report(f, 1, slots + 5000);
    assert_int_equal(live(f), slots);
    assert_int_equal(losses(f, BOOK_LOSS_BLOCKS_FULL), 5000);
    for (uint64_t i = 1; i <= slots + 5000; i++)
        book_free(&f->w, &f->t, 1, i);
    assert_int_equal(live(f), 0);
    assert_int_equal(losses(f, BOOK_LOSS_UNKNOWN_FREE), 5000);
    report(f, 1, slots);
    assert_int_equal(losses(f, BOOK_LOSS_BLOCKS_FULL), 5000);
    fixture_free(f);
}

static void reserved_blocks_need_no_page(void **unused)
{
    static const uint64_t sizes[] = {1, 100, 1000, 50000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct fixture *f = with_accounts(&own);
        assert_int_equal(table_reserve(&f->w, &f->t, sizes[i]), 0);
        f->w.sealed = true;
        report(f, UINT64_C(0x7f1234560000), sizes[i]);
        assert_int_equal(losses(f, BOOK_LOSS_BLOCKS_FULL), 0);
        f->w.sealed = false;
        assert_int_equal(table_reserve(&f->w, &f->t, sizes[i]), 0); /* has them */
        fixture_free(f);
    }
    struct fixture *f = with_accounts(&own);
    assert_int_equal(table_reserve(&f->w, &f->t, UINT64_C(1) << 40), -ENOSPC);
    assert_int_equal(table_reserve(&f->w, &f->t, UINT64_MAX), -ENOSPC);
    assert_int_equal(table_bytes(&f->w), 0);
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_what_the_model_is),
        cmocka_unit_test(blocks_that_all_want_one_chunk_are_found),
        cmocka_unit_test(blocks_without_a_page_are_counted_as_lost),
        cmocka_unit_test(full_section_is_counted_as_lost),
        cmocka_unit_test(reserved_blocks_need_no_page),
    };
    return cmocka_run_group_tests(tests, fixture_enter, fixture_leave);
}
