/* locked.c: a program that locks its memory locks as much as it does without our library. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cases.h"

enum { KIB = 1024, LIMIT_KIB = 8 * KIB, BLOCKS = 5000, NOBODY = 65534 };

static unsigned long status_kib(const char *name)
{
    char line[256];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    MUST(file != NULL);
    while (fgets(line, sizeof(line), file))
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtoul(line + strlen(name) + 1, NULL, 10);
    fclose(file);
    return kib;
}

/* As much as makes a book. */
static void work(void)
{
    void *blocks[100] = {0};
    for (int i = 0; i < BLOCKS; i++) {
        void **block = &blocks[i % COUNT_OF(blocks)];
        free(*block);
        *block = malloc((size_t)i % 300 + 1);
        MUST(*block != NULL);
        memset(*block, 1, (size_t)i % 300 + 1);
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++)
        free(blocks[i]);
}

/* No more than the limit of the kernel, and none of root's rights. */
static void become_limited(void)
{
    struct rlimit limit = {LIMIT_KIB * KIB, LIMIT_KIB * KIB};
    MUST(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0)
        case_skip("setresuid: %s", strerror(errno));
}

static void lock_limited(bool before, int flags)
{
    if (!before)
        work();
    become_limited();
    MUST_SAY(mlockall(flags) == 0, "mlockall: %s, %lu KiB mapped", strerror(errno),
             status_kib("VmSize"));
    work();
    unsigned long locked = status_kib("VmLck");
    MUST_SAY(locked > KIB && locked <= LIMIT_KIB, "%lu KiB are locked", locked);
    void *more = mmap(NULL, 100 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST_SAY(more != MAP_FAILED, "mmap: %s, %lu KiB are locked", strerror(errno), locked);
    if (flags & MCL_FUTURE)
        MUST_SAY(status_kib("VmLck") >= locked + 100, "%lu KiB are locked", status_kib("VmLck"));
    MUST(munlockall() == 0 && status_kib("VmLck") == 0);
}

static void a_small_program_may_lock_itself_at_its_start(void)
{
    lock_limited(true, MCL_CURRENT | MCL_FUTURE);
}

static void a_small_program_may_lock_itself_later(void)
{
    lock_limited(false, MCL_CURRENT | MCL_FUTURE);
}

static void a_small_program_may_lock_what_it_has(void)
{
    lock_limited(false, MCL_CURRENT);
}

static void what_is_locked_is_what_the_program_has(void)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 && geteuid() != 0)
        case_skip("the limit on locked memory cannot be raised");
    work();
    MUST_SAY(mlockall(MCL_CURRENT | MCL_FUTURE) == 0, "mlockall: %s", strerror(errno));
    work();
    unsigned long locked = status_kib("VmLck");
    MUST_SAY(locked > KIB && locked < 2 * LIMIT_KIB, "%lu KiB are locked", locked);
}

static void more_than_may_be_locked_is_refused(void)
{
    work();
    char *much =
        mmap(NULL, 2 * LIMIT_KIB * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(much != MAP_FAILED);
    become_limited();
    errno = 0;
    MUST(mlockall(MCL_CURRENT | MCL_FUTURE) == -1 && errno == ENOMEM && status_kib("VmLck") == 0);
    MUST(mlockall(0) == -1 && errno == EINVAL);
}

int main(int argc, char **argv)
{
#define CASE(name)  \
    {               \
#name, name \
    }
    static const struct test_case cases[] = {
        CASE(a_small_program_may_lock_itself_at_its_start),
        CASE(a_small_program_may_lock_itself_later),
        CASE(a_small_program_may_lock_what_it_has),
        CASE(what_is_locked_is_what_the_program_has),
        CASE(more_than_may_be_locked_is_refused),
    };
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}
