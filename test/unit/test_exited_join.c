/* One row for each process that ended, whoever told of it. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "check.h"
#include "fault.h"
#include "query/exit_file.h"
#include "query/query.h"

#define START (UINT64_C(1800000000) * NS_PER_S)

static struct exit_file *file;

static int setup(void **state)
{
    file = calloc(1, sizeof(*file));
    return file ? 0 : -1;
}

static int teardown(void **state)
{
    free(file);
    return 0;
}

static void told(size_t slot, int pid, uint64_t start_ns, int status, uint32_t flags)
{
    file->records[slot] = (struct exit_record){
        .sequence = slot + 1,
        .pid = pid,
        .parent = 1,
        .uid = 1000,
        .start_ns = start_ns,
        .end_ns = start_ns + NS_PER_S,
        .peak_bytes = 4096,
        .cpu_ns = 5,
        .status = status,
        .flags = flags,
        .program = "comm",
        .cgroup = "/group",
    };
}

static struct query_exited book(uint64_t pid, uint64_t start_ns, const char *kind)
{
    return (struct query_exited){
        .program = "script.py",
        .cause = "killed by SIGKILL",
        .kind = kind,
        .pid = pid,
        .start_ns = start_ns,
        .end_ns = start_ns + NS_PER_MS,
        .has_book = true,
        .blocks = 3,
    };
}

static void a_process_with_a_book_is_one_row(void **state)
{
    struct query_exited rows[] = {book(7, START, "signal"), book(8, START, "signal")};
    struct query_exited_list list;
    told(0, 7, START + 9 * NS_PER_MS, SIGKILL, EXIT_RECORD_OOM);
    assert_int_equal(query_exited_join(rows, 2, file, &list), 0);
    assert_int_equal(list.n, 2);
    assert_string_equal(list.rows[0].program, "script.py"); /* the book knows better */
    assert_string_equal(list.rows[0].cause, "OOM kill");    /* the kernel knows better */
    assert_string_equal(list.rows[0].kind, "oom");
    assert_string_equal(list.rows[0].cgroup, "/group");
    assert_int_equal(list.rows[0].peak_rss, 4096);
    assert_int_equal(list.rows[0].blocks, 3);
    assert_true(list.rows[0].has_book && list.rows[0].has_exit);
    assert_string_equal(list.rows[1].cause, "killed by SIGKILL");
    assert_false(list.rows[1].has_exit);
    query_exited_release(&list);
}

static void the_same_pid_at_another_time_is_another_process(void **state)
{
    struct query_exited rows[] = {book(7, START, "signal")};
    struct query_exited_list list;
    told(0, 7, START + 60 * NS_PER_S, 1 << 8, 0);
    assert_int_equal(query_exited_join(rows, 1, file, &list), 0);
    assert_int_equal(list.n, 2);
    assert_string_equal(list.rows[0].cause, "killed by SIGKILL");
    assert_string_equal(list.rows[1].cause, "exited with 1");
    assert_string_equal(list.rows[1].program, "comm");
    assert_false(list.rows[1].has_book);
    query_exited_release(&list);
}

static void an_image_that_exec_replaced_keeps_its_row(void **state)
{
    struct query_exited rows[] = {book(7, START, "exec"), book(7, START, "unknown")};
    struct query_exited_list list;
    told(0, 7, START, 0, 0);
    assert_int_equal(query_exited_join(rows, 2, file, &list), 0);
    assert_int_equal(list.n, 2);
    assert_string_equal(list.rows[0].kind, "exec");
    assert_false(list.rows[0].has_exit);
    assert_string_equal(list.rows[1].kind, "code");
    query_exited_release(&list);
}

static void sums_are_rows_that_stand_for_many(void **state)
{
    struct query_exited_list list;
    file->sums[5] = (struct exit_sum){.count = 30000,
                                      .start_ns = START,
                                      .end_ns = START + NS_PER_S,
                                      .peak_bytes = 1 << 20,
                                      .status = 0,
                                      .program = "cc1"};
    told(0, 7, START, SIGSEGV | 0x80, 0);
    assert_int_equal(query_exited_join(NULL, 0, file, &list), 0);
    assert_int_equal(list.n, 2);
    assert_true(list.rows[0].core);
    assert_int_equal(list.rows[1].processes, 30000);
    assert_string_equal(list.rows[1].program, "cc1");
    query_exited_release(&list);
}

static uint64_t ask(const struct query_exited_list *list, const char *where, const char *show)
{
    struct query_spec spec = {.table = "exited", .where = where, .show = show};
    struct query_error error;
    struct query *query;
    struct query_result *result;
    assert_int_equal(query_new(&spec, &query, &error), 0);
    assert_int_equal(query_result_new(query, 0, &result), 0);
    struct query_world world = {.exited = list->rows, .n_exited = list->n, .sees_all = true};
    assert_int_equal(query_run(query, &world, result), 0);
    assert_int_equal(query_result_finish(result), 0);
    uint64_t n = query_result_rows(result) ? query_result_value(result, 0, 0).number : 0;
    query_result_free(result);
    query_free(query);
    return n;
}

static void sums_count_only_where_asked_for(void **state)
{
    struct query_exited_list list;
    file->sums[0] = (struct exit_sum){.count = 30000, .program = "cc1"};
    told(0, 7, START, 0, 0);
    assert_int_equal(query_exited_join(NULL, 0, file, &list), 0);
    assert_int_equal(ask(&list, NULL, "count"), 1);
    assert_int_equal(ask(&list, NULL, "sum(processes)"), 1);
    assert_int_equal(ask(&list, "summed=yes or summed=no", "sum(processes)"), 30001);
    query_exited_release(&list);
}

static void every_failing_allocation_is_told(void **state)
{
    struct query_exited rows[] = {book(7, START, "signal")};
    told(0, 7, START, 0, 0);
    told(1, 8, START, 0, 0);
    for (int nth = 0; fault_arm(nth); nth++) {
        struct query_exited_list list;
        if (query_exited_join(rows, 1, file, &list) == 0)
            query_exited_release(&list);
        else
            assert_true(fault_fired());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_process_with_a_book_is_one_row, setup, teardown),
        cmocka_unit_test_setup_teardown(the_same_pid_at_another_time_is_another_process, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_image_that_exec_replaced_keeps_its_row, setup, teardown),
        cmocka_unit_test_setup_teardown(sums_are_rows_that_stand_for_many, setup, teardown),
        cmocka_unit_test_setup_teardown(sums_count_only_where_asked_for, setup, teardown),
        cmocka_unit_test_setup_teardown(every_failing_allocation_is_told, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
