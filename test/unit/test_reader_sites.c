/* Sites, tags and blocks: what is copied, and what becomes of lies. */
#include <errno.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "base/cleanup.h"
#include "book/reader.h"
#include "book/reader_internal.h"
#include "book_builder.h"
#include "check.h"
#include "fault.h"

static int fd;
static struct book_builder b;
static struct book_reader *reader;

static int make_sample(void **unused)
{
    fd = builder_memfd();
    builder_sample(&b, fd);
    return book_reader_open_fd(fd, &reader);
}

static int drop_sample(void **unused)
{
    book_reader_free(reader);
    reader = NULL;
    return close(fd);
}

static void reopen_reader(void)
{
    book_reader_free(reader);
    reader = NULL;
    assert_int_equal(book_reader_open_fd(fd, &reader), 0);
}

struct found {
    struct book_block_view blocks[16];
    size_t n, total;
    int stop; /* answer of the callback */
};

static int note_block(const struct book_block_view *block, void *context)
{
    struct found *f = context;
    if (f->n < 16)
        f->blocks[f->n++] = *block;
    f->total++;
    return f->stop;
}

static struct found find_blocks(bool *ret_exact)
{
    struct found f = {0};
    assert_int_equal(book_reader_blocks(reader, fd, note_block, &f, ret_exact), 0);
    return f;
}

/* ---- sites ---- */

#define SITES(s)                       \
    MEMOIR_CLEANUP(book_sites_release) \
    struct book_sites s = {0};         \
    assert_int_equal(book_reader_sites(reader, fd, &s), 0)

static void sites_come_with_frames_modules_tags_and_counters(void **unused)
{
    SITES(s);
    assert_int_equal(s.n_modules, 3);
    assert_string_equal(s.modules[1].path, "");
    assert_string_equal(s.modules[2].path, "/usr/lib/libtorch.so");
    assert_int_equal(s.modules[1].build_id_len, 4);
    assert_memory_equal(s.modules[1].build_id, "\xde\xad\xbe\xef", 4);
    assert_int_equal(s.n_sites, 3);
    assert_int_equal(s.sites[1].key, 0xfeedface);
    assert_int_equal(s.sites[1].frames, 2);
    assert_int_equal(s.frames[s.sites[1].first_frame], BOOK_FRAME(2, 0x1234));
    assert_int_equal(s.frames[s.sites[1].first_frame + 1], BOOK_FRAME(1, 0x5678));
    assert_int_equal(s.frames[s.sites[2].first_frame], 0x7fff12345678);
    assert_int_equal(s.counters[1].alloc_bytes, 5300);
    assert_int_equal(s.counters[1].freed_blocks, 2);
    assert_int_equal(s.counters[2].alloc_bytes, 77);
    assert_int_equal(s.n_tags, 2);
    assert_string_equal(s.tags[1].name, "weights");
}

static void site_counters_are_summed_over_pages(void **unused)
{
    uint32_t page = builder_counter_page(&b, BOOK_COUNTERS_SITES, 1); /* begins at site 1 */
    builder_site_counters(
        &b, page, 0,
        &(struct book_site_counters){
            .freed_bytes = 10, .freed_blocks = 1, .alloc_bytes = 20, .alloc_blocks = 2});
    /* Pages of another sort, for sites that are not there, and one that would wrap. */
    page = builder_counter_page(&b, BOOK_COUNTERS_ACCOUNTS, 1);
    builder_site_counters(&b, page, 0, &(struct book_site_counters){.alloc_bytes = 999});
    page = builder_counter_page(&b, BOOK_COUNTERS_SITES, 100);
    builder_site_counters(&b, page, 0, &(struct book_site_counters){.alloc_bytes = 999});
    page = builder_counter_page(&b, BOOK_COUNTERS_SITES, UINT32_MAX);
    builder_site_counters(&b, page, 2, &(struct book_site_counters){.alloc_bytes = 999});
    assert_int_equal(book_reader_refresh(reader), 0);
    SITES(s);
    assert_int_equal(s.counters[1].alloc_bytes, 5320);
    assert_int_equal(s.counters[1].alloc_blocks, 7);
    assert_int_equal(s.counters[1].freed_bytes, 310);
    assert_int_equal(s.counters[1].freed_blocks, 3);
    assert_int_equal(s.counters[2].alloc_bytes, 77);
}

static void frames_that_are_not_there_are_dropped(void **unused)
{
    struct book_site lies[] = {
        {.key = 1, .first_frame = 2, .frames = 2},          /* one past the end */
        {.key = 2, .first_frame = UINT32_MAX, .frames = 1}, /* far out */
        {.key = 3, .first_frame = 0, .frames = 65535},      /* too many */
        {.key = 4, .first_frame = 2, .frames = 1},          /* true */
    };
    for (size_t i = 0; i < 4; i++)
        builder_add(&b, BOOK_SECTION_SITES, &lies[i], sizeof(lies[i]));
    SITES(s);
    assert_int_equal(s.n_sites, 7);
    for (size_t i = 3; i < 6; i++) {
        assert_int_equal(s.sites[i].key, i - 2);
        assert_int_equal(s.sites[i].frames, 0);
        assert_int_equal(s.sites[i].first_frame, 0);
    }
    assert_int_equal(s.sites[6].frames, 1);
}

static void more_frames_than_are_taken_cut_the_stack(void **unused)
{
    uint64_t frames[BOOK_READER_SITE_FRAMES_MAX + 1];
    for (size_t i = 0; i <= BOOK_READER_SITE_FRAMES_MAX; i++)
        frames[i] = BOOK_FRAME(1, i);
    uint32_t most = builder_site(&b, 2, 1, frames, BOOK_READER_SITE_FRAMES_MAX);
    uint32_t more = builder_site(&b, 2, 2, frames, BOOK_READER_SITE_FRAMES_MAX + 1);
    SITES(s);
    assert_int_equal(s.sites[most].frames, BOOK_READER_SITE_FRAMES_MAX);
    assert_int_equal(s.sites[most].flags, 0);
    assert_int_equal(s.sites[more].frames, BOOK_READER_SITE_FRAMES_MAX);
    assert_int_equal(s.sites[more].flags, BOOK_SITE_CUT);
    assert_int_equal(BOOK_FRAME_OFFSET(s.frames[s.sites[more].first_frame]), 0);
}

#define LINK(place) BOOK_FRAME(BOOK_MODULE_LINK, place)

static void links_lead_to_the_rest_of_a_stack(void **unused)
{
    uint64_t outer[] = {BOOK_FRAME(1, 1), BOOK_FRAME(1, 2), BOOK_FRAME(2, 3), LINK(0)};
    uint32_t whole = builder_site(&b, 2, 1, outer, 4);
    uint32_t place = (uint32_t)b.section[BOOK_SECTION_FRAMES]->used - 4 + 1;
    uint64_t between[] = {BOOK_FRAME(1, 4), LINK(place + 1)};
    uint32_t middle = builder_site(&b, 2, 2, between, 2);
    uint64_t inner[] = {BOOK_FRAME(1, 5), BOOK_FRAME(1, 6), LINK(place + 4)};
    uint32_t last = builder_site(&b, 2, 3, inner, 3);
    SITES(s);
    const uint64_t expected[][5] = {{1, 2, 3}, {4, 2, 3}, {5, 6, 4, 2, 3}};
    const uint32_t sites[] = {whole, middle, last}, lengths[] = {3, 3, 5};
    for (int i = 0; i < 3; i++) {
        const struct book_site *site = &s.sites[sites[i]];
        assert_int_equal(site->frames, lengths[i]);
        assert_int_equal(site->flags, 0);
        for (uint32_t k = 0; k < lengths[i]; k++)
            assert_int_equal(BOOK_FRAME_OFFSET(s.frames[site->first_frame + k]), expected[i][k]);
    }
    assert_int_equal(s.sites[1].frames, 2); /* stacks without links stay as they are */
}

static void links_that_lie_end_the_stack(void **unused)
{
    uint32_t used = (uint32_t)b.section[BOOK_SECTION_FRAMES]->used;
    uint64_t nowhere[] = {BOOK_FRAME(1, 1), LINK(UINT64_C(1) << 51)};
    uint64_t past[] = {BOOK_FRAME(1, 1), LINK(used + 4 + 4 + 1)};
    uint64_t to_link[] = {BOOK_FRAME(1, 1), LINK(used + 2)};
    uint64_t only[] = {LINK(used + 1)};
    uint64_t ring[] = {BOOK_FRAME(1, 1), LINK(used + 8)};
    uint32_t ends[] = {builder_site(&b, 2, 1, nowhere, 2), builder_site(&b, 2, 2, past, 2),
                       builder_site(&b, 2, 3, to_link, 2)};
    uint32_t bare = builder_site(&b, 2, 4, only, 1), round = builder_site(&b, 2, 5, ring, 2);
    SITES(s);
    for (int i = 0; i < 3; i++)
        assert_int_equal(s.sites[ends[i]].frames, 1);
    assert_int_equal(s.sites[bare].frames, 1); /* a frame, and a link that leads nowhere */
    assert_int_equal(s.sites[round].frames, BOOK_READER_SITE_FRAMES_MAX);
    assert_int_equal(s.sites[round].flags, BOOK_SITE_CUT);
}

static void frame_of_an_unknown_module_is_no_address(void **unused)
{
    uint64_t frames[] = {BOOK_FRAME(3, 0x42), BOOK_FRAME(BOOK_MODULE_SCRIPT, 0x43),
                         BOOK_FRAME(BOOK_MODULE_NONE, 0x44), BOOK_FRAME(2, 0x45)};
    uint32_t site = builder_site(&b, 2, 1, frames, 4);
    SITES(s);
    const uint64_t *f = &s.frames[s.sites[site].first_frame];
    for (int i = 0; i < 3; i++)
        assert_null(book_sites_module(&s, f[i]));
    assert_int_not_equal(BOOK_FRAME_MODULE(f[0]), BOOK_MODULE_NONE);
    assert_int_not_equal(BOOK_FRAME_MODULE(f[1]), BOOK_MODULE_NONE);
    assert_ptr_equal(book_sites_module(&s, f[3]), &s.modules[2]);
}

static void line_of_a_script_has_a_function_and_is_what_people_see(void **unused)
{
    struct book_script script = {
        .function = "Loader.load", .file = "/srv/train.py", .first_line = 40};
    builder_add(&b, BOOK_SECTION_SCRIPTS, &script, sizeof(script));
    uint64_t frames[] = {BOOK_FRAME(2, 0x45), BOOK_SCRIPT_FRAME(2, 7), BOOK_SCRIPT_FRAME(0, 7),
                         BOOK_SCRIPT_FRAME(1, BOOK_SCRIPT_LINE_MAX), BOOK_SCRIPT_FRAME(1, 42)};
    uint32_t site = builder_site(&b, 2, 1, frames, 5);
    SITES(s);
    const uint64_t *f = &s.frames[s.sites[site].first_frame];
    assert_int_equal(s.n_scripts, 2);
    for (int i = 0; i < 3; i++) /* a module's, one that is not there, the empty one */
        assert_null(book_sites_script(&s, f[i]));
    assert_ptr_equal(book_sites_script(&s, f[3]), &s.scripts[1]);
    assert_int_equal(BOOK_FRAME_LINE(f[3]), BOOK_SCRIPT_LINE_MAX);
    assert_int_equal(BOOK_FRAME_LINE(f[4]), 42);
    assert_string_equal(s.scripts[1].function, "Loader.load");
    assert_string_equal(s.scripts[1].file, "/srv/train.py");
    assert_true(book_sites_frame(&s, &s.sites[site]) == f[3]);
    assert_true(book_sites_frame(&s, &s.sites[1]) == s.frames[s.sites[1].first_frame]);
}

static void script_strings_are_bounded(void **unused)
{
    struct book_script script;
    memset(&script, '\x1b', sizeof(script));
    builder_add(&b, BOOK_SECTION_SCRIPTS, &script, sizeof(script));
    SITES(s);
    assert_int_equal(strlen(s.scripts[1].function), sizeof(script.function) - 1);
    assert_int_equal(strlen(s.scripts[1].file), sizeof(script.file) - 1);
    assert_int_equal(s.scripts[1].file[0], '?');
}

static void site_names_the_account_of_its_blocks(void **unused)
{
    uint64_t frame = BOOK_FRAME(1, 0x42);
    uint32_t far = builder_site(&b, BOOK_RECORDS_MAX, 9, &frame, 1);
    SITES(s);
    assert_int_equal(s.sites[0].account, 0);
    assert_int_equal(s.sites[1].account, 2);
    assert_int_equal(s.sites[2].account, 3);
    assert_int_equal(s.sites[far].account, 0); /* no such record can be */
}

static void module_and_tag_strings_are_bounded(void **unused)
{
    struct book_module m = {.build_id_len = 33};
    memset(m.path, '\x01', sizeof(m.path));
    builder_add(&b, BOOK_SECTION_MODULES, &m, sizeof(m));
    struct book_tag tag;
    memset(&tag, 'T', sizeof(tag));
    builder_add(&b, BOOK_SECTION_TAGS, &tag, sizeof(tag));
    SITES(s);
    assert_int_equal(s.modules[3].build_id_len, 0);
    assert_int_equal(strlen(s.modules[3].path), sizeof(m.path) - 1);
    assert_int_equal(s.modules[3].path[0], '?');
    assert_int_equal(strlen(s.tags[2].name), 63);
}

static void used_is_bounded_by_what_is_open(void **unused)
{
    b.section[BOOK_SECTION_SITES]->used = UINT64_MAX;
    b.section[BOOK_SECTION_FRAMES]->used = UINT64_MAX;
    b.section[BOOK_SECTION_MODULES]->used = UINT64_MAX;
    b.section[BOOK_SECTION_TAGS]->used = UINT64_MAX;
    builder_header(&b);
    SITES(s);
    assert_int_equal(s.n_sites, 4096 / sizeof(struct book_site));
    assert_int_equal(s.n_frames, 4096 / sizeof(uint64_t));
    assert_int_equal(s.n_modules, 4096 / sizeof(struct book_module));
    assert_int_equal(s.n_tags, 4096 / sizeof(struct book_tag));
}

static void numbers_of_entries_are_bounded_by_the_layout(void **unused)
{
    /* A huge sparse book whose sections are all said to be open and in use. */
    uint64_t offset = 65536, size = UINT64_C(1) << 34;
    for (int i = 0; i < BOOK_SECTIONS_MAX; i++) {
        struct book_section *s = &b.h.sections[i];
        if (!s->kind)
            continue;
        s->offset = offset;
        s->size = s->open = size;
        s->used = size / s->entry_size;
        offset += size;
    }
    b.h.file_size = offset;
    assert_int_equal(ftruncate(fd, (off_t)offset), 0);
    builder_header(&b);
    /* What gets mapped must have pages: reading holes would make them. */
    struct book_reader *none = NULL;
    assert_int_equal(book_reader_open_fd(fd, &none), -ENODATA);
    static const uint32_t mapped[] = {BOOK_SECTION_REGISTRY, BOOK_SECTION_COUNTER_INDEX,
                                      BOOK_SECTION_COUNTERS};
    for (size_t i = 0; i < 3; i++)
        b.section[mapped[i]]->open = 4096;
    builder_header(&b);
    reopen_reader();
    uint64_t bytes;
    assert_int_equal(book_reader_sites_bytes(reader, fd, &bytes), -ENODATA);
    SITES(s);
    assert_int_equal(s.n_modules, BOOK_MODULES_MAX);
    assert_int_equal(s.n_frames, BOOK_READER_FRAMES_MAX);
    assert_int_equal(s.n_sites, BOOK_SITES_MAX);
    assert_int_equal(s.n_tags, BOOK_TAGS_MAX + 1);
    /* No more is mapped, either, and growth that has no pages is refused. */
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    for (size_t i = 0; i < 3; i++)
        b.section[mapped[i]]->open = size;
    builder_header(&b);
    assert_int_equal(book_reader_refresh(reader), -ENODATA);
    assert_true(book_reader_mapped(reader) < 1 << 20);
    blkcnt_t before = st.st_blocks;
    assert_int_equal(fstat(fd, &st), 0);
    assert_true((uint64_t)(st.st_blocks - before) * 512 <= 2 * BOOK_READER_HOLES_MAX);
}

static void longer_entries_are_stepped_over(void **unused)
{
    drop_sample(NULL);
    fd = builder_memfd();
    builder_init(&b, fd);
    b.section[BOOK_SECTION_MODULES]->entry_size = 1024;
    b.section[BOOK_SECTION_FRAMES]->entry_size = 16;
    b.section[BOOK_SECTION_SITES]->entry_size = 40;
    b.section[BOOK_SECTION_TAGS]->entry_size = 128;
    b.section[BOOK_SECTION_BLOCKS]->entry_size = 8192;
    b.section[BOOK_SECTION_MOVES]->entry_size = 24;
    uint32_t account = builder_account(&b, MEMOIR_SPACE_HEAP, 0, "heap");
    uint32_t module = builder_module(&b, "/lib/a.so", "id");
    uint64_t frames[] = {BOOK_FRAME(module, 1), BOOK_FRAME(module, 2)};
    for (int i = 0; i < 5000; i++) /* more than one buffer */
        builder_site(&b, 2, 100u + (unsigned)i, frames, 2);
    builder_tag(&b, "one");
    builder_tag(&b, "two");
    builder_block(&b, BOOK_BLOCKS_PER_PAGE + 1, 9, 99, 2, account, 3, 1);
    builder_moves(&b, BOOK_BLOCKS_PER_PAGE + 1, 4);
    builder_publish(&b);
    assert_int_equal(book_reader_open_fd(fd, &reader), 0);
    SITES(s);
    assert_int_equal(s.n_sites, 5001);
    assert_int_equal(s.sites[5000].key, 5099);
    assert_int_equal(s.frames[s.sites[5000].first_frame + 1], BOOK_FRAME(module, 2));
    assert_string_equal(s.modules[1].path, "/lib/a.so");
    assert_string_equal(s.tags[2].name, "two");
    struct found f = find_blocks(NULL);
    assert_int_equal(f.total, 1);
    assert_int_equal(f.blocks[0].id, 9);
    assert_int_equal(f.blocks[0].moves, 4);
}

static void sites_of_another_file_are_refused(void **unused)
{
    MEMOIR_CLEANUP(closep)
    int other = builder_memfd();
    struct book_builder copy;
    builder_sample(&copy, other);
    struct book_sites s;
    assert_int_equal(book_reader_sites(reader, other, &s), -ESTALE);
    assert_int_equal(book_reader_blocks(reader, other, NULL, NULL, NULL), -ESTALE);
    assert_int_equal(book_reader_sites(reader, -1, &s), -EBADF);
}

/* ---- blocks ---- */

static void blocks_are_decoded(void **unused)
{
    bool exact = false;
    struct found f = find_blocks(&exact);
    assert_true(exact);
    assert_int_equal(f.total, 3);
    assert_int_equal(f.blocks[0].id, 0x1000);
    assert_int_equal(f.blocks[0].bytes, 1000);
    assert_int_equal(f.blocks[0].tag, 1);
    assert_int_equal(f.blocks[0].account, 2);
    assert_int_equal(f.blocks[0].site, 1);
    assert_int_equal(f.blocks[0].time_ns, 5000000000 + (1 << 20));
    assert_int_equal(f.blocks[0].moves, 0);
    assert_int_equal(f.blocks[1].moves, 6);
    assert_int_equal(f.blocks[2].account, 3);
    assert_int_equal(f.blocks[2].site, 2);
    builder_block(&b, 0, 1, BOOK_BLOCK_SIZE_MAX, 65535, 4095, 0xfffff, UINT32_MAX);
    f = find_blocks(NULL);
    assert_int_equal(f.blocks[0].bytes, BOOK_BLOCK_SIZE_MAX);
    assert_int_equal(f.blocks[0].tag, 65535);
    assert_int_equal(f.blocks[0].account, 4095);
    assert_int_equal(f.blocks[0].site, 0xfffff);
    assert_int_equal(f.blocks[0].time_ns, 5000000000 + ((uint64_t)UINT32_MAX << 20));
}

static void block_that_stands_twice_comes_once(void **unused)
{
    bool exact = false;
    /* The process died while it moved 0x1000 from slot 3 to 400. */
    builder_block(&b, 400, 0x1000, 1000, 1, 2, 1, 1);
    b.h.blocks_seq = 7;
    builder_header(&b);
    struct found f = find_blocks(&exact);
    assert_int_equal(f.total, 3);
    assert_true(exact); /* nothing moves any more, and every block is there */
}

static void younger_of_two_equal_blocks_counts(void **unused)
{
    MEMOIR_CLEANUP(closep)
    int writer = builder_reopen(fd);
    assert_int_equal(flock(writer, LOCK_EX), 0);
    builder_block(&b, 400, 0x1000, 1234, 1, 2, 1, 9);
    builder_block(&b, 401, 0x1000, 4321, 1, 2, 1, 8);
    struct found f = find_blocks(NULL);
    assert_int_equal(f.total, 3);
    for (size_t i = 0; i < f.n; i++)
        if (f.blocks[i].account == 2 && f.blocks[i].id == 0x1000)
            assert_int_equal(f.blocks[i].bytes, 1234);
}

static void moving_entries_of_a_living_writer_are_not_exact(void **unused)
{
    MEMOIR_CLEANUP(closep)
    int writer = builder_reopen(fd);
    bool exact = false;
    assert_int_equal(flock(writer, LOCK_EX), 0);
    find_blocks(&exact);
    assert_true(exact);
    b.h.blocks_seq = 7;
    builder_header(&b);
    struct found f = find_blocks(&exact);
    assert_false(exact);
    assert_int_equal(f.total, 3);
}

static void slots_outside_the_open_pages_are_not_looked_at(void **unused)
{
    builder_block(&b, 100 * BOOK_BLOCKS_PER_PAGE, 0x9000, 1, 0, 2, 0, 0);
    b.section[BOOK_SECTION_BLOCKS]->open = 4096;
    builder_header(&b);
    struct found f = find_blocks(NULL);
    assert_int_equal(f.total, 1);
}

static void moves_outside_the_open_bytes_are_none(void **unused)
{
    b.section[BOOK_SECTION_MOVES]->open = 200 * sizeof(struct book_moves);
    builder_header(&b);
    assert_int_equal(find_blocks(NULL).blocks[1].moves, 0);
    b.section[BOOK_SECTION_MOVES]->open = 201 * sizeof(struct book_moves);
    builder_header(&b);
    assert_int_equal(find_blocks(NULL).blocks[1].moves, 6);
}

static void callback_ends_the_scan(void **unused)
{
    struct found f = {.stop = -ECANCELED};
    bool exact = true;
    assert_int_equal(book_reader_blocks(reader, fd, note_block, &f, &exact), -ECANCELED);
    assert_int_equal(f.total, 1);
}

static void scan_ends_when_its_time_is_over(void **unused)
{
    struct found f = {0};
    bool exact = true;
    struct book_scan_limits limits = {.deadline_ns = 1};
    assert_int_equal(book_reader_blocks_within(reader, fd, &limits, note_block, &f, &exact),
                     -ETIME);
    assert_int_equal(f.total, 0);
    limits.deadline_ns = UINT64_MAX;
    assert_int_equal(book_reader_blocks_within(reader, fd, &limits, note_block, &f, &exact), 0);
    assert_int_equal(f.total, 3);
    assert_true(exact);
}

static void holding_few_blocks_is_told_as_not_exact(void **unused)
{
    struct found f = {0};
    bool exact = true;
    b.h.blocks_seq = 7; /* they have to be held */
    builder_header(&b);
    struct book_scan_limits limits = {.held_max = 2, .tries = 1};
    assert_int_equal(book_reader_blocks_within(reader, fd, &limits, note_block, &f, &exact), 0);
    assert_int_equal(f.total, 3);
    assert_false(exact);
}

struct largest {
    uint64_t bytes_min;
    struct found found;
};

static int note_larger(const struct book_block_view *block, void *context)
{
    struct largest *l = context;
    l->bytes_min = block->bytes + 1;
    return note_block(block, &l->found);
}

/* Whether they can be handed out at once or have to be held first. */
static void a_tally_has_all_and_only_larger_ones_come(void **unused)
{
    for (int seq = 0; seq < 2; seq++) {
        static struct book_tally tally[BOOK_RECORDS_MAX];
        struct found all = find_blocks(NULL);
        uint64_t bytes = 0, largest = 0, blocks = 0, sum = 0;
        for (size_t i = 0; i < all.n; i++) {
            bytes += all.blocks[i].bytes;
            largest = all.blocks[i].bytes > largest ? all.blocks[i].bytes : largest;
        }
        memset(tally, 0, sizeof(tally));
        struct largest l = {0};
        struct book_scan_limits limits = {.tally = tally, .bytes_min = &l.bytes_min};
        assert_int_equal(book_reader_blocks_within(reader, fd, &limits, note_larger, &l, NULL), 0);
        for (size_t i = 0; i < BOOK_RECORDS_MAX; i++) {
            blocks += tally[i].blocks;
            sum += tally[i].bytes;
        }
        assert_int_equal(blocks, all.total);
        assert_int_equal(sum, bytes);
        assert_true(l.found.n >= 1 && l.found.n <= all.n);
        assert_int_equal(l.found.blocks[l.found.n - 1].bytes, largest);
        for (size_t i = 1; i < l.found.n; i++)
            assert_true(l.found.blocks[i].bytes > l.found.blocks[i - 1].bytes);
        b.h.blocks_seq = 7; /* they have to be held */
        builder_header(&b);
    }
}

/* Runs of pages with holes between them, longer than one piece, and moves beside some. */
static void blocks_between_holes_are_all_found(void **unused)
{
    struct found f = {0};
    uint64_t per_page = BOOK_BLOCKS_PER_PAGE, id = 100;
    for (uint64_t page = 10; page < 100; page++)
        if (page % 40 < 30)
            builder_block(&b, page * per_page + page % per_page, id++, 1, 0, 2, 0, 1);
    builder_moves(&b, 12 * per_page + 12, 3);
    assert_int_equal(book_reader_blocks(reader, fd, note_block, &f, NULL), 0);
    size_t expected = 3;
    for (uint64_t page = 10; page < 100; page++)
        expected += page % 40 < 30;
    assert_int_equal(f.total, expected);
    size_t moved = 0;
    for (size_t i = 0; i < f.n; i++)
        moved += f.blocks[i].moves == 3;
    assert_int_equal(moved, 1);
}

static void many_blocks_come_once_each(void **unused)
{
    MEMOIR_CLEANUP(closep)
    int writer = builder_reopen(fd);
    assert_int_equal(flock(writer, LOCK_EX), 0);
    memset(b.h.magic, 0, 8); /* no header write per block */
    for (uint64_t i = 0; i < 100000; i++)
        builder_block(&b, 10000 + i, 0x100000 + i % 50000, i, 0, 2, 0, (uint32_t)i);
    builder_publish(&b);
    struct found f = find_blocks(NULL);
    assert_int_equal(f.total, 50003);
}

static int read_everything(void)
{
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *fresh = NULL;
    MEMOIR_CLEANUP(book_sites_release)
    struct book_sites s = {0};
    struct found f = {0};
    bool exact = false;
    int r = book_reader_open_fd(fd, &fresh);
    if (r == 0)
        r = book_reader_sites(fresh, fd, &s);
    if (r == 0)
        r = book_reader_blocks(fresh, fd, note_block, &f, &exact);
    if (r == 0)
        assert_true(s.n_sites == 3 && f.total == 3 && exact);
    return r;
}

static void every_allocation_may_fail(void **unused)
{
    b.h.blocks_seq = 1; /* equal blocks are looked for */
    builder_header(&b);
    for (int nth = 0; fault_arm(nth); nth++) {
        int r = read_everything();
        assert_true(r == 0 || fault_fired());
        if (fault_fired())
            assert_true(r < 0);
    }
    fault_disarm();
    assert_int_equal(read_everything(), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, make_sample, drop_sample)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(sites_come_with_frames_modules_tags_and_counters),
        T(site_counters_are_summed_over_pages),
        T(frames_that_are_not_there_are_dropped),
        T(more_frames_than_are_taken_cut_the_stack),
        T(links_lead_to_the_rest_of_a_stack),
        T(links_that_lie_end_the_stack),
        T(frame_of_an_unknown_module_is_no_address),
        T(line_of_a_script_has_a_function_and_is_what_people_see),
        T(script_strings_are_bounded),
        T(site_names_the_account_of_its_blocks),
        T(module_and_tag_strings_are_bounded),
        T(used_is_bounded_by_what_is_open),
        T(numbers_of_entries_are_bounded_by_the_layout),
        T(longer_entries_are_stepped_over),
        T(sites_of_another_file_are_refused),
        T(blocks_are_decoded),
        T(block_that_stands_twice_comes_once),
        T(younger_of_two_equal_blocks_counts),
        T(moving_entries_of_a_living_writer_are_not_exact),
        T(slots_outside_the_open_pages_are_not_looked_at),
        T(moves_outside_the_open_bytes_are_none),
        T(callback_ends_the_scan),
        T(scan_ends_when_its_time_is_over),
        T(holding_few_blocks_is_told_as_not_exact),
        T(a_tally_has_all_and_only_larger_ones_come),
        T(blocks_between_holes_are_all_found),
        T(many_blocks_come_once_each),
        T(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
