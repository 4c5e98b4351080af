/* What a question costs: bench_query PROCESSES REPETITIONS
 *
 * Processes are made up in memory, so that the figures are those of the query core alone: filter, group,
 * sort and the answer as JSON. Reading the books comes on top (bench/book: read). Prints one JSON object a
 * line for each repetition. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../book/harness.h"
#include "base/buffer.h"
#include "base/json.h"
#include "ledger/rows.h"
#include "query/query.h"

enum { ACCOUNTS = 4, PROGRAMS = 50, USERS = 20, DEVICES = 8, OUTPUT_MAX = 256 << 20 };

static const struct {
    const char *name;
    struct query_spec spec;
} questions[] = {
    {"rows", {0}},
    {"rows_wide",
     {.show = "pid,user,program,node,state,command,exe,age,device,device.dram,device.cb,"
              "device.0.dram,heap,pinned,peak,blocks,allocated,freed,rss,vms,threads"}},
    {"filter", {.where = "user=user7 and device.dram>500MB and not program~idle*", .limit = 10}},
    {"top", {.sort = "-rss", .limit = 10}},
    {"ties", {.sort = "-threads,+pid"}},
    {"texts", {.sort = "user,program,-rss"}},
    {"group", {.by = "program,user", .show = "count,device,device.dram,heap,rss,max(age)"}},
    {"group_each", {.by = "pid", .show = "device,rss"}},
};

static struct ledger_process *make_processes(size_t n, struct ledger_device *devices)
{
    struct ledger_process *processes = calloc(n, sizeof(*processes));
    struct ledger_account *accounts = calloc(n * ACCOUNTS, sizeof(*accounts));
    if (!processes || !accounts)
        bench_fail("no memory");
    static const uint32_t spaces[ACCOUNTS] = {MEMOIR_SPACE_HEAP, MEMOIR_SPACE_PINNED,
                                              MEMOIR_SPACE_DRAM, MEMOIR_SPACE_CB};
    uint64_t random = 1;
    for (size_t i = 0; i < n; i++) {
        struct ledger_process *p = &processes[i];
        p->valid = LEDGER_HAS_PID | LEDGER_HAS_START | LEDGER_HAS_RSS | LEDGER_HAS_THREADS |
                   LEDGER_HAS_USER | LEDGER_HAS_FIGURES;
        p->pid = (pid_t)(1000 + i);
        p->uid = (uint32_t)(1000 + bench_random(&random) % USERS);
        p->start_realtime_ns =
            UINT64_C(1700000000000000000) + bench_random(&random) % (UINT64_C(1) << 40);
        p->rss_bytes = bench_random(&random) % (UINT64_C(1) << 34);
        p->vms_bytes = p->rss_bytes * 3;
        p->threads = 1 + (uint32_t)(bench_random(&random) % 64);
        snprintf(p->user, sizeof(p->user), "user%u", p->uid - 1000);
        snprintf(p->name, sizeof(p->name), "program-%u.py",
                 (unsigned)(bench_random(&random) % PROGRAMS));
        p->exe = strdup("/usr/bin/python3.11");
        if (!p->exe || asprintf(&p->command, "python3 %s --epochs 100 --rank %zu", p->name, i) < 0)
            bench_fail("no memory");
        p->accounts = &accounts[i * ACCOUNTS];
        p->n_accounts = ACCOUNTS;
        for (size_t a = 0; a < ACCOUNTS; a++) {
            struct ledger_account *account = &p->accounts[a];
            account->space = spaces[a];
            account->device =
                spaces[a] >= MEMOIR_SPACE_DRAM ? &devices[bench_random(&random) % DEVICES] : NULL;
            account->valid = true;
            account->totals.live_bytes = bench_random(&random) % (UINT64_C(1) << 30);
            account->totals.live_blocks = bench_random(&random) % 1000;
            account->totals.peak_bytes = account->totals.live_bytes * 2;
            account->totals.alloc_bytes = account->totals.live_bytes * 5;
            account->totals.freed_bytes = account->totals.live_bytes * 4;
        }
    }
    return processes;
}

/* One question from the first row to the last byte of JSON. */
static void measure(const char *name, const struct query *query, struct query_result *result,
                    const struct query_world *world, size_t n, struct buffer *out)
{
    struct json json;
    bench_quiet_begin();
    uint64_t begin = bench_now_ns();
    query_result_reset(result);
    if (query_run(query, world, result) < 0)
        bench_fail("no memory");
    uint64_t added = bench_now_ns();
    if (query_result_finish(result) < 0)
        bench_fail("no memory");
    uint64_t sorted = bench_now_ns();
    buffer_reset(out);
    json_init(&json, out);
    json_object_begin(&json);
    query_result_json(result, &json);
    json_object_end(&json);
    if (json_finish(&json) < 0)
        bench_fail("the answer is too long");
    uint64_t end = bench_now_ns();
    size_t bytes = out->len;
    buffer_reset(out);
    json_init(&json, out);
    json_object_begin(&json);
    query_result_arrays(result, &json);
    json_object_end(&json);
    if (json_finish(&json) < 0)
        bench_fail("the answer is too long");
    uint64_t arrays = bench_now_ns();
    bench_quiet_end();
    printf(
        "{\"question\": \"%s\", \"processes\": %zu, \"rows\": %zu, \"bytes\": %zu, \"add_ns\": %llu, "
        "\"sort_ns\": %llu, \"json_ns\": %llu, \"total_ns\": %llu, \"arrays_ns\": %llu, "
        "\"arrays_bytes\": %zu}\n",
        name, n, query_result_rows(result), bytes, (unsigned long long)(added - begin),
        (unsigned long long)(sorted - added), (unsigned long long)(end - sorted),
        (unsigned long long)(end - begin), (unsigned long long)(arrays - end), out->len);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        bench_fail("usage: bench_query PROCESSES REPETITIONS");
    size_t n = bench_number(argv[1]), repetitions = bench_number(argv[2]);
    struct ledger_device devices[DEVICES] = {0};
    for (int i = 0; i < DEVICES; i++)
        devices[i].ordinal = i;
    struct ledger_process *processes = make_processes(n, devices);
    struct ledger_process **rows = calloc(n, sizeof(*rows));
    if (!rows)
        bench_fail("no memory");
    for (size_t i = 0; i < n; i++) /* in another order than in memory, as they would be */
        rows[i] = &processes[i * 7919 % n];
    struct ledger ledger = {.processes = rows, .n_processes = n};
    struct query_world world = {.ledger = &ledger,
                                .sees_all = true,
                                .node = "bench",
                                .now_real_ns = UINT64_C(1800000000000000000)};
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    bench_pin(0);
    for (size_t q = 0; q < sizeof(questions) / sizeof(questions[0]); q++) {
        struct query *query;
        struct query_error error;
        struct query_result *result;
        if (query_new(&questions[q].spec, &query, &error) < 0)
            bench_fail("%s: %s", questions[q].name, error.text);
        if (query_result_new(query, 0, &result) < 0)
            bench_fail("no memory");
        for (size_t i = 0; i <= repetitions; i++) /* the first one warms up */
            measure(questions[q].name, query, result, &world, n, &out);
        query_result_free(result);
        query_free(query);
    }
    buffer_release(&out);
    free(rows);
    free(processes[0].accounts);
    for (size_t i = 0; i < n; i++) {
        free(processes[i].exe);
        free(processes[i].command);
    }
    free(processes);
    return 0;
}
