/* Golden books: what a released version wrote is read as it always was. GENERATE=1 writes the text of a
 * book that has none yet; see test/golden/README.md. */
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "book/reader.h"
#include "book_extents.h"
#include "check.h"

/* One fact a line; clients/python/tests/test_golden.py writes the same. */

static void say_identity(FILE *out, const struct book_identity *id)
{
    fprintf(out, "boot_id ");
    for (int i = 0; i < 16; i++)
        fprintf(out, "%02x", id->boot_id[i]);
    fprintf(out, "\npid_ns %" PRIu64 "\ntime_ns %" PRIu64 "\n", id->pid_ns, id->time_ns);
    fprintf(out, "start_ticks %" PRIu64 "\nexec_id %" PRIu64 "\n", id->start_ticks, id->exec_id);
    fprintf(out, "pid %d\nparent_pid %d\nwriter_pid %d\nuid %u\nexec_count %u\n", id->pid,
            id->parent_pid, id->writer_pid, id->uid, id->exec_count);
    fprintf(out, "source %u\ncompat %u\ntime_shift %u\n", id->source, id->compat, id->time_shift);
    fprintf(out, "created_realtime_ns %" PRIu64 "\ncreated_monotonic_ns %" PRIu64 "\n",
            id->created_realtime_ns, id->created_monotonic_ns);
    fprintf(out, "comm %s\nhost %s\nexe %s\ncommand %s\n", id->comm, id->host, id->exe,
            id->command);
}

static void say_status(FILE *out, struct book_reader *reader)
{
    struct book_status s;
    assert_int_equal(book_reader_status(reader, &s), 0);
    fprintf(out, "state %u\nstop_reason %u\npeak_error %" PRIu64 "\n", s.state, s.stop_reason,
            s.peak_error);
    for (int i = 0; i < BOOK_LOSSES_MAX; i++)
        if (s.losses[i])
            fprintf(out, "loss %d %" PRIu64 "\n", i, s.losses[i]);
}

static void say_accounts(FILE *out, struct book_reader *reader)
{
    size_t n;
    const struct book_device_view *d = book_reader_devices(reader, &n);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "device %u kind %u ordinal %d uid %s bus %s name %s\n", d[i].record, d[i].kind,
                d[i].ordinal, d[i].uid, d[i].bus, d[i].name);
    const struct book_account_view *a = book_reader_accounts(reader, &n);
    for (size_t i = 0; i < n; i++) {
        struct book_totals t;
        assert_int_equal(book_reader_totals(reader, i, &t), 0);
        fprintf(out,
                "account %u space %u device %u flags %u capacity %" PRIu64 " inherited %" PRIu64
                " %" PRIu64 " name %s\n",
                a[i].record, a[i].space, a[i].device, a[i].flags, a[i].capacity,
                a[i].inherited_bytes, a[i].inherited_blocks, a[i].name);
        fprintf(out,
                "totals %u live %" PRIu64 " %" PRIu64 " alloc %" PRIu64 " %" PRIu64
                " freed %" PRIu64 " %" PRIu64 " served %" PRIu64 " %" PRIu64 " reallocs %" PRIu64
                " in %" PRIu64 " %" PRIu64 " out %" PRIu64 " %" PRIu64 " peak %" PRIu64 "\n",
                a[i].record, t.live_bytes, t.live_blocks, t.alloc_bytes, t.alloc_blocks,
                t.freed_bytes, t.freed_blocks, t.alloc_served, t.freed_served, t.reallocs,
                t.moved_in_bytes, t.moved_in, t.moved_out_bytes, t.moved_out, t.peak_bytes);
    }
}

static void say_sites(FILE *out, struct book_reader *reader, int fd)
{
    MEMOIR_CLEANUP(book_sites_release)
    struct book_sites s = {0};
    assert_int_equal(book_reader_sites(reader, fd, &s), 0);
    for (size_t i = 1; i < s.n_modules; i++) {
        fprintf(out, "module %zu generation %u build_id ", i, s.modules[i].generation);
        for (int k = 0; k < s.modules[i].build_id_len; k++)
            fprintf(out, "%02x", s.modules[i].build_id[k]);
        fprintf(out, " path %s\n", s.modules[i].path);
    }
    for (size_t i = 1; i < s.n_scripts; i++)
        fprintf(out, "script %zu first_line %u cut %d %d function %s file %s\n", i,
                s.scripts[i].first_line, !!(s.scripts[i].flags & BOOK_SCRIPT_FUNCTION_CUT),
                !!(s.scripts[i].flags & BOOK_SCRIPT_FILE_CUT), s.scripts[i].function,
                s.scripts[i].file);
    for (size_t i = 1; i < s.n_sites; i++) {
        const struct book_site *site = &s.sites[i];
        const struct book_site_counters *c = &s.counters[i];
        fprintf(out,
                "site %zu key %016" PRIx64 " flags %u account %u alloc %" PRIu64 " %" PRIu64
                " freed %" PRIu64 " %" PRIu64 " frames",
                i, site->key, site->flags, site->account, c->alloc_bytes, c->alloc_blocks,
                c->freed_bytes, c->freed_blocks);
        for (uint32_t k = 0; k < site->frames; k++) {
            uint64_t frame = s.frames[site->first_frame + k];
            fprintf(out, " %u:%" PRIx64, BOOK_FRAME_MODULE(frame), BOOK_FRAME_OFFSET(frame));
        }
        fprintf(out, "\n");
    }
    for (size_t i = 1; i < s.n_tags; i++)
        fprintf(out, "tag %zu %s\n", i, s.tags[i].name);
}

struct blocks {
    struct book_block_view list[65536];
    size_t n;
};

static int keep_block(const struct book_block_view *block, void *context)
{
    struct blocks *b = context;
    assert_true(b->n < 65536);
    b->list[b->n++] = *block;
    return 0;
}

static int compare_blocks(const void *x, const void *y)
{
    const struct book_block_view *a = x, *b = y;
    if (a->account != b->account)
        return a->account < b->account ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static void say_blocks(FILE *out, struct book_reader *reader, int fd)
{
    static struct blocks b;
    bool exact = false;
    b.n = 0;
    assert_int_equal(book_reader_blocks(reader, fd, keep_block, &b, &exact), 0);
    qsort(b.list, b.n, sizeof(b.list[0]), compare_blocks);
    for (size_t i = 0; i < b.n; i++)
        fprintf(out,
                "block %u %016" PRIx64 " bytes %" PRIu64 " site %u tag %u time %" PRIu64
                " moves %u\n",
                b.list[i].account, b.list[i].id, b.list[i].bytes, b.list[i].site, b.list[i].tag,
                b.list[i].time_ns, b.list[i].moves);
    fprintf(out, "exact %d\n", exact);
}

static char *say_all(int fd)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = NULL;
    assert_int_equal(book_reader_open_fd(fd, &reader), 0);
    say_identity(out, book_reader_identity(reader));
    say_status(out, reader);
    say_accounts(out, reader);
    say_sites(out, reader, fd);
    say_blocks(out, reader, fd);
    fclose(out);
    return text;
}

/* "test/golden/book-v1.extents" to "test/golden/book-v1.txt". */
static void text_path(const char *book, char path[static 4096])
{
    snprintf(path, 4096, "%.*s.txt", (int)(strlen(book) - strlen(".extents")), book);
}

static void check_book(const char *book)
{
    print_message("%s\n", book);
    struct buffer compact = BUFFER_INIT(64u << 20), expected = BUFFER_INIT(64u << 20);
    assert_int_equal(fs_read_file(book, &compact), 0);
    MEMOIR_CLEANUP(closep)
    int fd = memfd_create("golden", MFD_CLOEXEC);
    assert_true(fd >= 0);
    extents_apply(fd, (const uint8_t *)compact.data, compact.len, false, BOOK_READER_FILE_MAX);
    MEMOIR_CLEANUP(freep)
    char *text = say_all(fd);
    char path[4096];
    text_path(book, path);
    if (getenv("GENERATE") && access(path, F_OK) < 0)
        assert_int_equal(fs_write_file_atomic(path, text, strlen(text), 0644), 0);
    assert_int_equal(fs_read_file(path, &expected), 0);
    assert_string_equal(text, buffer_string(&expected));
    buffer_release(&compact);
    buffer_release(&expected);
}

/* All books in test/golden of a tree; how many. */
static size_t check_books(const char *variable, const char *otherwise)
{
    char pattern[4096];
    const char *root = getenv(variable);
    snprintf(pattern, sizeof(pattern), "%s/test/golden/book-v*.extents", root ? root : otherwise);
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0)
        return 0;
    size_t n = found.gl_pathc;
    for (size_t i = 0; i < n; i++)
        check_book(found.gl_pathv[i]);
    globfree(&found);
    return n;
}

static void golden_books_are_read_as_ever(void **unused)
{
    assert_true(check_books("MEMOIR_SOURCE_ROOT", ".") > 0);
}

/* What a later version may make of them is made by test/golden/grow.py. */
static void books_of_later_versions_are_read_as_far_as_they_are_known(void **unused)
{
    if (getenv("GENERATE"))
        skip(); /* they come after the golden ones */
    assert_true(check_books("MEMOIR_BUILD_ROOT", "build") > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_books_are_read_as_ever),
        cmocka_unit_test(books_of_later_versions_are_read_as_far_as_they_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
