/* Is a process alive, and which row of the process table is it: each question has one answer. */
#include "host_tree.h"
#include "ledger/host.h"
#include "ledger/host_books.h"
#include "ledger_world.h"

#define STATES ((enum ledger_state)(LEDGER_UNKNOWN + 1))

static const struct {
    bool exists, holds, reachable;
} expected[STATES] = {
    [LEDGER_RUNNING] = {true, true, true},     [LEDGER_STOPPED] = {true, true, true},
    [LEDGER_CLOSED] = {true, false, true},     [LEDGER_EXITED] = {false, false, false},
    [LEDGER_REPLACED] = {false, false, false}, [LEDGER_UNKNOWN] = {false, true, false},
};

static struct ledger_process process(enum ledger_state state)
{
    return (struct ledger_process){
        .state = state, .valid = LEDGER_HAS_PID, .pid = 10, .start_ticks = 5, .pid_proved = true};
}

static void every_state_has_one_meaning(void **state)
{
    for (enum ledger_state s = 0; s < STATES; s++) {
        struct ledger_process p = process(s);
        assert_int_equal(ledger_process_exists(&p), expected[s].exists);
        assert_int_equal(ledger_process_holds(&p), expected[s].holds);
        assert_int_equal(ledger_process_reachable(&p), expected[s].reachable);
        assert_int_equal(ledger_process_stopped(&p), s == LEDGER_STOPPED);
        assert_int_equal(ledger_process_replaced(&p), s == LEDGER_REPLACED);
    }
}

static void process_of_another_machine_counts_but_cannot_be_probed(void **state)
{
    for (enum ledger_state s = 0; s < STATES; s++) {
        struct ledger_process p = process(s);
        strcpy(p.host, "other");
        assert_int_equal(ledger_process_exists(&p), expected[s].exists);
        assert_int_equal(ledger_process_holds(&p), expected[s].holds);
        assert_false(ledger_process_reachable(&p));
    }
}

static void pid_that_is_not_proved_is_not_probed(void **state)
{
    struct ledger_process p = process(LEDGER_RUNNING);
    p.pid_proved = false;
    assert_false(ledger_process_reachable(&p));
    p.start_ticks = 0; /* its book tells none: the ledger proved the owner of the PID */
    assert_true(ledger_process_reachable(&p));
    p.valid = 0;
    assert_false(ledger_process_reachable(&p));
    p = process(LEDGER_RUNNING);
    p.pid = 0;
    assert_false(ledger_process_reachable(&p));
}

/* ---- the join ---- */

static struct host *host;

static int join_setup(void **state)
{
    setup(state);
    struct world *w = *state;
    tree_make();
    tree_process(&(struct tree_process){.pid = 1, .start = 1, .rss_pages = 1});
    tree_process(&(struct tree_process){
        .pid = getpid(), .start = w->self.start_ticks, .rss_pages = 100, .uid = geteuid()});
    tree_process(&(struct tree_process){.pid = 4194303, .start = 1, .rss_pages = 1});
    assert_int_equal(host_new(&(struct host_options){.proc = tree_root}, &host), 0);
    assert_int_equal(host_refresh(host), 0);
    return 0;
}

static int join_teardown(void **state)
{
    host_free(host);
    tree_remove();
    return teardown(state);
}

/* How many rows have books; that of this process has `p`, or none. */
static bool joined(const struct world *w, const struct ledger_process *p)
{
    const struct ledger_process **books;
    size_t n, found = 0;
    struct host_process *const *rows = host_processes(host, &n);
    assert_int_equal(n, 3);
    assert_int_equal(host_books_join(host, w->ledger, &books), 0);
    for (size_t i = 0; i < n; i++) {
        if (!books[i])
            continue;
        assert_int_equal(rows[i]->pid, getpid());
        assert_ptr_equal(books[i], p);
        found++;
    }
    free(books);
    return found > 0;
}

static struct ledger_process *own_process(struct world *w)
{
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    account_add(&b, MEMOIR_SPACE_HEAP, BOOK_RECORD_NONE, 1, 100);
    builder_publish(&b);
    struct ledger_process *p = add(w, "a.book")->process;
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    return p;
}

static void books_join_the_row_of_their_process_only(void **state)
{
    struct world *w = *state;
    struct ledger_process *p = own_process(w);
    assert_true(joined(w, p));
    for (enum ledger_state s = 0; s < STATES; s++) {
        p->state = s;
        assert_int_equal(joined(w, p), expected[s].holds && expected[s].reachable);
    }
    p->state = LEDGER_RUNNING;
    p->start_ticks += 2; /* the PID is another process's by now */
    assert_false(joined(w, p));
    p->start_ticks = 0;
    assert_true(joined(w, p));
    p->pid = getpid() + 1; /* there is no such row */
    assert_false(joined(w, p));
    p->pid = 4194304 + 1; /* past the last one */
    assert_false(joined(w, p));
}

static void row_is_found_by_pid_and_start(void **state)
{
    struct world *w = *state;
    struct host_process *row = host_process_of(host, getpid(), w->self.start_ticks);
    assert_non_null(row);
    assert_int_equal(row->pid, getpid());
    assert_ptr_equal(host_process_of(host, getpid(), w->self.start_ticks + 1), row);
    assert_null(host_process_of(host, getpid(), w->self.start_ticks + 2));
    assert_ptr_equal(host_process_of(host, getpid(), 0), row);
    assert_null(host_process_of(host, getpid() + 1, 0));
}

static void no_books_join_no_row(void **state)
{
    const struct ledger_process **books;
    assert_int_equal(host_books_join(host, NULL, &books), 0);
    assert_null(books[0]);
    free(books);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_has_one_meaning),
        cmocka_unit_test(process_of_another_machine_counts_but_cannot_be_probed),
        cmocka_unit_test(pid_that_is_not_proved_is_not_probed),
        cmocka_unit_test_setup_teardown(books_join_the_row_of_their_process_only, join_setup,
                                        join_teardown),
        cmocka_unit_test_setup_teardown(row_is_found_by_pid_and_start, join_setup, join_teardown),
        cmocka_unit_test_setup_teardown(no_books_join_no_row, join_setup, join_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
