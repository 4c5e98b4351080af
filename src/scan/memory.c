/* See memory.h. */
#include "scan/memory.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/apart.h"
#include "base/clock.h"
#include "base/sum.h"

enum { ENTRIES = 8192 }; /* of pagemap, at a time: 32 MB of memory */

#define PAGE_PRESENT (UINT64_C(1) << 63)
#define PAGE_SWAPPED (UINT64_C(1) << 62)
#define PAGE_OF_FILE (UINT64_C(1) << 61)

static bool is_late(const struct scan_memory *memory)
{
    return memory->deadline_ns && clock_monotonic_ns() > memory->deadline_ns;
}

/* ---- stretches ---- */

/* As <linux/fs.h> has them since 6.7. */
struct page_stretch {
    uint64_t start, end, categories;
};
struct scan_request {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
static_assert(sizeof(struct scan_request) == 96, "the kernel's");
#define STRETCHES_ASK _IOWR('f', 16, struct scan_request)
enum { STRETCH_OF_FILE = 1 << 2, STRETCH_PRESENT = 1 << 3, STRETCH_SWAPPED = 1 << 4 };

static struct scan_request request_make(const struct scan_memory *memory, uint64_t start,
                                        uint64_t end, bool altered)
{
    uint64_t none_of = altered ? STRETCH_OF_FILE : 0;
    return (struct scan_request){
        .size = sizeof(struct scan_request),
        .start = start,
        .end = end,
        .vec = (uintptr_t)memory->entries,
        .vec_len = ENTRIES * sizeof(uint64_t) / sizeof(struct page_stretch),
        .category_inverted = none_of,
        .category_mask = none_of,
        .category_anyof_mask = STRETCH_PRESENT | STRETCH_SWAPPED,
        .return_mask = STRETCH_PRESENT | STRETCH_SWAPPED,
    };
}

/* The run under way. */
struct run {
    uint64_t start, end; /* both 0: none */
    bool altered;        /* less pages of a file */
    int (*each)(void *context, uint64_t start, uint64_t end);
    void *context;
};

static int run_end(struct run *run)
{
    int r = run->end > run->start ? run->each(run->context, run->start, run->end) : 0;
    run->start = run->end = 0;
    return r;
}

/* What lies at its end makes it longer. */
static int run_add(struct run *run, uint64_t start, uint64_t end)
{
    int r = 0;
    if (start != run->end) {
        r = run_end(run);
        run->start = start;
    }
    run->end = end;
    return r;
}

/* Up to where it was told: the rest is to be asked for one by one. */
static int runs_by_stretches(struct scan_memory *memory, uint64_t *at, uint64_t end,
                             struct run *run)
{
    uint64_t mask = memory->page - 1, last = (end + mask) & ~mask;
    struct page_stretch *found = (struct page_stretch *)(void *)memory->entries;
    while (*at < end && !memory->one_by_one) {
        struct scan_request request = request_make(memory, *at & ~mask, last, run->altered);
        int n = ioctl(memory->pagemap, STRETCHES_ASK, &request), r = 0;
        apart_beat();
        if (n < 0 || request.walk_end <= request.start) {
            memory->one_by_one = true;
            return 0;
        }
        for (int i = 0; i < n && r == 0; i++)
            r = run_add(run, found[i].start > *at ? found[i].start : *at,
                        found[i].end < end ? found[i].end : end);
        if (r == 0 && is_late(memory))
            r = -ETIME;
        if (r != 0)
            return r;
        /* After more than it keeps at a time, the kernel tells an end that is before what it found last. */
        *at = n > 0 && found[n - 1].end > request.walk_end ? found[n - 1].end : request.walk_end;
    }
    return 0;
}

/* ---- one by one ---- */

/* Which of the pages from `page` on exist: how many entries were filled in. */
static size_t pages_ask(struct scan_memory *memory, uint64_t page, size_t n)
{
    ssize_t got = -1;
    if (n > ENTRIES)
        n = ENTRIES;
    if (memory->pagemap >= 0)
        got = pread(memory->pagemap, memory->entries, n * sizeof(uint64_t),
                    (off_t)(page * sizeof(uint64_t)));
    apart_beat(); /* terabytes of addresses without a page take their time, too */
    if (got >= (ssize_t)sizeof(uint64_t))
        return (size_t)got / sizeof(uint64_t);
    for (size_t i = 0; i < n; i++)
        memory->entries[i] = PAGE_PRESENT;
    return n;
}

static int runs_by_pages(struct scan_memory *memory, uint64_t start, uint64_t end, struct run *run)
{
    uint64_t page = start / memory->page, last = (end + memory->page - 1) / memory->page;
    int r = 0;
    while (page < last && r == 0) {
        size_t n = pages_ask(memory, page, last - page);
        for (size_t i = 0; i < n && r == 0; i++, page++) {
            uint64_t at = page * memory->page, behind = at + memory->page;
            uint64_t entry = memory->entries[i];
            if ((entry & (PAGE_PRESENT | PAGE_SWAPPED)) && !(run->altered && entry & PAGE_OF_FILE))
                r = run_add(run, at > start ? at : start, behind < end ? behind : end);
        }
        if (r == 0 && is_late(memory))
            r = -ETIME;
    }
    return r;
}

static int runs(struct scan_memory *memory, uint64_t start, uint64_t end, struct run run)
{
    int r = runs_by_stretches(memory, &start, end, &run);
    /* Whoever asks had been told that he may, before the kernel gave no more of an answer. */
    if (r == 0 && start < end && !scan_memory_may(memory, end - start))
        sum_add(&memory->unread, end - start);
    else if (r == 0 && start < end)
        r = runs_by_pages(memory, start, end, &run);
    return r == 0 ? run_end(&run) : r;
}

int scan_memory_runs(struct scan_memory *memory, uint64_t start, uint64_t end,
                     int (*each)(void *context, uint64_t start, uint64_t end), void *context)
{
    return runs(memory, start, end, (struct run){.each = each, .context = context});
}

int scan_memory_runs_altered(struct scan_memory *memory, uint64_t start, uint64_t end,
                             int (*each)(void *context, uint64_t start, uint64_t end),
                             void *context)
{
    return runs(memory, start, end,
                (struct run){.altered = true, .each = each, .context = context});
}

/* ---- reading ---- */

/* As process_vm_readv(), which a child of who traces the process may not call everywhere (Yama). */
static ssize_t by_file(int file, const struct iovec *places, size_t n, char *out)
{
    size_t done = 0;
    for (size_t i = 0; i < n; i++) {
        ssize_t got =
            pread(file, out + done, places[i].iov_len, (off_t)(uintptr_t)places[i].iov_base);
        done += got < 0 ? 0 : (size_t)got;
        if (got < (ssize_t)places[i].iov_len)
            break;
    }
    return (ssize_t)done;
}

static ssize_t read_places(const struct scan_memory *memory, const struct iovec *places, size_t n,
                           void *out, size_t len)
{
    struct iovec local = {out, len};
    ssize_t got = process_vm_readv(memory->pid, &local, 1, places, n, 0);
    if (got < 0 && errno == EPERM && memory->file > 0)
        got = by_file(memory->file, places, n, out);
    apart_beat();
    return got;
}

size_t scan_memory_peek(struct scan_memory *memory, uint64_t address, void *out, size_t len)
{
    struct iovec remote = {(void *)(uintptr_t)address, len};
    ssize_t got = read_places(memory, &remote, 1, out, len);
    return got < 0 ? 0 : (size_t)got;
}

/* The kernel lets whoever may trace a process read pages by this file that the process has protected from itself. */
static size_t read_by_force(const struct scan_memory *memory, uint64_t address, char *out,
                            size_t len)
{
    int file = memory->file > 0 ? memory->file : memory->own_file;
    size_t done = 0;
    while (file >= 0 && done < len) {
        ssize_t got = pread(file, out + done, len - done, (off_t)(address + done));
        apart_beat();
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    return done;
}

size_t scan_memory_read(struct scan_memory *memory, uint64_t address, void *out, size_t len)
{
    size_t got = scan_memory_peek(memory, address, out, len);
    return got < len ? got + read_by_force(memory, address + got, (char *)out + got, len - got)
                     : got;
}

uint64_t scan_memory_skip(struct scan_memory *memory, uint64_t address)
{
    uint64_t next = (address / memory->page + 1) * memory->page;
    sum_add(&memory->unread, next - address);
    return next;
}

bool scan_memory_read_many(struct scan_memory *memory, const struct iovec *places, size_t n,
                           void *out, size_t len)
{
    return read_places(memory, places, n, out, len) == (ssize_t)len;
}

/* ---- its life ---- */

int scan_memory_open(struct scan_memory *memory, pid_t pid)
{
    char path[64];
    *memory = (struct scan_memory){
        .pid = pid, .pagemap = -1, .own_file = -1, .page = (uint64_t)getpagesize()};
    memory->entries = malloc(ENTRIES * sizeof(uint64_t));
    memory->window = malloc(SCAN_WINDOW_BEFORE + SCAN_WINDOW);
    if (!memory->entries || !memory->window) {
        scan_memory_close(memory);
        return -ENOMEM;
    }
    snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)pid);
    memory->pagemap = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
    memory->own_file = open(path, O_RDONLY | O_CLOEXEC);
    /* Whatever there is. */
    struct scan_request request = request_make(memory, 0, memory->page, false);
    memory->one_by_one = memory->pagemap < 0 || ioctl(memory->pagemap, STRETCHES_ASK, &request) < 0;
    return 0;
}

void scan_memory_close(struct scan_memory *memory)
{
    free(memory->entries);
    free(memory->window);
    if (memory->pagemap >= 0)
        close(memory->pagemap);
    if (memory->own_file >= 0)
        close(memory->own_file);
}
