/* Read the totals of all books of a directory, as the daemon does: mapped once, then read again and
 * again.
 *
 * Usage: bench_book_read DIR BOOKS ROUNDS REPETITIONS
 *
 * BOOKS holders (bench_book_hold) must have their books in DIR/UID/. `ledger` is what memoird does each
 * time: all totals of all books, joined into rows, and summed by device. `reader` is the part that reads
 * the books. `cold` is one round of the ledger after other work took the caches.
 *
 * Before that every holder is asked to report one more buffer, and a single round must show each of them:
 * nothing that is measured here may come from an older round. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "book/reader.h"
#include "harness.h"
#include "ledger/ledger.h"

enum { COLD_BYTES = 96 << 20, COLD_ROUNDS = 20, PATIENCE_MS = 5000 };

static unsigned char *cold_memory;

static struct ledger *ledger_open(const char *dir)
{
    struct ledger *ledger;
    char path[512];
    snprintf(path, sizeof(path), "%s/%u", dir, (unsigned)geteuid());
    int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = opendir(path);
    if (dirfd < 0 || !listing || book_guard_install() < 0 ||
        ledger_new(&(struct ledger_options){0}, &ledger) < 0)
        bench_fail("cannot open the directory of books: %m");
    for (struct dirent *entry; (entry = readdir(listing));) {
        struct ledger_book *book;
        if (!strstr(entry->d_name, ".book"))
            continue;
        int r = ledger_book_add(
            ledger,
            &(struct ledger_where){
                .dirfd = dirfd, .name = entry->d_name, .fd = -1, .uid = geteuid(), .place = path},
            &book);
        if (r < 0)
            bench_fail("cannot add a book: %s", strerror(-r));
    }
    closedir(listing);
    return ledger;
}

/* What the devices' rows say. */
static uint64_t blocks_on_devices(const struct ledger *ledger)
{
    size_t n;
    uint64_t blocks = 0;
    struct ledger_device *const *devices = ledger_devices(ledger, &n);
    for (size_t i = 0; i < n; i++)
        for (size_t s = 0; s <= MEMOIR_SPACE_MAX; s++)
            blocks += devices[i]->spaces[s].blocks;
    return blocks;
}

/* ---- the ways ---- */

static struct book_totals totals[LEDGER_ACCOUNTS_MAX];

static void round_ledger(struct ledger *ledger)
{
    ledger_refresh(ledger);
}

static size_t book_read(struct book_reader *reader)
{
    size_t n;
    int r = book_reader_refresh(reader);
    book_reader_accounts(reader, &n);
    if (r < 0 || n > LEDGER_ACCOUNTS_MAX || book_reader_totals_all(reader, totals, n) < 0)
        bench_fail("cannot read a book");
    return n;
}

static void round_reader(struct ledger *ledger)
{
    struct ledger_books all = ledger_books(ledger);
    for (size_t i = 0; i < all.n; i++)
        book_read(all.books[i]->reader);
}

/* ---- is a round what it says? ---- */

static uint64_t blocks_in_books(struct ledger *ledger)
{
    uint64_t blocks = 0;
    struct ledger_books all = ledger_books(ledger);
    for (size_t i = 0; i < all.n; i++) {
        size_t n = book_read(all.books[i]->reader);
        for (size_t k = 0; k < n; k++)
            blocks += totals[k].live_blocks;
    }
    return blocks;
}

static void check_fresh(struct ledger *ledger, size_t books)
{
    size_t n;
    ledger_refresh(ledger);
    struct ledger_process *const *processes = ledger_processes(ledger, &n);
    uint64_t wanted = blocks_on_devices(ledger) + books;
    if (n != books)
        bench_fail("%zu processes instead of %zu", n, books);
    for (size_t i = 0; i < n; i++)
        if (kill(processes[i]->book_pid, SIGUSR1) < 0)
            bench_fail("cannot signal a holder: %m");
    for (int ms = 0; blocks_in_books(ledger) < wanted; ms++) {
        if (ms > PATIENCE_MS)
            bench_fail("holders do not answer");
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    bench_quiet_begin();
    ledger_refresh(ledger);
    bench_quiet_end();
    if (blocks_on_devices(ledger) != wanted)
        bench_fail("a round showed %llu blocks of %llu",
                   (unsigned long long)blocks_on_devices(ledger), (unsigned long long)wanted);
}

static uint64_t rounds_ns(struct ledger *ledger, void (*round)(struct ledger *), uint64_t rounds)
{
    bench_quiet_begin();
    uint64_t begin = bench_now_ns();
    for (uint64_t i = 0; i < rounds; i++)
        round(ledger);
    uint64_t took = bench_now_ns() - begin;
    bench_quiet_end();
    return took;
}

static void make_cold(void)
{
    for (size_t i = 0; i < COLD_BYTES; i += 64)
        cold_memory[i]++;
}

static void print(const char *way, uint64_t repetition, uint64_t rounds, uint64_t ns)
{
    printf("{\"way\":\"%s\",\"repetition\":%llu,\"rounds\":%llu,\"round_ns\":%.1f}\n", way,
           (unsigned long long)repetition, (unsigned long long)rounds, (double)ns / (double)rounds);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        bench_fail("usage: bench_book_read DIR BOOKS ROUNDS REPETITIONS");
    uint64_t books = bench_number(argv[2]), rounds = bench_number(argv[3]);
    uint64_t repetitions = bench_number(argv[4]);
    cold_memory = calloc(1, COLD_BYTES);
    if (!cold_memory)
        bench_fail("out of memory");
    struct ledger *ledger = ledger_open(argv[1]);
    if (ledger_books(ledger).n != books)
        bench_fail("%zu books instead of %llu", ledger_books(ledger).n, (unsigned long long)books);
    check_fresh(ledger, books);
    bench_pin(1);
    rounds_ns(ledger, round_ledger, rounds);
    for (uint64_t i = 1; i <= repetitions; i++) {
        print("ledger", i, rounds, rounds_ns(ledger, round_ledger, rounds));
        print("reader", i, rounds, rounds_ns(ledger, round_reader, rounds));
    }
    for (uint64_t i = 1; i <= COLD_ROUNDS; i++) {
        make_cold();
        print("cold", i, 1, rounds_ns(ledger, round_ledger, 1));
    }
    ledger_free(ledger);
    free(cold_memory);
    return 0;
}
