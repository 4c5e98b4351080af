/* Steps on the way to suspects: overhead of blocks is no row of its own, and ages of sites and blocks. */
#include <string.h>

#include "check.h"
#include "ledger/leaks.h"
#include "ledger/ledger.h"

static const struct ledger_book books[2];

struct row {
    char name; /* of the row, for the answer */
    int book;
    bool outside;
    enum detect_verdict verdict;
    double bytes_per_s;
};

static void check(const struct row *rows, size_t n, const char *expected)
{
    struct leak leaks_rows[8];
    struct leaks leaks = {.rows = leaks_rows, .n = n, .judged = 10 + n};
    char names[9] = "";
    size_t dropped[DETECT_VERDICTS] = {0}, kept = strlen(expected);
    for (size_t i = 0; i < n; i++) {
        leaks_rows[i] = (struct leak){
            .book = &books[rows[i].book],
            .site = (uint32_t)rows[i].name,
            .outside = rows[i].outside,
            .result = {.verdict = rows[i].verdict, .bytes_per_s = rows[i].bytes_per_s}};
        leaks.verdicts[rows[i].verdict]++;
        dropped[rows[i].verdict] += !strchr(expected, rows[i].name);
    }
    size_t before[DETECT_VERDICTS];
    memcpy(before, leaks.verdicts, sizeof(before));
    leaks_drop_overhead(&leaks);
    assert_int_equal(leaks.n, kept);
    for (size_t i = 0; i < leaks.n && i < 8; i++)
        names[i] = (char)leaks.rows[i].site;
    assert_string_equal(names, expected);
    assert_int_equal(leaks.judged, 10 + kept); /* what is dropped was not judged */
    for (size_t i = 0; i < DETECT_VERDICTS; i++)
        assert_int_equal(leaks.verdicts[i], before[i] - dropped[i]);
}

#define CHECK(expected, ...)                                 \
    do {                                                     \
        static const struct row rows[] = {__VA_ARGS__};      \
        check(rows, sizeof(rows) / sizeof(*rows), expected); \
    } while (0)
#define SITE(name, book, rate)               \
    {                                        \
        name, book, false, DETECT_LEAK, rate \
    }
#define OUTSIDE(name, book, rate)              \
    {                                          \
        name, book, true, DETECT_GROWING, rate \
    }

static void less_than_a_quarter_of_the_sites_is_dropped(void **state)
{
    CHECK("a", SITE('a', 0, 400), OUTSIDE('x', 0, 99));
    CHECK("ax", SITE('a', 0, 400), OUTSIDE('x', 0, 100));
    CHECK("xa", OUTSIDE('x', 0, 101), SITE('a', 0, 400));
    CHECK("a", OUTSIDE('x', 0, 99), SITE('a', 0, 400)); /* in whatever order */
    CHECK("x", OUTSIDE('x', 0, 1));
    CHECK("a", SITE('a', 0, 400));
}

static void sites_of_a_book_count_together(void **state)
{
    CHECK("abc", SITE('a', 0, 200), SITE('b', 0, 100), OUTSIDE('x', 0, 99), SITE('c', 0, 100));
    CHECK("abxc", SITE('a', 0, 200), SITE('b', 0, 100), OUTSIDE('x', 0, 100), SITE('c', 0, 100));
}

static void only_suspects_of_the_same_book_that_grow_count(void **state)
{
    CHECK("ax", SITE('a', 1, 400), OUTSIDE('x', 0, 50));
    CHECK("ax", {'a', 0, false, DETECT_STEADY, 400}, OUTSIDE('x', 0, 50));
    CHECK("ax", {'a', 0, false, DETECT_WARMING, 400}, OUTSIDE('x', 0, 50));
    CHECK("a", {'a', 0, false, DETECT_GROWING, 400}, OUTSIDE('x', 0, 50));
    CHECK("ab", SITE('a', 0, 400), SITE('b', 0, -300), OUTSIDE('x', 0, 50));
    CHECK("xy", OUTSIDE('x', 0, 400), OUTSIDE('y', 0, 50)); /* they are no sites */
}

/* Rows move to the front where others were dropped, and count once wherever they are. */
static void several_rows_are_dropped(void **state)
{
    CHECK("abz", OUTSIDE('x', 0, 1), OUTSIDE('y', 1, 1), SITE('a', 0, 40), SITE('b', 1, 40),
          OUTSIDE('z', 1, 10), OUTSIDE('w', 0, 9));
    CHECK("axy", OUTSIDE('v', 0, 9), SITE('a', 0, 40), OUTSIDE('x', 0, 10), OUTSIDE('y', 0, 10));
}

static void age_of_a_site_is_known_or_0(void **state)
{
    static const struct {
        uint64_t created_ns, now_ns, age_ns;
        uint32_t time, shift;
        const char *host;
    } cases[] = {
        {1000, 1000 + (10 << 20), 3 << 20, 7, 20, ""},
        {1000, 1000 + (7 << 20) + 1, 1, 7, 20, ""},
        {1000, 1000 + (7 << 20), 0, 7, 20, ""}, /* just now */
        {1000, 1000, 0, 7, 20, ""},             /* not yet */
        {0, 100, 100, 0, 20, ""},
        {0, UINT64_C(1) << 60, 0, UINT32_MAX, 20, ""}, /* then or later */
        {0, UINT64_C(1) << 60, (UINT64_C(1) << 60) - (UINT64_C(0xfffffffe) << 20), UINT32_MAX - 1,
         20, ""},
        {1000, 1000 + (10 << 20), 0, 7, 20, "elsewhere"}, /* by another clock */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct book_identity id = {.created_monotonic_ns = cases[i].created_ns,
                                   .time_shift = cases[i].shift};
        strcpy(id.host, cases[i].host);
        assert_int_equal(leaks_site_age(&id, cases[i].time, cases[i].now_ns), cases[i].age_ns);
    }
}

static void a_block_is_from_a_part_of_the_life_of_its_site(void **state)
{
    enum { PART = 1000, LIFE = DETECT_AGES * PART };
    for (size_t part = 0; part < DETECT_AGES; part++)
        assert_int_equal(leaks_age_part(LIFE, LIFE - part * PART - PART / 2), part);
    assert_int_equal(leaks_age_part(LIFE, LIFE), 0);
    assert_int_equal(leaks_age_part(LIFE, LIFE + 1), 0); /* older than its site */
    assert_int_equal(leaks_age_part(LIFE, UINT64_MAX), 0);
    assert_int_equal(leaks_age_part(LIFE, 0), DETECT_AGES - 1);
    assert_int_equal(leaks_age_part(0, 0), 0); /* a site whose age is not known */
    assert_int_equal(leaks_age_part(0, 5), 0);
    assert_int_equal(leaks_age_part(UINT64_MAX, 1), DETECT_AGES - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(less_than_a_quarter_of_the_sites_is_dropped),
        cmocka_unit_test(sites_of_a_book_count_together),
        cmocka_unit_test(only_suspects_of_the_same_book_that_grow_count),
        cmocka_unit_test(several_rows_are_dropped),
        cmocka_unit_test(age_of_a_site_is_known_or_0),
        cmocka_unit_test(a_block_is_from_a_part_of_the_life_of_its_site),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
