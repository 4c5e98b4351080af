/* Books that claim a process which may not be their owner's, and processes with a chosen PID.
 *
 * Usage: forge_claim book DIR PID START PID_NS [MODULE BUILD_ID OFFSET]
 *            a book about that process (0: ourselves) as the tracker writes it, with 4,096 bytes of heap at one call
 *            site: at OFFSET of MODULE (a path, of this program or of what is mapped nowhere). START and PID_NS may be 0: not known. Its lock is held.
 *        forge_claim at PID UID
 *            a process with that PID and user
 *
 * Says "ready PID" and waits for a line on standard input. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "../unit/book_builder.h"
#include "book/trailer.h"

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void wait_for_end(void)
{
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    (void)!getchar();
}

static void site_put(struct book_builder *b, uint32_t account, char **words)
{
    char exe[512] = "";
    (void)!readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    bool own = strcmp(exe, words[0]) == 0;
    uint64_t start = own ? getauxval(AT_PHDR) & ~UINT64_C(4095) : 4096;
    struct book_module m = {.map_start = start, .map_end = start + 4096};
    snprintf(m.path, sizeof(m.path), "%s", words[0]);
    for (const char *at = words[1]; at[0] && at[1] && m.build_id_len < sizeof(m.build_id); at += 2)
        m.build_id[m.build_id_len++] = (uint8_t)strtoul((char[]){at[0], at[1], 0}, NULL, 16);
    uint32_t module = (uint32_t)builder_add(b, BOOK_SECTION_MODULES, &m, sizeof(m));
    uint64_t frame = BOOK_FRAME(module, strtoull(words[2], NULL, 16));
    uint32_t site = builder_site(b, account, 0xfeed, &frame, 1);
    uint32_t page = builder_counter_page(b, BOOK_COUNTERS_SITES, 0);
    builder_site_counters(b, page, site,
                          &(struct book_site_counters){.alloc_bytes = 4096, .alloc_blocks = 1});
}

static uint64_t own_start(void)
{
    char text[1024] = "";
    FILE *stat = fopen("/proc/self/stat", "r");
    if (!stat || fread(text, 1, sizeof(text) - 1, stat) == 0)
        fail("/proc/self/stat");
    fclose(stat);
    const char *at = strrchr(text, ')') + 1;
    for (int field = 3; field < 22; field++)
        at = strchr(at + 1, ' ');
    return strtoull(at, NULL, 10);
}

static void make_book(char **words, int n)
{
    char path[512], making[512];
    struct book_builder b;
    pid_t pid = atoi(words[1]);
    snprintf(making, sizeof(making), "%s/making-%d", words[0], (int)getpid());
    int fd = open(making, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        fail(making);
    builder_init(&b, fd);
    b.h.source = BOOK_SOURCE_TRACK;
    b.h.pid = pid ? pid : getpid();
    b.h.start_ticks = pid ? strtoull(words[2], NULL, 10) : own_start();
    b.h.pid_ns = strtoull(words[3], NULL, 10);
    b.h.uid = geteuid();
    b.h.trailer_format = BOOK_TRAILER_FORMAT;
    b.h.trailer_generation = 1;
    b.h.trailer_key = 4711;
    strcpy(b.h.comm, "forged");
    strcpy(b.h.exe, "/usr/sbin/forged");
    uint32_t heap = builder_account(&b, MEMOIR_SPACE_HEAP, BOOK_DEVICE_HOST, "heap");
    struct book_counters counters = {.alloc_bytes = 4096, .alloc_blocks = 1};
    if (pwrite(fd, &counters, sizeof(counters), (off_t)builder_common_offset(&b, heap)) < 0)
        fail("pwrite");
    if (n > 6)
        site_put(&b, heap, words + 4);
    builder_publish(&b);
    snprintf(path, sizeof(path), "%s/%d-%d-2-%x.book", words[0], (int)b.h.pid, 1,
             (unsigned)getpid());
    if (rename(making, path) < 0)
        fail(path);
}

/* All capabilities that there are, or none. */
static void capabilities_set(int all)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {0};
    if (all && syscall(SYS_capget, &header, data) < 0)
        fail("capget");
    for (int i = 0; i < 2; i++)
        data[i].effective = data[i].permitted;
    if (syscall(SYS_capset, &header, data) < 0)
        fail("capset");
}

/* The user is changed first, so that the process has one user from its start. */
static int at_pid(pid_t set_tid, uid_t uid)
{
    if (prctl(PR_SET_KEEPCAPS, 1) < 0 || setresgid(uid, uid, uid) < 0 ||
        setresuid(uid, uid, uid) < 0)
        fail("setresuid");
    capabilities_set(1);
    struct clone_args args = {
        .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&set_tid, .set_tid_size = 1};
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid < 0) {
        printf("taken %d\n", errno);
        return 0;
    }
    if (pid > 0)
        return waitpid(pid, NULL, 0) == pid ? 0 : 1;
    capabilities_set(0);
    wait_for_end();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc >= 6 && strcmp(argv[1], "book") == 0)
        make_book(argv + 2, argc - 2);
    else if (argc == 4 && strcmp(argv[1], "at") == 0)
        return at_pid(atoi(argv[2]), (uid_t)atoi(argv[3]));
    else
        return 2;
    wait_for_end();
    return 0;
}
