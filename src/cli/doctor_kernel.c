/* Features of the kernel and limits of this shell on which Memoir depends. Each is tried rather than
 * derived from a version: distributions backport, and sandboxes forbid. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/units.h"
#include "cli/doctor.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* The kernel's struct pidfd_info, first version: 64 bytes; older headers lack it. */
struct pidfd_info_v0 {
    uint64_t mask;
    uint64_t cgroup;
    uint32_t ids[11];
    int32_t exit_code;
};
_Static_assert(sizeof(struct pidfd_info_v0) == 64, "as the kernel defines it");
#define PIDFD_GET_INFO_V0  _IOWR(0xFF, 11, struct pidfd_info_v0)
#define PIDFD_INFO_EXIT_V0 (UINT64_C(1) << 3)

enum {
    SMALL_MAX = 4096,
    WATCHES_MIN = 256, /* one per directory of books, plus room for other programs of the user */
    INSTANCES_MIN = 16,
    NOFILE_MIN = 64,
    EXIT_CODE_TRIED = 42,
};

static void check_version(struct doctor *d)
{
    struct utsname u;
    if (uname(&u) == 0)
        doctor_find(d, DOCTOR_OK, NULL, "%s %s on %s", u.sysname, u.release, u.machine);
}

/* A child that ends at once with a known code; its pidfd, or -errno. */
static int dead_child(void)
{
    pid_t child = fork();
    if (child < 0)
        return -errno;
    if (child == 0)
        _exit(EXIT_CODE_TRIED);
    int fd = (int)syscall(SYS_pidfd_open, child, 0);
    int r = fd < 0 ? -errno : fd;
    waitpid(child, NULL, 0);
    return r;
}

static void check_pidfd(struct doctor *d)
{
    MEMOIR_CLEANUP(closep)
    int fd = dead_child();
    if (fd < 0) {
        doctor_find(d, DOCTOR_WARN, "use Linux 5.3 or newer; sandboxes must allow pidfd_open",
                    "pidfd_open does not work (%s): the daemon cannot be told of deaths",
                    strerror(-fd));
        return;
    }
    struct pidfd_info_v0 info = {.mask = PIDFD_INFO_EXIT_V0};
    if (ioctl(fd, PIDFD_GET_INFO_V0, &info) == 0 && (info.mask & PIDFD_INFO_EXIT_V0) &&
        WIFEXITED(info.exit_code) && WEXITSTATUS(info.exit_code) == EXIT_CODE_TRIED)
        doctor_find(d, DOCTOR_OK, NULL, "deaths are noticed at once, with their cause");
    else
        doctor_find(d, DOCTOR_OK, NULL,
                    "deaths are noticed at once; their cause only where the daemon can read it "
                    "(Linux 6.15 tells it for all)");
}

static void check_populate(struct doctor *d)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return;
    if (madvise(p, page, MADV_POPULATE_WRITE) == 0)
        doctor_find(d, DOCTOR_OK, NULL, "book pages can be pre-faulted (MADV_POPULATE_WRITE)");
    else
        doctor_find(d, DOCTOR_FAIL, "use Linux 5.14 or newer",
                    "MADV_POPULATE_WRITE does not work (%s): programs cannot keep books",
                    strerror(errno));
    munmap(p, page);
}

static void check_wipe(struct doctor *d)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return;
    if (madvise(p, page, MADV_WIPEONFORK) == 0)
        doctor_find(d, DOCTOR_OK, NULL,
                    "forked children start a book of their own (MADV_WIPEONFORK)");
    else
        doctor_find(
            d, DOCTOR_FAIL, "use Linux 4.14 or newer",
            "MADV_WIPEONFORK does not work (%s): a forked child could write into its parent's "
            "book",
            strerror(errno));
    munmap(p, page);
}

/* The content of a small file without its last newline; "" when it cannot be read. */
static void read_small(const char *path, char text[static SMALL_MAX])
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer content = BUFFER_INIT(SMALL_MAX - 1);
    text[0] = '\0';
    if (fs_read_file(path, &content) < 0)
        return;
    snprintf(text, SMALL_MAX, "%s", buffer_string(&content));
    text[strcspn(text, "\n")] = '\0';
}

static void check_huge_pages(struct doctor *d)
{
    char text[SMALL_MAX];
    read_small("/sys/kernel/mm/transparent_hugepage/shmem_enabled", text);
    if (strstr(text, "[always]") || strstr(text, "[force]"))
        doctor_find(d, DOCTOR_WARN,
                    "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled",
                    "shared memory takes huge pages always: a book may take 2 MB where 100 kB do");
    else
        doctor_find(d, DOCTOR_OK, NULL, "books take small pages (%s)",
                    *text ? text : "no huge pages");
}

static void check_inotify(struct doctor *d)
{
    char watches[SMALL_MAX], instances[SMALL_MAX];
    read_small("/proc/sys/fs/inotify/max_user_watches", watches);
    read_small("/proc/sys/fs/inotify/max_user_instances", instances);
    if (!*watches || !*instances)
        doctor_find(d, DOCTOR_WARN, "the daemon then looks for books by the clock",
                    "the kernel has no inotify");
    else if (atol(watches) < WATCHES_MIN || atol(instances) < INSTANCES_MIN)
        doctor_find(d, DOCTOR_WARN,
                    "sysctl fs.inotify.max_user_watches=65536 "
                    "fs.inotify.max_user_instances=128",
                    "a user may have %s watches in %s instances: the daemon may get none", watches,
                    instances);
    else
        doctor_find(d, DOCTOR_OK, NULL, "%s watches in %s instances for each user", watches,
                    instances);
}

static void check_ptrace(struct doctor *d)
{
    static const char *const meanings[] = {
        "a user may look into own processes",
        "a user may look into own processes that it started",
        "only root may look into processes",
        "no user may trace processes",
    };
    char text[SMALL_MAX];
    read_small("/proc/sys/kernel/yama/ptrace_scope", text);
    int scope = *text ? atoi(text) : 0;
    const char *meaning = scope >= 0 && scope < 4 ? meanings[scope] : "unknown";
    if (geteuid() == 0 && scope < 3)
        meaning = "root may look into all processes";
    doctor_find(d, DOCTOR_OK, NULL, "%s (ptrace scope %s); books need none of it", meaning,
                *text ? text : "not set");
}

/* ---- limits ---- */

static void check_nofile(struct doctor *d)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    if (limit.rlim_cur < NOFILE_MIN)
        doctor_find(d, DOCTOR_WARN, "ulimit -n 1024",
                    "programs of this shell may open %llu files, and making a book takes a few",
                    (unsigned long long)limit.rlim_cur);
    else
        doctor_find(d, DOCTOR_OK, NULL, "%llu open files", (unsigned long long)limit.rlim_cur);
}

/* Limits that must not be there at all: a book is a large sparse file, mapped whole. */
static void check_size(struct doctor *d, int resource, const char *what, const char *remedy)
{
    struct rlimit limit;
    char text[UNITS_TEXT_MAX];
    if (getrlimit((__rlimit_resource_t)resource, &limit) < 0)
        return;
    if (limit.rlim_cur == RLIM_INFINITY)
        doctor_find(d, DOCTOR_OK, NULL, "no limit on the %s", what);
    else
        doctor_find(d, DOCTOR_WARN, remedy,
                    "the %s is limited to %s: programs of this shell may be unable to keep a book",
                    what, units_format_bytes(text, limit.rlim_cur, UNITS_DECIMAL));
}

static void check_limits(struct doctor *d)
{
    check_nofile(d);
    check_size(d, RLIMIT_FSIZE, "size of files", "ulimit -f unlimited");
    check_size(d, RLIMIT_AS, "size of address spaces", "ulimit -v unlimited");
}

const struct doctor_check doctor_kernel_checks[] = {
    {"kernel", check_version}, {"deaths", check_pidfd},          {"pages", check_populate},
    {"fork", check_wipe},      {"huge pages", check_huge_pages}, {"inotify", check_inotify},
    {"ptrace", check_ptrace},  {"limits", check_limits},         {0},
};
