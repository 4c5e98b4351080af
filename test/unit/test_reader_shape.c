/* What a reader refuses to open, one check per test: each starts from a valid book and breaks one thing. */
#include "book/reader_shape.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "book/reader.h"
#include "book_builder.h"
#include "check.h"

/* Open the sample after `change`; what the reader said. */
static int open_changed(void (*change)(struct book_builder *b, struct book_header *h))
{
    MEMOIR_CLEANUP(closep)
    int fd = builder_memfd();
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = NULL;
    struct book_builder b;
    builder_sample(&b, fd);
    if (change) {
        change(&b, &b.h);
        builder_header(&b);
    }
    int r = book_reader_open_fd(fd, &reader);
    assert_true((r == 0) == (reader != NULL));
    return r;
}

#define CASE(name, expected, ...)                                            \
    static void name##_change(struct book_builder *b, struct book_header *h) \
    {                                                                        \
        (void)b;                                                             \
        (void)h;                                                             \
        __VA_ARGS__;                                                         \
    }                                                                        \
    static void name(void **unused)                                          \
    {                                                                        \
        assert_int_equal(open_changed(name##_change), expected);             \
    }
#define REFUSED(name, ...)  CASE(name##_is_refused, -EBADMSG, __VA_ARGS__)
#define ACCEPTED(name, ...) CASE(name##_is_accepted, 0, __VA_ARGS__)

#define SECTION(kind)       b->section[BOOK_SECTION_##kind]

ACCEPTED(untouched_sample, )
CASE(missing_magic_asks_to_try_again, -EAGAIN, memset(h->magic, 0, 8))
REFUSED(wrong_magic, h->magic[7] ^= 1)
REFUSED(wrong_endian_mark, h->endian_mark = 0x04030201)
REFUSED(version_0, h->version = 0)
ACCEPTED(later_version_without_incompat_bits, h->version = 9)
CASE(unknown_incompat_bit_is_no_nonsense, -EPROTONOSUPPORT, h->incompat = 1u << 31;
     h->time_shift = 99; h->header_bytes = 1)
ACCEPTED(unknown_compat_bits, h->compat = 0xfffffff8)
REFUSED(short_header_size, h->header_bytes = 4095)
ACCEPTED(longer_header, h->header_bytes = 8192)
REFUSED(header_that_reaches_into_a_section, h->header_bytes = 65535; SECTION(CONTROL)->offset = 0)
REFUSED(file_size_beyond_the_file, h->file_size += 4096)
REFUSED(file_size_below_the_header, h->file_size = 4095;
        memset(h->sections, 0, sizeof(h->sections)))
REFUSED(absurd_time_shift, h->time_shift = 33)
ACCEPTED(largest_time_shift, h->time_shift = 32)
ACCEPTED(unknown_source_and_state, h->source = 99; h->state = 99)

REFUSED(entry_smaller_than_ours, SECTION(REGISTRY)->entry_size = 248)
REFUSED(entry_size_0, SECTION(SITES)->entry_size = 0)
REFUSED(odd_entry_size, SECTION(REGISTRY)->entry_size = 260)
REFUSED(huge_entry_size, SECTION(REGISTRY)->entry_size = 65544)
ACCEPTED(largest_entry_size, SECTION(TAGS)->entry_size = 65536)
REFUSED(misaligned_section, SECTION(TAGS)->offset += 32; SECTION(TAGS)->size -= 8192)
ACCEPTED(section_in_the_middle_of_a_page, SECTION(TAGS)->offset += 64; SECTION(TAGS)->size -= 8192)
REFUSED(section_over_the_header, SECTION(CONTROL)->offset = 0)
REFUSED(section_behind_the_end, SECTION(TAGS)->offset = h->file_size + 65536)
REFUSED(section_past_the_end, SECTION(MOVES)->size += 4096)
REFUSED(section_size_that_wraps, SECTION(MOVES)->size = UINT64_MAX - 65535)
REFUSED(section_offset_that_wraps, SECTION(MOVES)->offset = UINT64_MAX - 65535)
REFUSED(open_beyond_the_size, SECTION(REGISTRY)->open = SECTION(REGISTRY)->size + 1)
REFUSED(overlapping_sections, SECTION(TAGS)->offset = SECTION(SITES)->offset)
ACCEPTED(sections_in_another_order, SECTION(TAGS)->offset = SECTION(FRAMES)->offset;
         SECTION(FRAMES)->offset += 2 << 20)
REFUSED(section_inside_another, SECTION(TAGS)->offset = SECTION(COUNTERS)->offset + 65536)
ACCEPTED(nonsense_of_an_unknown_kind,
         h->sections[15] = (struct book_section){
             .kind = 77, .entry_size = 1, .offset = 3, .size = UINT64_MAX, .open = UINT64_MAX})
ACCEPTED(nonsense_of_the_writers_own_index,
         h->sections[15] = (struct book_section){.kind = BOOK_SECTION_BLOCK_INDEX, .offset = 3})
ACCEPTED(nonsense_of_a_second_section_of_a_kind,
         h->sections[15] = (struct book_section){.kind = BOOK_SECTION_TAGS, .offset = 3})
ACCEPTED(book_without_sections, memset(h->sections, 0, sizeof(h->sections)))
ACCEPTED(used_beyond_the_size, SECTION(REGISTRY)->used = UINT64_MAX)

static void first_section_of_a_kind_counts(void **unused)
{
    MEMOIR_CLEANUP(closep)
    int fd = builder_memfd();
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = NULL;
    struct book_builder b;
    builder_sample(&b, fd);
    b.h.sections[15] = *b.section[BOOK_SECTION_REGISTRY];
    b.h.sections[15].used = 2; /* the device alone */
    builder_header(&b);
    assert_int_equal(book_reader_open_fd(fd, &reader), 0);
    size_t n;
    book_reader_accounts(reader, &n);
    assert_int_equal(n, 2);
}

static int open_bytes(const void *bytes, size_t len, uint64_t size)
{
    MEMOIR_CLEANUP(closep)
    int fd = builder_memfd();
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = NULL;
    assert_int_equal(pwrite(fd, bytes, len, 0), len);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    return book_reader_open_fd(fd, &reader);
}

static void short_files(void **unused)
{
    assert_int_equal(open_bytes("", 0, 0), -EAGAIN);
    assert_int_equal(open_bytes("", 0, 7), -EAGAIN);
    assert_int_equal(open_bytes("", 0, 4096), -EAGAIN);
    assert_int_equal(open_bytes("MEMOIRBK", 8, 8), -EBADMSG);
    assert_int_equal(open_bytes("MEMOIRBK", 8, 4095), -EBADMSG);
    assert_int_equal(open_bytes("MEMOIRBK", 8, 4096), -EBADMSG);
    assert_int_equal(open_bytes("#!/bin/sh", 9, 9), -EBADMSG);
}

static void header_alone_with_sections_of_a_longer_file_is_refused(void **unused)
{
    MEMOIR_CLEANUP(closep)
    int fd = builder_memfd();
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = NULL;
    struct book_builder b;
    builder_sample(&b, fd);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(book_reader_open_fd(fd, &reader), -EBADMSG);
}

static void huge_file_is_refused(void **unused)
{
    MEMOIR_CLEANUP(closep)
    int fd = builder_memfd();
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = NULL;
    struct book_builder b;
    builder_sample(&b, fd);
    assert_int_equal(ftruncate(fd, (off_t)BOOK_READER_FILE_MAX + 1), 0);
    assert_int_equal(book_reader_open_fd(fd, &reader), -EBADMSG);
    assert_int_equal(ftruncate(fd, (off_t)BOOK_READER_FILE_MAX), 0);
    assert_int_equal(book_reader_open_fd(fd, &reader), 0);
}

/* ---- what is no file ---- */

static char dir[64];
static int dir_fd = -1;

static int enter_dir(void **unused)
{
    strcpy(dir, "/dev/shm/memoir-test-shape-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY);
    return dir_fd < 0 ? -1 : 0;
}

static int leave_dir(void **unused)
{
    char command[128];
    close(dir_fd);
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return system(command) == 0 ? 0 : -1;
}

static int open_named(const char *name)
{
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = NULL;
    return book_reader_open(dir_fd, name, &reader);
}

static void only_regular_files_are_opened(void **unused)
{
    struct book_builder b;
    MEMOIR_CLEANUP(closep)
    int fd = openat(dir_fd, "good.book", O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    builder_sample(&b, fd);
    assert_int_equal(open_named("good.book"), 0);
    assert_int_equal(symlinkat("good.book", dir_fd, "link.book"), 0);
    assert_int_equal(open_named("link.book"), -ELOOP);
    assert_int_equal(mkfifoat(dir_fd, "fifo.book", 0600), 0);
    assert_int_equal(open_named("fifo.book"), -EBADMSG);
    assert_int_equal(mkdirat(dir_fd, "directory.book", 0700), 0);
    assert_int_equal(open_named("directory.book"), -EBADMSG);
    assert_int_equal(open_named("none.book"), -ENOENT);
}

static void paths_are_no_names(void **unused)
{
    assert_int_equal(open_named(""), -EINVAL);
    assert_int_equal(open_named("directory.book/../good.book"), -EINVAL);
    assert_int_equal(book_writer_alive(dir_fd, "../x.book"), -EINVAL);
}

static void opening_leaves_no_descriptor(void **unused)
{
    MEMOIR_CLEANUP(closep)
    int fd = builder_memfd();
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = NULL;
    struct book_builder b;
    builder_sample(&b, fd);
    int before = dup(fd);
    close(before);
    assert_int_equal(book_reader_open_fd(fd, &reader), 0);
    int after = dup(fd);
    close(after);
    assert_int_equal(before, after);
}

#define T(name) cmocka_unit_test(name)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(untouched_sample_is_accepted),
        T(missing_magic_asks_to_try_again),
        T(wrong_magic_is_refused),
        T(wrong_endian_mark_is_refused),
        T(version_0_is_refused),
        T(later_version_without_incompat_bits_is_accepted),
        T(unknown_incompat_bit_is_no_nonsense),
        T(unknown_compat_bits_is_accepted),
        T(short_header_size_is_refused),
        T(longer_header_is_accepted),
        T(header_that_reaches_into_a_section_is_refused),
        T(file_size_beyond_the_file_is_refused),
        T(file_size_below_the_header_is_refused),
        T(absurd_time_shift_is_refused),
        T(largest_time_shift_is_accepted),
        T(unknown_source_and_state_is_accepted),
        T(entry_smaller_than_ours_is_refused),
        T(entry_size_0_is_refused),
        T(odd_entry_size_is_refused),
        T(huge_entry_size_is_refused),
        T(largest_entry_size_is_accepted),
        T(misaligned_section_is_refused),
        T(section_in_the_middle_of_a_page_is_accepted),
        T(section_over_the_header_is_refused),
        T(section_behind_the_end_is_refused),
        T(section_past_the_end_is_refused),
        T(section_size_that_wraps_is_refused),
        T(section_offset_that_wraps_is_refused),
        T(open_beyond_the_size_is_refused),
        T(overlapping_sections_is_refused),
        T(section_inside_another_is_refused),
        T(sections_in_another_order_is_accepted),
        T(nonsense_of_an_unknown_kind_is_accepted),
        T(nonsense_of_the_writers_own_index_is_accepted),
        T(nonsense_of_a_second_section_of_a_kind_is_accepted),
        T(book_without_sections_is_accepted),
        T(used_beyond_the_size_is_accepted),
        T(first_section_of_a_kind_counts),
        T(short_files),
        T(header_alone_with_sections_of_a_longer_file_is_refused),
        T(huge_file_is_refused),
        T(only_regular_files_are_opened),
        T(paths_are_no_names),
        T(opening_leaves_no_descriptor),
    };
    return cmocka_run_group_tests(tests, enter_dir, leave_dir);
}
