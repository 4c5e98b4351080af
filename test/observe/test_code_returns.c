/* Where a function returns: what its code does up to there is known, or the probe goes on the ret itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "observe/code_instruction.h"
#include "observe/code_returns.h"

enum { RAX = 0, R9 = 9 };

struct bytes {
    const uint8_t *code;
    size_t n;
};

static size_t bytes_read(void *context, uint64_t at, uint8_t *to, size_t n)
{
    const struct bytes *b = context;
    if (at >= b->n)
        return 0;
    n = n < b->n - at ? n : b->n - (size_t)at;
    memcpy(to, b->code + at, n);
    return n;
}

#define FIND(places, ...)                                                                \
    ({                                                                                   \
        static const uint8_t code_[] = {__VA_ARGS__};                                    \
        code_returns_find(bytes_read, &(struct bytes){code_, sizeof(code_)}, 0, places); \
    })

static void lengths_are_those_of_the_processor(void **state)
{
    static const struct {
        uint8_t code[CODE_INSTRUCTION_MAX];
        size_t bytes;
    } all[] = {
        {{0x48, 0x8b, 0x44, 0x24, 0x10}, 5},                 /* mov rax,[rsp+16] */
        {{0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0}, 10}, /* nop */
        {{0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8}, 10},          /* movabs */
        {{0x66, 0xb8, 1, 2}, 4},                             /* mov ax */
        {{0xf6, 0x05, 1, 2, 3, 4, 9}, 7},                    /* test byte [rip],9 */
        {{0xf7, 0xd8}, 2},                                   /* neg eax */
        {{0xc5, 0xf8, 0x77}, 3},                             /* vzeroupper */
        {{0xc4, 0xe3, 0x7d, 0x39, 0xc1, 1}, 6},              /* vextracti128 */
        {{0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x06}, 6},           /* vmovdqu64 */
        {{0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0}, 9},     /* mov rax,fs:0 */
        {{0xf3, 0x0f, 0x1e, 0xfa}, 4},                       /* endbr64 */
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        assert_int_equal(code_instruction_read(all[i].code, sizeof(all[i].code)).bytes,
                         all[i].bytes);
    assert_int_equal(code_instruction_read(all[0].code, 4).flow, CODE_BAD); /* cut off */
    assert_int_equal(code_instruction_read((const uint8_t[]){0x06}, 1).flow, CODE_BAD);
}

/* test rax,rax; je +8; add rsp,8; pop rbx; pop rbp; ret; nop; ud2 */
static void a_jump_before_the_end_says_when_and_where(void **state)
{
    struct code_return p[CODE_RETURNS_MAX];
    int n = FIND(p, 0x48, 0x85, 0xc0, 0x74, 0x08, 0x48, 0x83, 0xc4, 0x08, 0x5b, 0x5d, 0xc3, 0x90,
                 0x0f, 0x0b);
    assert_int_equal(n, 1);
    assert_int_equal(p[0].at, 3);
    assert_false(p[0].slow);
    assert_true(p[0].conditional);
    assert_false(p[0].taken);
    assert_int_equal(p[0].condition, 4);
    assert_int_equal(p[0].result, RAX);
    assert_int_equal(p[0].up, 24);
}

/* jb +3; nop; nop; nop; mov rax,r9; ret: it returns either way */
static void the_register_of_the_result_is_followed_back(void **state)
{
    struct code_return p[CODE_RETURNS_MAX];
    int n = FIND(p, 0x72, 0x03, 0x90, 0x90, 0x90, 0x4c, 0x89, 0xc8, 0xc3);
    assert_int_equal(n, 2);
    assert_int_equal(p[0].result, R9);
    assert_int_equal(p[1].result, R9);
    assert_int_equal(p[0].up, 0);
    assert_true(p[0].taken != p[1].taken);
}

/* call +0; ret: what the call returns is known at the ret alone */
static void after_a_call_the_ret_itself_is_the_place(void **state)
{
    struct code_return p[CODE_RETURNS_MAX];
    int n = FIND(p, 0xe8, 0, 0, 0, 0, 0xc3);
    assert_int_equal(n, 1);
    assert_int_equal(p[0].at, 5);
    assert_true(p[0].slow);
}

/* je +2; pop rax... ; leave; ret: leave moves the stack pointer to where one cannot know */
static void what_is_not_known_is_slow_and_not_wrong(void **state)
{
    struct code_return p[CODE_RETURNS_MAX];
    int n = FIND(p, 0x74, 0x00, 0xc9, 0xc3);
    assert_int_equal(n, 1);
    assert_int_equal(p[0].at, 3);
    assert_true(p[0].slow);
    n = FIND(p, 0x74, 0x00, 0x0f, 0xa2, 0xc3); /* cpuid changes rax */
    assert_int_equal(n, 1);
    assert_true(p[0].slow);
    assert_int_equal(FIND(p, 0x74, 0x00, 0x06), -84); /* -EILSEQ: no instruction */
    assert_int_equal(FIND(p, 0x74, 0x7f, 0xc3), -84); /* out of the file */
}

/* jmp +1; ret; xor eax,eax; ret: only what can be reached */
static void a_jump_to_another_function_is_followed(void **state)
{
    struct code_return p[CODE_RETURNS_MAX];
    int n = FIND(p, 0xeb, 0x01, 0xc3, 0x48, 0x89, 0xf8, 0xc3);
    assert_int_equal(n, 1);
    assert_int_equal(p[0].at, 0);
    assert_int_equal(p[0].result, 7);
    assert_false(p[0].conditional);
    assert_int_equal(FIND(p, 0xff, 0x25, 0, 0, 0, 0, 0xc3), 0); /* through the PLT: not followed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_are_those_of_the_processor),
        cmocka_unit_test(a_jump_before_the_end_says_when_and_where),
        cmocka_unit_test(the_register_of_the_result_is_followed_back),
        cmocka_unit_test(after_a_call_the_ret_itself_is_the_place),
        cmocka_unit_test(what_is_not_known_is_slow_and_not_wrong),
        cmocka_unit_test(a_jump_to_another_function_is_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
