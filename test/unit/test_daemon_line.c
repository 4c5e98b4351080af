/* The line about a process that is gone, the cause of its end, and its largest blocks. */
#include <memoir/memoir.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "check.h"
#include "daemon/line.h"
#include "daemon/retired.h"
#include "daemon/topblocks.h"

static void check_line(const struct retired_account *accounts, size_t n, const char *expected)
{
    struct retired_process p = {
        .pid = 4242,
        .book_pid = 4242,
        .name = "train.py",
        .cause = {CAUSE_KILLED, SIGKILL},
        .figures_complete = true,
        .accounts = (struct retired_account *)accounts,
        .n_accounts = n,
    };
    struct buffer out = BUFFER_INIT(1024);
    assert_int_equal(line_write(&p, &out), 0);
    assert_string_equal(buffer_string(&out), expected);
    buffer_release(&out);
}

#define ACCOUNT(s, n, b)                                                 \
    {                                                                    \
        .space = (s), .totals = {.live_blocks = (n), .live_bytes = (b) } \
    }
#define BEFORE "PID 4242 (train.py, killed by SIGKILL) gone: "

static void the_promised_line(void **state)
{
    struct retired_account accounts[] = {
        ACCOUNT(MEMOIR_SPACE_DRAM, 100, 20000000), ACCOUNT(MEMOIR_SPACE_L1, 50, 5500000),
        ACCOUNT(MEMOIR_SPACE_CB, 800, 22400000),   ACCOUNT(MEMOIR_SPACE_KERNEL, 30, 204000),
        ACCOUNT(MEMOIR_SPACE_TRACE, 0, 0),
    };
    check_line(accounts, 5,
               BEFORE "removed 150 buffers (25.5 MB), 800 CBs (22.4 MB), 30 kernels (0.2 MB)");
}

static void one_is_singular(void **state)
{
    struct retired_account accounts[] = {
        ACCOUNT(MEMOIR_SPACE_DRAM, 1, 1),    ACCOUNT(MEMOIR_SPACE_CB, 1, 1),
        ACCOUNT(MEMOIR_SPACE_KERNEL, 1, 1),  ACCOUNT(MEMOIR_SPACE_PINNED, 1, 1),
        ACCOUNT(MEMOIR_SPACE_MANAGED, 1, 1), ACCOUNT(MEMOIR_SPACE_SHARED, 1, 1),
        ACCOUNT(MEMOIR_SPACE_HEAP, 1, 1),    ACCOUNT(MEMOIR_SPACE_MAPPED, 1, 1),
        ACCOUNT(MEMOIR_SPACE_CHAIN, 1, 1),
    };
    check_line(accounts, 9,
               BEFORE
               "removed 1 buffer (1 B), 1 CB (1 B), 1 kernel (1 B), 1 pinned block (1 B), 1 "
               "managed block (1 B), 1 shared block (1 B), 1 heap block (1 B), 1 mapping (1 B), "
               "1 block in chains (1 B)");
}

static void a_small_figure_keeps_its_own_unit(void **state)
{
    struct retired_account accounts[] = {
        ACCOUNT(MEMOIR_SPACE_DRAM, 2, UINT64_C(25500000000)),
        ACCOUNT(MEMOIR_SPACE_CB, 2, 120000000), /* still something in GB */
        ACCOUNT(MEMOIR_SPACE_KERNEL, 2, 204000),
        ACCOUNT(MEMOIR_SPACE_PINNED, 2, 0), /* blocks of no bytes */
    };
    check_line(accounts, 4,
               BEFORE "removed 2 buffers (25.5 GB), 2 CBs (0.1 GB), 2 kernels (204.0 kB), 2 pinned "
                      "blocks (0.0 GB)");
}

static void nothing_held_and_nothing_known_differ(void **state)
{
    check_line(NULL, 0, BEFORE "held nothing");
    struct retired_process p = {.book_pid = 7, .pid_ns = 99, .name = "x"};
    struct buffer out = BUFFER_INIT(1024);
    assert_int_equal(line_write(&p, &out), 0);
    assert_string_equal(buffer_string(&out),
                        "PID 7 of pid namespace 99 (x, cause unknown) gone: figures unknown");
    buffer_release(&out);
}

static void causes_in_words(void **state)
{
    static const struct {
        int status;
        const char *text;
    } cases[] = {
        {0, "exited with 0"},
        {3 << 8, "exited with 3"},
        {SIGKILL, "killed by SIGKILL"},
        {SIGSEGV, "killed by SIGSEGV"},
        {SIGSEGV | 0x80, "killed by SIGSEGV (core dumped)"},
        {0x7f, "cause unknown"},
    };
    char text[CAUSE_TEXT_MAX];
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_string_equal(cause_text(cause_of_status(cases[i].status), text), cases[i].text);
    assert_string_equal(cause_text((struct cause){CAUSE_KILLED, SIGRTMIN + 2}, text),
                        "killed by SIGRTMIN+2");
    assert_string_equal(cause_text((struct cause){CAUSE_EXEC, 0}, text), "replaced by exec");
}

static int by_size_down(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

static void top_blocks_are_the_largest(void **state)
{
    enum { N = 5000 };
    static uint64_t sizes[N];
    srand(1);
    for (size_t keep = 0; keep <= 128; keep = keep * 2 + 1) {
        struct top_blocks top;
        assert_int_equal(top_blocks_init(&top, keep), 0);
        for (size_t i = 0; i < N; i++) {
            sizes[i] = (uint64_t)rand() % 1000;
            top_blocks_add(&top, &(struct top_block){.view = {.bytes = sizes[i], .id = i}});
        }
        qsort(sizes, N, sizeof(*sizes), by_size_down);
        top_blocks_sort(&top);
        assert_int_equal(top.n, keep);
        for (size_t i = 0; i < keep; i++)
            assert_int_equal(top.blocks[i].view.bytes, sizes[i]);
        top_blocks_release(&top);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_promised_line),
        cmocka_unit_test(one_is_singular),
        cmocka_unit_test(a_small_figure_keeps_its_own_unit),
        cmocka_unit_test(nothing_held_and_nothing_known_differ),
        cmocka_unit_test(causes_in_words),
        cmocka_unit_test(top_blocks_are_the_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
