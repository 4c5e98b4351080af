/* The memory of a process that has done its worst: trailers, words, descriptors, lists and pointers that say anything. It is scanned where it lies, in this
 * process, as if its mappings were all there are. The input is a list of things to store over a heap that is whole. */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "malloc/root.h"
#include "scan/maps.h"
#include "scan/scan.h"
#include "scan/threads.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BASE UINT64_C(0x2a0000000000) /* of an arena of glibc's, too */
enum {
    MB = 1 << 20,
    AT_DATA = 4 * MB, /* of the allocator and of the C library */
    AT_WORDS = 5 * MB,
    AT_STACK = 6 * MB + 4096,
    END = 7 * MB,
    AT_SOURCE = AT_DATA + 0x2000,
    AT_HUGE = AT_DATA + 0x6000,
    AT_CACHE = AT_DATA + 0x7000,
    AT_ZERO = AT_DATA + 0x9000, /* what is not there */
    AT_ARENA = AT_DATA + 0xa000,
    SITES = 100,
    HEADS = 127,
};
static_assert(sizeof(struct source) <= AT_HUGE - AT_SOURCE, "it fits");
static_assert(sizeof(struct huge_cache) <= AT_ZERO - AT_CACHE, "it fits");

static const struct book_trailer_key key = {.key = 0x123456789abcdef1, .generation = 3};

enum { WITH_WORDS = 1, WITH_GLIBC = 2, WITH_BESIDE = 4, WITH_GAPS = 8, WITH_PROTECTED = 16 };

static void begin(void)
{
    static bool done;
    if (done)
        return;
    if (mmap((void *)(uintptr_t)BASE, END, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
             0) != (void *)(uintptr_t)BASE)
        abort();
    done = true;
}

static void *at(uint64_t offset)
{
    return (void *)(uintptr_t)(BASE + offset);
}

/* ---- a heap that is whole ---- */

static void make_words(void)
{
    struct malloc_root *root = at(AT_DATA);
    struct source *source = at(AT_SOURCE);
    struct huge_look *huge = at(AT_HUGE);
    struct macro *macro = at(0);
    struct slab *small = (struct slab *)at(0) + 1, *large = (struct slab *)at(0) + 2;
    *root = (struct malloc_root){.version = ROOT_VERSION,
                                 .bytes = sizeof(*root),
                                 .layout = ROOT_LAYOUT,
                                 .self = root,
                                 .source_main = source,
                                 .sources_n = at(AT_ZERO),
                                 .heaps = at(AT_ZERO),
                                 .huge = huge,
                                 .os = at(AT_ZERO),
                                 .settings = at(AT_ZERO),
                                 .words = at(AT_ZERO)};
    memcpy(root->magic, ROOT_MAGIC, sizeof(root->magic));
    huge->cache = at(AT_CACHE);
    source->macros = macro;
    memset(macro->free, 0xff, sizeof(macro->free));
    macro->free[0] &= ~UINT64_C(7);
    small->class = (uint8_t)size_class(64);
    small->slices = 1;
    small->block_bytes = 64;
    small->made = small->limit = SLICE_BYTES / 64;
    small->words = at(AT_WORDS);
    large->class = SLAB_LARGE;
    large->slices = 1;
    large->asked = 5000;
    large->large_word = (struct word){.low = 1 << WORD_SITE_SHIFT, .high = 3};
    struct word *words = at(AT_WORDS);
    for (unsigned i = 0; i < small->made; i += 2)
        words[i] = (struct word){.low = 1 << WORD_SITE_SHIFT, .high = 3 | 8 << WORD_SLACK_SHIFT};
}

static void make_arena(void)
{
    uint64_t *heads = at(AT_ARENA);
    for (size_t i = 0; i < HEADS; i++)
        heads[2 * i] = heads[2 * i + 1] = BASE + AT_ARENA + 16 * i - 16;
}

static void trailer(uint64_t offset, uint64_t bytes)
{
    uint64_t start = BASE + offset, last = book_trailer_place(start, book_trailer_request(bytes));
    if (offset + bytes + 64 < AT_DATA)
        book_trailer_write((uint64_t *)(uintptr_t)last, key, last, start, bytes, 1, 100, false);
}

/* ---- what is stored over it ---- */

struct input {
    const uint8_t *data;
    size_t size;
};

static uint64_t take(struct input *in, size_t bytes)
{
    uint64_t value = 0;
    bytes = bytes < in->size ? bytes : in->size;
    memcpy(&value, in->data, bytes);
    in->data += bytes;
    in->size -= bytes;
    return value;
}

static void store(struct input *in)
{
    uint64_t kind = take(in, 1), to = take(in, 3) % (END - 64) & ~UINT64_C(7);
    switch (kind % 6) {
    case 0:
        *(uint64_t *)at(to) = take(in, 8);
        break;
    case 1: /* an address */
        *(uint64_t *)at(to) = BASE + take(in, 3) % END;
        break;
    case 2:
        trailer(to & ~UINT64_C(15), take(in, 2));
        break;
    case 3: /* a few bytes of a descriptor */
        to = kind / 6 * sizeof(struct slab) + to % sizeof(struct slab);
        *(uint32_t *)at(to % MB & ~UINT64_C(7)) = (uint32_t)take(in, 4);
        break;
    case 4: /* a word of the array */
        *(uint32_t *)at(AT_WORDS + to % (64 << 10)) = (uint32_t)take(in, 4);
        break;
    default: /* what the root leads to */
        *(uint64_t *)at(AT_DATA + to % 0x8000) = kind & 1 ? BASE + take(in, 3) : take(in, 8);
    }
}

/* ---- looking ---- */

static void check(const struct scan *scan)
{
    struct scan_sum sums[SCAN_STATES] = {0};
    for (size_t i = 0; i < scan->n; i++) {
        const struct scan_block *b = &scan->blocks[i];
        if (b->state >= SCAN_STATES || b->start < BASE || b->start + b->bytes > BASE + END ||
            (i > 0 && b[-1].start + b[-1].bytes > b->start))
            abort();
        sums[b->state].blocks++;
    }
    for (int i = 0; i < SCAN_STATES; i++)
        if (sums[i].blocks != scan->sums[i].blocks)
            abort();
}

static void scan(unsigned with, struct input *in)
{
    static struct scan_registers registers;
    struct scan_thread thread = {.tid = getpid(), .stopped = true};
    struct scan_threads threads = {.threads = &thread, .n = 1, .borrowed = &registers};
    struct scan_regions regions;
    char text[1024];
    const char *heap = with & WITH_PROTECTED ? "---p" : "rw-p";
    int len = snprintf(text, sizeof(text),
                       "%lx-%lx rw-p 0 00:00 0\n%lx-%lx %s 0 00:00 0\n%lx-%lx rw-p 0 00:00 0\n"
                       "%lx-%lx rw-p 0 08:01 5 /lib/libc.so.6\n%lx-%lx rw-p 0 00:00 0\n"
                       "%lx-%lx ---p 0 00:00 0\n%lx-%lx rw-p 0 00:00 0\n",
                       BASE, BASE + MB, BASE + MB, BASE + MB + 4096, heap, BASE + MB + 4096,
                       BASE + AT_DATA, BASE + AT_DATA, BASE + AT_WORDS, BASE + AT_WORDS,
                       BASE + AT_STACK - 4096, BASE + AT_STACK - 4096, BASE + AT_STACK,
                       BASE + AT_STACK, BASE + END);
    if (scan_regions_parse(text, (size_t)len, &regions) < 0)
        abort();
    registers.tid = thread.tid;
    registers.n = 4;
    for (size_t i = 0; i < registers.n; i++)
        registers.words[i] = BASE + take(in, 3);
    registers.stack_pointer = BASE + AT_STACK + take(in, 2);
    registers.thread_pointer = BASE + AT_STACK + take(in, 3);
    struct scan_options options = {.pid = getpid(),
                                   .key = key,
                                   .glibc = with & WITH_GLIBC,
                                   .words = with & WITH_WORDS,
                                   .sites = SITES,
                                   .gaps_are_roots = with & WITH_GAPS};
    if (with & WITH_BESIDE)
        options.beside = (struct scan_beside){BASE, BASE + AT_WORDS, 2 * MB};
    struct scan *found = NULL;
    if (scan_run_in(&options, &threads, &regions, &found) == 0)
        check(found);
    scan_free(found);
    scan_regions_release(&regions);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    begin();
    madvise(at(0), END, MADV_DONTNEED);
    unsigned with = (unsigned)take(&in, 1);
    if (with & WITH_WORDS)
        make_words();
    make_arena();
    struct input registers = in;
    while (in.size > 0)
        store(&in);
    scan(with, &registers);
    return 0;
}
