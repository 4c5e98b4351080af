/* See heap_ages.h. */
#include "daemon/heap_ages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "scan/scan.h"

struct looking {
    const struct heap_ages_wish *wish;
    struct ages *ages;
};

static void each_block(const struct scan_block *block, void *context)
{
    const struct looking *l = context;
    uint64_t time_ns = l->wish->created_ns + ((uint64_t)block->time << BOOK_TRAILER_TIME_SHIFT);
    ages_add(l->ages, l->wish->now_ns > time_ns ? l->wish->now_ns - time_ns : 0, block->bytes);
}

void heap_ages_wish_make(int32_t pid, const struct book_identity *id, uint64_t now_ns,
                         struct heap_ages_wish *ret_wish)
{
    *ret_wish = (struct heap_ages_wish){
        .pid = pid,
        .trailer_format = id->trailer_format,
        .trailer_key = id->trailer_key,
        .trailer_generation = id->trailer_generation,
        .beside_heap = id->beside_heap,
        .beside_words = id->beside_words,
        .beside_span = id->beside_span,
        .created_ns = id->created_monotonic_ns,
        .now_ns = now_ns,
    };
}

/* The search takes memory that it may not read for memory that is not there. The kernel asks for the same rights
 * here (PTRACE_MODE_ATTACH), security modules included. */
static int memory_check(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    close(fd);
    return 0;
}

int heap_ages_look(const struct heap_ages_wish *wish, struct heap_ages_found *ret_found)
{
    struct heap_ages_found found = {.searched = 0};
    struct looking looking = {wish, &found.ages};
    struct scan_options options = {
        .pid = wish->pid,
        .key = {.key = wish->trailer_key, .generation = wish->trailer_generation},
        .sites = UINT32_MAX,
        .glibc = book_trailer_glibc(wish->trailer_format),
        .beside = {wish->beside_heap, wish->beside_words, wish->beside_span},
        .words = book_trailer_words(wish->trailer_format),
        /* Blocks that come meanwhile are younger than the deadline. */
        .time_max = scan_time_max(wish->created_ns, wish->now_ns + HEAP_AGES_MS_MAX * NS_PER_MS),
    };
    int r = memory_check(wish->pid);
    if (r < 0)
        return r;
    r = scan_each(&options, clock_monotonic_ns() + HEAP_AGES_MS_MAX * NS_PER_MS, each_block,
                  &looking, &found.searched);
    if (r < 0 && r != -ETIME)
        return r;
    found.late = r == -ETIME;
    *ret_found = found;
    return 0;
}
