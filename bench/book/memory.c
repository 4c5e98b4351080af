/* What a book takes of the machine's memory: the pages of its file.
 *
 * Usage: bench_book_memory own
 *        bench_book_memory on-behalf
 *        bench_book_memory grow LIVE
 *        bench_book_memory churn LIVE
 *
 * The first two print the fixed part: one device, one buffer (and what it was before that buffer), as a
 * process writes it or a daemon on behalf of another. `grow` reports buffers until LIVE are there; `churn` as well, but frees a random one
 * for every two that come, as programs do. A table is at its worst right after it grew, so the size is
 * looked at every few reports, and the worst moment of each 2 % of growth is printed. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "book/report.h"
#include "book/writer.h"
#include "harness.h"

enum { LOOK_EVERY = 8 };

static uint64_t file_bytes(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        bench_fail("cannot look at the book: %m");
    return (uint64_t)st.st_blocks * 512;
}

static void print_fixed(uint64_t empty, uint64_t fixed)
{
    printf("{\"empty_bytes\":%llu,\"fixed_bytes\":%llu}\n", (unsigned long long)empty,
           (unsigned long long)fixed);
}

/* As libmemoir does it; its name is in `status`. */
static int own_book(struct memoir_status *status)
{
    int device = bench_device(0);
    *status = (struct memoir_status){.struct_size = sizeof(*status)};
    if (memoir_open(0) < 0 || memoir_status(status) < 0 || status->state != MEMOIR_STATE_OPEN)
        bench_fail("cannot make a book: %s", status->reason);
    return device;
}

static void run_own(void)
{
    struct memoir_status status;
    int device = own_book(&status);
    uint64_t empty = file_bytes(status.path);
    memoir_alloc(device, MEMOIR_SPACE_DRAM, 1, 4096);
    print_fixed(empty, file_bytes(status.path));
}

/* As the daemon will for clients that only have a socket. */
static void run_on_behalf(void)
{
    static struct book_writer w;
    static struct book_thread t;
    struct book_device device = {.kind = MEMOIR_DEVICE_SIMULATED, .name = "Benchmark device"};
    int r = book_writer_init(
        &w, &(struct book_writer_options){.source = BOOK_SOURCE_SOCKET, .on_behalf = true});
    if (r < 0)
        bench_fail("cannot prepare a book: %s", strerror(-r));
    book_thread_init(&w, &t);
    int record = book_device_add(&w, &t, &device);
    int account = book_account_add(&w, &t, MEMOIR_SPACE_DRAM, (uint32_t)record, "dram");
    if (record < 0 || account < 0)
        bench_fail("cannot add a device");
    r = book_writer_publish(&w);
    if (r < 0)
        bench_fail("cannot make a book: %s", strerror(-r));
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", w.directory, w.name);
    uint64_t empty = file_bytes(path);
    book_alloc(&w, &t, 1, 4096, (uint64_t)book_time(&w) << 32 | (uint32_t)account);
    print_fixed(empty, file_bytes(path));
    book_writer_close(&w, false);
}

/* ---- growth ---- */

struct worst {
    uint64_t live, bytes; /* of the file, less the fixed part */
    uint64_t next_live;   /* where the next 2 % begin */
};

static double bytes_each(const struct worst *worst)
{
    return worst->live ? (double)worst->bytes / (double)worst->live : 0;
}

static void worst_print(struct worst *worst, uint64_t live)
{
    if (worst->live)
        printf("{\"live\":%llu,\"table_bytes\":%llu,\"bytes_each\":%.3f}\n",
               (unsigned long long)worst->live, (unsigned long long)worst->bytes,
               bytes_each(worst));
    *worst = (struct worst){.next_live = live + live / 50 + 1};
}

static void look(struct worst *worst, const char *path, uint64_t fixed, uint64_t live)
{
    uint64_t bytes = file_bytes(path) - fixed;
    if (live >= worst->next_live)
        worst_print(worst, live);
    if (!worst->live || (double)bytes / (double)live > bytes_each(worst)) {
        worst->live = live;
        worst->bytes = bytes;
    }
}

static void run_growth(uint64_t target, bool churn)
{
    struct memoir_status status;
    int device = own_book(&status);
    memoir_alloc(device, MEMOIR_SPACE_L1, 1, 4096);
    uint64_t fixed = file_bytes(status.path), random = 1, live = 0;
    uint64_t *ids = calloc(target, sizeof(*ids));
    struct worst worst = {.next_live = 2};
    if (!ids)
        bench_fail("out of memory");
    for (uint64_t i = 0; live < target; i++) {
        if (churn && i % 3 == 2) {
            uint64_t *slot = &ids[bench_random(&random) % live];
            memoir_free(device, MEMOIR_SPACE_DRAM, *slot);
            *slot = ids[--live];
        } else {
            ids[live] = bench_random(&random);
            memoir_alloc(device, MEMOIR_SPACE_DRAM, ids[live], bench_size(ids[live]));
            live++;
        }
        if (i % LOOK_EVERY == 0)
            look(&worst, status.path, fixed, live);
    }
    worst_print(&worst, live);
    if (memoir_status(&status) < 0 || status.lost)
        bench_fail("%llu reports lost", (unsigned long long)status.lost);
    free(ids);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "own") == 0)
        run_own();
    else if (argc == 2 && strcmp(argv[1], "on-behalf") == 0)
        run_on_behalf();
    else if (argc == 3 && (strcmp(argv[1], "grow") == 0 || strcmp(argv[1], "churn") == 0))
        run_growth(bench_number(argv[2]), argv[1][0] == 'c');
    else
        bench_fail("usage: bench_book_memory own | on-behalf | grow LIVE | churn LIVE");
    return 0;
}
