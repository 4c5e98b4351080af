/* The line that speaks for a stack. */
#include "profile/headline.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "profile/words.h"
#include "profile_fixture.h"

enum { CALLERS = HEADLINE_FORWARDS_CALLERS + 1 };

struct program {
    struct profile *p;
    uint32_t program, libc, heap;
    uint32_t grab, callers[CALLERS], main_;
};

/* Functions that call grab(), which calls malloc(); sampled. */
static struct program program_make(uint64_t first_size, uint64_t step, size_t callers)
{
    struct program g = {.p = profile_new()};
    struct profile *p = g.p;
    g.program = fixture_module(p, "/srv/shop", "build");
    g.libc = fixture_module(p, "/lib/libc.so.6", "libc");
    g.heap = fixture_heap(p);
    g.grab = fixture_frame(p, g.program, 0x100, "grab", "/src/grab.c", 7);
    g.main_ = fixture_frame(p, g.program, 0x900, "main", "/src/main.c", 90);
    p->frames[g.grab].function_bytes = 40;
    fixture_site(p, (struct fixture_site){
                        g.heap, PROFILE_SITE_CALLER_ONLY, 9000, 9, 9000, 9, 0, {g.grab}, 1});
    for (size_t i = 0; i < callers; i++) {
        char name[16];
        snprintf(name, sizeof(name), "user_%zu", i);
        g.callers[i] =
            fixture_frame(p, g.program, 0x200 + i, name, "/src/users.c", (uint32_t)(10 + i));
        uint64_t size = first_size + i * step;
        fixture_site(p, (struct fixture_site){g.heap,
                                              PROFILE_SITE_SAMPLED,
                                              size,
                                              1,
                                              size,
                                              1,
                                              0,
                                              {g.grab, g.callers[i], g.main_},
                                              3});
    }
    assert_int_equal(headlines_find_all(p, NULL, NULL, NULL), 0);
    return g;
}

static size_t chosen(const struct program *g, size_t caller)
{
    uint32_t frames[] = {g->grab, g->callers[caller], g->main_};
    return headline_frame(g->p, frames, 3);
}

static void a_function_that_only_forwards_is_passed_over(void **state)
{
    struct program g = program_make(1000, 900, CALLERS);
    assert_true(g.p->frames[g.grab].forwards);
    assert_int_equal(chosen(&g, 2), 1);
    profile_free(g.p);
}

static void few_callers_are_no_proof(void **state)
{
    struct program g = program_make(1000, 900, CALLERS - 1);
    assert_int_equal(chosen(&g, 2), 0);
    profile_free(g.p);
}

static void blocks_of_one_size_are_made_not_forwarded(void **state)
{
    struct program g = program_make(1000, 0, CALLERS);
    assert_int_equal(chosen(&g, 2), 0);
    profile_free(g.p);
}

static void much_code_does_more_than_forward(void **state)
{
    struct program g = program_make(1000, 900, 0);
    profile_free(g.p);
    g = program_make(1000, 900, CALLERS);
    g.p->frames[g.grab].forwards = false;
    g.p->frames[g.grab].function_bytes = HEADLINE_FORWARDS_BYTES + 1;
    assert_int_equal(headlines_find_all(g.p, NULL, NULL, NULL), 0);
    assert_int_equal(chosen(&g, 2), 0);
    profile_free(g.p);
}

static void rows_are_of_the_lines_that_asked(void **state)
{
    struct program g = program_make(1000, 900, CALLERS);
    struct rows rows = {0};
    profile_keys(g.p, NULL);
    assert_int_equal(rows_add(&rows, g.p, &(struct rows_filter){.by = ROWS_BY_CALLER}, false), 0);
    rows_sort(&rows, ROWS_LIVE, false);
    assert_int_equal(rows.n, CALLERS);
    uint64_t sum = 0;
    for (size_t i = 0; i < rows.n; i++) {
        assert_true(rows.list[i].estimate);
        sum += rows.list[i].now.live_bytes;
    }
    assert_int_equal(sum, 9000); /* the exact figure of the caller, divided */
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(1000);
    words_site(&rows.list[0], ROWS_BY_CALLER, true, &text);
    assert_string_equal(buffer_string(&text), "users.c:14 user_4");
    buffer_reset(&text);
    words_via(&rows.list[0], ROWS_BY_CALLER, &text);
    assert_string_equal(buffer_string(&text), "grab");
    rows_release(&rows);
    profile_free(g.p);
}

static void calls_in_each_other_are_looked_through(void **state)
{
    struct profile *p = profile_new();
    uint32_t program = fixture_module(p, "/srv/shop", "build");
    uint32_t frame = profile_add_frame(p, program, 0x10);
    struct profile_line lines[] = {
        {profile_add_string(p, "std::allocator<int>::allocate(unsigned long)"),
         profile_add_string(p, "/usr/include/c++/12/bits/allocator.h"), 137},
        {profile_add_string(p, "std::map<int, int>::operator[](int const&)"),
         profile_add_string(p, "/usr/include/c++/12/bits/stl_map.h"), 501},
        {profile_add_string(p, "Shop::add(int)"), profile_add_string(p, "/src/shop.cpp"), 41},
    };
    profile_set_lines(p, frame, lines, 3);
    assert_int_equal(headline_line(p, frame), 2);
    assert_int_equal(headline_kind(p, frame), OWN_CODE);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(1000);
    words_frame(p, frame, headline_line(p, frame), &text);
    assert_string_equal(buffer_string(&text), "shop.cpp:41 Shop::add");
    buffer_reset(&text);
    headline_via(p, &frame, 1, &text);
    assert_string_equal(buffer_string(&text), "std::map<…>::operator[]");
    profile_free(p);
}

static void without_any_own_line_a_library_speaks(void **state)
{
    struct profile *p = profile_new();
    uint32_t libc = fixture_module(p, "/lib/libc.so.6", "libc");
    uint32_t crypto = fixture_module(p, "/usr/lib/libcrypto.so.3", "crypto");
    uint32_t frames[] = {
        fixture_frame(p, libc, 1, "strdup", NULL, 0),
        fixture_frame(p, crypto, 2, "CRYPTO_malloc", NULL, 0),
        fixture_frame(p, crypto, 3, "X509_new", NULL, 0),
    };
    assert_int_equal(headline_frame(p, frames, 3), 2);
    assert_int_equal(headline_frame(p, frames, 1), 0);
    profile_free(p);
}

static void two_profiles_pass_over_the_same(void **state)
{
    struct program one = program_make(1000, 900, CALLERS), other = program_make(1000, 900, 2);
    profile_keys(one.p, other.p);
    profile_keys(other.p, one.p);
    assert_false(other.p->frames[other.grab].forwards);
    assert_int_equal(headlines_agree(one.p, other.p), 0);
    assert_true(other.p->frames[other.grab].forwards);
    profile_free(one.p);
    profile_free(other.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_function_that_only_forwards_is_passed_over),
        cmocka_unit_test(few_callers_are_no_proof),
        cmocka_unit_test(blocks_of_one_size_are_made_not_forwarded),
        cmocka_unit_test(much_code_does_more_than_forward),
        cmocka_unit_test(rows_are_of_the_lines_that_asked),
        cmocka_unit_test(calls_in_each_other_are_looked_through),
        cmocka_unit_test(without_any_own_line_a_library_speaks),
        cmocka_unit_test(two_profiles_pass_over_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
