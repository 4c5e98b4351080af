/* See memory.h. */
#include "scan/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/apart.h"

enum { ENTRIES = 8192 }; /* of pagemap, at a time: 32 MB of memory */

#define PAGE_PRESENT (UINT64_C(1) << 63)
#define PAGE_SWAPPED (UINT64_C(1) << 62)

int scan_memory_open(struct scan_memory *memory, pid_t pid)
{
    char path[64];
    *memory = (struct scan_memory){.pid = pid, .pagemap = -1, .page = (uint64_t)getpagesize()};
    memory->entries = malloc(ENTRIES * sizeof(uint64_t));
    memory->window = malloc(SCAN_WINDOW_BEFORE + SCAN_WINDOW);
    if (!memory->entries || !memory->window) {
        scan_memory_close(memory);
        return -ENOMEM;
    }
    snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)pid);
    memory->pagemap = open(path, O_RDONLY | O_CLOEXEC);
    return 0;
}

void scan_memory_close(struct scan_memory *memory)
{
    free(memory->entries);
    free(memory->window);
    if (memory->pagemap >= 0)
        close(memory->pagemap);
}

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

int scan_memory_runs(struct scan_memory *memory, uint64_t start, uint64_t end,
                     int (*each)(void *context, uint64_t start, uint64_t end), void *context)
{
    uint64_t page = start / memory->page, last = (end + memory->page - 1) / memory->page;
    uint64_t run = 0; /* first byte of the run under way; 0: none */
    int r = 0;
    while (page < last && r == 0) {
        size_t n = pages_ask(memory, page, last - page);
        for (size_t i = 0; i < n && r == 0; i++, page++) {
            uint64_t at = page * memory->page;
            if (memory->entries[i] & (PAGE_PRESENT | PAGE_SWAPPED)) {
                if (!run)
                    run = at > start ? at : start;
            } else if (run) {
                r = each(context, run, at);
                run = 0;
            }
        }
    }
    return run && r == 0 ? each(context, run, end) : r;
}

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

size_t scan_memory_read(struct scan_memory *memory, uint64_t address, void *out, size_t len)
{
    struct iovec remote = {(void *)(uintptr_t)address, len};
    ssize_t got = read_places(memory, &remote, 1, out, len);
    size_t read = got < 0 ? 0 : (size_t)got;
    if (read < len)
        memory->unread += len - read;
    return read;
}

bool scan_memory_read_many(struct scan_memory *memory, const struct iovec *places, size_t n,
                           void *out, size_t len)
{
    return read_places(memory, places, n, out, len) == (ssize_t)len;
}
