/*
 * lines.h: lines of a small text file, such as those of /proc and of cgroups.
 *
 * For readers and for code inside other programs alike: neither malloc nor stdio, little stack, no descriptor that stays
 * open, no cancellation point, usable in a signal handler. errno is not kept. Files are untrusted: what is read is bounded.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LINES_CHUNK = 256, LINES_TEXT_MAX = 64 << 10, LINES_LINE_MAX = 160, LINES_PATH_MAX = 512 };

/* Bytes of a file (fd >= 0), or of memory (fd < 0: `n` bytes at `data`). */
struct lines {
    int fd;
    size_t at, n, read; /* in the chunk; read: of the file so far */
    const char *data;
    char chunk[LINES_CHUNK];
};

/* -errno; -ENAMETOOLONG. */
int lines_open(struct lines *lines, const char *folder, const char *name);
int lines_open_at(struct lines *lines, int dir_fd, const char *path);
void lines_close(struct lines *lines);

/* The next line without its end; what does not fit is cut, and `ret_cut` says so. A zero byte becomes '?'.
 * False at the end. */
bool lines_next(struct lines *lines, char *line, size_t size, bool *ret_cut);

/* Decimal digits at `at`, UINT64_MAX where they are more than fit; false: there are none. `ret_end` may be NULL. */
bool lines_number(const char *at, uint64_t *ret, const char **ret_end);

/* What follows `word` at the start of the line, or NULL. */
const char *lines_after(const char *line, const char *word);

/* One number of a file: of its line "key NUMBER", or of a file that holds only a number. */
struct lines_value {
    const char *key; /* NULL: the file is the number */
    uint64_t number; /* "max" is UINT64_MAX */
    int error; /* 0; -ENOENT: no such file or line; -EBADMSG: no number; else of opening the file */
};

/* Read `n` numbers of one file, in one pass that ends when all were found. `path` is relative to `dir_fd`. */
void lines_read_numbers(int dir_fd, const char *path, struct lines_value *values, size_t n);
