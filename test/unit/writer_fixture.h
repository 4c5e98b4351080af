/* What the tests of the writer share: a private place for books in memory, a writer, and a reader of
 * what it wrote. */
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "book/reader.h"
#include "book/report.h"
#include "book/writer.h"
#include "check.h"

static char fixture_root[64];

static int fixture_enter(void **unused)
{
    (void)unused;
    strcpy(fixture_root, "/dev/shm/memoir-test-writer-XXXXXX");
    return mkdtemp(fixture_root) && setenv("MEMOIR_DIR", fixture_root, 1) == 0 ? 0 : -1;
}

static int fixture_leave(void **unused)
{
    (void)unused;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", fixture_root);
    return system(command) == 0 ? 0 : -1;
}

/* Writer and thread are large and start zeroed: not for the stack. */
struct fixture {
    struct book_writer w;
    struct book_thread t;
};

static struct fixture *fixture_new(const struct book_writer_options *options)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    assert_int_equal(book_writer_init(&f->w, options), 0);
    book_thread_init(&f->w, &f->t);
    return f;
}

static void fixture_free(struct fixture *f)
{
    book_writer_close(&f->w, false);
    book_writer_forget(&f->w);
    free(f);
}

static inline struct book_block fixture_block(uint32_t account, uint64_t id, uint64_t bytes)
{
    return (struct book_block){.id = id, .size_tag = bytes, .place = account};
}

/* The file of a published book, read-only. */
static inline int fixture_open(const struct fixture *f)
{
    char path[400];
    snprintf(path, sizeof(path), "%s/%s", f->w.directory, f->w.name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    assert_true(fd >= 0);
    return fd;
}

static inline size_t fixture_count_files(void)
{
    char command[160];
    snprintf(command, sizeof(command), "find '%s' -type f | wc -l", fixture_root);
    FILE *pipe = popen(command, "r");
    size_t n = 0;
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%zu", &n), 1);
    pclose(pipe);
    return n;
}
