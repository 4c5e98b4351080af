/* C stacks and Python stacks, made up, and what becomes of them together. In the pictures a small letter is
 * a C frame of another module, a capital one the interpreter's, L its evaluation loop, a digit a Python
 * call. */
#include <string.h>

#include "check.h"
#include "site/python.h"

enum {
    MODULE = 0x10000,
    LOOP = 0x18000,
    OUTSIDE = 0x40000,
    STACK = 0x700000,
    FRAME = 0x100,
    MAX = 64
};

static struct python py;
static struct python_stack stack;

static int set_up(void **unused)
{
    memset(&stack, 0, sizeof(stack));
    py = (struct python){
        .state = PYTHON_READY,
        .facts = {.layout = {.link = PYTHON_LINK_FLAG},
                  .map_start = MODULE,
                  .map_end = 0x20000,
                  .eval_start = LOOP,
                  .eval_end = LOOP + 0x1000},
    };
    return 0;
}

/* A run of `calls` Python calls by the C frame number `frame`, or by one that is not known. */
static void run(int frame, int calls)
{
    for (int i = 0; i < calls; i++, stack.n++)
        stack.frames[stack.n].code = stack.n + 1;
    bool by_order = py.facts.layout.link == PYTHON_LINK_ORDER;
    stack.runs[stack.n_runs++] = (struct python_run){
        .stack = by_order ? 0 : STACK + (uintptr_t)frame * FRAME + 0x40, .end = stack.n};
}

/* The joined stack as a picture; "" if the two did not fit. */
static const char *join(const char *native, bool *cut, size_t max)
{
    static char picture[MAX + 1];
    uintptr_t pcs[MAX], sps[MAX];
    struct python_joined out[MAX];
    size_t n = strlen(native);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)native[i];
        pcs[i] = 1 + c + (c == 'L' ? LOOP : c < 'a' ? MODULE : OUTSIDE);
        sps[i] = STACK + i * FRAME;
    }
    size_t joined = python_join(&py, &stack, pcs, sps, n, out, max, cut);
    for (size_t i = 0; i < joined; i++)
        picture[i] =
            out[i].frame ? (char)('0' + out[i].frame->code) : (char)((out[i].pc - 1) & 0xff);
    picture[joined] = '\0';
    return picture;
}

#define JOINED(native, cut_before, cut_after, expected)          \
    do {                                                         \
        bool cut_ = cut_before;                                  \
        assert_string_equal(join(native, &cut_, MAX), expected); \
        if (*(expected))                                         \
            assert_int_equal(cut_, cut_after);                   \
    } while (0)

static void a_run_takes_the_place_of_its_loop(void **unused)
{
    run(3, 2);
    JOINED("abCLMNz", false, false, "abC12z");
}

static void runs_find_their_own_frames(void **unused)
{
    run(1, 1);
    run(5, 2);
    run(7, 1);
    /* What lies between two runs stays if it is not the interpreter's. */
    JOINED("aLMxyLLLNz", false, false,
           "a1xy23"
           "4z");
}

static void a_loop_is_known_by_its_stack_not_by_its_address(void **unused)
{
    run(2, 1); /* compilers move the rare parts of a function elsewhere: C is one */
    run(4, 1);
    JOINED("aBCMLz", false, false, "aB12z");
}

static void what_lies_outside_of_a_cut_stack_follows(void **unused)
{
    run(1, 1);
    run(40, 2);
    JOINED("aLMx", true, true, "a1x23");
}

static void a_loop_that_is_the_last_frame_is_found(void **unused)
{
    run(2, 2);
    JOINED("aBL", true, true, "aB12");
}

static void stacks_that_do_not_fit_stay_apart(void **unused)
{
    run(40, 1);
    JOINED("aLMz", false, false, "");
    set_up(NULL);
    run(0, 1); /* lies in a frame that is not the interpreter's */
    JOINED("aLMz", false, false, "");
}

static void python_calls_beyond_the_last_known_follow_at_the_end(void **unused)
{
    run(1, 2);
    stack.cut = true;
    JOINED("aLz", false, true, "a12z");
}

static void no_more_than_asked_for(void **unused)
{
    run(1, 3);
    bool cut = false;
    assert_string_equal(join("aLz", &cut, 3), "a12");
    assert_true(cut);
}

static void by_order_each_loop_is_one_call(void **unused)
{
    py.facts.layout.link = PYTHON_LINK_ORDER;
    for (int i = 0; i < 3; i++)
        run(0, 1);
    JOINED("aLMLxLNz", false, false, "a12x3z");
    JOINED("aLMLxNz", false, false, ""); /* one is missing, and who knows which */
    JOINED("aLMLx", true, true, "a12x3");
    JOINED("aLLLLz", false, false, "");
    stack.cut = true;
    JOINED("aLLLLz", false, true, "a123z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_run_takes_the_place_of_its_loop, set_up),
        cmocka_unit_test_setup(runs_find_their_own_frames, set_up),
        cmocka_unit_test_setup(a_loop_is_known_by_its_stack_not_by_its_address, set_up),
        cmocka_unit_test_setup(what_lies_outside_of_a_cut_stack_follows, set_up),
        cmocka_unit_test_setup(a_loop_that_is_the_last_frame_is_found, set_up),
        cmocka_unit_test_setup(stacks_that_do_not_fit_stay_apart, set_up),
        cmocka_unit_test_setup(python_calls_beyond_the_last_known_follow_at_the_end, set_up),
        cmocka_unit_test_setup(no_more_than_asked_for, set_up),
        cmocka_unit_test_setup(by_order_each_loop_is_one_call, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
