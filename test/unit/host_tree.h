/* A /proc of one's own: a directory whose files a test writes. */
#pragma once

#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static char tree_root[64];

static int tree_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static void tree_make(void)
{
    snprintf(tree_root, sizeof(tree_root), "/tmp/memoir-host-XXXXXX");
    assert_non_null(mkdtemp(tree_root));
}

static void tree_remove(void)
{
    assert_int_equal(nftw(tree_root, tree_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* Writes in place: who holds the file open sees the new content. Makes directories as needed. */
static void tree_write(const char *name, const void *data, size_t len)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", tree_root, name);
    for (char *at = path + strlen(tree_root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        (void)mkdir(path, 0700);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), (ssize_t)len);
    close(fd);
}

__attribute__((format(printf, 2, 3))) static void tree_printf(const char *name, const char *fmt,
                                                              ...)
{
    char text[8192];
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    assert_true(len >= 0 && (size_t)len < sizeof(text));
    tree_write(name, text, (size_t)len);
}

struct tree_process {
    int pid;
    const char *comm; /* NULL: "worker" */
    unsigned long start, rss_pages, flags, text_pages;
    unsigned uid;
    int parent;
};

static inline void tree_process(const struct tree_process *p)
{
    char name[64];
    unsigned long rss = p->rss_pages;
    snprintf(name, sizeof(name), "%d/stat", p->pid);
    tree_printf(
        name,
        "%d (%s) S %d 1 1 0 -1 %lu 11 0 22 0 1 2 0 0 20 0 3 0 %lu %lu %lu 18446744073709551615 "
        "0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n",
        p->pid, p->comm ? p->comm : "worker", p->parent, p->flags, p->start, (rss + 100) * 4096,
        rss);
    snprintf(name, sizeof(name), "%d/statm", p->pid);
    if (p->flags)
        tree_printf(name, "0 0 0 0 0 0 0\n");
    else
        tree_printf(name, "%lu %lu 10 %lu 0 20 0\n", rss + 100, rss, p->text_pages + 5);
    snprintf(name, sizeof(name), "%d/status", p->pid);
    tree_printf(
        name,
        "Name:\tworker\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t%d\nPid:\t%d\nPPid:\t1\n"
        "Uid:\t%u\t%u\t%u\t%u\nGid:\t7\t7\t7\t7\nVmHWM:\t%lu kB\nRssAnon:\t100 kB\nRssFile:\t200 kB\n"
        "RssShmem:\t300 kB\nVmLib:\t400 kB\nVmSwap:\t500 kB\nThreads:\t3\n",
        p->pid, p->pid, p->uid, p->uid, p->uid, p->uid, rss * 8);
}

static inline void tree_process_end(int pid)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%d", tree_root, pid);
    assert_int_equal(nftw(path, tree_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}
