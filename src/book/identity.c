/* identity.c: see identity.h. */
#include "book/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/procfs.h"
#include "book/descriptor.h"
#include "book/layout.h"

/* Read up to `size` bytes of a file; the number read, or -errno. */
static ssize_t read_small(const char *path, char *buffer, size_t size)
{
    int fd = book_openat(AT_FDCWD, path, O_RDONLY | O_NOCTTY, 0);
    if (fd < 0)
        return fd;
    ssize_t n = read(fd, buffer, size);
    int error = errno;
    close(fd);
    return n < 0 ? -error : n;
}

static uint64_t start_ticks(void)
{
    char text[1024];
    struct procfs_stat stat;
    ssize_t n = read_small("/proc/self/stat", text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    return procfs_stat_parse(text, &stat) ? stat.start_ticks : 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

void book_boot_id(uint8_t ret_id[static 16])
{
    char text[64];
    memset(ret_id, 0, 16);
    ssize_t n = read_small("/proc/sys/kernel/random/boot_id", text, sizeof(text));
    size_t digits = 0;
    for (ssize_t i = 0; i < n && digits < 32; i++) {
        int digit = hex_digit(text[i]);
        if (digit < 0)
            continue;
        ret_id[digits / 2] = (uint8_t)(ret_id[digits / 2] << 4 | digit);
        digits++;
    }
}

static void command_line(char *buffer, size_t size)
{
    ssize_t n = read_small("/proc/self/cmdline", buffer, size - 1);
    procfs_command_line(buffer, n > 0 ? (size_t)n : 0);
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Inode of the time namespace that a machine starts with. */
#define INITIAL_TIME_NS UINT64_C(0xeffffffa)

int64_t book_ticks_of(int64_t ns, uint64_t per_s)
{
    enum { TICKS_PER_S = 100 }; /* on every machine that we run on */
    if (per_s == 0 || per_s > 1000000000)
        per_s = TICKS_PER_S;
    return ns / (1000000000 / (int64_t)per_s);
}

/* A time namespace shifts the clock and the start time that its processes see. The header has both
 * as the machine sees them. */
static void undo_time_namespace(struct book_header *header)
{
    struct stat info;
    if (stat("/proc/self/ns/time", &info) < 0)
        return;
    header->time_ns = info.st_ino;
    char text[256];
    ssize_t n = info.st_ino == INITIAL_TIME_NS
                    ? 0
                    : read_small("/proc/self/timens_offsets", text, sizeof(text) - 1);
    if (n <= 0)
        return;
    text[n] = '\0';
    int64_t boottime_ns = procfs_time_offset(text, "boottime");
    header->created_monotonic_ns -= (uint64_t)procfs_time_offset(text, "monotonic");
    header->start_ticks -= (uint64_t)book_ticks_of(boottime_ns, getauxval(AT_CLKTCK));
}

/* What the number is made of, in this order. */
static const uint64_t exec_kinds[] = {AT_RANDOM, AT_SYSINFO_EHDR, AT_BASE,
                                      AT_ENTRY,  AT_PHDR,         AT_EXECFN};
enum { EXEC_KINDS = sizeof(exec_kinds) / sizeof(exec_kinds[0]) };

static uint64_t auxv_value(const struct book_auxv *auxv, size_t n, uint64_t type)
{
    for (size_t i = 0; i < n && auxv[i].type != AT_NULL; i++)
        if (auxv[i].type == type)
            return auxv[i].value;
    return 0;
}

uint64_t book_exec_id_of(const struct book_auxv *auxv, size_t n)
{
    uint64_t id = 0;
    if (auxv_value(auxv, n, AT_RANDOM) == 0)
        return 0;
    for (size_t i = 0; i < EXEC_KINDS; i++)
        id = hash_combine(id, auxv_value(auxv, n, exec_kinds[i]));
    return id;
}

/* The kernel's copy, since a loader that was started by hand (ld.so PROGRAM) changes that on the stack.
 * A process that changed its user may not read it, and then has to believe the stack. */
uint64_t book_exec_id(void)
{
    struct book_auxv auxv[BOOK_AUXV_MAX];
    ssize_t got = read_small("/proc/self/auxv", (char *)auxv, sizeof(auxv));
    size_t n = got > 0 ? (size_t)got / sizeof(auxv[0]) : 0;
    if (n == 0)
        for (; n < EXEC_KINDS; n++)
            auxv[n] = (struct book_auxv){exec_kinds[n], getauxval(exec_kinds[n])};
    return book_exec_id_of(auxv, n);
}

/* A hash, since programs guard their stacks with these bytes. */
static uint64_t exec_random_hash(uint64_t exec_id)
{
    const void *bytes = (const void *)getauxval(AT_RANDOM);
    uint64_t words[2];
    if (!bytes)
        return 0;
    memcpy(words, bytes, sizeof(words));
    return hash_combine(hash_combine(exec_id, words[0]), words[1]);
}

uint64_t book_exec_random(void)
{
    const void *bytes = (const void *)getauxval(AT_RANDOM);
    uint64_t word = 0;
    if (bytes)
        memcpy(&word, bytes, sizeof(word));
    return word;
}

uint64_t book_identity_self(struct book_header *header)
{
    book_boot_id(header->boot_id);
    struct stat info;
    if (stat("/proc/self/ns/pid", &info) == 0)
        header->pid_ns = info.st_ino;
    header->start_ticks = start_ticks();
    header->exec_id = book_exec_id();
    header->exec_random = exec_random_hash(header->exec_id);
    header->pid = getpid();
    header->parent_pid = getppid();
    header->writer_pid = header->pid;
    header->uid = geteuid();
    header->created_realtime_ns = clock_ns(CLOCK_REALTIME);
    header->created_monotonic_ns = clock_ns(CLOCK_MONOTONIC_COARSE);
    uint64_t created_ns = header->created_monotonic_ns;
    undo_time_namespace(header);
    ssize_t comm = read_small("/proc/self/comm", header->comm, sizeof(header->comm) - 1);
    if (comm > 0 && header->comm[comm - 1] == '\n')
        header->comm[comm - 1] = '\0';
    ssize_t n = readlink("/proc/self/exe", header->exe, sizeof(header->exe) - 1);
    header->exe[n > 0 ? n : 0] = '\0';
    command_line(header->command, sizeof(header->command));
    return created_ns;
}
