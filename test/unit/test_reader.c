/* Identity, status, accounts, totals, liveness and the control page, from books made by hand. */
#include "book/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "base/cleanup.h"
#include "book/control.h"
#include "book/reader_internal.h"
#include "book_builder.h"
#include "check.h"

/* A book and its reader; every test has its own. */
struct fixture {
    int fd;
    struct book_builder b;
    struct book_reader *reader;
};

static void fixture_release(struct fixture *f)
{
    book_reader_free(f->reader);
    close(f->fd);
}

static struct fixture sample(void)
{
    struct fixture f = {.fd = builder_memfd()};
    builder_sample(&f.b, f.fd);
    memset(f.b.section, 0, sizeof(f.b.section)); /* they pointed into the other copy */
    return f;
}

/* Fix the builder's pointers after the struct was copied, and open. */
static void begin(struct fixture *f)
{
    for (int i = 0; i < BOOK_SECTIONS_MAX; i++)
        if (f->b.h.sections[i].kind)
            f->b.section[f->b.h.sections[i].kind] = &f->b.h.sections[i];
    assert_int_equal(book_reader_open_fd(f->fd, &f->reader), 0);
}

#define SAMPLE(f)                   \
    MEMOIR_CLEANUP(fixture_release) \
    struct fixture f = sample();    \
    begin(&f)

static struct book_totals totals_of(struct fixture *f, size_t index)
{
    struct book_totals t;
    assert_int_equal(book_reader_totals(f->reader, index, &t), 0);
    return t;
}

static void identity_is_copied(void **unused)
{
    SAMPLE(f);
    const struct book_identity *id = book_reader_identity(f.reader);
    struct stat st;
    assert_int_equal(fstat(f.fd, &st), 0);
    assert_memory_equal(id->boot_id, f.b.h.boot_id, 16);
    assert_int_equal(id->pid_ns, 4026531836);
    assert_int_equal(id->start_ticks, 123456);
    assert_int_equal(id->exec_id, 0x1122334455667788);
    assert_int_equal(id->pid, 4242);
    assert_int_equal(id->parent_pid, 4200);
    assert_int_equal(id->writer_pid, 4242);
    assert_int_equal(id->uid, 1000);
    assert_int_equal(id->st_uid, st.st_uid);
    assert_int_equal(id->st_ino, st.st_ino);
    assert_int_equal(id->st_dev, st.st_dev);
    assert_int_equal(id->exec_count, 3);
    assert_int_equal(id->source, BOOK_SOURCE_CLIENT);
    assert_int_equal(id->created_realtime_ns, 1700000000000000000);
    assert_string_equal(id->comm, "train.py");
    assert_string_equal(id->exe, "/usr/bin/python3.11");
    assert_string_equal(id->command, "python3 train.py --epochs 3");
}

static void strings_are_made_printable(void **unused)
{
    MEMOIR_CLEANUP(fixture_release)
    struct fixture f = sample();
    memcpy(f.b.h.comm, "a\x1b[2J\x7f\xc3\xa4\xff\xc2\x85z.....", 16); /* no terminator */
    memset(f.b.h.exe, 'x', sizeof(f.b.h.exe));
    memcpy(f.b.h.exe + 510, "\xc3\xa4", 2); /* a character cut in two */
    builder_header(&f.b);
    begin(&f);
    const struct book_identity *id = book_reader_identity(f.reader);
    assert_string_equal(id->comm, "a?[2J?\xc3\xa4??z....");
    assert_int_equal(strlen(id->exe), 510);
}

static void status_tells_state_losses_and_bytes(void **unused)
{
    SAMPLE(f);
    f.b.h.state = BOOK_STATE_STOPPED;
    f.b.h.stop_reason = BOOK_STOP_FULL;
    f.b.h.losses[BOOK_LOSS_SITES_FULL] = 17;
    builder_header(&f.b);
    struct book_status status;
    assert_int_equal(book_reader_status(f.reader, &status), 0);
    assert_int_equal(status.state, BOOK_STATE_STOPPED);
    assert_int_equal(status.stop_reason, BOOK_STOP_FULL);
    assert_int_equal(status.peak_error, 65536);
    assert_int_equal(status.losses[BOOK_LOSS_SITES_FULL], 17);
    /* 7 sections with one page, counters with two, and of 30 block pages 3 are there. */
    assert_int_equal(f.b.section[BOOK_SECTION_BLOCKS]->open, 30 * 4096);
    assert_int_equal(status.file_bytes, 4096 * (1 + 7 + 2 + 3));
    /* Of kinds that are not known nobody knows whether they have pages. */
    f.b.h.sections[20] = (struct book_section){.kind = BOOK_SECTION_SHADOW, .open = 1 << 20};
    f.b.h.sections[21] = (struct book_section){.kind = 77, .open = 1 << 20};
    builder_header(&f.b);
    assert_int_equal(book_reader_status(f.reader, &status), 0);
    assert_int_equal(status.file_bytes, 4096 * (1 + 7 + 2 + 3));
    /* Lies are bounded by the size of the file. */
    f.b.section[BOOK_SECTION_CONTROL]->open = UINT64_MAX;
    builder_header(&f.b);
    assert_int_equal(book_reader_status(f.reader, &status), 0);
    assert_int_equal(status.file_bytes, f.b.h.file_size);
    for (int i = 0; i < BOOK_SECTIONS_MAX; i++)
        f.b.h.sections[i].open = UINT64_MAX;
    builder_header(&f.b);
    assert_int_equal(book_reader_status(f.reader, &status), 0);
    assert_int_equal(status.file_bytes, f.b.h.file_size);
}

static void devices_and_accounts_are_listed(void **unused)
{
    SAMPLE(f);
    size_t n;
    const struct book_device_view *d = book_reader_devices(f.reader, &n);
    assert_int_equal(n, 1);
    assert_int_equal(d[0].record, 1);
    assert_int_equal(d[0].kind, MEMOIR_DEVICE_GPU);
    assert_string_equal(d[0].name, "NVIDIA H200");
    assert_string_equal(d[0].uid, "uid-0");
    assert_string_equal(d[0].bus, "0000:00:00.0");
    const struct book_account_view *a = book_reader_accounts(f.reader, &n);
    assert_int_equal(n, 2);
    assert_int_equal(a[0].record, 2);
    assert_int_equal(a[0].space, MEMOIR_SPACE_DRAM);
    assert_int_equal(a[0].device, 1);
    assert_int_equal(a[0].capacity, UINT64_C(141) << 30);
    assert_string_equal(a[0].name, "dram");
    assert_int_equal(a[1].record, 3);
    assert_int_equal(a[1].space, MEMOIR_SPACE_HEAP);
    assert_int_equal(a[1].device, BOOK_DEVICE_HOST);
    assert_int_equal(book_reader_account_index(f.reader, 3), 1);
    assert_int_equal(book_reader_account_index(f.reader, 1), -ENOENT);
    assert_int_equal(book_reader_account_index(f.reader, UINT32_MAX), -ENOENT);
}

static void totals_add_up_all_shards(void **unused)
{
    SAMPLE(f);
    struct book_totals t = totals_of(&f, 0);
    assert_int_equal(t.alloc_bytes, 5300);
    assert_int_equal(t.freed_bytes, 300);
    assert_int_equal(t.live_bytes, 5000);
    assert_int_equal(t.alloc_blocks, 5);
    assert_int_equal(t.freed_blocks, 2);
    assert_int_equal(t.live_blocks, 3);
    assert_int_equal(t.alloc_served, 5632);
    assert_int_equal(t.freed_served, 384);
    assert_int_equal(t.reallocs, 5);
    assert_int_equal(t.moved_in_bytes, 64);
    assert_int_equal(t.moved_in, 2);
    assert_int_equal(t.moved_out_bytes, 32);
    assert_int_equal(t.moved_out, 1);
    assert_int_equal(t.peak_bytes, 5000); /* none was stored: at least what is live */
    struct book_totals all[2];
    assert_int_equal(book_reader_totals_all(f.reader, all, 2), 0);
    assert_memory_equal(&all[0], &t, sizeof(t));
    assert_int_equal(all[1].live_bytes, 77);
    assert_int_equal(book_reader_totals(f.reader, 2, &t), -EINVAL);
    assert_int_equal(book_reader_totals_all(f.reader, all, 1), -EINVAL);
}

static void counters_that_wrapped_give_what_is_live(void **unused)
{
    SAMPLE(f);
    struct book_counters wrapped = {.alloc_bytes = 6,
                                    .freed_bytes = UINT64_MAX - 9 - 200,
                                    .alloc_blocks = 1,
                                    .freed_blocks = UINT64_MAX - 1};
    assert_int_equal(pwrite(f.fd, &wrapped, sizeof(wrapped), (off_t)builder_common_offset(&f.b, 2)),
                     sizeof(wrapped));
    struct book_totals t = totals_of(&f, 0); /* with a page of 4200 - 200 bytes, 2 - 1 blocks */
    assert_int_equal(t.live_bytes, 4200 + 6 + 10);
    assert_int_equal(t.live_blocks, 2 + 1 + 1);
}

static void counters_that_go_backwards_give_no_negative_live(void **unused)
{
    SAMPLE(f);
    builder_counters(&f.b, 0, 2,
                     &(struct book_counters){.freed_bytes = UINT64_MAX / 2, .freed_blocks = 9});
    struct book_totals t = totals_of(&f, 0);
    assert_int_equal(t.live_bytes, 0);
    assert_int_equal(t.live_blocks, 0);
    assert_int_equal(t.freed_bytes, UINT64_MAX / 2 + 100);
}

static void pages_for_other_accounts_do_not_count(void **unused)
{
    SAMPLE(f);
    struct book_counters big = {.alloc_bytes = 1000000};
    uint32_t later = builder_counter_page(&f.b, BOOK_COUNTERS_ACCOUNTS, 32);
    builder_counters(&f.b, later, 2, &big); /* record 34 */
    uint32_t sites = builder_counter_page(&f.b, BOOK_COUNTERS_SITES, 0);
    builder_counters(&f.b, sites, 2, &big);
    uint32_t unknown = builder_counter_page(&f.b, 77, 0);
    builder_counters(&f.b, unknown, 2, &big);
    uint32_t wraps = builder_counter_page(&f.b, BOOK_COUNTERS_ACCOUNTS, UINT32_MAX - 29);
    builder_counters(&f.b, wraps, 0, &big);
    assert_int_equal(book_reader_refresh(f.reader), 0);
    assert_int_equal(totals_of(&f, 0).alloc_bytes, 5300);
}

static void page_may_begin_at_any_record(void **unused)
{
    SAMPLE(f);
    uint32_t page = builder_counter_page(&f.b, BOOK_COUNTERS_ACCOUNTS, 2);
    builder_counters(&f.b, page, 1, &(struct book_counters){.alloc_bytes = 23});
    assert_int_equal(book_reader_refresh(f.reader), 0);
    assert_int_equal(totals_of(&f, 0).alloc_bytes, 5300);
    assert_int_equal(totals_of(&f, 1).alloc_bytes, 100);
}

static int count_block(const struct book_block_view *block, void *context)
{
    ++*(size_t *)context;
    return 0;
}

/* A block that was allocated in a shard which the reader does not know yet, and freed in one that it
 * does, would be found freed and not allocated. */
static void page_that_comes_between_passes_counts_as_allocated(void **unused)
{
    SAMPLE(f);
    struct book_totals before = totals_of(&f, 0);
    uint32_t page = builder_counter_page(&f.b, BOOK_COUNTERS_ACCOUNTS, 0);
    builder_counters(&f.b, page, 2, &(struct book_counters){.alloc_bytes = 700, .alloc_blocks = 1});
    struct book_counters common;
    off_t at = (off_t)builder_common_offset(&f.b, 2);
    assert_int_equal(pread(f.fd, &common, sizeof(common), at), sizeof(common));
    common.freed_bytes += 700;
    common.freed_blocks++;
    assert_int_equal(pwrite(f.fd, &common, sizeof(common), at), sizeof(common));
    size_t n;
    const struct book_account_view *accounts = book_reader_accounts(f.reader, &n);
    struct book_totals totals[2];
    assert_int_equal(n, 2);
    assert_int_equal(book_reader_totals_all(f.reader, totals, n), 0); /* without a refresh */
    assert_int_equal(totals[0].live_bytes, before.live_bytes);
    assert_int_equal(totals[0].live_blocks, before.live_blocks);
    assert_int_equal(totals[0].alloc_bytes, before.alloc_bytes + 700);
    /* The list of accounts is still the caller's. */
    assert_ptr_equal(book_reader_accounts(f.reader, &n), accounts);
    assert_string_equal(accounts[0].name, "dram");
    /* The same for sites: here one page more whose block the first page has freed. */
    page = builder_counter_page(&f.b, BOOK_COUNTERS_SITES, 0);
    builder_site_counters(&f.b, page, 1,
                          &(struct book_site_counters){.alloc_bytes = 10, .alloc_blocks = 1});
    struct book_sites sites;
    assert_int_equal(book_reader_sites(f.reader, f.fd, &sites), 0);
    assert_int_equal(sites.counters[1].alloc_bytes, 5310);
    book_sites_release(&sites);
}

static void sections_may_share_pages(void **unused)
{
    static const uint64_t first[] = {4096, 4096 + 64, 8192 - 64};
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
        MEMOIR_CLEANUP(closep)
        int fd = builder_memfd();
        MEMOIR_CLEANUP(book_reader_freep)
        struct book_reader *reader = NULL;
        struct book_builder b;
        struct book_totals totals;
        struct book_control control;
        builder_sample_at(&b, fd, first[i]);
        assert_int_equal(book_reader_open_fd(fd, &reader), 0);
        assert_int_equal(book_reader_totals(reader, 0, &totals), 0);
        assert_int_equal(totals.live_bytes, 5000);
        assert_int_equal(book_control_write(reader, fd, BOOK_WATCHER_ROOT,
                                            &(struct book_watcher){.pid = 7, .flags = 1}),
                         0);
        assert_int_equal(book_control_read(reader, fd, &control), 0);
        assert_int_equal(control.flags, 1);
        /* Maps that grow keep where they begin. */
        for (int k = 0; k < 40; k++) {
            uint32_t page = builder_counter_page(&b, BOOK_COUNTERS_ACCOUNTS, 0);
            builder_counters(&b, page, 2,
                             &(struct book_counters){.alloc_bytes = 10, .alloc_blocks = 1});
        }
        for (int k = 0; k < 60; k++)
            builder_account(&b, MEMOIR_SPACE_L1, 1, "l1");
        assert_int_equal(book_reader_refresh(reader), 0);
        assert_int_equal(book_reader_totals(reader, 0, &totals), 0);
        assert_int_equal(totals.live_bytes, 5400);
        size_t n;
        assert_string_equal(book_reader_accounts(reader, &n)[61].name, "l1");
        struct book_sites sites;
        assert_int_equal(book_reader_sites(reader, fd, &sites), 0);
        assert_int_equal(sites.n_sites, 3);
        assert_int_equal(sites.sites[1].account, 2);
        assert_string_equal(sites.tags[1].name, "weights");
        book_sites_release(&sites);
        size_t blocks = 0;
        assert_int_equal(book_reader_blocks(reader, fd, count_block, &blocks, NULL), 0);
        assert_int_equal(blocks, 3);
    }
}

static void refresh_finds_what_was_added(void **unused)
{
    SAMPLE(f);
    size_t n;
    uint32_t npu = builder_device(&f.b, MEMOIR_DEVICE_NPU, 1, "Blackhole");
    for (uint32_t i = 0; i < 100; i++) /* beyond the pages mapped so far */
        builder_account(&f.b, MEMOIR_SPACE_L1, npu, "L1");
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t page = builder_counter_page(&f.b, BOOK_COUNTERS_ACCOUNTS, 96);
        builder_counters(&f.b, page, 8, &(struct book_counters){.alloc_bytes = 10});
    }
    book_reader_accounts(f.reader, &n);
    assert_int_equal(n, 2);
    assert_int_equal(book_reader_refresh(f.reader), 0);
    const struct book_account_view *a = book_reader_accounts(f.reader, &n);
    assert_int_equal(n, 102);
    assert_int_equal(a[101].record, 104);
    assert_int_equal(a[101].device, npu);
    assert_int_equal(totals_of(&f, 101).alloc_bytes, 2000);
    assert_int_equal(totals_of(&f, 0).alloc_bytes, 5300);
    book_reader_devices(f.reader, &n);
    assert_int_equal(n, 2);
}

static void pages_without_bytes_do_not_count(void **unused)
{
    SAMPLE(f);
    struct book_counter_page page = {.what = BOOK_COUNTERS_ACCOUNTS};
    builder_put(&f.b, BOOK_SECTION_COUNTER_INDEX, 2, &page, sizeof(page));
    f.b.section[BOOK_SECTION_COUNTER_INDEX]->used = 4096; /* 4 KiB of index has 256 */
    builder_header(&f.b);
    assert_int_equal(book_reader_refresh(f.reader), 0);
    assert_int_equal(totals_of(&f, 0).alloc_bytes, 5300);
    assert_int_equal(f.reader->pages, 2);
}

static void record_counts_once_its_type_is_stored(void **unused)
{
    SAMPLE(f);
    size_t n;
    struct book_account a = {.space = MEMOIR_SPACE_PINNED};
    uint64_t number = builder_add(&f.b, BOOK_SECTION_REGISTRY, &a, sizeof(a));
    assert_int_equal(book_reader_refresh(f.reader), 0);
    book_reader_accounts(f.reader, &n);
    assert_int_equal(n, 2);
    a.type = BOOK_RECORD_ACCOUNT;
    builder_put(&f.b, BOOK_SECTION_REGISTRY, number, &a, sizeof(a));
    assert_int_equal(book_reader_refresh(f.reader), 0);
    assert_int_equal(book_reader_accounts(f.reader, &n)[2].space, MEMOIR_SPACE_PINNED);
    assert_int_equal(n, 3);
}

static void page_counts_once_its_owner_is_stored(void **unused)
{
    SAMPLE(f);
    uint32_t page = builder_counter_page(&f.b, BOOK_COUNTERS_NONE, 0);
    builder_counters(&f.b, page, 3, &(struct book_counters){.alloc_bytes = 23});
    assert_int_equal(book_reader_refresh(f.reader), 0);
    assert_int_equal(totals_of(&f, 1).alloc_bytes, 77);
    struct book_counter_page entry = {.what = BOOK_COUNTERS_ACCOUNTS};
    builder_put(&f.b, BOOK_SECTION_COUNTER_INDEX, page, &entry, sizeof(entry));
    assert_int_equal(book_reader_refresh(f.reader), 0);
    assert_int_equal(totals_of(&f, 1).alloc_bytes, 100);
}

static void account_of_a_device_that_is_none_is_left_out(void **unused)
{
    SAMPLE(f);
    size_t n;
    builder_account(&f.b, MEMOIR_SPACE_L1, 2, "on an account");
    builder_account(&f.b, MEMOIR_SPACE_L1, 4000, "on nothing");
    builder_account(&f.b, MEMOIR_SPACE_L1, UINT32_MAX, "far out");
    assert_int_equal(book_reader_left_out(f.reader), 0);
    assert_int_equal(book_reader_refresh(f.reader), 0);
    book_reader_accounts(f.reader, &n);
    assert_int_equal(n, 2);
    assert_int_equal(book_reader_left_out(f.reader), 3);
    builder_counter_page(&f.b, BOOK_COUNTERS_ACCOUNTS, 0);
    (void)totals_of(&f, 0); /* finds the page, and forgets nothing */
    assert_int_equal(book_reader_left_out(f.reader), 3);
}

/* A later version may name there what is no device to us. */
static void space_of_the_host_has_no_device_whatever_stands_there(void **unused)
{
    SAMPLE(f);
    size_t n;
    struct book_device later = {.type = 9};
    uint32_t record = (uint32_t)builder_add(&f.b, BOOK_SECTION_REGISTRY, &later, sizeof(later));
    const uint32_t devices[] = {record, 4000, UINT32_MAX, 1};
    for (size_t i = 0; i < 4; i++)
        builder_account(&f.b, i % 2 ? MEMOIR_SPACE_HEAP : 15, devices[i], "host");
    assert_int_equal(book_reader_refresh(f.reader), 0);
    const struct book_account_view *a = book_reader_accounts(f.reader, &n);
    assert_int_equal(n, 6);
    for (size_t i = 2; i < n; i++)
        assert_int_equal(a[i].device, BOOK_DEVICE_HOST);
    assert_int_equal(book_reader_left_out(f.reader), 0);
}

static void capacity_may_be_told_again(void **unused)
{
    SAMPLE(f);
    size_t n;
    uint64_t capacity = 12345;
    assert_int_equal(
        pwrite(f.fd, &capacity, 8,
               (off_t)(builder_common_offset(&f.b, 2) - offsetof(struct book_account, common) +
                       offsetof(struct book_account, capacity))),
        8);
    assert_int_equal(book_reader_refresh(f.reader), 0);
    assert_int_equal(book_reader_accounts(f.reader, &n)[0].capacity, 12345);
}

static void longer_entries_of_a_later_version_are_stepped_over(void **unused)
{
    MEMOIR_CLEANUP(fixture_release)
    struct fixture f = {.fd = builder_memfd()};
    builder_init(&f.b, f.fd);
    f.b.h.version = 2;
    f.b.section[BOOK_SECTION_REGISTRY]->entry_size = 320;
    f.b.section[BOOK_SECTION_COUNTER_INDEX]->entry_size = 24;
    f.b.section[BOOK_SECTION_COUNTERS]->entry_size = 8192;
    builder_account(&f.b, MEMOIR_SPACE_HEAP, 0, "heap");
    builder_account(&f.b, MEMOIR_SPACE_MAPPED, 0, "mapped");
    builder_counter_page(&f.b, BOOK_COUNTERS_ACCOUNTS, 32);
    uint32_t page = builder_counter_page(&f.b, BOOK_COUNTERS_ACCOUNTS, 0);
    builder_counters(&f.b, page, 2, &(struct book_counters){.alloc_bytes = 5});
    builder_publish(&f.b);
    assert_int_equal(book_reader_open_fd(f.fd, &f.reader), 0);
    assert_int_equal(totals_of(&f, 0).alloc_bytes, 0);
    assert_int_equal(totals_of(&f, 1).alloc_bytes, 5);
}

static void reading_makes_no_pages(void **unused)
{
    SAMPLE(f);
    struct stat before, after;
    assert_int_equal(fstat(f.fd, &before), 0);
    struct book_status status;
    struct book_sites sites;
    assert_int_equal(book_reader_refresh(f.reader), 0);
    assert_int_equal(book_reader_status(f.reader, &status), 0);
    totals_of(&f, 0);
    assert_int_equal(book_reader_sites(f.reader, f.fd, &sites), 0);
    book_sites_release(&sites);
    assert_int_equal(fstat(f.fd, &after), 0);
    assert_int_equal(before.st_blocks, after.st_blocks);
}

static void truncated_book_gives_errors(void **unused)
{
    SAMPLE(f);
    struct book_totals t = {.live_bytes = 1};
    struct book_status status;
    struct book_sites sites;
    assert_int_equal(ftruncate(f.fd, 4096), 0);
    assert_int_equal(book_reader_totals(f.reader, 0, &t), -EIO);
    assert_int_equal(t.live_bytes, 1); /* untouched */
    assert_int_equal(book_reader_status(f.reader, &status), 0);
    assert_int_equal(book_reader_sites(f.reader, f.fd, &sites), -EIO);
    assert_int_equal(book_reader_blocks(f.reader, f.fd, NULL, NULL, NULL), -EIO);
    assert_int_equal(ftruncate(f.fd, 0), 0);
    assert_int_equal(book_reader_refresh(f.reader), -EIO);
    assert_int_equal(book_reader_status(f.reader, &status), -EIO);
    assert_int_equal(book_reader_sites(f.reader, f.fd, &sites), -EIO);
}

static void failed_refresh_leaves_no_stale_pointers(void **unused)
{
    SAMPLE(f);
    struct book_totals t;
    /* The registry seems to have grown, but what it gained is cut off. */
    f.b.section[BOOK_SECTION_REGISTRY]->open = 64 << 10; /* less than BOOK_READER_HOLES_MAX */
    f.b.section[BOOK_SECTION_REGISTRY]->used = 256;
    builder_header(&f.b);
    uint64_t size = f.b.section[BOOK_SECTION_REGISTRY]->offset + 8192;
    assert_int_equal(ftruncate(f.fd, (off_t)size), 0);
    assert_int_equal(book_reader_refresh(f.reader), -EIO);
    assert_int_equal(book_reader_totals(f.reader, 0, &t), -ESTALE);
    assert_int_equal(book_reader_totals_all(f.reader, &t, 2), -ESTALE);
    assert_int_equal(ftruncate(f.fd, (off_t)f.b.h.file_size), 0);
    assert_int_equal(book_reader_refresh(f.reader), 0);
    assert_int_equal(book_reader_totals(f.reader, 0, &t), 0);
}

/* ---- liveness ---- */

static void writer_lives_as_long_as_its_lock(void **unused)
{
    SAMPLE(f);
    MEMOIR_CLEANUP(closep)
    int writer = builder_reopen(f.fd);
    assert_int_equal(book_writer_alive_fd(f.fd), 0);
    assert_int_equal(flock(writer, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(book_writer_alive_fd(f.fd), 1);
    assert_int_equal(flock(writer, LOCK_UN), 0);
    assert_int_equal(book_writer_alive_fd(f.fd), 0);
    /* The test itself leaves no lock behind. */
    assert_int_equal(flock(writer, LOCK_EX | LOCK_NB), 0);
}

static void book_in_the_making_is_not_tested_for_its_lock(void **unused)
{
    MEMOIR_CLEANUP(closep)
    int fd = builder_memfd();
    assert_int_equal(book_writer_alive_fd(fd), -EAGAIN);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(book_writer_alive_fd(fd), -EAGAIN);
    assert_int_equal(pwrite(fd, "nonsense", 8, 0), 8);
    assert_int_equal(book_writer_alive_fd(fd), -EBADMSG);
}

/* ---- control ---- */

static void control_page_is_written_and_read(void **unused)
{
    SAMPLE(f);
    struct book_control control;
    struct book_watcher root = {.pid = 77, .flags = 5, .start_ticks = 3, .pid_ns = 4};
    struct book_watcher user = {.pid = 78, .flags = BOOK_CONTROL_SUSPENDED};
    assert_int_equal(book_control_write(f.reader, f.fd, BOOK_WATCHER_ROOT, &root), 0);
    assert_int_equal(book_control_read(f.reader, f.fd, &control), 0);
    assert_int_equal(control.flags, 5);
    assert_memory_equal(&control.watchers[BOOK_WATCHER_ROOT], &root, sizeof(root));
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", f.fd);
    MEMOIR_CLEANUP(closep)
    int readonly = open(path, O_RDONLY);
    assert_int_equal(book_control_write(f.reader, readonly, BOOK_WATCHER_USER, &user), 0);
    assert_int_equal(book_control_read(f.reader, readonly, &control), 0);
    assert_int_equal(control.flags, 7);
    assert_memory_equal(&control.watchers[BOOK_WATCHER_ROOT], &root, sizeof(root));
    assert_memory_equal(&control.watchers[BOOK_WATCHER_USER], &user, sizeof(user));
    /* Who goes takes away what it alone said, and nothing that a later sort of watcher asked for. */
    uint32_t more = 1u << 9;
    off_t more_at = (off_t)(f.b.section[BOOK_SECTION_CONTROL]->offset +
                            offsetof(struct book_control, flags_more));
    assert_int_equal(pwrite(f.fd, &more, sizeof(more), more_at), sizeof(more));
    assert_int_equal(book_control_write(f.reader, f.fd, BOOK_WATCHER_ROOT, NULL), 0);
    assert_int_equal(book_control_read(f.reader, f.fd, &control), 0);
    assert_int_equal(control.flags, BOOK_CONTROL_SUSPENDED | more);
    assert_int_equal(control.flags_more, more);
    assert_int_equal(control.watchers[BOOK_WATCHER_ROOT].pid, 0);
    assert_int_equal(control.watchers[BOOK_WATCHER_USER].pid, 78);
    /* Nothing else in the book was touched. */
    assert_int_equal(totals_of(&f, 0).live_bytes, 5000);
}

static void what_a_user_asks_for_outlives_the_watchers(void **unused)
{
    SAMPLE(f);
    struct book_control control;
    struct book_watcher root = {.pid = 77, .flags = BOOK_CONTROL_WATCHED};
    uint32_t suspended = BOOK_CONTROL_SUSPENDED;
    assert_int_equal(book_control_write(f.reader, f.fd, BOOK_WATCHER_ROOT, &root), 0);
    assert_int_equal(book_control_ask(f.reader, f.fd, suspended, suspended), 0);
    assert_int_equal(book_control_read(f.reader, f.fd, &control), 0);
    assert_int_equal(control.flags, BOOK_CONTROL_WATCHED | suspended);
    assert_int_equal(book_control_write(f.reader, f.fd, BOOK_WATCHER_ROOT, NULL), 0);
    assert_int_equal(book_control_read(f.reader, f.fd, &control), 0);
    assert_int_equal(control.flags, suspended);
    assert_int_equal(book_control_ask(f.reader, f.fd, suspended, 0), 0);
    assert_int_equal(book_control_read(f.reader, f.fd, &control), 0);
    assert_int_equal(control.flags, 0);
    assert_int_equal(control.flags_more, 0);
}

static void control_of_another_file_is_not_written(void **unused)
{
    SAMPLE(f);
    MEMOIR_CLEANUP(closep)
    int other = builder_memfd();
    struct book_builder b;
    builder_sample(&b, other);
    struct book_control control;
    assert_int_equal(book_control_write(f.reader, other, BOOK_WATCHER_ROOT, NULL), -ESTALE);
    assert_int_equal(book_control_read(f.reader, other, &control), -ESTALE);
}

static void control_is_not_written_where_there_is_none(void **unused)
{
    SAMPLE(f);
    struct stat before, after;
    assert_int_equal(ftruncate(f.fd, 8192), 0); /* would grow the file */
    assert_int_equal(fstat(f.fd, &before), 0);
    assert_int_equal(book_control_write(f.reader, f.fd, BOOK_WATCHER_ROOT, NULL), -EIO);
    f.b.section[BOOK_SECTION_CONTROL]->open = 0; /* would make a page */
    assert_int_equal(ftruncate(f.fd, (off_t)f.b.h.file_size), 0);
    builder_header(&f.b);
    assert_int_equal(book_control_write(f.reader, f.fd, BOOK_WATCHER_ROOT, NULL), -ENODEV);
    assert_int_equal(fstat(f.fd, &after), 0);
    assert_int_equal(before.st_blocks, after.st_blocks);

    MEMOIR_CLEANUP(closep)
    int fd = builder_memfd();
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = NULL;
    struct book_builder b;
    builder_sample(&b, fd);
    b.section[BOOK_SECTION_CONTROL]->kind = 0;
    builder_header(&b);
    assert_int_equal(book_reader_open_fd(fd, &reader), 0);
    assert_int_equal(book_control_write(reader, fd, BOOK_WATCHER_ROOT, NULL), -ENODEV);
}

#define T(name) cmocka_unit_test(name)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(identity_is_copied),
        T(strings_are_made_printable),
        T(status_tells_state_losses_and_bytes),
        T(devices_and_accounts_are_listed),
        T(totals_add_up_all_shards),
        T(counters_that_wrapped_give_what_is_live),
        T(counters_that_go_backwards_give_no_negative_live),
        T(pages_for_other_accounts_do_not_count),
        T(page_may_begin_at_any_record),
        T(page_that_comes_between_passes_counts_as_allocated),
        T(sections_may_share_pages),
        T(refresh_finds_what_was_added),
        T(pages_without_bytes_do_not_count),
        T(record_counts_once_its_type_is_stored),
        T(page_counts_once_its_owner_is_stored),
        T(account_of_a_device_that_is_none_is_left_out),
        T(space_of_the_host_has_no_device_whatever_stands_there),
        T(capacity_may_be_told_again),
        T(longer_entries_of_a_later_version_are_stepped_over),
        T(reading_makes_no_pages),
        T(truncated_book_gives_errors),
        T(failed_refresh_leaves_no_stale_pointers),
        T(writer_lives_as_long_as_its_lock),
        T(book_in_the_making_is_not_tested_for_its_lock),
        T(control_page_is_written_and_read),
        T(what_a_user_asks_for_outlives_the_watchers),
        T(control_of_another_file_is_not_written),
        T(control_is_not_written_where_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
