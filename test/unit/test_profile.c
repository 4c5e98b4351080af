/* Profiles: what is equal is there once, and exact figures are divided among sampled stacks. */
#include "profile/profile.h"

#include <errno.h>

#include "profile/stacks.h"
#include "profile_fixture.h"

static void equal_strings_are_there_once(void **state)
{
    struct profile *p = profile_new();
    profile_string a = profile_add_string(p, "one"), b = profile_add_string(p, "two");
    assert_int_not_equal(a, b);
    assert_int_equal(profile_add_string(p, "one"), a);
    assert_int_equal(profile_add_string_n(p, "twofold", 3), b);
    assert_int_equal(profile_add_string(p, ""), 0);
    assert_string_equal(profile_text(p, b), "two");
    assert_string_equal(profile_text(p, 0), "");
    profile_free(p);
}

static void long_strings_are_cut(void **state)
{
    struct profile *p = profile_new();
    char *text = malloc(PROFILE_STRING_MAX + 100);
    memset(text, 'x', PROFILE_STRING_MAX + 99);
    text[PROFILE_STRING_MAX + 99] = '\0';
    profile_string s = profile_add_string(p, text);
    assert_int_equal(strlen(profile_text(p, s)), PROFILE_STRING_MAX);
    free(text);
    profile_free(p);
}

static void thousands_of_things_are_found_again(void **state)
{
    struct profile *p = profile_new();
    uint32_t frames[5000];
    uint32_t module = fixture_module(p, "/bin/x", "id");
    for (size_t i = 0; i < 5000; i++)
        frames[i] = profile_add_frame(p, module, i * 16);
    for (size_t i = 0; i < 5000; i++)
        assert_int_equal(profile_add_frame(p, module, i * 16), frames[i]);
    assert_int_equal(p->n_frames, 5000);
    profile_free(p);
}

static void modules_are_their_build_and_path(void **state)
{
    struct profile *p = profile_new();
    uint32_t a = fixture_module(p, "/bin/x", "one");
    assert_int_equal(fixture_module(p, "/bin/x", "one"), a);
    assert_int_not_equal(fixture_module(p, "/bin/x", "two"), a);
    assert_int_not_equal(fixture_module(p, "/bin/y", "one"), a);
    profile_free(p);
}

/* Without a build-id the same path may be two files in two containers. */
static void modules_without_build_id_are_their_process_too(void **state)
{
    struct profile *p = profile_new();
    struct profile_module m = {.kind = PROFILE_MODULE_FILE,
                               .path = profile_add_string(p, "/bin/x")};
    uint32_t ours = profile_add_module(p, &m);
    m.pid = 77;
    assert_int_not_equal(profile_add_module(p, &m), ours);
    profile_free(p);
}

static void equal_sites_add_up(void **state)
{
    struct profile *p = fixture_program("build-1", 0);
    size_t n = p->n_sites;
    struct profile_site again = p->sites[0];
    uint32_t frames[4];
    memcpy(frames, profile_stack(p, &again), sizeof(frames));
    again.first_seen_ns = 60;
    assert_int_equal(profile_add_site(p, &again, frames, 4), 0);
    assert_int_equal(p->n_sites, n);
    assert_int_equal(p->sites[0].figures.live_bytes, 2000);
    assert_int_equal(p->sites[0].figures.alloc_blocks, 10);
    assert_int_equal(p->sites[0].first_seen_ns, 60);
    again.account = fixture_dram(p, 1, "CARD-1");
    profile_add_site(p, &again, frames, 4);
    profile_add_site(p, &p->sites[0], frames, 3);
    assert_int_equal(p->n_sites, n + 2);
    profile_free(p);
}

static void devices_are_the_same_by_uid_whatever_their_number(void **state)
{
    struct profile *p = profile_new();
    uint32_t a = fixture_dram(p, 0, "CARD-0");
    assert_int_equal(fixture_dram(p, 3, "CARD-0"), a);
    assert_int_not_equal(fixture_dram(p, 0, "CARD-1"), a);
    uint32_t none = fixture_dram(p, 0, "");
    assert_int_not_equal(fixture_dram(p, 1, ""), none);
    profile_free(p);
}

static void sums_stop_at_the_largest_number(void **state)
{
    struct profile_figures sum = {.live_bytes = UINT64_MAX - 1};
    struct profile_figures two = {2, 3, 4, 5};
    profile_figures_add(&sum, &two);
    assert_true(sum.live_bytes == UINT64_MAX);
    assert_int_equal(sum.live_blocks, 3);
    assert_int_equal(sum.alloc_bytes, 4);
    assert_int_equal(sum.alloc_blocks, 5);
}

static void a_limit_is_an_error_that_stays(void **state)
{
    struct profile *p = profile_new();
    for (unsigned i = 0; i <= PROFILE_ACCOUNTS_MAX; i++)
        profile_add_account(p, &(struct profile_account){.space = i});
    assert_int_equal(profile_error(p), -E2BIG);
    assert_int_equal(p->n_accounts, PROFILE_ACCOUNTS_MAX);
    assert_int_equal(profile_add_string(p, "later"), 0);
    profile_free(p);
}

/* ---- stacks ---- */

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
}

/* A caller with exact figures and two sampled stacks of unlike estimates; another without any. */
static struct profile *sampled(uint64_t live, uint64_t first, uint64_t second)
{
    struct profile *p = profile_new();
    uint32_t m = fixture_module(p, "/bin/x", "id");
    uint32_t ask = fixture_frame(p, m, 1, "ask", NULL, 0), a = fixture_frame(p, m, 2, "a", NULL, 0);
    uint32_t b = fixture_frame(p, m, 3, "b", NULL, 0), c = fixture_frame(p, m, 4, "c", NULL, 0);
    uint32_t heap = fixture_heap(p);
    unsigned exact = PROFILE_SITE_CALLER_ONLY, estimate = PROFILE_SITE_SAMPLED;
    fixture_site(p, (struct fixture_site){heap, exact, live, 10, 1001, 110, 1, {ask}, 1});
    fixture_site(p, (struct fixture_site){heap, exact, 77, 7, 77, 7, 1, {c}, 1});
    fixture_site(
        p, (struct fixture_site){heap, estimate, first, 1, plus(first, 3), 2, 1, {ask, a}, 2});
    fixture_site(
        p, (struct fixture_site){heap, estimate, second, 2, plus(second, 4), 3, 1, {ask, b}, 2});
    return p;
}

static void exact_figures_are_divided_among_sampled_stacks(void **state)
{
    struct profile *p = sampled(1000, 64, 192);
    struct stacks s;
    assert_int_equal(stacks_take(p, &s), 0);
    assert_int_equal(s.n, 3);
    assert_int_equal(s.orphans, 0);
    assert_false(s.list[0].estimate); /* the caller without samples */
    assert_true(s.list[0].bare);
    assert_int_equal(s.list[0].figures.live_bytes, 77);
    assert_true(s.list[1].estimate && s.list[2].estimate);
    assert_int_equal(s.list[1].figures.live_bytes, 250);
    assert_int_equal(s.list[2].figures.live_bytes, 750);
    assert_int_equal(s.list[1].figures.live_blocks + s.list[2].figures.live_blocks, 10);
    assert_int_equal(s.list[1].figures.alloc_bytes + s.list[2].figures.alloc_bytes, 1001);
    /* Freed blocks, 100, by the estimates 1 and 1; and the live ones, 10, by 1 and 2. */
    assert_int_equal(s.list[1].figures.live_blocks, 3);
    assert_int_equal(s.list[1].figures.alloc_blocks, 53);
    assert_int_equal(s.list[2].figures.alloc_blocks, 57);
    assert_int_equal(s.estimated.live_bytes, 1000);
    assert_int_equal(s.bare.live_bytes, 77);
    stacks_release(&s);
    profile_free(p);
}

static void the_shares_are_exactly_the_whole_whatever_the_numbers(void **state)
{
    static const uint64_t numbers[] = {1, 2, 3, 7, 1000003, UINT64_MAX / 3, UINT64_MAX};
    enum { N = sizeof(numbers) / sizeof(numbers[0]) };
    for (size_t i = 0; i < N * N * N; i++) {
        struct profile *p = sampled(numbers[i % N], numbers[i / N % N], numbers[i / N / N]);
        struct stacks s;
        assert_int_equal(stacks_take(p, &s), 0);
        uint64_t sum = 0;
        for (size_t k = 0; k < s.n; k++)
            sum += s.list[k].estimate ? s.list[k].figures.live_bytes : 0;
        assert_true(sum == numbers[i % N]);
        stacks_release(&s);
        profile_free(p);
    }
}

/* All that was sampled is freed again, but the caller still holds something. */
static void what_no_sample_holds_stays_with_the_caller(void **state)
{
    struct profile *p = sampled(1000, 0, 0);
    struct stacks s;
    assert_int_equal(stacks_take(p, &s), 0);
    assert_int_equal(s.n, 4);
    assert_int_equal(s.list[0].figures.live_bytes, 1000);
    assert_int_equal(s.list[0].figures.alloc_bytes, 1000); /* what was freed has been divided */
    assert_int_equal(s.list[2].figures.live_bytes, 0);
    assert_int_equal(s.list[2].figures.alloc_bytes + s.list[3].figures.alloc_bytes, 1);
    stacks_release(&s);
    profile_free(p);
}

/* Two ends of one estimate: a stack whose samples are all live, beside one whose samples were all freed. */
static void no_stack_holds_more_than_it_allocated(void **state)
{
    uint64_t random = 1;
    for (size_t i = 0; i < 2000; i++) {
        struct profile_figures f[3];
        for (size_t k = 0; k < 3; k++)
            for (size_t n = 0; n < 2; n++) {
                uint64_t *live = n ? &f[k].live_blocks : &f[k].live_bytes;
                uint64_t *all = n ? &f[k].alloc_blocks : &f[k].alloc_bytes;
                random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
                *live = random >> 33 & 1 ? random >> 40 : 0;
                *all = *live + (random >> 34 & 1 ? random >> 44 : 0);
            }
        struct profile *p = profile_new();
        uint32_t m = fixture_module(p, "/bin/x", "id"), heap = fixture_heap(p);
        uint32_t ask = fixture_frame(p, m, 1, "ask", NULL, 0);
        for (uint32_t k = 0; k < 3; k++) {
            uint32_t frames[] = {ask, k ? fixture_frame(p, m, 1 + k, "up", NULL, 0) : ask};
            struct profile_site site = {
                .figures = f[k],
                .account = heap,
                .flags = k ? PROFILE_SITE_SAMPLED : PROFILE_SITE_CALLER_ONLY,
            };
            profile_add_site(p, &site, frames, k ? 2 : 1);
        }
        struct stacks s;
        struct profile_figures sum = {0};
        assert_int_equal(stacks_take(p, &s), 0);
        for (size_t k = 0; k < s.n; k++) {
            assert_true(s.list[k].figures.live_bytes <= s.list[k].figures.alloc_bytes);
            assert_true(s.list[k].figures.live_blocks <= s.list[k].figures.alloc_blocks);
            profile_figures_add(&sum, &s.list[k].figures);
        }
        assert_memory_equal(&sum, &f[0], sizeof(sum)); /* and nothing is lost */
        stacks_release(&s);
        profile_free(p);
    }
}

/* Only callers whose stack is not known take part in the division: an exact stack that happens to begin with the same
 * frame keeps its figures, and is none of those without a stack. */
static void exact_stacks_are_not_divided(void **state)
{
    struct profile *p = profile_new();
    uint32_t m = fixture_module(p, "/bin/x", "id"), heap = fixture_heap(p);
    uint32_t ask = fixture_frame(p, m, 1, "ask", NULL, 0),
             up = fixture_frame(p, m, 2, "up", NULL, 0);
    fixture_site(p, (struct fixture_site){heap, 0, 70, 7, 80, 8, 1, {ask, up}, 2});
    fixture_site(p, (struct fixture_site){heap, PROFILE_SITE_SAMPLED, 5, 1, 5, 1, 1, {ask, up}, 2});
    struct stacks s;
    assert_int_equal(stacks_take(p, &s), 0);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.orphans, 1);
    assert_false(s.list[0].estimate);
    assert_int_equal(s.list[0].figures.live_bytes, 70);
    assert_int_equal(s.bare.live_bytes, 0);
    stacks_release(&s);
    profile_free(p);
}

static void samples_of_a_caller_that_counted_nothing_are_left_out(void **state)
{
    struct profile *p = sampled(1000, 1, 1);
    uint32_t m = fixture_module(p, "/bin/x", "id");
    uint32_t lost = fixture_frame(p, m, 99, "lost", NULL, 0);
    fixture_site(
        p, (struct fixture_site){fixture_heap(p), PROFILE_SITE_SAMPLED, 5, 5, 5, 5, 1, {lost}, 1});
    struct stacks s;
    assert_int_equal(stacks_take(p, &s), 0);
    assert_int_equal(s.orphans, 1);
    assert_int_equal(s.n, 3);
    assert_int_equal(profile_total(p).live_bytes, 1077);
    stacks_release(&s);
    profile_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_strings_are_there_once),
        cmocka_unit_test(long_strings_are_cut),
        cmocka_unit_test(thousands_of_things_are_found_again),
        cmocka_unit_test(modules_are_their_build_and_path),
        cmocka_unit_test(modules_without_build_id_are_their_process_too),
        cmocka_unit_test(equal_sites_add_up),
        cmocka_unit_test(devices_are_the_same_by_uid_whatever_their_number),
        cmocka_unit_test(sums_stop_at_the_largest_number),
        cmocka_unit_test(a_limit_is_an_error_that_stays),
        cmocka_unit_test(exact_figures_are_divided_among_sampled_stacks),
        cmocka_unit_test(no_stack_holds_more_than_it_allocated),
        cmocka_unit_test(exact_stacks_are_not_divided),
        cmocka_unit_test(the_shares_are_exactly_the_whole_whatever_the_numbers),
        cmocka_unit_test(what_no_sample_holds_stays_with_the_caller),
        cmocka_unit_test(samples_of_a_caller_that_counted_nothing_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
