/* Series and suspects of several books, which were composed by hand and change as time passes. */
#include "ledger_world.h"

#include <math.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "ledger/growth.h"
#include "ledger/leaks.h"

enum { SITES = 4, LOOKS = 130, KIB = 1024 };

struct made {
    struct book_builder b;
    struct ledger_book *book;
    struct ledger_process *process;
    uint32_t page, sites[SITES];
};

static const struct growth_options often = {
    .tiers = {{NS_PER_S / 4, 200}},
    .sites_max = 100,
    .sites_per_user_max = 100,
    .sites_per_book_max = 100,
    .bytes_min = 1,
};

/* A process of its own with sites of keys `key`, `key` + 1 ... in `file`; NULL: in code that was made at run time. */
static struct made *make(struct world *w, uint32_t exec_id, uint32_t source, const char *file,
                         uint64_t key)
{
    char name[32];
    struct made *m = calloc(1, sizeof(*m));
    snprintf(name, sizeof(name), "%u.book", exec_id);
    book_begin(w, &m->b, name, source);
    m->b.h.exec_id = exec_id;
    uint32_t pinned = account_add(&m->b, MEMOIR_SPACE_PINNED, 0, 1, 10);
    uint32_t heap = account_add(&m->b, MEMOIR_SPACE_HEAP, 0, 1, 10);
    uint32_t module = file ? builder_module(&m->b, file, "\x01\x02") : BOOK_MODULE_NONE;
    for (uint32_t i = 0; i < SITES; i++) {
        uint64_t frame[] = {BOOK_FRAME(module, 0x100 + i)};
        m->sites[i] = builder_site(&m->b, i == 2 ? pinned : heap, key + i, frame, 1);
    }
    m->page = builder_counter_page(&m->b, BOOK_COUNTERS_SITES, 0);
    builder_publish(&m->b);
    m->book = add(w, name);
    m->process = m->book->process;
    ledger_update_state(w->ledger, m->process);
    ledger_refresh(w->ledger);
    assert_true(ledger_process_holds(m->process));
    strcpy(m->process->name, "shop");
    return m;
}

static void set(struct made *m, unsigned site, uint64_t alloc_bytes, uint64_t freed_bytes)
{
    builder_site_counters(&m->b, m->page, m->sites[site],
                          &(struct book_site_counters){.alloc_bytes = alloc_bytes,
                                                       .freed_bytes = freed_bytes,
                                                       .alloc_blocks = alloc_bytes / 16,
                                                       .freed_blocks = freed_bytes / 16});
}

static void look_at(struct growth *growth, struct made *const *books, size_t n, uint64_t now_ns)
{
    growth_begin(growth);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(growth_look(growth, books[i]->book, now_ns), 0);
    growth_end(growth);
}

struct wanted {
    const struct made *of;
    uint32_t site;
    size_t n; /* points */
    uint64_t bytes;
};

static int series_find(const struct growth_series *series, void *context)
{
    struct wanted *wanted = context;
    if (series->ino != wanted->of->book->identity->st_ino || series->site != wanted->site)
        return 0;
    wanted->n = series->n;
    wanted->bytes = detect_live_bytes(&series->points[series->n - 1]);
    return 0;
}

/* The last level of that site's series; UINT64_MAX: it has none. */
static uint64_t level(struct growth *growth, const struct made *of, uint32_t site)
{
    struct wanted wanted = {of, site, 0, UINT64_MAX};
    assert_int_equal(growth_each(growth, series_find, &wanted), 0);
    return wanted.bytes;
}

/* ---- series ---- */

static void each_book_has_series_of_its_own(void **state)
{
    struct growth *growth = NULL;
    struct made *books[] = {make(*state, 1, BOOK_SOURCE_CLIENT, "liba.so", 100),
                            make(*state, 2, BOOK_SOURCE_CLIENT, "libb.so", 200)};
    assert_int_equal(growth_new(&often, &growth), 0);
    for (unsigned s = 0; s < SITES; s++) {
        set(books[0], s, 1000 + s, 0);
        set(books[1], s, 2000 + s, s);
    }
    look_at(growth, books, 2, NS_PER_S);
    struct growth_counts counts = growth_counts(growth);
    assert_int_equal(counts.books, 2);
    assert_int_equal(counts.sites, 2 * SITES);
    for (unsigned s = 0; s < SITES; s++) {
        assert_int_equal(level(growth, books[0], books[0]->sites[s]), 1000 + s);
        assert_int_equal(level(growth, books[1], books[1]->sites[s]), 2000);
    }
    size_t bytes = counts.bytes;
    look_at(growth, books, 1, 2 * NS_PER_S);
    look_at(growth, books, 1, 3 * NS_PER_S);
    counts = growth_counts(growth); /* the other one is gone, and half of the memory with it */
    assert_int_equal(counts.books, 1);
    assert_int_equal(counts.sites, SITES);
    assert_int_equal(counts.bytes, bytes / 2);
    assert_int_equal(level(growth, books[0], books[0]->sites[1]), 1001);
    assert_true(level(growth, books[1], books[1]->sites[1]) == UINT64_MAX);
    growth_free(growth);
    free(books[0]);
    free(books[1]);
}

/* Sites come in any order, and keep their own series when others come before them and go. */
static void sites_keep_their_series_when_others_come_and_go(void **state)
{
    struct growth *growth = NULL;
    struct growth_options options = often;
    options.bytes_min = 1000;
    struct made *m = make(*state, 1, BOOK_SOURCE_CLIENT, "liba.so", 100);
    uint64_t now_ns = NS_PER_S;
    assert_int_equal(growth_new(&options, &growth), 0);
    static const unsigned order[] = {2, 0, 3, 1};
    for (unsigned k = 0; k < SITES; k++) {
        set(m, order[k], 5000 + order[k], 0);
        look_at(growth, &m, 1, now_ns += NS_PER_S);
    }
    for (unsigned s = 0; s < SITES; s++)
        assert_int_equal(level(growth, m, m->sites[s]), 5000 + s);
    struct wanted first = {m, m->sites[2], 0, 0};
    growth_each(growth, series_find, &first);
    assert_int_equal(first.n, 4);
    set(m, 1, 5000, 5000); /* empties */
    for (int i = 0; i <= GROWTH_IDLE_LOOKS; i++)
        look_at(growth, &m, 1, now_ns += NS_PER_S);
    assert_int_equal(growth_counts(growth).sites, 3);
    assert_int_equal(level(growth, m, m->sites[0]), 5000);
    assert_int_equal(level(growth, m, m->sites[2]), 5002);
    assert_int_equal(level(growth, m, m->sites[3]), 5003);
    struct wanted last = {m, m->sites[3], 0, 0};
    growth_each(growth, series_find, &last);
    assert_int_equal(last.n, 3 + GROWTH_IDLE_LOOKS);
    growth_free(growth);
    free(m);
}

/* The smallest site goes, wherever it stands, and the others keep their places. */
static void the_smallest_site_gives_up_its_place(void **state)
{
    struct growth *growth = NULL;
    struct growth_options options = often;
    options.sites_per_book_max = 3;
    struct made *m = make(*state, 1, BOOK_SOURCE_CLIENT, "liba.so", 100);
    assert_int_equal(growth_new(&options, &growth), 0);
    set(m, 0, 500, 0);
    set(m, 1, 300, 0);
    set(m, 2, 700, 0);
    set(m, 3, 590, 0);
    look_at(growth, &m, 1, NS_PER_S);
    assert_true(level(growth, m, m->sites[3]) == UINT64_MAX);
    set(m, 1, 300, 10); /* now it holds less than half of the last one */
    look_at(growth, &m, 1, 2 * NS_PER_S);
    for (uint64_t i = 3; i < 6; i++) {
        look_at(growth, &m, 1, i * NS_PER_S);
        assert_true(level(growth, m, m->sites[1]) == UINT64_MAX);
        assert_int_equal(level(growth, m, m->sites[0]), 500);
        assert_int_equal(level(growth, m, m->sites[2]), 700);
        assert_int_equal(level(growth, m, m->sites[3]), 590);
        assert_int_equal(growth_counts(growth).sites, 3);
    }
    struct wanted kept = {m, m->sites[2], 0, 0};
    growth_each(growth, series_find, &kept);
    assert_int_equal(kept.n, 5);
    growth_free(growth);
    free(m);
}

static void sites_that_never_held_anything_are_not_watched(void **state)
{
    struct growth *growth = NULL;
    struct growth_options options = often;
    options.bytes_min = 0;
    struct made *m = make(*state, 1, BOOK_SOURCE_CLIENT, "liba.so", 100);
    assert_int_equal(growth_new(&options, &growth), 0);
    look_at(growth, &m, 1, NS_PER_S);
    assert_int_equal(growth_counts(growth).sites, 0);
    growth_free(growth);
    /* A book that lies: more blocks of no bytes than any memory has. */
    options.bytes_min = 1000;
    assert_int_equal(growth_new(&options, &growth), 0);
    builder_site_counters(&m->b, m->page, m->sites[0],
                          &(struct book_site_counters){.alloc_blocks = UINT64_C(1) << 60});
    look_at(growth, &m, 1, NS_PER_S);
    assert_int_equal(growth_counts(growth).sites, 1);
    growth_free(growth);
    free(m);
}

static void a_user_shares_a_limit_among_its_books(void **state)
{
    struct growth *growth = NULL;
    struct growth_options options = often;
    options.sites_per_user_max = 2;
    struct made *books[] = {make(*state, 1, BOOK_SOURCE_CLIENT, "liba.so", 100),
                            make(*state, 2, BOOK_SOURCE_CLIENT, "libb.so", 200),
                            make(*state, 3, BOOK_SOURCE_CLIENT, "libc.so", 300)};
    books[0]->book->place_uid = books[1]->book->place_uid = 4711;
    books[2]->book->place_uid = 0; /* root's are not limited */
    for (size_t i = 0; i < 3; i++)
        for (unsigned s = 0; s < SITES; s++)
            set(books[i], s, 1000, 0);
    assert_int_equal(growth_new(&options, &growth), 0);
    look_at(growth, books, 3, NS_PER_S);
    assert_int_equal(growth_counts(growth).sites, 2 + SITES);
    assert_int_equal(growth_counts(growth).left_out, SITES - 2 + SITES);
    assert_true(level(growth, books[1], books[1]->sites[0]) == UINT64_MAX);
    /* Room that one of its books leaves is for the other one. */
    for (uint64_t i = 2; i <= 4; i++)
        look_at(growth, books + 1, 2, i * NS_PER_S);
    assert_int_equal(growth_counts(growth).sites, 2 + SITES);
    assert_int_equal(level(growth, books[1], books[1]->sites[0]), 1000);
    books[0]->book->place_uid = 4712; /* another user has room of its own */
    for (uint64_t i = 5; i <= 6; i++)
        look_at(growth, books, 3, i * NS_PER_S);
    assert_int_equal(growth_counts(growth).sites, 4 + SITES);
    growth_free(growth);
    for (size_t i = 0; i < 3; i++)
        free(books[i]);
}

static bool has_outside(struct made *m)
{
    struct growth *growth = NULL;
    assert_int_equal(growth_new(&often, &growth), 0);
    look_at(growth, &m, 1, NS_PER_S);
    uint64_t bytes = level(growth, m, (uint32_t)GROWTH_OUTSIDE);
    if (bytes != UINT64_MAX) { /* what is resident beyond what the sites count */
        struct proc_memory memory;
        assert_int_equal(proc_memory_read(getpid(), &memory), 0);
        assert_in_range(bytes, memory.rss_bytes - 2000 * KIB, memory.rss_bytes - 990 * KIB);
    }
    growth_free(growth);
    return bytes != UINT64_MAX;
}

static void memory_beyond_the_sites_is_watched_where_the_heap_is_counted(void **state)
{
    struct made *m = make(*state, 1, BOOK_SOURCE_MALLOC, "liba.so", 100);
    struct made *other = make(*state, 2, BOOK_SOURCE_CLIENT, "libb.so", 200);
    set(m, 0, 1000 * KIB, 0);
    assert_false(has_outside(other));
    assert_true(has_outside(m));
    struct ledger_process saved = *m->process;
    m->process->valid &= ~(uint32_t)LEDGER_HAS_PID;
    assert_false(has_outside(m));
    *m->process = saved;
    strcpy(m->process->host, "elsewhere");
    assert_false(has_outside(m));
    *m->process = saved;
    m->process->state = LEDGER_EXITED;
    assert_false(has_outside(m));
    *m->process = saved;
    m->process->pid = 1 << 29; /* there is no such process */
    assert_false(has_outside(m));
    *m->process = saved;
    free(m);
    free(other);
}

/* ---- suspects ---- */

static bool sites_are_gone; /* the list of sites of `b`, when it is read */

/* Both books for half a minute: site 0 of `a` leaks; what site 0 of `b` does is up to `fall` (in hundredths of it). */
static struct leaks suspects(struct world *w, struct made *a, struct made *b, unsigned fall)
{
    struct made *books[] = {a, b};
    struct growth *growth = NULL;
    struct leaks leaks = {0};
    uint64_t now_ns = proc_monotonic_ns();
    assert_int_equal(growth_new(&often, &growth), 0);
    for (uint64_t i = 0; i < LOOKS; i++, now_ns += NS_PER_S / 4) {
        set(a, 0, (i + 1) * 100 * KIB, 0);
        set(b, 0, 10000 * KIB, i < LOOKS / 2 ? 0 : 100 * KIB * fall);
        set(b, 1, 9000 * KIB, i < LOOKS / 2 ? 0 : 8000 * KIB); /* of another place: always */
        look_at(growth, books, 2, now_ns);
    }
    uint64_t used = b->b.section[BOOK_SECTION_SITES]->used;
    if (sites_are_gone) {
        b->b.section[BOOK_SECTION_SITES]->used = 1;
        builder_header(&b->b);
    }
    assert_int_equal(leaks_take(growth, w->ledger, &(struct leaks_options){0}, &leaks), 0);
    b->b.section[BOOK_SECTION_SITES]->used = used;
    builder_header(&b->b);
    growth_free(growth);
    return leaks;
}

static void check_suspect(struct leaks leaks, enum detect_verdict verdict,
                          enum detect_reason reason)
{
    assert_int_equal(leaks.n, 1);
    const struct leak *leak = &leaks.rows[0];
    assert_int_equal(leak->result.verdict, verdict);
    assert_int_equal(leak->result.reason, reason);
    assert_int_equal(leaks.verdicts[DETECT_LEAK], verdict == DETECT_LEAK);
    assert_int_equal(leaks.verdicts[DETECT_GROWING], verdict == DETECT_GROWING);
    /* What is expected to go away meets no limit. */
    assert_int_equal(leak->left_ns == UINT64_MAX, verdict != DETECT_LEAK);
    leaks_release(&leaks);
    assert_null(leaks.rows);
}

static void memory_of_a_runtime_waits_for_its_collector(void **state)
{
    struct made *b = make(*state, 9, BOOK_SOURCE_CLIENT, "libb.so", 900);
    struct made *program = make(*state, 1, BOOK_SOURCE_CLIENT, "/usr/lib/liba.so", 100);
    struct made *runtime = make(*state, 2, BOOK_SOURCE_CLIENT, "/usr/bin/node", 200);
    check_suspect(suspects(*state, program, b, 0), DETECT_LEAK, DETECT_SUSTAINED);
    check_suspect(suspects(*state, runtime, b, 0), DETECT_GROWING, DETECT_WAITS);
    struct made *unknown = make(*state, 3, BOOK_SOURCE_CLIENT, NULL, 300);
    struct leaks leaks = suspects(*state, unknown, b, 0);
    assert_null(leaks.rows[0].frame);
    check_suspect(leaks, DETECT_LEAK, DETECT_SUSTAINED);
    free(unknown);
    free(b);
    free(program);
    free(runtime);
}

static void steadily(uint64_t i, uint64_t *taken, uint64_t *freed)
{
    *taken = (i + 1) * 100 * KIB;
}

static void after_a_small_fall(uint64_t i, uint64_t *taken, uint64_t *freed)
{
    *taken = (i + 1) * 100 * KIB;
    *freed = i < LOOKS / 2 ? 0 : 500 * KIB; /* 7 % of what it held */
}

/* Three books at once: what each of the other two gives back in the middle, in its site 0. */
static struct leaks among(struct world *w, struct made *const books[3],
                          void (*at)(uint64_t i, uint64_t *taken, uint64_t *freed))
{
    struct growth *growth = NULL;
    struct leaks leaks = {0};
    uint64_t now_ns = proc_monotonic_ns();
    assert_int_equal(growth_new(&often, &growth), 0);
    for (uint64_t i = 0; i < LOOKS; i++, now_ns += NS_PER_S / 4) {
        uint64_t taken = 0, freed = 0;
        at(i, &taken, &freed);
        set(books[0], 0, taken, freed);
        for (size_t k = 1; k < 3; k++)
            for (unsigned s = 0; s < 2; s++)
                set(books[k], s, 10000 * KIB, i < LOOKS / 2 ? 0 : 9000 * KIB);
        look_at(growth, books, 3, now_ns);
    }
    assert_int_equal(leaks_take(growth, w->ledger, &(struct leaks_options){0}, &leaks), 0);
    growth_free(growth);
    return leaks;
}

/* What fell in other processes changes only the verdict on a leak that has not fallen itself. */
static void falls_elsewhere_speak_about_leaks_only(void **state)
{
    struct made *leak = make(*state, 1, BOOK_SOURCE_CLIENT, "/usr/lib/liba.so", 100);
    struct made *runtime = make(*state, 2, BOOK_SOURCE_CLIENT, "/usr/bin/node", 100);
    struct made *other = make(*state, 3, BOOK_SOURCE_CLIENT, "/usr/lib/libb.so", 700);
    struct made *same = make(*state, 4, BOOK_SOURCE_CLIENT, "/usr/lib/liba.so", 100);
    check_suspect(among(*state, (struct made *[]){leak, other, same}, steadily), DETECT_GROWING,
                  DETECT_BURSTS);
    check_suspect(among(*state, (struct made *[]){leak, same, other}, steadily), DETECT_GROWING,
                  DETECT_BURSTS);
    check_suspect(among(*state, (struct made *[]){leak, same, other}, after_a_small_fall),
                  DETECT_LEAK, DETECT_SUSTAINED);
    check_suspect(among(*state, (struct made *[]){runtime, same, other}, steadily), DETECT_GROWING,
                  DETECT_WAITS);
    free(leak);
    free(runtime);
    free(other);
    free(same);
}

/* The same place of the same program, in another process, has given back much at once. */
static void what_fell_in_another_process_of_the_program_is_no_leak(void **state)
{
    struct made *a = make(*state, 1, BOOK_SOURCE_CLIENT, "/usr/lib/liba.so", 100);
    struct made *b = make(*state, 2, BOOK_SOURCE_CLIENT, "/usr/lib/liba.so", 100);
    struct made *c = make(*state, 3, BOOK_SOURCE_CLIENT, "/usr/lib/liba.so", 300);
    check_suspect(suspects(*state, a, b, 4), DETECT_LEAK, DETECT_SUSTAINED); /* 4 % are nothing */
    check_suspect(suspects(*state, a, b, 5), DETECT_GROWING, DETECT_BURSTS);
    sites_are_gone = true; /* what fell has no key any more */
    check_suspect(suspects(*state, a, b, 5), DETECT_LEAK, DETECT_SUSTAINED);
    sites_are_gone = false;
    check_suspect(suspects(*state, a, c, 50), DETECT_LEAK, DETECT_SUSTAINED); /* another place */
    strcpy(b->process->name, "till");
    check_suspect(suspects(*state, a, b, 50), DETECT_LEAK, DETECT_SUSTAINED); /* or program */
    free(a);
    free(b);
    free(c);
}

/* Half a minute of site 0, from `start_ns` on. */
static struct leaks watch(struct world *w, struct made *m, uint64_t start_ns,
                          void (*at)(uint64_t i, uint64_t *taken, uint64_t *freed),
                          struct leaks_options options)
{
    struct growth *growth = NULL;
    struct leaks leaks = {0};
    assert_int_equal(growth_new(&often, &growth), 0);
    for (uint64_t i = 0; i < LOOKS; i++) {
        uint64_t taken = 0, freed = 0;
        at(i, &taken, &freed);
        set(m, 0, taken, freed);
        look_at(growth, &m, 1, start_ns + i * NS_PER_S / 4);
    }
    assert_int_equal(leaks_take(growth, w->ledger, &options, &leaks), 0);
    growth_free(growth);
    return leaks;
}

static void by_a_byte(uint64_t i, uint64_t *taken, uint64_t *freed)
{
    *taken = 16 + 16 * i;
    *freed = 15 * i; /* in blocks of 16 */
}
static void in_teeth(uint64_t i, uint64_t *taken, uint64_t *freed)
{
    *taken = (1000 + i / 28 * 30) * KIB;
    *freed = (i + 14) / 28 * 7 * KIB;
}
static void after_a_fall(uint64_t i, uint64_t *taken, uint64_t *freed)
{
    *taken = (20000 + (i + 1) * 100) * KIB;
    *freed = i ? 9000 * KIB : 0;
}
static void in_few_steps(uint64_t i, uint64_t *taken, uint64_t *freed)
{
    *taken = (1000 + i / 30 * 100) * KIB;
}
static void after_bulks(uint64_t i, uint64_t *taken, uint64_t *freed)
{
    *taken = (50000 + (i + 1) * 100) * KIB;
    *freed = 40000 * KIB;
}

/* How long until the memory is full: only of growth that goes on, into memory of this machine. */
static void growth_that_goes_away_meets_no_limit(void **state)
{
    struct made *m = make(*state, 1, BOOK_SOURCE_CLIENT, "/usr/lib/liba.so", 100);
    uint64_t start_ns = m->book->identity->created_monotonic_ns + 100 * NS_PER_S;
    static const struct {
        void (*at)(uint64_t i, uint64_t *taken, uint64_t *freed);
        enum detect_reason reason;
        bool limit;
    } cases[] = {
        {steadily, DETECT_SUSTAINED, true},      {in_teeth, DETECT_TEETH, false},
        {after_a_fall, DETECT_BURSTS, false},    {in_few_steps, DETECT_ONE_OFF, false},
        {after_bulks, DETECT_FREES_LATE, false}, {by_a_byte, DETECT_SUSTAINED, false},
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
        struct leaks leaks = watch(*state, m, start_ns, cases[c].at, (struct leaks_options){0});
        assert_int_equal(leaks.n, 1);
        const struct leak *leak = &leaks.rows[0];
        assert_string_equal(detect_reason_word(leak->result.reason),
                            detect_reason_word(cases[c].reason));
        assert_int_equal(leak->left_ns != UINT64_MAX, cases[c].limit);
        assert_int_equal(leak->age_ns, 100 * NS_PER_S + (LOOKS - 1) * NS_PER_S / 4 - (7 << 20));
        leaks_release(&leaks);
    }
    for (int away = 0; away < 2; away++) { /* a PID that is not known, or another machine's */
        struct ledger_process saved = *m->process;
        if (away)
            strcpy(m->process->host, "elsewhere");
        else
            m->process->valid &= ~(uint32_t)LEDGER_HAS_PID;
        struct leaks leaks = watch(*state, m, start_ns, steadily, (struct leaks_options){0});
        assert_true(leaks.rows[0].left_ns == UINT64_MAX);
        assert_int_equal(leaks.rows[0].headroom.kind, HEADROOM_UNKNOWN);
        leaks_release(&leaks);
        *m->process = saved;
    }
    free(m);
}

/* Blocks of all ages are evidence from before the watch. */
static void ages_of_live_blocks_are_looked_at(void **state)
{
    struct made *m = make(*state, 1, BOOK_SOURCE_CLIENT, "/usr/lib/liba.so", 100);
    uint64_t first_ns = m->book->identity->created_monotonic_ns + (7 << 20);
    uint64_t start_ns = first_ns + NS_PER_S / 4, age_ns = LOOKS * NS_PER_S / 4;
    struct leaks_options options = {.ages = true};
    for (uint64_t i = 0; i < DETECT_AGES; i++) { /* one in the middle of each part of its life */
        struct leaks leaks = watch(*state, m, start_ns, steadily, options);
        assert_int_equal(leaks.n, 1);
        assert_int_equal(leaks.rows[0].age_ns, age_ns);
        /* In all parts but one. */
        assert_int_equal(leaks.rows[0].result.ages_even, i >= DETECT_AGES - 1);
        leaks_release(&leaks);
        builder_block(&m->b, i, 0x1000 + i, 1000, 0, 1, m->sites[0],
                      (uint32_t)(7 + (age_ns * (2 * i + 1) / (2 * DETECT_AGES) >> 20)));
    }
    builder_block(&m->b, 20, 0x2000, 30000, 0, 1, m->sites[1], 100); /* another site's */
    for (uint64_t i = 0; i < 50; i++) /* most in the first five parts: not even any more */
        builder_block(&m->b, 30 + i, 0x3000 + i, 1000, 0, 1, m->sites[2],
                      (uint32_t)(7 + (age_ns * (2 * (i % 5) + 1) / (2 * DETECT_AGES) >> 20)));
    for (uint64_t i = 5; i < DETECT_AGES; i++)
        builder_block(&m->b, 90 + i, 0x4000 + i, 1000, 0, 1, m->sites[2],
                      (uint32_t)(7 + (age_ns * (2 * i + 1) / (2 * DETECT_AGES) >> 20)));
    struct leaks leaks = watch(*state, m, start_ns, steadily, options);
    assert_true(leaks.rows[0].result.ages_even);
    leaks_release(&leaks);
    uint32_t first = m->sites[0];
    m->sites[0] = m->sites[2];
    leaks = watch(*state, m, start_ns, steadily, options);
    for (size_t i = 0; i < leaks.n; i++)
        if (leaks.rows[i].site == m->sites[0])
            assert_false(leaks.rows[i].result.ages_even);
    leaks_release(&leaks);
    m->sites[0] = first;
    leaks = watch(*state, m, start_ns, steadily, (struct leaks_options){0});
    assert_false(leaks.rows[0].result.ages_even);
    leaks_release(&leaks);
    free(m);
}

/* Leaks first, the fastest of them first. */
static void suspects_are_in_the_order_of_their_rate(void **state)
{
    struct world *w = *state;
    struct made *m = make(w, 1, BOOK_SOURCE_CLIENT, "/usr/lib/liba.so", 100);
    struct made *n = make(w, 2, BOOK_SOURCE_CLIENT, "/usr/bin/node", 200);
    struct made *books[] = {m, n};
    struct growth *growth = NULL;
    struct leaks leaks = {0};
    uint64_t now_ns = proc_monotonic_ns();
    static const uint64_t rates[] = {10, 30, 10}, held[] = {1000, 0, 5000};
    assert_int_equal(growth_new(&often, &growth), 0);
    for (uint64_t i = 0; i < LOOKS; i++, now_ns += NS_PER_S / 4) {
        for (unsigned s = 0; s < 3; s++)
            set(m, s, ((i + 1) * rates[s] + held[s]) * KIB, 0);
        set(n, 0, (i + 1) * 90 * KIB, 0); /* faster, and no leak */
        look_at(growth, books, 2, now_ns);
    }
    assert_int_equal(leaks_take(growth, w->ledger, &(struct leaks_options){0}, &leaks), 0);
    assert_int_equal(leaks.n, 4);
    static const unsigned order[] = {1, 2, 0};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(leaks.rows[i].site, m->sites[order[i]]);
        assert_int_equal(leaks.rows[i].result.verdict, DETECT_LEAK);
        assert_int_equal(leaks.rows[i].live_bytes,
                         (LOOKS * rates[order[i]] + held[order[i]]) * KIB);
        assert_int_equal(leaks.rows[i].key, 100 + order[i]);
        assert_int_equal(leaks.rows[i].account->space,
                         order[i] == 2 ? MEMOIR_SPACE_PINNED : MEMOIR_SPACE_HEAP);
        assert_string_equal(strrchr(leaks.rows[i].frame, '/'), order[i] == 0   ? "/liba.so+0x100"
                                                               : order[i] == 1 ? "/liba.so+0x101"
                                                                               : "/liba.so+0x102");
    }
    assert_ptr_equal(leaks.rows[3].book, n->book);
    assert_int_equal(leaks.rows[3].result.verdict, DETECT_GROWING);
    leaks_release(&leaks);
    growth_free(growth);
    free(m);
    free(n);
}

/* Memory outside malloc that grows has a row of its own, unless it is what the blocks of a leak cost beside. */
static void growth_outside_the_sites_is_told_unless_it_is_overhead(void **state)
{
    enum { PIECE = 128 * KIB };
    static const struct {
        uint64_t leaks; /* bytes of each piece that the site counts */
        size_t rows;
        bool outside;
    } cases[] = {{0, 1, true},
                 {300, 2, true},
                 {70 * KIB, 2, true},
                 {98 * KIB, 2, true},
                 {108 * KIB, 1, false}};
    struct world *w = *state;
    struct made *m = make(w, 1, BOOK_SOURCE_MALLOC, "/usr/lib/liba.so", 100);
    for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
        struct growth *growth = NULL;
        struct leaks leaks = {0};
        uint64_t now_ns = proc_monotonic_ns();
        char *memory =
            mmap(NULL, LOOKS * PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(memory != MAP_FAILED);
        assert_int_equal(growth_new(&often, &growth), 0);
        for (uint64_t i = 0; i < LOOKS; i++, now_ns += NS_PER_S / 4) {
            memset(memory + i * PIECE, 1, PIECE);
            set(m, 0, cases[c].leaks * i, 0);
            look_at(growth, &m, 1, now_ns);
        }
        assert_int_equal(leaks_take(growth, w->ledger, &(struct leaks_options){0}, &leaks), 0);
        assert_int_equal(leaks.n, cases[c].rows);
        assert_int_equal(leaks.judged, cases[c].rows);
        const struct leak *last = &leaks.rows[leaks.n - 1];
        assert_int_equal(last->outside, cases[c].outside);
        assert_int_equal(leaks.verdicts[DETECT_GROWING], cases[c].outside);
        if (cases[c].outside) {
            double rate = 4.0 * (double)(PIECE - cases[c].leaks);
            assert_int_equal(last->result.reason, DETECT_LEVEL_ONLY);
            assert_int_equal(last->account->space, MEMOIR_SPACE_HEAP);
            assert_true(fabs(last->result.bytes_per_s - rate) < rate / 4);
            assert_int_equal(last->n_spark, LEAK_SPARK);
            assert_int_equal(last->spark[LEAK_SPARK - 1], last->live_bytes);
            assert_true(last->spark[0] < last->spark[LEAK_SPARK - 1]);
            assert_in_range(last->growing_ns, 20 * NS_PER_S, 33 * NS_PER_S);
            assert_true(last->left_ns > 0 && last->left_ns != UINT64_MAX);
        }
        leaks_release(&leaks);
        growth_free(growth);
        assert_int_equal(munmap(memory, LOOKS * PIECE), 0);
    }
    free(m);
}

/* Less than 2 MiB, or a few steps, is what libraries and the allocator take. */
static void small_growth_outside_the_sites_is_not_told(void **state)
{
    enum { ROOM = 16 << 20 };
    struct world *w = *state;
    struct made *m = make(w, 1, BOOK_SOURCE_MALLOC, "/usr/lib/liba.so", 100);
    for (int few = 0; few < 2; few++) {
        struct growth *growth = NULL;
        struct leaks leaks = {0};
        uint64_t now_ns = proc_monotonic_ns();
        char *memory = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(memory != MAP_FAILED);
        assert_int_equal(growth_new(&often, &growth), 0);
        for (uint64_t i = 0; i < LOOKS; i++, now_ns += NS_PER_S / 4) {
            if (few && i % 32 == 16) /* four steps of 3 MiB */
                memset(memory + i / 32 * (3 << 20), 1, 3 << 20);
            if (!few)
                memset(memory + i * 8 * KIB, 1, 8 * KIB);
            look_at(growth, &m, 1, now_ns);
        }
        assert_int_equal(leaks_take(growth, w->ledger, &(struct leaks_options){0}, &leaks), 0);
        assert_int_equal(leaks.n, 0);
        leaks_release(&leaks);
        growth_free(growth);
        assert_int_equal(munmap(memory, ROOM), 0);
    }
    free(m);
}

/* What another process leaks explains nothing here. */
static void leaks_of_another_book_are_no_reason_for_growth_outside(void **state)
{
    enum { PIECE = 40 * KIB };
    struct world *w = *state;
    struct made *books[] = {make(w, 1, BOOK_SOURCE_MALLOC, "/usr/lib/liba.so", 100),
                            make(w, 2, BOOK_SOURCE_CLIENT, "/usr/lib/libb.so", 200)};
    struct growth *growth = NULL;
    struct leaks leaks = {0};
    uint64_t now_ns = proc_monotonic_ns();
    char *memory =
        mmap(NULL, LOOKS * PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(growth_new(&often, &growth), 0);
    for (uint64_t i = 0; i < LOOKS; i++, now_ns += NS_PER_S / 4) {
        memset(memory + i * PIECE, 1, PIECE);
        set(books[1], 0, (i + 1) * 400 * KIB, 0);
        look_at(growth, books, 2, now_ns);
    }
    assert_int_equal(leaks_take(growth, w->ledger, &(struct leaks_options){0}, &leaks), 0);
    assert_int_equal(leaks.n, 2);
    assert_false(leaks.rows[0].outside);
    assert_true(leaks.rows[1].outside);
    leaks_release(&leaks);
    ledger_book_remove(w->ledger,
                       books[1]->book); /* its series are left: nothing is told of them */
    assert_int_equal(leaks_take(growth, w->ledger, &(struct leaks_options){0}, &leaks), 0);
    assert_int_equal(leaks.n, 1);
    leaks_release(&leaks);
    growth_free(growth);
    assert_int_equal(munmap(memory, LOOKS * PIECE), 0);
    free(books[0]);
    free(books[1]);
}

static void only_processes_that_hold_memory_are_judged(void **state)
{
    struct made *m = make(*state, 1, BOOK_SOURCE_CLIENT, "/usr/lib/liba.so", 100);
    uint64_t start_ns = proc_monotonic_ns();
    struct leaks_options options = {.deadline_ns = clock_monotonic_ns() + 3600 * NS_PER_S};
    struct leaks leaks = watch(*state, m, start_ns, steadily, options);
    assert_int_equal(leaks.n, 1);
    assert_false(leaks.incomplete);
    leaks_release(&leaks);
    m->process->state = LEDGER_EXITED;
    leaks = watch(*state, m, start_ns, steadily, options);
    assert_int_equal(leaks.judged, 0);
    leaks_release(&leaks);
    free(m);
}

/* Books are untrusted: a site that was watched may be gone from the list when its name is read. */
static void a_site_that_the_book_lacks_is_no_suspect(void **state)
{
    struct world *w = *state;
    struct made *m = make(w, 1, BOOK_SOURCE_CLIENT, "/usr/lib/liba.so", 100);
    struct book_section *sites = m->b.section[BOOK_SECTION_SITES];
    uint64_t used = sites->used;
    for (uint64_t left = used; left > m->sites[0]; left--) {
        struct growth *growth = NULL;
        struct leaks leaks = {0};
        assert_int_equal(growth_new(&often, &growth), 0);
        for (uint64_t i = 0; i < LOOKS; i++) {
            set(m, SITES - 1, (i + 1) * 100 * KIB, 0);
            look_at(growth, &m, 1, (100 + i) * NS_PER_S);
        }
        sites->used = left;
        builder_header(&m->b);
        struct leaks_options options = {.ages = true};
        assert_int_equal(leaks_take(growth, w->ledger, &options, &leaks), 0);
        assert_int_equal(leaks.judged, 1);
        assert_int_equal(leaks.n, left == used);
        leaks_release(&leaks);
        growth_free(growth);
        sites->used = used;
        builder_header(&m->b);
    }
    free(m);
}

/* Clocks of another machine say nothing about an age. */
static void the_age_of_a_site_is_known_on_this_machine_only(void **state)
{
    struct made *m = make(*state, 1, BOOK_SOURCE_CLIENT, "/usr/lib/liba.so", 100);
    struct book_identity *id = (struct book_identity *)(uintptr_t)m->book->identity;
    struct leaks leaks = watch(*state, m, 100 * NS_PER_S, steadily, (struct leaks_options){0});
    assert_true(leaks.rows[0].age_ns > 0);
    leaks_release(&leaks);
    leaks = watch(*state, m, NS_PER_S / 8, steadily, (struct leaks_options){0});
    assert_true(leaks.rows[0].age_ns < 40 * NS_PER_S);
    leaks_release(&leaks);
    strcpy(id->host, "elsewhere");
    leaks = watch(*state, m, 100 * NS_PER_S, steadily, (struct leaks_options){0});
    assert_int_equal(leaks.rows[0].age_ns, 0);
    leaks_release(&leaks);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(each_book_has_series_of_its_own),
        WORLD_TEST(sites_keep_their_series_when_others_come_and_go),
        WORLD_TEST(the_smallest_site_gives_up_its_place),
        WORLD_TEST(sites_that_never_held_anything_are_not_watched),
        WORLD_TEST(a_user_shares_a_limit_among_its_books),
        WORLD_TEST(memory_beyond_the_sites_is_watched_where_the_heap_is_counted),
        WORLD_TEST(memory_of_a_runtime_waits_for_its_collector),
        WORLD_TEST(what_fell_in_another_process_of_the_program_is_no_leak),
        WORLD_TEST(growth_that_goes_away_meets_no_limit),
        WORLD_TEST(ages_of_live_blocks_are_looked_at),
        WORLD_TEST(suspects_are_in_the_order_of_their_rate),
        WORLD_TEST(growth_outside_the_sites_is_told_unless_it_is_overhead),
        WORLD_TEST(small_growth_outside_the_sites_is_not_told),
        WORLD_TEST(leaks_of_another_book_are_no_reason_for_growth_outside),
        WORLD_TEST(falls_elsewhere_speak_about_leaks_only),
        WORLD_TEST(only_processes_that_hold_memory_are_judged),
        WORLD_TEST(a_site_that_the_book_lacks_is_no_suspect),
        WORLD_TEST(the_age_of_a_site_is_known_on_this_machine_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
