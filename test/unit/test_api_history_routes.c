/* The routes of the history as a client gets them: /history, and /query over tables of the past. The file is recorded, the
 * server has no socket, and calls are visits. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buffer.h"
#include "daemon/api.h"
#include "daemon/asking.h"
#include "daemon/clustering_internal.h"
#include "daemon/daemon.h"
#include "daemon/tables.h"
#include "history_fixture.h"
#include "http/server.h"

enum { PATIENCE_S = 60, TEXT_MAX = 1 << 20, GONE = 1 << 23 /* no PID is that large */ };
#define T0 FIXTURE_T0

static struct {
    char dir[64];
    struct daemon daemon;
    struct http *http;
} f;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool woken, done;
    int status;
    char text[TEXT_MAX];
} answer = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void on_wake(void *context, enum http_where where)
{
    pthread_mutex_lock(&answer.lock);
    answer.woken = true;
    pthread_cond_broadcast(&answer.changed);
    pthread_mutex_unlock(&answer.lock);
}

static void on_done(void *context, int status, const char *type, const char *filename,
                    const char *bytes, size_t len)
{
    pthread_mutex_lock(&answer.lock);
    len = len < TEXT_MAX ? len : TEXT_MAX - 1;
    memcpy(answer.text, bytes, len);
    answer.text[len] = '\0';
    answer.status = status;
    answer.done = true;
    pthread_cond_broadcast(&answer.changed);
    pthread_mutex_unlock(&answer.lock);
}

/* The status; the body is answer.text. */
static int ask_as(const struct http_viewer *viewer, const char *format, va_list args)
{
    char target[1024];
    struct timespec until;
    vsnprintf(target, sizeof(target), format, args);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&answer.lock);
    answer.done = false;
    pthread_mutex_unlock(&answer.lock);
    assert_int_equal(http_visit(f.http, &(struct http_visit){.method = "GET",
                                                             .target = target,
                                                             .viewer = viewer,
                                                             .done = on_done}),
                     0);
    pthread_mutex_lock(&answer.lock);
    while (!answer.done) {
        if (answer.woken) {
            answer.woken = false;
            pthread_mutex_unlock(&answer.lock);
            http_serve(f.http, HTTP_ON_LOOP, NS_PER_S, NULL);
            pthread_mutex_lock(&answer.lock);
        } else {
            assert_int_equal(pthread_cond_timedwait(&answer.changed, &answer.lock, &until), 0);
        }
    }
    int status = answer.status;
    pthread_mutex_unlock(&answer.lock);
    return status;
}

__attribute__((format(printf, 1, 2))) static int ask(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int status = ask_as(&(struct http_viewer){.sees_all = true, .role = HTTP_READ}, format, args);
    va_end(args);
    return status;
}

/* As a user who is neither root nor the owner of the first process. */
__attribute__((format(printf, 1, 2))) static int ask_as_user(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int status = ask_as(&(struct http_viewer){.uid = 1001, .role = HTTP_READ}, format, args);
    va_end(args);
    return status;
}

static void assert_answer(const char *part)
{
    if (!strstr(answer.text, part))
        fail_msg("no '%s' in\n%.4000s", part, answer.text);
}

static void assert_no_answer(const char *part)
{
    if (strstr(answer.text, part))
        fail_msg("'%s' in\n%.4000s", part, answer.text);
}

static uint64_t number_of(const char *key)
{
    char pattern[64];
    snprintf(pattern, sizeof(pattern), "\"%s\":", key);
    const char *at = strstr(answer.text, pattern);
    if (!at)
        fail_msg("no '%s' in\n%s", pattern, answer.text);
    return strtoull(at + strlen(pattern), NULL, 10);
}

/* The fixture's machine, where PID 1001 ends and is used again by root from second 30 on. */
static void record(const char *path)
{
    struct store_limits limits = {UINT64_C(1) << 30, {3600, 86400, 30 * 86400}};
    struct store *store = NULL;
    struct recorder *recorder = NULL;
    struct sample sample;
    sample_init(&sample);
    assert_int_equal(store_open(path, &limits, &store), 0);
    assert_int_equal(recorder_new(1, 10, &recorder), 0);
    for (uint64_t s = 0; s < FIXTURE_SECONDS; s++) {
        fixture_second(&sample, 0, s < 30 ? 2 : 1, s);
        if (s >= 30) {
            struct sample_process *again = sample_add_process(&sample);
            *again = (struct sample_process){.pid = 1001,
                                             .start_ticks = 99,
                                             .began_ns = (T0 + 30) * NS_PER_S,
                                             .bookless = true,
                                             .has_rss = true,
                                             .rss_bytes = 777000,
                                             .program = "later",
                                             .first_value = (uint32_t)sample.n_values};
        }
        int r = recorder_add(recorder, &sample);
        if (r == -EAGAIN && (r = recorder_flush(recorder, store, T0 + s)) == 0)
            r = recorder_add(recorder, &sample);
        assert_int_equal(r, 0);
    }
    assert_int_equal(recorder_flush(recorder, store, T0 + FIXTURE_SECONDS), 0);
    recorder_free(recorder);
    store_free(store);
    sample_release(&sample);
}

static int setup(void **state)
{
    char path[128];
    size_t n;
    strcpy(f.dir, "/dev/shm/memoir-routes-XXXXXX");
    assert_non_null(mkdtemp(f.dir));
    snprintf(path, sizeof(path), "%s/%s", f.dir, HISTORY_FILE);
    record(path);
    assert_int_equal(tables_register(), 0);
    f.daemon.state_path = f.dir;
    assert_int_equal(asking_new(&f.daemon, &f.daemon.asking), 0);
    assert_int_equal(api_new(&f.daemon, &f.daemon.api), 0);
    const struct http_route *routes = api_routes(&n);
    assert_int_equal(http_new(&(struct http_options){.routes = routes,
                                                     .n_routes = n,
                                                     .title = "test",
                                                     .version = "0",
                                                     .context = &f.daemon,
                                                     .wake = on_wake},
                              &http_limits_default, &f.http),
                     0);
    return http_start(f.http);
}

static int teardown(void **state)
{
    char command[128];
    http_stop(f.http);
    api_free(f.daemon.api);
    http_free(f.http);
    asking_free(f.daemon.asking);
    snprintf(command, sizeof(command), "rm -rf %s", f.dir);
    return system(command);
}

/* ---- /history ---- */

#define VIEW   "/api/v1/history?what="
#define PERIOD "&from=1800000000&to=1800000003"
static_assert(T0 == 1800000000, "of the targets");

static void each_view_has_the_series_of_its_kind(void **state)
{
    static const struct {
        const char *target;
        size_t n;
        const char *series[8];
    } cases[] = {
        {VIEW "process&pid=1000" PERIOD,
         5,
         {"\"name\":\"rss\",\"kind\":\"bytes\",\"pid\":1000,"
          "\"start\":\"2027-01-15T07:58:20.000Z\",\"user\":\"",
          "\"uid\":1000,\"program\":\"train\",\"last\":[1000000,1000100,1000200],"
          "\"max\":[1000000,1000100,1000200]",
          "\"name\":\"heap\",\"kind\":\"bytes\",\"pid\":1000",
          "\"program\":\"train\",\"last\":[3000,3001,3002]", "\"name\":\"registered\"",
          "\"name\":\"device.0.dram\",\"kind\":\"bytes\",\"pid\":1000",
          "\"program\":\"train\",\"ordinal\":0,\"device_name\":\"H200\","
          "\"device_id\":\"GPU-0\",\"space\":\"dram\",\"last\":[4000,4000,4000]"}},
        {VIEW "process&pid=1001" PERIOD,
         1,
         {"\"name\":\"rss\",\"kind\":\"bytes\",\"pid\":1001", "\"last\":[1010000,"}},
        {VIEW "system" PERIOD,
         4,
         {"\"name\":\"used\",\"kind\":\"bytes\",\"last\":[600000,600001,600002]",
          "\"last\":[12.34,12.34,12.34]", "\"name\":\"total\""}},
        /* What is not asked of the machine does not matter. */
        {VIEW "system&pid=1000&device=GPU-7" PERIOD, 4, {"\"name\":\"used\""}},
        {VIEW "space" PERIOD,
         2,
         {"\"name\":\"heap\",\"kind\":\"bytes\",\"last\":[3000,3001,3002]"}},
        {VIEW "device" PERIOD, 1, {"\"device_id\":\"GPU-0\"", "\"capacity\":100000"}},
        {VIEW "device&device=GPU-0" PERIOD, 1, {"\"device_id\":\"GPU-0\""}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(ask("%s", cases[i].target), 200);
        assert_answer("{\"schema\":\"memoir.history/2\",\"time\":\"");
        assert_answer("\"from\":1800000000,\"to\":1800000003,\"step\":1,"
                      "\"t\":[1800000000,1800000001,1800000002],\"series\":[{");
        assert_answer("\"oldest\":1800000000,\"damaged\":0}");
        for (size_t k = 0; cases[i].series[k]; k++)
            assert_answer(cases[i].series[k]);
        size_t n = 0;
        for (const char *at = answer.text; (at = strstr(at, "{\"name\":")); at++)
            n++;
        assert_int_equal(n, cases[i].n); /* series of blocks are not among them */
        assert_int_equal(strstr(answer.text, "\"name\":\"used\"") != NULL,
                         strstr(cases[i].target, "system") != NULL);
        assert_int_equal(strstr(answer.text, "\"name\":\"rss\"") != NULL,
                         strstr(cases[i].target, "process") || strstr(cases[i].target, "space"));
    }
    assert_int_equal(ask(VIEW "device&device=GPU-7" PERIOD), 200);
    assert_answer("\"series\":[]");
}

/* PID 1001 is used again from second 30 on. */
static void of_two_processes_with_one_pid_the_named_one_is_told(void **state)
{
    static const char first[] = "1010000", second[] = "777000";
    static const struct {
        const char *start;
        bool first;
    } cases[] = {{"", false}, {"&start=1799999900", true}, {"&start=1800000030", false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(
            ask(VIEW "process&pid=1001&from=1800000000&to=1800000045%s", cases[i].start), 200);
        assert_int_equal(strstr(answer.text, first) != NULL, cases[i].first);
        assert_int_equal(strstr(answer.text, second) != NULL, !cases[i].first);
    }
}

static void a_process_must_run_or_be_in_the_history(void **state)
{
    assert_int_equal(ask(VIEW "process&pid=%d" PERIOD, GONE), 404);
    assert_answer("no process with this PID runs or is in the history");
    assert_int_equal(ask(VIEW "process&pid=%d" PERIOD, (int)getpid()), 200); /* not recorded */
    assert_answer("\"series\":[]");
    assert_int_equal(ask(VIEW "process&pid=1000&from=1&to=2"), 200); /* at another time */
    assert_answer("\"series\":[]");
    assert_int_equal(ask(VIEW "process"), 400);
    assert_answer("what=process takes a pid");
}

/* ---- times ---- */

static void times_are_checked(void **state)
{
    static const struct {
        const char *words;
        int status;
        const char *part;
    } cases[] = {
        {"&from=banana", 400, "invalid time: expected seconds since 1970"},
        {"&from=1800000000&to=banana", 400, "invalid time: expected seconds since 1970"},
        {"&at=banana", 400, "invalid time: expected seconds since 1970"},
        {"&from=1800000003&to=1800000003", 400, "the time must begin before it ends"},
        {"&from=1800000004&to=1800000003", 400, "the time must begin before it ends"},
        {"&from=1800000002&to=1800000003", 200, "\"t\":[1800000002]"},
        {"&at=1800000017", 200, "\"from\":1800000010,\"to\":1800000020,\"step\":10,"},
        {"&from=1800000000&to=1800000040&points=4", 200,
         "\"step\":10,\"t\":[1800000000,1800000010,1800000020,1800000030]"},
        {"&from=1800000000&to=1800000300", 200, "\"to\":1800000300,\"step\":1,"},
        {"&from=1800000000&to=1800000301", 200, "\"step\":2,"}, /* 300 points, unless told */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(ask(VIEW "system%s", cases[i].words), cases[i].status);
        assert_answer(cases[i].part);
    }
}

/* Without words, the last hour up to this second, which is part of it. */
static void the_last_hour_is_the_default(void **state)
{
    uint64_t before = clock_real_ns() / NS_PER_S;
    assert_int_equal(ask(VIEW "system&points=5000"), 200);
    uint64_t after = clock_real_ns() / NS_PER_S;
    assert_int_equal(number_of("step"), 1);
    assert_in_range(number_of("to"), before + 1, after + 1);
    assert_in_range(number_of("from"), before - 3600, after - 3600);
    before = clock_real_ns() / NS_PER_S;
    assert_int_equal(ask(VIEW "system&from=-10s&to=now"), 200);
    after = clock_real_ns() / NS_PER_S;
    assert_in_range(number_of("to"), before, after); /* as told */
    assert_in_range(number_of("from"), before - 10, after - 10);
}

/* ---- /query ---- */

#define QUERY  "/api/v1/query?table="
#define WINDOW "&since=1800000000&until=1800000003"

static void questions_about_the_past_take_a_time(void **state)
{
    static const struct {
        const char *target;
        int status;
        const char *part;
    } cases[] = {
        {QUERY "history" WINDOW "&where=of=system%20and%20series=used&show=series,last,points", 200,
         "\"rows\":[{\"series\":\"used\",\"last\":600002,\"points\":[[1800000000,600000],"},
        {QUERY "history" WINDOW
               "&where=of=system%20and%20series=used&show=series,last&shape=arrays",
         200, "\"rows\":[[\"used\",600002]]"},
        {QUERY "history" WINDOW "&where=of=system%20and%20series=used&show=last&shape=objects", 200,
         "\"rows\":[{\"last\":600002}]"},
        {QUERY "history" WINDOW "&where=of=process&show=pid&limit=1", 200, "\"rows\":[{\"pid\":10"},
        {QUERY "history" WINDOW "&where=ofx=process", 400, "has no column 'ofx'"},
        {QUERY "history&until=1800000003", 200, "\"table\":\"history\""}, /* since an hour */
        {QUERY "host&until=1800000003", 400, "until goes with since"},
        {QUERY "nonsense&until=1800000003", 400, "until goes with since"},
        {QUERY "host&at=1800000003&since=1800000000", 400, "at goes with neither since nor until"},
        {QUERY "host&at=1800000003&until=1800000004", 400, "at goes with neither since nor until"},
        {QUERY "host&at=1800000003" WINDOW, 400, "at goes with neither since nor until"},
        {QUERY "host&since=banana", 400, "invalid time"},
        {QUERY "host&at=banana", 400, "invalid time"},
        {QUERY "host&since=1800000003&until=1800000003", 400, "must begin before it ends"},
        {QUERY "host&at=1800000003&where=pid=1000&show=pid,rss", 200, "\"table\":\"host_past\""},
        {QUERY "host" WINDOW "&where=pid=1000&show=pid,rss", 200,
         "{\"pid\":1000,\"rss\":1000000},{\"pid\":1000,\"rss\":1000100},"},
        {QUERY "cgroups&at=1800000003", 400, "the past of the table cgroups is not recorded"},
        {QUERY "&at=1800000003", 200, "\"table\":\"processes_past\""}, /* the default table */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int status = ask("%s", cases[i].target);
        if (status != cases[i].status)
            fail_msg("%s: %d\n%s", cases[i].target, status, answer.text);
        assert_answer(cases[i].part);
        assert_answer(status == 200 ? "\"schema\":\"memoir.query/1\",\"time\":" : "\"title\":");
        assert_int_equal(strstr(answer.text, "\"step\":") != NULL, status == 200);
    }
}

static void limits_shapes_and_names_are_kept(void **state)
{
    char node[256] = "", expected[300];
    assert_int_equal(ask(QUERY "history" WINDOW "&where=of=process&show=pid&limit=1"), 200);
    assert_null(strstr(strstr(answer.text, "\"rows\":[{") + 9, "{"));
    gethostname(node, sizeof(node) - 1);
    snprintf(expected, sizeof(expected), "\"rows\":[{\"node\":\"%s\",\"user\":\"root\"}]", node);
    assert_int_equal(
        ask(QUERY "history&at=1800000035&where=series=rss%%20and%%20uid=0&show=node,user"), 200);
    assert_answer(expected);
}

/* Its name in the cluster, as tables of the present have it. */
static void the_node_has_its_name_in_the_cluster(void **state)
{
    static char west[] = "west";
    static struct clustering clustering = {.settings.name = west};
    f.daemon.clustering = &clustering;
    assert_int_equal(ask(QUERY "history" WINDOW "&where=of=system%%20and%%20series=used&show=node"),
                     200);
    f.daemon.clustering = NULL;
    assert_answer("\"rows\":[{\"node\":\"west\"}]");
}

/* A question without a time is none about the past. */
static void questions_about_the_present_are_left_alone(void **state)
{
    assert_int_equal(ask(QUERY "explain"), 400);
    assert_no_answer("until goes with since");
}

/* Totals are everybody's; the program of another user's process is not. */
static void other_users_see_totals(void **state)
{
    static const char question[] =
        QUERY "history" WINDOW "&where=of=process%%20and%%20series=rss&show=pid,program&sort=pid";
    assert_int_equal(ask(question), 200);
    assert_answer("[{\"pid\":1001,\"program\":\"serve\"},{\"pid\":1000,\"program\":\"train\"}]");
    assert_int_equal(ask_as_user(question), 200);
    assert_answer("[{\"pid\":1001,\"program\":\"serve\"},{\"pid\":1000,\"program\":null}]");
}

/* ---- files that cannot be read ---- */

static void a_history_that_cannot_be_read_is_a_problem(void **state)
{
    char path[128], kept[128];
    snprintf(path, sizeof(path), "%s/%s", f.dir, HISTORY_FILE);
    snprintf(kept, sizeof(kept), "%s/kept", f.dir);
    assert_int_equal(rename(path, kept), 0);
    assert_int_equal(ask(VIEW "system" PERIOD), 200); /* nothing was recorded */
    assert_answer("\"series\":[],\"oldest\":null,");
    FILE *file = fopen(path, "we");
    fprintf(file, "this is no database, and long enough to be taken for one: %0500d\n", 0);
    fclose(file);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(i ? ask(QUERY "history" WINDOW) : ask(VIEW "system" PERIOD), 500);
        assert_answer("the history is damaged; memoird sets it aside");
    }
    assert_int_equal(rename(kept, path), 0);
    assert_int_equal(ask(VIEW "system" PERIOD), 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_view_has_the_series_of_its_kind),
        cmocka_unit_test(of_two_processes_with_one_pid_the_named_one_is_told),
        cmocka_unit_test(a_process_must_run_or_be_in_the_history),
        cmocka_unit_test(times_are_checked),
        cmocka_unit_test(the_last_hour_is_the_default),
        cmocka_unit_test(questions_about_the_past_take_a_time),
        cmocka_unit_test(limits_shapes_and_names_are_kept),
        cmocka_unit_test(the_node_has_its_name_in_the_cluster),
        cmocka_unit_test(questions_about_the_present_are_left_alone),
        cmocka_unit_test(other_users_see_totals),
        cmocka_unit_test(a_history_that_cannot_be_read_is_a_problem),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
