/* Books that no honest writer makes.
 *
 * Usage: forge holes DIR N        N books about ourselves that say to have 256 MiB of counters, all holes
 *        forge blocks DIR MB N    a book about a dead process with that many bytes of blocks, by N names
 *        forge dead DIR N         N small books about dead processes
 *        forge maps FILE N        N mappings of an empty file
 *
 * Says "ready PID" and waits for a line on standard input. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "book/layout.h"

enum {
    SECTIONS_AT = 65536,
    DEAD_PID = 4194303, /* the highest that there is */
    MIB = 1 << 20,
};

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t start_ticks(void)
{
    char text[1024] = "";
    FILE *stat = fopen("/proc/self/stat", "r");
    if (!stat || fread(text, 1, sizeof(text) - 1, stat) == 0)
        fail("/proc/self/stat");
    fclose(stat);
    const char *at = strrchr(text, ')') + 1;
    for (int field = 2; field < 22; field++)
        at = strchr(at + 1, ' ');
    return strtoull(at, NULL, 10);
}

static struct book_header header(int32_t pid, uint64_t ticks)
{
    struct stat st;
    struct book_header h = {.endian_mark = BOOK_ENDIAN_MARK,
                            .version = BOOK_VERSION,
                            .header_bytes = BOOK_HEADER_BYTES,
                            .page_size = 4096,
                            .source = BOOK_SOURCE_CLIENT,
                            .pid = pid,
                            .start_ticks = ticks,
                            .uid = geteuid(),
                            .state = BOOK_STATE_OPEN,
                            .block_shards = 1,
                            .file_size = SECTIONS_AT,
                            .comm = "forged",
                            .exe = "/usr/sbin/forged"};
    if (stat("/proc/self/ns/pid", &st) < 0)
        fail("ns/pid");
    h.pid_ns = st.st_ino;
    memcpy(h.magic, BOOK_MAGIC, sizeof(h.magic));
    return h;
}

/* Add a section at the end of the file, all of it open; its offset. */
static uint64_t section(struct book_header *h, uint32_t kind, uint32_t entry, uint64_t size,
                        uint64_t used)
{
    struct book_section *s = h->sections;
    while (s->kind)
        s++;
    uint64_t offset = h->file_size;
    *s = (struct book_section){.kind = kind,
                               .entry_size = entry,
                               .offset = offset,
                               .size = size,
                               .open = size,
                               .used = used};
    h->file_size += size;
    return offset;
}

static void put(int fd, const void *bytes, size_t len, uint64_t at)
{
    if (pwrite(fd, bytes, len, (off_t)at) != (ssize_t)len)
        fail("pwrite");
}

static int file(const char *dir, const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        fail(path);
    return fd;
}

static void name_it(const char *dir, int32_t pid, int number,
                    int (*call)(const char *, const char *))
{
    char old[512], new[512];
    snprintf(old, sizeof(old), "%s/making", dir);
    snprintf(new, sizeof(new), "%s/%d-5-1-%x.book", dir, (int)pid, (unsigned)number);
    if (call(old, new) < 0)
        fail(new);
}

static void make_holes(const char *dir, int n)
{
    for (int k = 0; k < n; k++) {
        struct book_header h = header(getpid(), start_ticks());
        h.exec_id = 1 + (uint64_t)k;
        static struct book_account accounts[BOOK_RECORDS_MAX];
        static struct book_counter_page pages[65536];
        for (int i = 1; i < BOOK_RECORDS_MAX; i++)
            accounts[i] =
                (struct book_account){.type = BOOK_RECORD_ACCOUNT, .space = 1 + (uint32_t)i % 31};
        for (int i = 0; i < 65536; i++)
            pages[i] = (struct book_counter_page){.what = BOOK_COUNTERS_ACCOUNTS,
                                                  .first = 1 + (uint32_t)(i * 32) % 4000};
        uint64_t registry = section(&h, BOOK_SECTION_REGISTRY, BOOK_RECORD_BYTES, MIB, 4096);
        uint64_t index = section(&h, BOOK_SECTION_COUNTER_INDEX, 16, MIB, 65536);
        section(&h, BOOK_SECTION_COUNTERS, BOOK_COUNTER_PAGE_BYTES, 256 * MIB, 65536);
        int fd = file(dir, "making");
        if (flock(fd, LOCK_EX) < 0 || ftruncate(fd, (off_t)h.file_size) < 0)
            fail("making");
        put(fd, accounts, sizeof(accounts), registry);
        put(fd, pages, sizeof(pages), index);
        put(fd, &h, sizeof(h), 0);
        name_it(dir, getpid(), k, rename); /* the lock stays with the descriptor */
    }
}

static void make_blocks(const char *dir, uint64_t mib, int n)
{
    struct book_header h = header(DEAD_PID, 5);
    h.blocks_seq = 1; /* died in the middle of a move: all blocks have to be held */
    uint64_t registry = section(&h, BOOK_SECTION_REGISTRY, BOOK_RECORD_BYTES, 65536, 2);
    uint64_t blocks = section(&h, BOOK_SECTION_BLOCKS, 4096, mib * MIB, 0);
    int fd = file(dir, "making");
    if (ftruncate(fd, (off_t)h.file_size) < 0)
        fail("ftruncate");
    struct book_account account = {.type = BOOK_RECORD_ACCOUNT, .space = 1};
    put(fd, &account, sizeof(account), registry + BOOK_RECORD_BYTES);
    struct book_block_page *page =
        mmap(NULL, mib * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)blocks);
    if (page == MAP_FAILED)
        fail("mmap");
    uint64_t id = 1;
    for (uint64_t i = 0; i < mib * MIB / sizeof(*page); i++)
        for (int k = 0; k < BOOK_BLOCKS_PER_PAGE; k++)
            page[i].slots[k] = (struct book_block){id++, 10, 1};
    put(fd, &h, sizeof(h), 0);
    munmap(page, mib * MIB);
    close(fd);
    for (int k = 1; k < n; k++)
        name_it(dir, DEAD_PID, k, link);
    name_it(dir, DEAD_PID, 0, rename);
}

static void make_dead(const char *dir, int n)
{
    for (int k = 0; k < n; k++) {
        struct book_header h = header(DEAD_PID - k, 5);
        uint64_t registry = section(&h, BOOK_SECTION_REGISTRY, BOOK_RECORD_BYTES, 4096, 2);
        int fd = file(dir, "making");
        if (ftruncate(fd, (off_t)h.file_size) < 0)
            fail("ftruncate");
        struct book_account account = {.type = BOOK_RECORD_ACCOUNT, .space = 1};
        put(fd, &account, sizeof(account), registry + BOOK_RECORD_BYTES);
        put(fd, &h, sizeof(h), 0);
        close(fd);
        name_it(dir, h.pid, 0, rename);
    }
}

static void make_maps(const char *path, int n)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 8192) < 0)
        fail(path);
    /* Of two kinds, so that the kernel does not make one of them all. */
    for (int i = 0; i < n; i++)
        if (mmap(NULL, 4096, i & 1 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) ==
            MAP_FAILED)
            fail("mmap");
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    int n = atoi(argv[3]);
    if (strcmp(argv[1], "holes") == 0)
        make_holes(argv[2], n);
    else if (strcmp(argv[1], "blocks") == 0)
        make_blocks(argv[2], (uint64_t)n, argc > 4 ? atoi(argv[4]) : 1);
    else if (strcmp(argv[1], "dead") == 0)
        make_dead(argv[2], n);
    else if (strcmp(argv[1], "maps") == 0)
        make_maps(argv[2], n);
    else
        return 2;
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    (void)!getchar();
    return 0;
}
