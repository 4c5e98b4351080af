/* Answers that are kept: for how long, how many, and whose make room. */
#include "http/question.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "check.h"

enum {
    ROOM = 64 << 10,  /* of all answers */
    SMALL = 1000,     /* bytes of one; a few of them fit into the part for those asked for once */
    LARGE = ROOM / 2, /* more than that part has */
    CROWD = ROOM / SMALL /* more than fit */
};

static int setup(void **state)
{
    struct cache *cache = NULL;
    assert_int_equal(cache_new(7, &cache), 0);
    *state = cache;
    return 0;
}

static int teardown(void **state)
{
    cache_free(*state);
    return 0;
}

static struct question *find(struct cache *cache, const char *key)
{
    return cache_find(cache, key, strlen(key), clock_monotonic_ns());
}

static struct question *ask(struct cache *cache, const char *key)
{
    struct question *question = question_new(cache, strdup(key), strlen(key));
    assert_non_null(question);
    return question;
}

static void answer_for(struct cache *cache, struct question *question, size_t bytes,
                       uint64_t fresh_ns)
{
    struct buffer out = BUFFER_INIT(1 << 20);
    memset(buffer_reserve(&out, bytes), 'x', bytes);
    buffer_commit(&out, bytes);
    struct answer *answer = answer_new(200, "text/plain", &out);
    assert_non_null(answer);
    question_keep(cache, question, answer, fresh_ns, ROOM);
    answer_unref(answer);
    buffer_release(&out);
}

static void keep(struct cache *cache, const char *key, size_t bytes)
{
    answer_for(cache, ask(cache, key), bytes, 3600 * NS_PER_S);
}

static void keep_crowd(struct cache *cache)
{
    char key[32];
    for (int i = 0; i < CROWD; i++) {
        snprintf(key, sizeof(key), "crowd %d", i);
        keep(cache, key, SMALL);
    }
}

static size_t bytes_kept(const struct cache *cache)
{
    size_t n, bytes;
    cache_size(cache, &n, &bytes);
    return bytes;
}

static void an_answer_is_found_until_it_is_stale(void **state)
{
    struct cache *cache = *state;
    struct question *question = ask(cache, "a");
    assert_ptr_equal(find(cache, "a"), question); /* while it is out */
    assert_null(find(cache, "b"));
    answer_for(cache, question, SMALL, 3600 * NS_PER_S);
    assert_ptr_equal(find(cache, "a"), question);
    uint64_t later = clock_monotonic_ns() + 3601 * NS_PER_S;
    assert_null(cache_find(cache, "a", 1, later));
    assert_null(find(cache, "a"));
    assert_int_equal(bytes_kept(cache), 0);
    keep(cache, "a", SMALL);
    keep(cache, "b", SMALL);
    assert_non_null(find(cache, "b")); /* both kinds */
    cache_expire(cache, later);
    assert_null(find(cache, "a"));
    assert_null(find(cache, "b"));
    assert_int_equal(bytes_kept(cache), 0);
}

static void what_was_asked_for_once_has_a_small_part(void **state)
{
    struct cache *cache = *state;
    char last[32];
    keep(cache, "first", SMALL);
    keep_crowd(cache);
    snprintf(last, sizeof(last), "crowd %d", CROWD - 1);
    assert_null(find(cache, "first"));
    assert_non_null(find(cache, last));
    assert_true(bytes_kept(cache) > SMALL);
    assert_true(bytes_kept(cache) <= ROOM / 16);
}

static void what_was_asked_for_again_stays_when_others_ask_anew(void **state)
{
    struct cache *cache = *state;
    keep(cache, "kept", SMALL);
    assert_non_null(find(cache, "kept"));
    struct question *waited = ask(cache, "waited"); /* asked for again before it was answered */
    assert_non_null(find(cache, "waited"));
    answer_for(cache, waited, SMALL, 3600 * NS_PER_S);
    keep_crowd(cache);
    assert_non_null(find(cache, "kept"));
    assert_non_null(find(cache, "waited"));
}

static void of_those_asked_for_again_the_oldest_go(void **state)
{
    struct cache *cache = *state;
    char key[32];
    for (int i = 0; i < CROWD; i++) {
        snprintf(key, sizeof(key), "crowd %d", i);
        keep(cache, key, SMALL);
        assert_non_null(find(cache, key));
    }
    assert_null(find(cache, "crowd 0"));
    assert_non_null(find(cache, key));
    assert_true(bytes_kept(cache) <= ROOM);
    assert_true(bytes_kept(cache) > ROOM / 2);
}

static void a_large_answer_is_kept_only_if_others_wait_for_it(void **state)
{
    struct cache *cache = *state;
    char key[32];
    for (int i = 0; i < CROWD / 2; i++) { /* much that is asked for by many */
        snprintf(key, sizeof(key), "crowd %d", i);
        keep(cache, key, SMALL);
        assert_non_null(find(cache, key));
    }
    keep(cache, "small", SMALL);
    size_t before = bytes_kept(cache);
    keep(cache, "large", LARGE);
    assert_int_equal(bytes_kept(cache), before); /* it pushed out nobody's, of either kind */
    assert_null(find(cache, "large"));
    assert_non_null(find(cache, "small"));
    assert_non_null(find(cache, "crowd 0"));
    struct question *waited = ask(cache, "large");
    assert_non_null(find(cache, "large"));
    answer_for(cache, waited, LARGE, 3600 * NS_PER_S);
    assert_non_null(find(cache, "large"));
    keep_crowd(cache);
    assert_non_null(find(cache, "large"));
    waited = ask(cache, "huge"); /* larger than the part of those that many ask for */
    assert_non_null(find(cache, "huge"));
    before = bytes_kept(cache);
    answer_for(cache, waited, ROOM - ROOM / 16, 3600 * NS_PER_S);
    assert_null(find(cache, "huge"));
    assert_non_null(find(cache, "large"));
    assert_int_equal(bytes_kept(cache), before);
    assert_true(bytes_kept(cache) <= ROOM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_answer_is_found_until_it_is_stale, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_asked_for_once_has_a_small_part, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_asked_for_again_stays_when_others_ask_anew, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(of_those_asked_for_again_the_oldest_go, setup, teardown),
        cmocka_unit_test_setup_teardown(a_large_answer_is_kept_only_if_others_wait_for_it, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
