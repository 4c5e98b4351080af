/* A book whose owner is hostile: cut short while it is read, scribbled over, or noise from the start. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "book/reader.h"
#include "book_builder.h"
#include "check.h"

static int count_block(const struct book_block_view *block, void *context)
{
    (*(size_t *)context)++;
    return 0;
}

/* Ask for everything; whatever the answers, they are answers. */
static void read_all(struct book_reader *reader, int fd)
{
    struct book_status status;
    struct book_sites sites = {0};
    size_t n = 0, blocks = 0;
    bool exact;
    book_reader_status(reader, &status);
    book_reader_refresh(reader);
    book_reader_accounts(reader, &n);
    for (size_t i = 0; i < n; i++) {
        struct book_totals totals;
        if (book_reader_totals(reader, i, &totals) == 0)
            assert_true(totals.peak_bytes >= totals.live_bytes);
    }
    if (book_reader_sites(reader, fd, &sites) == 0)
        for (size_t i = 0; i < sites.n_sites; i++)
            assert_true(sites.sites[i].first_frame + sites.sites[i].frames <= sites.n_frames);
    book_sites_release(&sites);
    book_reader_blocks(reader, fd, count_block, &blocks, &exact);
}

struct vandal {
    struct book_builder b;
    atomic_bool stop;
};

static void *cut_in_a_loop(void *context)
{
    struct vandal *v = context;
    static const off_t sizes[] = {0, 4096, 65536, 131072 + 100, 1 << 20, 20 << 20};
    for (unsigned i = 0; !atomic_load(&v->stop); i++) {
        if (ftruncate(v->b.fd, sizes[i % 6]) < 0 || ftruncate(v->b.fd, (off_t)v->b.h.file_size) < 0)
            return context;
        builder_sample(&v->b, v->b.fd);
    }
    return NULL;
}

static void *scribble_in_a_loop(void *context)
{
    struct vandal *v = context;
    uint64_t state = 1;
    while (!atomic_load(&v->stop)) {
        uint64_t word = state = hash_mix(state + HASH_K0);
        const struct book_section *s = &v->b.h.sections[state % 10];
        uint64_t at = s->offset + (state >> 8) % (s->open ? s->open : 1);
        if (state % 16 == 0) /* open and used of a section */
            at = offsetof(struct book_header, sections) +
                 (state >> 32) % 16 * sizeof(struct book_section) +
                 offsetof(struct book_section, open) + (state >> 40) % 2 * 8;
        if (pwrite(v->b.fd, &word, 8, (off_t)(at & ~UINT64_C(7))) < 0)
            return context;
    }
    return NULL;
}

static void read_beside(void *(*vandal)(void *), bool alive)
{
    struct vandal v = {0};
    int fd = builder_memfd();
    builder_sample(&v.b, fd);
    int other = builder_reopen(fd);
    if (alive)
        assert_int_equal(flock(other, LOCK_EX), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, vandal, &v), 0);
    struct book_reader *reader = NULL;
    uint64_t end = clock_monotonic_ns() + NS_PER_S;
    for (unsigned round = 0; clock_monotonic_ns() < end; round++) {
        if (!reader && book_reader_open_fd(fd, &reader) < 0)
            continue;
        read_all(reader, fd);
        if (round % 64 == 63) {
            book_reader_free(reader);
            reader = NULL;
        }
    }
    atomic_store(&v.stop, true);
    void *result;
    pthread_join(thread, &result);
    assert_null(result);
    book_reader_free(reader);
    close(other);
    close(fd);
}

static void book_cut_while_it_is_read_gives_errors_only(void **unused)
{
    read_beside(cut_in_a_loop, false);
}

static void book_scribbled_over_while_it_is_read_gives_errors_only(void **unused)
{
    read_beside(scribble_in_a_loop, false);
}

static void book_of_a_living_vandal_gives_errors_only(void **unused)
{
    read_beside(scribble_in_a_loop, true);
}

/* Deterministic noise over the whole file, or over one word of the header at a time. */
static void noise_is_survived(void **unused)
{
    uint64_t state = 42;
    MEMOIR_CLEANUP(closep)
    int fd = builder_memfd();
    struct book_builder b;
    builder_sample(&b, fd);
    struct book_header good = b.h;
    for (int round = 0; round < 3000; round++) {
        struct book_header h = good;
        for (int i = 0; i <= round % 4; i++) {
            state = hash_mix(state + HASH_K0);
            size_t at = 8 + state % (sizeof(h) - 16); /* the magic stays */
            uint64_t word = (state >> 32) % 3 ? hash_mix(state) : UINT64_C(1) << (state >> 40) % 64;
            memcpy((char *)&h + at / 4 * 4, &word, (state >> 50) % 2 ? 4 : 8);
        }
        assert_int_equal(pwrite(fd, &h, sizeof(h), 0), sizeof(h));
        struct book_reader *reader = NULL;
        if (book_reader_open_fd(fd, &reader) == 0)
            read_all(reader, fd);
        book_reader_free(reader);
    }
}

static void random_files_are_refused(void **unused)
{
    uint64_t state = 7;
    MEMOIR_CLEANUP(closep)
    int fd = builder_memfd();
    for (int round = 0; round < 200; round++) {
        uint64_t noise[1024];
        for (size_t i = 0; i < 1024; i++)
            noise[i] = state = hash_mix(state + HASH_K0);
        if (round % 2)
            memcpy(noise, BOOK_MAGIC, 8);
        assert_int_equal(pwrite(fd, noise, sizeof(noise), 0), sizeof(noise));
        struct book_reader *reader = NULL;
        assert_int_equal(book_reader_open_fd(fd, &reader), -EBADMSG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(book_cut_while_it_is_read_gives_errors_only),
        cmocka_unit_test(book_scribbled_over_while_it_is_read_gives_errors_only),
        cmocka_unit_test(book_of_a_living_vandal_gives_errors_only),
        cmocka_unit_test(noise_is_survived),
        cmocka_unit_test(random_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
