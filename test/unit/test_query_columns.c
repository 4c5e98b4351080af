/* What each column of a process says, of rows that were composed by hand: `memoir ps` and `memoir top` show these. */
#include "ledger/host.h"
#include "ledger/ledger.h"
#include "query_fixture.h"
#include <memoir/memoir.h>

static const char *name_of(uint32_t uid, void *context)
{
    return uid == 1001 ? "bob" : NULL;
}

/* The one row of these columns as JSON is `expected`, without the braces. */
static void check(const char *table, const struct query_row *row, const struct query_world *world,
                  const char *show, const char *expected)
{
    struct query_spec spec = {.table = table, .show = show};
    struct query *query = NULL;
    struct query_result *result = NULL;
    struct query_error error;
    char whole[1024];
    /* So that rows that are unusual come, too. */
    spec.where = strcmp(table, "host") == 0 ? "kernel_thread or not kernel_thread"
                                            : "state=running or state!=running";
    if (query_new(&spec, &query, &error) < 0)
        fail_msg("%s", error.text);
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_true(query_result_add(result, world, row) >= 0);
    char *text = rows_text(result);
    snprintf(whole, sizeof(whole), "[{%s}]", expected);
    assert_string_equal(text, whole);
    free(text);
    query_result_free(result);
    query_free(query);
}

static const struct query_world root = {
    .sees_all = true, .node = "here", .now_real_ns = 1000 * NS_PER_S, .user_name = name_of};

/* ---- the process table ---- */

static const struct host_cgroup cgroup = {.path = "/a",
                                          .known = true,
                                          .limited = true,
                                          .limit_bytes = 100,
                                          .headroom_bytes = 30,
                                          .has_used = true,
                                          .used_bytes = 70};

static struct host_process host_process(void)
{
    return (struct host_process){
        .valid = HOST_HAS_MEMORY | HOST_HAS_STAT | HOST_HAS_STATUS | HOST_HAS_PARTS |
                 HOST_HAS_PEAK | HOST_HAS_USER | HOST_HAS_OOM | HOST_HAS_COMMAND | HOST_HAS_EXE |
                 HOST_HAS_CGROUP | HOST_HAS_CONTAINER | HOST_HAS_POD | HOST_HAS_TRACKED,
        .pid = 10,
        .parent_pid = 9,
        .start_realtime_ns = 400 * NS_PER_S,
        .state = 'S',
        .uid = 1000,
        .user = "alice",
        .threads = 3,
        .name = "train.py",
        .command = "python3 train.py",
        .exe = "/usr/bin/python3",
        .rss_bytes = 1000,
        .vms_bytes = 2000,
        .shared_bytes = 300,
        .anon_bytes = 500,
        .file_bytes = 200,
        .shmem_bytes = 100,
        .swap_bytes = 50,
        .peak_bytes = 1500,
        .cgroup = &cgroup,
        .container = "c1",
        .pod = "p1",
        .tracked = HOST_TRACKED_STATIC,
    };
}

static const struct ledger_process no_book;

static void check_host(struct host_process p, const char *show, const char *expected)
{
    check("host", &(struct query_row){.host = &p, .process = &no_book}, &root, show, expected);
}

static void row_of_the_process_table_tells_who_it_is(void **unused)
{
    check_host(host_process(), "pid,parent,program,user,uid,node,state,start,age",
               "\"pid\":10,\"parent\":9,\"program\":\"train.py\",\"user\":\"alice\",\"uid\":1000,"
               "\"node\":\"here\",\"state\":\"sleeping\",\"start\":\"1970-01-01T00:06:40.000Z\","
               "\"age\":600");
    check_host(host_process(), "command,exe,container,pod,threads",
               "\"command\":\"python3 train.py\",\"exe\":\"/usr/bin/python3\","
               "\"container\":\"c1\",\"pod\":\"p1\",\"threads\":3");
    static const struct {
        char letter;
        const char *word;
    } states[] = {{'R', "\"running\""}, {'S', "\"sleeping\""}, {'D', "\"waiting\""},
                  {'I', "\"idle\""},    {'T', "\"stopped\""},  {'t', "\"traced\""},
                  {'Z', "\"zombie\""},  {'X', "\"dead\""},     {'?', "null"}};
    for (size_t i = 0; i < sizeof(states) / sizeof(*states); i++) {
        struct host_process p = host_process();
        char expected[64];
        p.state = states[i].letter;
        snprintf(expected, sizeof(expected), "\"state\":%s", states[i].word);
        check_host(p, "state", expected);
    }
}

static void user_is_the_name_or_else_the_number(void **unused)
{
    struct host_process p = host_process();
    p.valid &= ~(uint32_t)HOST_HAS_USER;
    p.uid = 1001;
    strcpy(p.user, "");
    check_host(p, "user", "\"user\":\"bob\""); /* as the daemon knows it */
    p.uid = 1002;
    check_host(p, "user", "\"user\":\"1002\"");
    strcpy(p.user, "1002");
    check_host(p, "user", "\"user\":\"1002\"");
    p.valid &= ~(uint32_t)HOST_HAS_STATUS;
    check_host(p, "user,uid", "\"user\":null,\"uid\":null");
}

static void figures_that_could_not_be_read_are_absent(void **unused)
{
    struct host_process p = host_process();
    check_host(p, "rss,vms,shared,anon,file,shmem,swap,peak_rss",
               "\"rss\":1000,\"vms\":2000,\"shared\":300,\"anon\":500,\"file\":200,\"shmem\":100,"
               "\"swap\":50,\"peak_rss\":1500");
    p.start_realtime_ns = 2000 * NS_PER_S; /* the clock was set back */
    check_host(p, "age", "\"age\":0");
    p.valid = 0;
    p.cgroup = NULL;
    check_host(p, "rss,anon,peak_rss,pss,start,age,threads,command,exe,container,pod,cgroup",
               "\"rss\":null,\"anon\":null,\"peak_rss\":null,\"pss\":null,\"start\":null,"
               "\"age\":null,\"threads\":null,\"command\":null,\"exe\":null,\"container\":null,"
               "\"pod\":null,\"cgroup\":null");
}

/* In sums, what nobody could read makes them "at least"; what is not there does not. */
static void check_state_of(const struct host_process *p, const char *column, int expected)
{
    struct query_spec spec = {.table = "host", .show = column, .where = "kernel_thread or pid>0"};
    struct query *query = NULL;
    struct query_result *result = NULL;
    struct query_error error;
    assert_int_equal(query_new(&spec, &query, &error), 0);
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_true(
        query_result_add(result, &root, &(struct query_row){.host = p, .process = &no_book}) >= 0);
    assert_int_equal(query_result_finish(result), 0);
    assert_int_equal(query_result_value(result, 0, 0).state, expected);
    query_result_free(result);
    query_free(query);
}

static void check_state(uint32_t valid, bool kernel, char state, const char *column, int expected)
{
    struct host_process p = host_process();
    p.valid = valid;
    p.kernel = kernel;
    p.state = state;
    check_state_of(&p, column, expected);
}

static void headroom_is_that_of_the_cgroup(void **unused)
{
    struct host_process p = host_process();
    struct host_cgroup g = cgroup;
    p.cgroup = &g;
    check_host(p, "cgroup,cgroup_limit,headroom,cgroup_used",
               "\"cgroup\":\"/a\",\"cgroup_limit\":100,\"headroom\":30,\"cgroup_used\":70");
    g.limited = false;
    check_host(p, "cgroup_limit,headroom,cgroup_used",
               "\"cgroup_limit\":null,\"headroom\":null,\"cgroup_used\":70");
    check_state_of(&p, "headroom", 0); /* there is no limit */
    g.known = g.has_used = false;
    check_state_of(&p, "headroom", QUERY_UNKNOWN);
    check_state_of(&p, "cgroup_used", QUERY_UNKNOWN);
    p.cgroup = NULL;
    check_state_of(&p, "headroom", QUERY_UNKNOWN);
}

static void what_is_not_known_differs_from_what_is_not_there(void **unused)
{
    check_state(0, false, 'S', "rss", QUERY_UNKNOWN);
    check_state(0, true, 'S', "rss", 0); /* a thread of the kernel has none */
    check_state(0, false, 'Z', "rss", 0);
    check_state(0, false, 'S', "command", QUERY_UNKNOWN);
    check_state(0, true, 'S', "command", 0);
    check_state(HOST_HAS_CGROUP, false, 'S', "exe", QUERY_UNKNOWN);
    check_state(0, false, 'S', "container", QUERY_UNKNOWN);
    check_state(HOST_HAS_CGROUP, false, 'S', "container", 0); /* it is in none */
    check_state(HOST_HAS_CGROUP, false, 'S', "pod", 0);
    check_state(HOST_HAS_TRACKED, false, 'S', "tracked", QUERY_KNOWN);
    check_state(0, false, 'S', "tracked", QUERY_UNKNOWN);
}

static void job_of_an_environment_is_its_owners(void **unused)
{
    struct host_process p = host_process();
    const struct query_world alice = {.viewer_uid = 1000}, bob = {.viewer_uid = 1001};
    struct query_row row = {.host = &p, .process = &no_book};
    p.valid |= HOST_HAS_JOB | HOST_HAS_RANK;
    strcpy(p.job, "12");
    p.rank = 3;
    check("host", &row, &bob, "job", "\"job\":\"12\"");
    p.job_private = true;
    check("host", &row, &bob, "job", "\"job\":null");
    check("host", &row, &alice, "job,rank", "\"job\":\"12\",\"rank\":3");
    check("host", &row, &root, "job", "\"job\":\"12\"");
    p.valid &= ~(uint32_t)(HOST_HAS_JOB | HOST_HAS_RANK);
    check("host", &row, &root, "job,rank", "\"job\":null,\"rank\":null");
    check("host", &row, &bob, "command", "\"command\":null");
}

/* ---- books ---- */

static char command[] = "python3 train.py", exe[] = "/usr/bin/python3", empty[] = "";

static struct ledger_account account(struct ledger_device *device, uint32_t space, uint64_t bytes)
{
    return (struct ledger_account){.device = device,
                                   .space = space,
                                   .valid = true,
                                   .totals = {.live_bytes = bytes,
                                              .live_blocks = bytes / 10,
                                              .alloc_bytes = bytes * 2,
                                              .freed_bytes = bytes,
                                              .peak_bytes = bytes * 3}};
}

static void check_process(const struct ledger_process *p, const char *show, const char *expected)
{
    check("processes", &(struct query_row){.process = p}, &root, show, expected);
}

static struct ledger_process ledger_process(void)
{
    return (struct ledger_process){
        .valid = LEDGER_HAS_PID | LEDGER_HAS_USER | LEDGER_HAS_START | LEDGER_HAS_RSS |
                 LEDGER_HAS_THREADS,
        .state = LEDGER_RUNNING,
        .pid = 10,
        .book_pid = 1,
        .uid = 1000,
        .user = "alice",
        .name = "train.py",
        .command = command,
        .exe = exe,
        .start_realtime_ns = 400 * NS_PER_S,
        .book_realtime_ns = 500 * NS_PER_S,
        .rss_bytes = 1000,
        .vms_bytes = 2000,
        .shared_bytes = 300,
        .threads = 3,
        .book_bytes = 4096,
        .losses = {1, 2, 3},
    };
}

static void row_of_a_book_tells_who_it_is(void **unused)
{
    struct ledger_process p = ledger_process();
    check_process(&p, "pid,book_pid,program,user,uid,node,state,start,age",
                  "\"pid\":10,\"book_pid\":1,\"program\":\"train.py\",\"user\":\"alice\","
                  "\"uid\":1000,\"node\":\"here\",\"state\":\"running\","
                  "\"start\":\"1970-01-01T00:06:40.000Z\",\"age\":600");
    check_process(&p, "command,exe,rss,vms,shared,threads,losses,book_size,holds",
                  "\"command\":\"python3 train.py\",\"exe\":\"/usr/bin/python3\",\"rss\":1000,"
                  "\"vms\":2000,\"shared\":300,\"threads\":3,\"losses\":6,\"book_size\":4096,"
                  "\"holds\":true");
    p.valid = 0;
    p.command = p.exe = empty;
    p.uid = 1001;
    strcpy(p.host, "there");
    p.state = LEDGER_EXITED;
    check_process(&p, "pid,user,node,state,start,age,command,exe,rss,threads,holds",
                  "\"pid\":null,\"user\":\"bob\",\"node\":\"there\",\"state\":\"exited\","
                  "\"start\":null,\"age\":500,\"command\":null,\"exe\":null,\"rss\":null,"
                  "\"threads\":null,\"holds\":false");
    p.uid = 1002;
    check_process(&p, "user", "\"user\":\"1002\"");
}

static void memory_is_counted_once_and_in_its_place(void **unused)
{
    struct ledger_device devices[2] = {{.ordinal = 0}, {.ordinal = 1}};
    struct ledger_account accounts[] = {
        account(NULL, MEMOIR_SPACE_HEAP, 100),
        account(NULL, MEMOIR_SPACE_MAPPED, 200),
        account(NULL, MEMOIR_SPACE_PINNED, 400),
        account(&devices[0], MEMOIR_SPACE_DRAM, 1000),
        account(&devices[1], MEMOIR_SPACE_DRAM, 2000),
        account(&devices[1], MEMOIR_SPACE_L1, 4000),
        account(&devices[1], MEMOIR_SPACE_SYSTEM, 8000), /* the host's, for the device */
    };
    struct ledger_process p = ledger_process();
    p.accounts = accounts;
    p.n_accounts = sizeof(accounts) / sizeof(*accounts);
    check_process(&p, "heap,pinned,device", "\"heap\":100,\"pinned\":400,\"device\":7000");
    check_process(&p, "device.0,device.1,device.1.dram,device.1.l1,device.2",
                  "\"device.0\":1000,\"device.1\":6000,\"device.1.dram\":2000,"
                  "\"device.1.l1\":4000,\"device.2\":null");
    check_process(&p, "peak", "\"peak\":21000"); /* of devices */
    accounts[0].sampled = true;
    accounts[3].partial = true;
    accounts[4].valid = false;
    check_process(&p, "heap,device",
                  "\"heap\":100,\"device\":5000,\"at_least\":[\"device\"],\"estimate\":[\"heap\"]");
    accounts[3].totals.live_bytes = UINT64_MAX;
    accounts[3].partial = false;
    accounts[4].valid = true;
    check_process(&p, "device", "\"device\":18446744073709551615,\"at_least\":[\"device\"]");
}

static void other_host_memory_is_what_has_no_column(void **unused)
{
    struct ledger_device device = {.ordinal = 0};
    for (uint32_t space = 1; space <= MEMOIR_SPACE_MAX; space++) {
        struct ledger_account accounts[] = {account(NULL, space, 100),
                                            account(&device, MEMOIR_SPACE_DRAM, 1000),
                                            account(&device, MEMOIR_SPACE_SYSTEM, 8000)};
        struct ledger_process p = ledger_process();
        p.accounts = accounts;
        p.n_accounts = 3;
        uint64_t system = ledger_space_adds(MEMOIR_SPACE_SYSTEM) ? 8000 : 0;
        uint64_t host = (ledger_space_adds(space) ? 100 : 0) + system;
        bool column = space == MEMOIR_SPACE_HEAP || space == MEMOIR_SPACE_PINNED;
        uint64_t other = (column || !ledger_space_adds(space) ? 0 : 100) + system;
        char expected[64], number[24];
        snprintf(number, sizeof(number), other ? "%llu" : "null", (unsigned long long)other);
        snprintf(expected, sizeof(expected), "\"other\":%s,\"host\":%llu", number,
                 (unsigned long long)host);
        check_process(&p, "other,host", expected);
    }
}

static void names_of_devices_are_exact(void **unused)
{
    static const struct {
        const char *name;
        bool known;
    } cases[] = {{"device.0", true},        {"device.12", true},     {"device.999999", true},
                 {"device.9999999", false}, {"device.", false},      {"device.x", false},
                 {"device.1x", false},      {"device.1.dram", true}, {"device.1.heap", false},
                 {"device.1.dra", false},   {"device.1.", false},    {"devices.1", false},
                 {"device.1.dram1", false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct query_spec spec = {.table = "processes", .show = cases[i].name};
        struct query *query = NULL;
        struct query_error error;
        int r = query_new(&spec, &query, &error);
        if ((r == 0) != cases[i].known)
            fail_msg("%s: %d", cases[i].name, r);
        query_free(query);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_of_the_process_table_tells_who_it_is),
        cmocka_unit_test(user_is_the_name_or_else_the_number),
        cmocka_unit_test(figures_that_could_not_be_read_are_absent),
        cmocka_unit_test(what_is_not_known_differs_from_what_is_not_there),
        cmocka_unit_test(headroom_is_that_of_the_cgroup),
        cmocka_unit_test(job_of_an_environment_is_its_owners),
        cmocka_unit_test(row_of_a_book_tells_who_it_is),
        cmocka_unit_test(memory_is_counted_once_and_in_its_place),
        cmocka_unit_test(other_host_memory_is_what_has_no_column),
        cmocka_unit_test(names_of_devices_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
