/* What history costs: pictures of simulated processes, a simulated second apart, through the real recorder
 * into a real file, as fast as it goes.
 *
 *   bench_history FILE MODE PROCESSES SECONDS
 *
 * Modes: busy, where the values move as those of working programs do (see `kinds`); quiet, where one in ten of
 * them does; noise, where every value of every process takes a step of up to 1 MiB in single bytes, every
 * second: no program does that, it is the worst case.
 *
 * CPU time is that of the writer alone: recorder, packing, SQLite and the kernel's part of it, plus one read of
 * a statm file a process and second, as the daemon does. Prints one JSON object. */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "history/pack.h"
#include "history/recorder.h"
#include "history/store.h"

enum { FLUSH_S = 10, VALUES = 12, START_S = 1800000000 - 1800000000 % 7200 };

/* How a value moves: with which chance in a second, by up to how many units of how many bytes. Now and then it
 * jumps by a hundred times that. */
static const struct kind {
    uint16_t space, metric;
    bool device;
    unsigned percent;
    uint64_t unit, reach;
} kinds[VALUES] = {
    {0, HISTORY_RSS, false, 90, 4096, 64},     /* resident: some pages come, some go */
    {1, HISTORY_BYTES, false, 90, 16, 8192},   /* heap: 128 KiB either way, as malloc rounds */
    {2, HISTORY_BYTES, false, 5, 4096, 4096},  /* mappings: rarely, many pages */
    {3, HISTORY_BYTES, false, 10, 65536, 64},  /* pinned: staging buffers */
    {16, HISTORY_BYTES, true, 80, 2048, 8192}, /* dram: tensors of a step */
    {17, HISTORY_BYTES, true, 80, 32, 16384},  /* l1: buffers of an operation */
    {18, HISTORY_BYTES, true, 10, 32, 64},     /* l1_small */
    {19, HISTORY_BYTES, true, 2, 2048, 4096},  /* traces */
    {20, HISTORY_BYTES, true, 60, 2048, 64},   /* circular buffers */
    {21, HISTORY_BYTES, true, 30, 16, 1024},   /* kernels */
    {22, HISTORY_BYTES, true, 10, 4096, 64},   /* system memory of the device */
    {0, HISTORY_BLOCKS, false, 90, 1, 200},    /* blocks in all */
};

static uint64_t random_state = 88172645463325252u;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_history: cannot %s: %s\n", what, why);
    exit(1);
}

/* A sum of two, so that small steps are more frequent than large ones. */
static int64_t step_of(uint64_t reach)
{
    uint64_t wide = random_next() % (reach + 1) + random_next() % (reach + 1);
    return (int64_t)wide - (int64_t)reach;
}

static void move(uint64_t *value, const struct kind *kind, const char *mode)
{
    uint64_t unit = kind->unit, reach = kind->reach;
    unsigned percent = kind->percent;
    if (strcmp(mode, "noise") == 0) {
        unit = 1;
        reach = 1 << 20;
        percent = 100;
    } else if (strcmp(mode, "quiet") == 0) {
        percent = 10;
    }
    if (random_next() % 100 >= percent)
        return;
    int64_t step = step_of(reach) * (int64_t)unit * (random_next() % 500 == 0 ? 100 : 1);
    if (step < 0 && (uint64_t)-step > *value)
        step = -step;
    *value += (uint64_t)step;
}

static void picture(struct sample *sample, uint64_t *values, unsigned processes, uint64_t second,
                    const char *mode)
{
    sample_reset(sample, (START_S + second) * NS_PER_S);
    for (unsigned d = 0; d < 8; d++) {
        struct sample_device *device = sample_add_device(sample);
        device->kind = 2;
        device->ordinal = (int32_t)d;
        snprintf(device->name, sizeof(device->name), "simulated");
        snprintf(device->uid, sizeof(device->uid), "simulated-%u", d);
    }
    for (unsigned p = 0; p < processes; p++) {
        struct sample_process *process = sample_add_process(sample);
        process->pid = (pid_t)(1000 + p);
        process->start_ticks = 100 + p;
        process->uid = 1000 + p % 10;
        snprintf(process->program, sizeof(process->program), "program-%u", p % 50);
        for (unsigned i = 0; i < VALUES; i++) {
            uint64_t *value = &values[p * VALUES + i];
            move(value, &kinds[i], mode);
            if (kinds[i].metric == HISTORY_RSS) {
                process->has_rss = true;
                process->rss_bytes = *value;
            } else {
                sample_add_value(sample, kinds[i].device ? 1 + p % 8 : 0, kinds[i].space,
                                 kinds[i].metric, *value);
            }
        }
    }
    sample_totals(sample);
}

/* What is in the file in the end: values of all tiers, two for each point of a coarser one. */
static uint64_t stored(const char *path, uint64_t ret_bytes[HISTORY_TIERS])
{
    sqlite3 *db = NULL;
    uint64_t values = 0;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
        fail("read the file again", sqlite3_errmsg(db));
    for (unsigned tier = 0; tier < HISTORY_TIERS; tier++) {
        char sql[64];
        sqlite3_stmt *s = NULL;
        ret_bytes[tier] = 0;
        snprintf(sql, sizeof(sql), "SELECT data FROM chunk%u", tier);
        if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK)
            fail("read the file again", sqlite3_errmsg(db));
        while (sqlite3_step(s) == SQLITE_ROW) {
            struct pack_points points;
            size_t len = (size_t)sqlite3_column_bytes(s, 0);
            if (pack_decode(sqlite3_column_blob(s, 0), len, &points) < 0)
                fail("read the file again", "a chunk makes no sense");
            values += points.n * (tier ? 2u : 1u);
            ret_bytes[tier] += len;
        }
        sqlite3_finalize(s);
    }
    sqlite3_close(db);
    return values;
}

static uint64_t cpu_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* As the daemon reads resident sizes: one pread of a kept descriptor. */
static void read_statm(int fd, unsigned processes)
{
    char text[128];
    for (unsigned i = 0; i < processes; i++)
        if (pread(fd, text, sizeof(text), 0) <= 0)
            fail("read statm", strerror(errno));
}

int main(int argc, char **argv)
{
    if (argc != 5)
        fail("start", "usage: bench_history FILE MODE PROCESSES SECONDS");
    const char *path = argv[1], *mode = argv[2];
    unsigned processes = (unsigned)atoi(argv[3]), seconds = (unsigned)atoi(argv[4]);
    struct store_limits limits = {UINT64_C(1) << 40, {3600, 86400, 30 * 86400}};
    struct store *store = NULL;
    struct recorder *recorder = NULL;
    int r = store_open(path, &limits, &store);
    if (r == 0)
        r = recorder_new(1, FLUSH_S, &recorder);
    if (r < 0)
        fail("open the file", strerror(-r));
    int statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    struct sample sample;
    sample_init(&sample);
    uint64_t *values = calloc((size_t)processes * VALUES, sizeof(*values));
    for (size_t i = 0; i < (size_t)processes * VALUES; i++)
        values[i] = (random_next() % 65536 + 64) * kinds[i % VALUES].unit;

    uint64_t writer_ns = 0, flush_max_ns = 0, statm_ns = 0;
    for (uint64_t second = 0; second < seconds; second++) {
        picture(&sample, values, processes, second, mode);
        uint64_t begin = cpu_ns();
        read_statm(statm, processes);
        uint64_t read = cpu_ns();
        while ((r = recorder_add(recorder, &sample)) == -EAGAIN)
            if ((r = recorder_flush(recorder, store, START_S + second)) < 0)
                break;
        if (r == 0 && second % FLUSH_S == FLUSH_S - 1) {
            uint64_t from = clock_monotonic_ns();
            r = recorder_flush(recorder, store, START_S + second);
            uint64_t took = clock_monotonic_ns() - from;
            flush_max_ns = took > flush_max_ns ? took : flush_max_ns;
        }
        if (r < 0)
            fail("write", store_error(store));
        statm_ns += read - begin;
        writer_ns += cpu_ns() - begin;
    }
    uint64_t begin = cpu_ns();
    if ((r = recorder_flush(recorder, store, START_S + seconds)) < 0)
        fail("write", store_error(store));
    uint64_t written = recorder_written(recorder);
    recorder_free(recorder);
    store_free(store);
    writer_ns += cpu_ns() - begin;

    struct stat st;
    uint64_t packed[HISTORY_TIERS];
    if (stat(path, &st) < 0)
        fail("look at the file", strerror(errno));
    uint64_t kept = stored(path, packed);
    printf(
        "{\"mode\": \"%s\", \"processes\": %u, \"seconds\": %u, \"values\": %llu, \"kept_values\": "
        "%llu, \"file_bytes\": %llu, \"packed_bytes\": [%llu, %llu, %llu], \"cpu_ns\": %llu, "
        "\"statm_ns\": %llu, \"flush_max_ns\": %llu}\n",
        mode, processes, seconds, (unsigned long long)written, (unsigned long long)kept,
        (unsigned long long)st.st_size, (unsigned long long)packed[0],
        (unsigned long long)packed[1], (unsigned long long)packed[2], (unsigned long long)writer_ns,
        (unsigned long long)statm_ns, (unsigned long long)flush_max_ns);
    sample_release(&sample);
    free(values);
    close(statm);
    return 0;
}
