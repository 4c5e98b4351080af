/* Leaks that were found, and what becomes of them once they are no longer. */
#include "daemon/leak_log.h"

#include <string.h>

#include "check.h"
#include "ledger/leaks.h"
#include "ledger/ledger.h"

static struct ledger_process process = {
    .pid = 42, .valid = LEDGER_HAS_PID, .uid = 7, .name = "app"};
static struct book_identity identity = {.st_dev = 1, .st_ino = 2};
static struct ledger_book book = {.identity = &identity};
static bool book_there = true;
static size_t told;

static bool has_book(uint64_t dev, uint64_t ino, void *context)
{
    return book_there && dev == 1 && ino == 2;
}

static void tell(const struct leak_entry *entry, size_t row, void *context)
{
    told++;
}

static void look(struct leak_log *log, uint64_t now_ns, enum detect_verdict verdict, uint32_t site,
                 bool incomplete)
{
    static char frame[] = "/usr/lib/libapp.so+0x10";
    struct leak row = {.process = &process,
                       .book = &book,
                       .site = site,
                       .frame = frame,
                       .result = {.verdict = verdict},
                       .live_bytes = now_ns * 100};
    struct leaks leaks = {.rows = &row, .n = 1, .incomplete = incomplete};
    leak_log_look(log, &leaks, now_ns, has_book, tell, NULL);
}

static struct leak_entry only(struct leak_log *log)
{
    size_t n;
    const struct leak_entry *entries = leak_log_entries(log, &n);
    assert_int_equal(n, 1);
    return entries[0];
}

static void a_leak_that_no_longer_grows_has_stopped(void **unused)
{
    struct leak_log *log;
    assert_int_equal(leak_log_new(&log), 0);
    told = 0;
    look(log, 1, DETECT_LEAK, 5, false);
    look(log, 2, DETECT_LEAK, 5, false);
    assert_int_equal(told, 1); /* once */
    struct leak_entry e = only(log);
    assert_int_equal(e.found_ns, 1);
    assert_int_equal(e.last_ns, 2);
    assert_int_equal(e.live_bytes, 200);
    assert_string_equal(e.frame, "libapp.so+0x10");
    assert_false(leak_entry_stopped(&e));
    for (uint64_t t = 3; t < 3 + LEAK_LOG_QUIET_LOOKS; t++) {
        assert_false(leak_entry_stopped(&(struct leak_entry){.quiet = only(log).quiet}));
        look(log, t, DETECT_GROWING, 5, false);
        look(log, t, DETECT_GROWING, 5, true); /* a look that saw a part tells nothing */
    }
    e = only(log);
    assert_true(leak_entry_stopped(&e));
    assert_false(e.ended);
    assert_int_equal(e.last_ns, 2);
    look(log, 9, DETECT_LEAK, 5, false); /* and begins again */
    e = only(log);
    assert_false(leak_entry_stopped(&e));
    assert_int_equal(told, 1);
    leak_log_free(log);
}

static void a_leak_of_a_process_that_ended_stays_in_the_list(void **unused)
{
    struct leak_log *log;
    assert_int_equal(leak_log_new(&log), 0);
    look(log, 1, DETECT_LEAK, 5, false);
    book_there = false;
    leak_log_look(log, &(struct leaks){0}, 2, has_book, NULL, NULL);
    struct leak_entry e = only(log);
    assert_true(e.ended && leak_entry_stopped(&e));
    assert_int_equal(e.pid, 42);
    book_there = true;
    leak_log_free(log);
}

static void those_that_stopped_make_room_first(void **unused)
{
    struct leak_log *log;
    size_t n;
    assert_int_equal(leak_log_new(&log), 0);
    for (uint32_t site = 1; site <= LEAK_LOG_MAX; site++)
        look(log, site, DETECT_LEAK, site, true);
    for (unsigned i = 0; i < LEAK_LOG_QUIET_LOOKS; i++) /* all but the first stop */
        look(log, 1000 + i, DETECT_LEAK, 1, false);
    look(log, 2000, DETECT_LEAK, 9999, true);
    const struct leak_entry *entries = leak_log_entries(log, &n);
    bool first = false, second = false, latest = false;
    for (size_t i = 0; i < n; i++) {
        first |= entries[i].site == 1;
        second |= entries[i].site == 2;
        latest |= entries[i].site == 9999;
    }
    assert_int_equal(n, LEAK_LOG_MAX);
    assert_true(first && latest);
    assert_false(second); /* it stopped, and was seen longest ago */
    leak_log_free(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leak_that_no_longer_grows_has_stopped),
        cmocka_unit_test(a_leak_of_a_process_that_ended_stays_in_the_list),
        cmocka_unit_test(those_that_stopped_make_room_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
