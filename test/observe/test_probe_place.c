/* Where a probe goes at the start of a function: never inside an instruction, never after an argument is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "observe/probe_place.h"

#define FIND(needs, ...)                                        \
    ({                                                          \
        static const uint8_t code_[] = {__VA_ARGS__};           \
        struct probe_place place_;                              \
        probe_place_find(code_, sizeof(code_), needs, &place_); \
        place_;                                                 \
    })

static void push_is_probed_at_the_entry(void **state)
{
    struct probe_place p = FIND(1, 0x41, 0x54, 0x55, 0x53); /* push r12; push rbp; push rbx */
    assert_true(p.cheap);
    assert_int_equal(p.offset, 0);
    assert_int_equal(p.at[0], PROBE_RDI);
}

static void a_test_before_a_jump_is_passed_over(void **state)
{
    /* glibc's free: test rdi,rdi; je; push rbp */
    struct probe_place p = FIND(1, 0x48, 0x85, 0xff, 0x0f, 0x84, 0xbf, 0, 0, 0, 0x55);
    assert_true(p.cheap);
    assert_int_equal(p.offset, 3);
}

static void moved_arguments_are_followed(void **state)
{
    /* mimalloc's malloc: mov rax,[rip]; mov rsi,rdi; mov rdi,fs:[rax]; cmp rsi,0x400; ja */
    struct probe_place p = FIND(1, 0x48, 0x8b, 0x05, 0x49, 0xb4, 0, 0, 0x48, 0x89, 0xfe, 0x64, 0x48,
                                0x8b, 0x38, 0x48, 0x81, 0xfe, 0, 4, 0, 0, 0x77, 0x29);
    assert_true(p.cheap);
    assert_int_equal(p.offset, 21);
    assert_int_equal(p.at[0], PROBE_RSI);
}

static void a_lost_argument_is_read_at_the_entry(void **state)
{
    struct probe_place p = FIND(1, 0x31, 0xff, 0x55); /* xor edi,edi; push rbp */
    assert_false(p.cheap);
    assert_int_equal(p.offset, 0);
    p = FIND(1, 0x89, 0xfe, 0x31, 0xff, 0x55); /* mov esi,edi has half of it */
    assert_false(p.cheap);
    p = FIND(2, 0x31, 0xff, 0x55); /* not needed */
    assert_true(p.cheap);
    assert_int_equal(p.offset, 2);
}

static void the_stack_pointer_must_be_that_of_the_entry(void **state)
{
    struct probe_place p = FIND(1, 0x48, 0x83, 0xec, 0x18, 0x55); /* sub rsp,24; push rbp */
    assert_false(p.cheap);
    assert_int_equal(p.offset, 0);
}

static void unknown_instructions_end_the_search(void **state)
{
    struct probe_place p = FIND(1, 0xc5, 0xf8, 0x77, 0x55); /* vzeroupper; push rbp */
    assert_false(p.cheap);
    assert_int_equal(p.offset, 0);
    p = FIND(1, 0x48, 0x85); /* cut off */
    assert_false(p.cheap);
    p = FIND(1, 0xf2, 0xe9, 0, 0, 0, 0); /* bnd jmp */
    assert_false(p.cheap);
    p = FIND(1, 0x66, 0x90, 0x55); /* xchg ax,ax */
    assert_false(p.cheap);
}

static void endbr_is_passed_over(void **state)
{
    struct probe_place p = FIND(1, 0xf3, 0x0f, 0x1e, 0xfa, 0x55);
    assert_true(p.cheap);
    assert_int_equal(p.offset, 4);
}

static void any_bytes_are_survived(void **state)
{
    uint8_t code[PROBE_PLACE_BYTES];
    uint64_t random = 88172645463325252;
    for (int i = 0; i < 200000; i++) {
        struct probe_place p;
        for (size_t k = 0; k < sizeof(code); k++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            code[k] = (uint8_t)random;
        }
        size_t n = (size_t)i % (sizeof(code) + 1);
        probe_place_find(code, n, 7, &p);
        assert_true(p.offset < sizeof(code) && (p.offset == 0 || p.offset < n));
        assert_true(p.cheap || p.offset == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(push_is_probed_at_the_entry),
        cmocka_unit_test(a_test_before_a_jump_is_passed_over),
        cmocka_unit_test(moved_arguments_are_followed),
        cmocka_unit_test(a_lost_argument_is_read_at_the_entry),
        cmocka_unit_test(the_stack_pointer_must_be_that_of_the_entry),
        cmocka_unit_test(unknown_instructions_end_the_search),
        cmocka_unit_test(endbr_is_passed_over),
        cmocka_unit_test(any_bytes_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
