/* The list of processes that ended, with every allocation and write failing in turn. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/fs.h"
#include "check.h"
#include "daemon/allowance.h"
#include "daemon/retired.h"
#include "fault.h"

struct folder {
    char path[64];
    int fd;
};

static int setup(void **state)
{
    struct folder *f = calloc(1, sizeof(*f));
    strcpy(f->path, "/tmp/memoir-retired-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    f->fd = open(f->path, O_RDONLY | O_DIRECTORY);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct folder *f = *state;
    char command[128];
    close(f->fd);
    snprintf(command, sizeof(command), "rm -rf %s", f->path);
    assert_int_equal(system(command), 0);
    free(f);
    return 0;
}

static struct retired_process *process_new(pid_t pid)
{
    struct retired_process *p = calloc(1, sizeof(*p));
    p->pid = p->book_pid = pid;
    strcpy(p->name, "a \"name\"\n");
    p->accounts = calloc(1, sizeof(*p->accounts));
    p->n_accounts = 1;
    p->accounts[0].device = -1;
    p->blocks = calloc(1, sizeof(*p->blocks));
    p->n_blocks = 1;
    p->blocks[0] = (struct retired_block){.id = 1, .bytes = 2, .site = 0, .tag = 4};
    p->sites = calloc(1, sizeof(*p->sites));
    p->n_sites = 1;
    p->text = malloc(8);
    memcpy(p->text, "x+1\0tag", 8);
    p->text_len = 8;
    return p;
}

static void last_ones_are_kept_in_order(void **state)
{
    struct retired *retired;
    assert_int_equal(retired_new(-1, 3, 0, &retired), 0);
    assert_null(retired_get(retired, 0));
    for (int i = 1; i <= 5; i++)
        assert_int_equal(retired_add(retired, process_new(i)), 0);
    assert_int_equal(retired_count(retired), 3);
    assert_int_equal(retired_total(retired), 5);
    for (int i = 0; i < 3; i++)
        assert_int_equal(retired_get(retired, (size_t)i)->pid, 5 - i);
    assert_null(retired_get(retired, 3));

    retired_set_limits(retired, 2, 0);
    assert_int_equal(retired_get(retired, 0)->pid, 5);
    assert_int_equal(retired_get(retired, 1)->pid, 4);
    assert_null(retired_get(retired, 2));
    retired_set_limits(retired, 4, 0);
    assert_int_equal(retired_add(retired, process_new(6)), 0);
    assert_int_equal(retired_get(retired, 0)->pid, 6);
    assert_int_equal(retired_get(retired, 2)->pid, 4);
    retired_free(retired);
}

static void estimates_stay_estimates(void **state)
{
    struct buffer text = BUFFER_INIT(1 << 20);
    struct retired_process *p = process_new(1);
    assert_int_equal(retired_json(p, &text), 0);
    assert_null(strstr(buffer_string(&text), "\"sampled\""));
    assert_null(strstr(buffer_string(&text), "\"partial\""));
    buffer_reset(&text);
    p->accounts[0].sampled = p->accounts[0].partial = true;
    assert_int_equal(retired_json(p, &text), 0);
    assert_non_null(strstr(buffer_string(&text), "\"partial\":true,\"sampled\":true"));
    buffer_release(&text);
    retired_process_free(p);
}

static struct retired_process *process_of(uint32_t uid, pid_t pid)
{
    struct retired_process *p = process_new(pid);
    p->uid = uid;
    return p;
}

static void who_adds_much_pushes_out_his_own(void **state)
{
    struct retired *retired;
    assert_int_equal(retired_new(-1, 8, 0, &retired), 0);
    for (int i = 1; i <= 4; i++)
        assert_int_equal(retired_add(retired, process_of(1000, i)), 0);
    for (int i = 100; i < 200; i++)
        assert_int_equal(retired_add(retired, process_of(66, i)), 0);
    assert_int_equal(retired_count(retired), 8);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(retired_get(retired, (size_t)i)->pid, 199 - i);
        assert_int_equal(retired_get(retired, (size_t)(4 + i))->pid, 4 - i);
    }
    /* Large ones, too, and the newest is there in any case. */
    for (int i = 200; i < 210; i++) {
        struct retired_process *p = process_of(66, i);
        p->text = realloc(p->text, RETIRED_MEMORY_MAX / 3);
        p->text_len = RETIRED_MEMORY_MAX / 3;
        assert_int_equal(retired_add(retired, p), 0);
        assert_int_equal(retired_get(retired, 0)->pid, i);
    }
    size_t others = 0;
    for (size_t i = 0; i < retired_count(retired); i++)
        others += retired_get(retired, i)->uid == 1000;
    assert_int_equal(others, 4);
    retired_free(retired);
}

static void count_refused(uint32_t uid, uint64_t refused, void *context)
{
    assert_int_equal(uid, 66);
    *(uint64_t *)context += refused;
}

static void nobody_fills_the_file_for_all(void **state)
{
    struct folder *f = *state;
    struct retired *retired;
    uint64_t refused = 0;
    assert_int_equal(retired_new(f->fd, 4, 16 << 20, &retired), 0);
    for (int i = 0; i < 20000; i++)
        assert_int_equal(retired_add(retired, process_of(66, i + 1)), 0);
    assert_int_equal(retired_add(retired, process_of(0, 1)), 0);
    assert_int_equal(retired_add(retired, process_of(1000, 1)), 0);
    struct stat st;
    assert_int_equal(fstatat(f->fd, "retired.jsonl", &st, 0), 0);
    assert_in_range(st.st_size, 2 << 20, (2 << 20) + 65536);
    retired_tell(retired, 1, count_refused, &refused);
    assert_true(refused > 1000 && refused < 20000);
    retired_tell(retired, 2, count_refused, &refused); /* once in a while only */
    assert_true(refused < 20000);
    assert_int_equal(retired_lost(retired), 0);
    retired_free(retired);
}

static void allowance_is_each_users_own_and_comes_back(void **state)
{
    struct allowance *a;
    assert_int_equal(allowance_new(10, 1000, &a), 0);
    for (int i = 0; i < 10; i++)
        assert_true(allowance_take(a, 5, 1, 100));
    assert_false(allowance_take(a, 5, 1, 100));
    assert_true(allowance_take(a, 6, 1, 100));
    assert_true(allowance_take(a, 0, 1000, 100)); /* root */
    assert_true(allowance_take(a, 5, 1, 200));
    assert_false(allowance_take(a, 5, 1, 200));
    assert_true(allowance_take(a, 7, 50, 200)); /* one large thing */
    assert_false(allowance_take(a, 7, 1, 300));
    allowance_free(a);
}

static size_t lines_of(const struct folder *f, const char *name)
{
    struct buffer text = BUFFER_INIT(1 << 20);
    if (fs_read_file_at(f->fd, name, &text) < 0)
        return 0;
    size_t lines = 0;
    for (size_t i = 0; i < text.len; i++)
        lines += text.data[i] == '\n';
    assert_true(text.len == 0 || text.data[text.len - 1] == '\n'); /* whole lines only */
    buffer_release(&text);
    return lines;
}

static void file_is_rotated_before_its_limit(void **state)
{
    struct folder *f = *state;
    struct retired *retired;
    assert_int_equal(retired_new(f->fd, 1, 2000, &retired), 0);
    for (int i = 1; i <= 20; i++)
        assert_int_equal(retired_add(retired, process_new(i)), 0);
    struct stat st;
    assert_int_equal(fstatat(f->fd, "retired.jsonl", &st, 0), 0);
    assert_in_range(st.st_size, 1, 2000);
    assert_int_equal(fstatat(f->fd, "retired.jsonl.1", &st, 0), 0);
    assert_in_range(st.st_size, 1, 2000);
    retired_free(retired);
}

static void failing_calls_cost_a_line_and_never_half_of_one(void **state)
{
    struct folder *f = *state;
    int nth = 0;
    for (;; nth++) {
        struct retired_process *first = process_new(1), *second = process_new(2);
        size_t before = lines_of(f, "retired.jsonl");
        if (!fault_arm(nth)) {
            retired_process_free(first);
            retired_process_free(second);
            break;
        }
        struct retired *retired = NULL;
        int made = retired_new(f->fd, 10, 1 << 20, &retired);
        if (made < 0) {
            fault_disarm();
            assert_true(fault_fired());
            retired_process_free(first);
            retired_process_free(second);
            continue;
        }
        int r[2] = {retired_add(retired, first), retired_add(retired, second)};
        fault_disarm();
        size_t written = (r[0] >= 0) + (r[1] >= 0);
        assert_int_equal(lines_of(f, "retired.jsonl"), before + written);
        assert_int_equal(retired_lost(retired), 2 - written);
        assert_int_equal(retired_count(retired), 2);
        assert_true(written == 2 || fault_fired());
        retired_free(retired);
    }
    assert_true(nth > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_ones_are_kept_in_order),
        cmocka_unit_test(estimates_stay_estimates),
        cmocka_unit_test(who_adds_much_pushes_out_his_own),
        cmocka_unit_test(allowance_is_each_users_own_and_comes_back),
        cmocka_unit_test_setup_teardown(nobody_fills_the_file_for_all, setup, teardown),
        cmocka_unit_test_setup_teardown(file_is_rotated_before_its_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(failing_calls_cost_a_line_and_never_half_of_one, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
