/* The life of a book on the writer's side: made, published, ended, and every call that can fail. */
#include <errno.h>
#include <regex.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "book/lock.h"
#include "book/pressure_source.h"
#include "book/pressure_word.h"
#include "fault.h"
#include "site/key.h"
#include "writer_fixture.h"

static const struct book_writer_options own = {.source = BOOK_SOURCE_CLIENT};
static const struct book_writer_options on_behalf = {.source = BOOK_SOURCE_SOCKET,
                                                     .on_behalf = true};

enum {
    DRAM = 16, /* enum memoir_space */
    OWN_PAGES_MAX = 32,
    ON_BEHALF_PAGES_MAX = 2,
    BLOCKS = 500,
};

/* ---- a book with something of everything ---- */

struct sample {
    int device, host, dram, tag;
    uint32_t site, deep_site;
};

static void fill(struct fixture *f, struct sample *s)
{
    struct book_device device = {.kind = 1, .ordinal = 3, .name = "Card", .uid = "card-7"};
    s->device = book_device_add(&f->w, &f->t, &device);
    s->host = book_account_add(&f->w, &f->t, 1, BOOK_DEVICE_HOST, "heap");
    s->dram = book_account_add(&f->w, &f->t, DRAM, (uint32_t)s->device, "dram");
    book_account_capacity(&f->w, (uint32_t)s->dram, 1000000);
    s->tag = book_tag_add(&f->w, &f->t, "weights");
    uintptr_t pcs[] = {(uintptr_t)&fill + 1, (uintptr_t)&printf + 1};
    s->site = book_site_add(&f->w, &f->t, 3, pcs, 1, BOOK_SITE_CALLER_ONLY);
    s->deep_site = book_site_add(&f->w, &f->t, 3, pcs, 2, 0);
    assert_true(s->device == 1 && s->host == 2 && s->dram == 3 && s->tag == 1);
    assert_true(s->site == 1 && s->deep_site == 2);
    for (uint64_t i = 1; i <= BLOCKS; i++)
        book_alloc(&f->w, &f->t, i, i | (uint64_t)s->tag << 48, (uint64_t)s->site << 12 | 3);
    for (uint64_t i = 1; i <= BLOCKS; i += 2)
        book_free(&f->w, &f->t, 3, i);
    book_realloc(&f->w, &f->t, 2, 1, 2000, (uint64_t)s->deep_site << 12 | 3);
    book_free(&f->w, &f->t, 3, 12345); /* unknown */
    book_transfer(&f->w, &f->t, 2, 0, 777, false, 0);
    book_transfer(&f->w, &f->t, 3, 4, 777, true, 0);
}

static int sum_block(const struct book_block_view *block, void *context)
{
    uint64_t *sum = context;
    assert_int_equal(block->account, 3);
    assert_int_equal(block->tag, block->id == 1 ? 0 : 1);
    assert_int_equal(block->site, block->id == 1 ? 2 : 1);
    assert_int_equal(block->bytes, block->id == 1 ? 2000 : block->id);
    sum[0]++;
    sum[1] += block->bytes;
    return 0;
}

/* Live: even numbers from 4 on, and number 1 with 2,000 bytes. */
static void check_figures(struct book_reader *reader, int fd)
{
    uint64_t evens = BLOCKS / 2, all = (uint64_t)BLOCKS * (BLOCKS + 1) / 2;
    uint64_t live_bytes = evens * (evens + 1) - 2 + 2000;
    struct book_totals totals;
    assert_int_equal(book_reader_refresh(reader), 0);
    assert_int_equal(book_reader_account_index(reader, 3), 1);
    assert_int_equal(book_reader_totals(reader, 1, &totals), 0);
    assert_int_equal(totals.alloc_blocks, BLOCKS + 1);
    assert_int_equal(totals.alloc_bytes, all + 2000);
    assert_int_equal(totals.live_blocks, evens);
    assert_int_equal(totals.live_bytes, live_bytes);
    assert_int_equal(totals.peak_bytes, all); /* one caller at a time: exact */
    assert_int_equal(totals.reallocs, 1);
    assert_int_equal(totals.moved_in_bytes, 777);
    uint64_t sum[2] = {0};
    bool exact = false;
    assert_int_equal(book_reader_blocks(reader, fd, sum_block, sum, &exact), 0);
    assert_true(exact);
    assert_int_equal(sum[0], evens);
    assert_int_equal(sum[1], live_bytes);
}

static void check_names(struct book_reader *reader, int fd)
{
    size_t n;
    const struct book_device_view *devices = book_reader_devices(reader, &n);
    assert_int_equal(n, 1);
    assert_string_equal(devices[0].uid, "card-7");
    const struct book_account_view *accounts = book_reader_accounts(reader, &n);
    assert_int_equal(n, 2);
    assert_int_equal(accounts[1].capacity, 1000000);
    MEMOIR_CLEANUP(book_sites_release)
    struct book_sites sites = {0};
    assert_int_equal(book_reader_sites(reader, fd, &sites), 0);
    assert_int_equal(sites.n_sites, 3);
    assert_int_equal(sites.sites[2].frames, 2);
    assert_int_equal(sites.counters[1].alloc_blocks, BLOCKS);
    assert_int_equal(sites.counters[1].freed_blocks, BLOCKS / 2 + 1);
    assert_int_equal(sites.counters[2].alloc_bytes, 2000);
    assert_int_equal(sites.n_tags, 2);
    assert_string_equal(sites.tags[1].name, "weights");
    struct book_status status;
    assert_int_equal(book_reader_status(reader, &status), 0);
    assert_int_equal(status.state, BOOK_STATE_OPEN);
    assert_int_equal(status.losses[BOOK_LOSS_UNKNOWN_FREE], 1);
}

static void check_book(struct fixture *f)
{
    MEMOIR_CLEANUP(closep)
    int fd = fixture_open(f);
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = NULL;
    assert_int_equal(book_reader_open_fd(fd, &reader), 0);
    check_figures(reader, fd);
    check_names(reader, fd);
}

static void private_image_is_carried_over(void **unused)
{
    for (int i = 0; i < 2; i++) {
        struct sample s;
        struct fixture *f = fixture_new(i ? &on_behalf : &own);
        fill(f, &s);
        assert_int_equal(book_writer_publish(&f->w), 0);
        check_book(f);
        /* And goes on: the same names have the same numbers. */
        struct book_device device = {.kind = 1, .ordinal = 9, .uid = "card-7"};
        assert_int_equal(book_device_add(&f->w, &f->t, &device), s.device);
        assert_int_equal(book_tag_add(&f->w, &f->t, "weights"), s.tag);
        uintptr_t pc = (uintptr_t)&fill + 1;
        assert_int_equal(book_site_add(&f->w, &f->t, 3, &pc, 1, BOOK_SITE_CALLER_ONLY), s.site);
        for (uint64_t n = 1; n <= 100; n++) {
            book_alloc(&f->w, &f->t, 1000000 + n, n, (uint64_t)s.site << 12 | 2);
            book_free(&f->w, &f->t, 2, 1000000 + n);
        }
        MEMOIR_CLEANUP(closep)
        int fd = fixture_open(f);
        MEMOIR_CLEANUP(book_reader_freep)
        struct book_reader *reader = NULL;
        assert_int_equal(book_reader_open_fd(fd, &reader), 0);
        check_figures(reader, fd);
        fixture_free(f);
    }
}

/* ---- the file ---- */

static uint64_t file_pages(const struct fixture *f)
{
    MEMOIR_CLEANUP(closep)
    int fd = fixture_open(f);
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    return (uint64_t)info.st_blocks * 512 / (uint64_t)sysconf(_SC_PAGESIZE);
}

static void small_books_are_small(void **unused)
{
    struct fixture *f = fixture_new(&on_behalf);
    struct book_device device = {.kind = 1, .name = "Card"};
    assert_int_equal(book_device_add(&f->w, &f->t, &device), 1);
    assert_int_equal(book_account_add(&f->w, &f->t, DRAM, 1, "dram"), 2);
    assert_int_equal(book_writer_publish(&f->w), 0);
    print_message("# on behalf %llu pages\n", (unsigned long long)file_pages(f));
    assert_true(file_pages(f) <= ON_BEHALF_PAGES_MAX);
    fixture_free(f);

    f = fixture_new(&own);
    assert_int_equal(book_device_add(&f->w, &f->t, &device), 1);
    assert_int_equal(book_account_add(&f->w, &f->t, DRAM, 1, "dram"), 2);
    assert_int_equal(book_writer_publish(&f->w), 0);
    uintptr_t pc = (uintptr_t)&fill + 1;
    for (uint64_t i = 1; i <= 64; i++) {
        uint32_t site = book_site_add(&f->w, &f->t, 2, &pc, 1, BOOK_SITE_CALLER_ONLY);
        book_alloc(&f->w, &f->t, i, 4096, (uint64_t)site << 12 | 2);
    }
    print_message("# own %llu pages\n", (unsigned long long)file_pages(f));
    assert_true(file_pages(f) <= OWN_PAGES_MAX);
    fixture_free(f);
}

static void file_has_name_mode_and_magic(void **unused)
{
    struct fixture *f = fixture_new(&own);
    assert_int_equal(book_writer_publish(&f->w), 0);
    struct stat info;
    char magic[8], pattern[64];
    MEMOIR_CLEANUP(closep)
    int fd = fixture_open(f);
    assert_int_equal(fstat(fd, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    assert_int_equal(info.st_uid, geteuid());
    assert_int_equal(info.st_size, f->w.header->file_size);
    assert_int_equal(pread(fd, magic, 8, 0), 8);
    assert_memory_equal(magic, BOOK_MAGIC, 8);
    regex_t regex;
    snprintf(pattern, sizeof(pattern), "^%d-[1-9][0-9]*-1-[0-9a-f]{16}\\.book$", (int)getpid());
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    assert_int_equal(regexec(&regex, f->w.name, 0, NULL, 0), 0);
    regfree(&regex);
    fixture_free(f);
    assert_int_equal(fixture_count_files(), 0);
}

static void lock_tells_whether_the_writer_lives(void **unused)
{
    struct fixture *f = fixture_new(&own);
    assert_int_equal(book_writer_publish(&f->w), 0);
    MEMOIR_CLEANUP(closep)
    int fd = fixture_open(f);
    assert_int_equal(book_writer_alive_fd(fd), 1);
    book_writer_close(&f->w, true); /* left for the daemon, still mapped */
    assert_int_equal(f->w.header->state, BOOK_STATE_CLOSED);
    assert_int_equal(book_writer_alive_fd(fd), 1);
    book_writer_forget(&f->w);
    assert_int_equal(book_writer_alive_fd(fd), 0);
    assert_int_equal(fixture_count_files(), 1);
    assert_int_equal(unlinkat(AT_FDCWD, f->w.directory, AT_REMOVEDIR), -1); /* not empty */
    free(f);
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'/*", fixture_root);
    assert_int_equal(system(command), 0);
}

static void descriptors_are_none_left(void **unused)
{
    int before = dup(0);
    struct fixture *f = fixture_new(&own);
    assert_int_equal(book_writer_publish(&f->w), 0);
    fixture_free(f);
    int after = dup(0);
    assert_int_equal(before + 1, after);
    close(before);
    close(after);
}

/* ---- earlier images and other people's books ---- */

/* As the allocator looks, which finds a word here that is none. */
static void look_at_pressure(void)
{
    struct pressure_inputs in = {0};
    const struct pressure_page *page;
    uint64_t waited_us;
    pressure_source_machine("/proc", &in, &waited_us);
    pressure_source_cgroup("/proc", "/sys/fs/cgroup", true, &in);
    (void)pressure_word_map(fixture_root, NULL, &page);
}

/* What some library of the program says on a standard error that it closed must not land in the book, nor what the kernel says of
 * memory be read as its input. */
static void numbers_of_standard_streams_are_never_ours(void **unused)
{
    char byte;
    int ends[2];
    char word[128];
    snprintf(word, sizeof(word), "%s/" PRESSURE_FILE_NAME, fixture_root);
    close(open(word, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    int out = fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
    for (unsigned closed = 1; closed < 8; closed++) { /* any of them, or all */
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < 3; i++)
                if (closed >> i & 1)
                    close(i);
            fault_standard_opens = 0;
            struct fixture *f = fixture_new(&own);
            bool fine = book_writer_publish(&f->w) == 0;
            fixture_free(f);
            fine &= fault_standard_opens == 0;
            look_at_pressure();
            for (int i = 0; i < 3; i++)
                fine &= (fcntl(i, F_GETFD) < 0) == (closed >> i & 1);
            fine &= fault_standard_opens == 0;
            _exit(write(out, fine ? "1" : "0", 1) == 1 ? 0 : 1);
        }
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_int_equal(read(ends[0], &byte, 1), 1);
        assert_int_equal(byte, '1');
    }
    close(ends[0]);
    close(ends[1]);
    close(out);
    assert_int_equal(unlink(word), 0);
}

static void earlier_images_are_counted_and_removed(void **unused)
{
    for (uint32_t image = 0; image < 4; image++) {
        struct fixture *f = fixture_new(&own);
        assert_int_equal(book_writer_publish(&f->w), 0);
        assert_int_equal(f->w.header->exec_count, image);
        assert_int_equal(fixture_count_files(), 1);
        book_writer_forget(&f->w); /* as exec does: unmapped, not removed */
        free(f);
    }
    struct fixture *f = fixture_new(&own);
    f->w.header->pid_ns++; /* the same PID in another namespace is another process */
    assert_int_equal(book_writer_publish(&f->w), 0);
    assert_int_equal(f->w.header->exec_count, 0);
    assert_int_equal(fixture_count_files(), 2);
    fixture_free(f);
    assert_int_equal(fixture_leave(NULL), 0);
    assert_int_equal(mkdir(fixture_root, 0700), 0);
}

/* ---- each call failing in turn ---- */

static bool publish_and_report(struct fixture *f)
{
    struct sample s;
    int r = book_writer_init(&f->w, &own);
    if (r < 0)
        return false;
    book_thread_init(&f->w, &f->t);
    struct book_device device = {.kind = 1, .ordinal = 3};
    s.device = book_device_add(&f->w, &f->t, &device);
    s.dram = s.device < 0 ? -1 : book_account_add(&f->w, &f->t, DRAM, (uint32_t)s.device, "dram");
    if (s.dram > 0) {
        book_tag_add(&f->w, &f->t, "tag");
        book_alloc(&f->w, &f->t, 1, 100, (uint64_t)s.dram);
    }
    bool published = book_writer_publish(&f->w) == 0;
    for (uint64_t i = 1; s.dram > 0 && i < 2000; i++) {
        book_alloc(&f->w, &f->t, i, 100, (uint64_t)s.dram);
        if (i % 3 == 0)
            book_free(&f->w, &f->t, (uint32_t)s.dram, i);
        if (i % 7 == 0)
            book_transfer(&f->w, &f->t, (uint32_t)s.dram, i, 5, true, 0);
    }
    fault_disarm();
    struct book_counters sum;
    if (s.dram > 0) {
        book_account_sum(&f->w, (uint32_t)s.dram, &sum);
        assert_int_equal(sum.alloc_blocks, 2000); /* totals hold whatever failed */
    }
    assert_int_equal(table_check(&f->w), 0);
    return published;
}

static bool wanted_with(const char *keep)
{
    setenv("MEMOIR_KEEP", keep, 1);
    struct fixture *f = fixture_new(&(struct book_writer_options){.source = BOOK_SOURCE_CLIENT});
    bool wanted = book_writer_wanted(&f->w);
    assert_int_equal(f->w.control->flags, wanted ? BOOK_CONTROL_WATCHED : 0);
    fixture_free(f);
    unsetenv("MEMOIR_KEEP");
    return wanted;
}

static void a_book_is_wanted_of_the_named_process_only(void **unused)
{
    char self[32], other[32], trailing[32];
    snprintf(self, sizeof(self), "%d", (int)getpid());
    snprintf(other, sizeof(other), "%d", (int)getppid());
    snprintf(trailing, sizeof(trailing), "%d,", (int)getpid());
    assert_true(wanted_with(self));
    assert_false(wanted_with(other));
    assert_false(wanted_with(trailing));
    assert_false(wanted_with(""));
    assert_false(wanted_with("18446744073709551617"));
}

static void failing_calls_leave_no_file_and_do_no_harm(void **unused)
{
    int rounds = 0, unpublished = 0;
    fault_widen();
    for (int nth = 0; fault_arm(nth); nth++) {
        static struct fixture storage;
        struct fixture *f = memset(&storage, 0, sizeof(storage));
        bool published = publish_and_report(f);
        bool fired = fault_fired();
        assert_true(published || fired);
        assert_int_equal(fixture_count_files(), published ? 1 : 0);
        if (f->w.header) {
            book_writer_close(&f->w, false);
            book_writer_forget(&f->w);
        }
        assert_int_equal(fixture_count_files(), 0);
        rounds++;
        unpublished += !published;
    }
    print_message("# %d calls failed, %d times without a book\n", rounds - 1, unpublished);
    assert_true(rounds > 30);
}

/* ---- scripts ---- */

static struct book_script script_of(const char *file, const char *function, uint32_t line)
{
    struct book_script script = {.first_line = line};
    strcpy(script.file, file);
    strcpy(script.function, function);
    return script;
}

static void functions_of_scripts_are_entered_once_and_make_sites(void **unused)
{
    struct fixture *f = fixture_new(&(struct book_writer_options){.source = BOOK_SOURCE_CLIENT});
    struct book_script load = script_of("/srv/train.py", "load", 40);
    struct book_script other = script_of("/srv/train.py", "load", 90);
    uint32_t first = book_script_add(&f->w, &f->t, &load);
    assert_int_equal(first, 1);
    assert_int_equal(book_script_add(&f->w, &f->t, &other), 2);
    assert_int_equal(book_script_add(&f->w, &f->t, &load), first);
    assert_int_equal(book_writer_publish(&f->w), 0);
    assert_int_equal(book_script_add(&f->w, &f->t, &load), first);
    other.first_line = 91;
    assert_int_equal(book_script_add(&f->w, &f->t, &other), 3);

    /* The key is that of the line; a script that is not there is unknown code. */
    uintptr_t frames[] = {BOOK_SCRIPT_FRAME(first, 41), BOOK_SCRIPT_FRAME(77, 41)};
    uint32_t site = book_site_add(&f->w, &f->t, 1, frames, 2, 0);
    uint32_t same = book_site_add(&f->w, &f->t, 1, frames, 1, 0);
    const struct book_site *sites = (const void *)f->w.at[BOOK_SECTION_SITES];
    const uint64_t *kept = (const uint64_t *)f->w.at[BOOK_SECTION_FRAMES];
    assert_true(kept[sites[site].first_frame] == frames[0]);
    assert_true(kept[sites[site].first_frame + 1] == BOOK_SCRIPT_FRAME(0, 0));
    uint64_t key =
        site_key_add(SITE_KEY_SEED, site_key_script("train.py"), site_key_line("load", 41));
    assert_true(sites[same].key == site_key_finish(key));
    assert_true(sites[site].key == site_key_finish(site_key_add(key, SITE_KEY_UNKNOWN, 0)));
    fixture_free(f);
}

/* ---- stacks ---- */

static void stacks_share_what_is_outside(void **unused)
{
    struct fixture *f = fixture_new(&(struct book_writer_options){.source = BOOK_SOURCE_CLIENT});
    struct book_script script = script_of("x.py", "f", 1);
    uint32_t number = book_script_add(&f->w, &f->t, &script);
    uintptr_t pcs[BOOK_STACK_FRAMES_MAX + 1];
    for (size_t i = 0; i <= BOOK_STACK_FRAMES_MAX; i++)
        pcs[i] = BOOK_SCRIPT_FRAME(number, i + 1);
    const struct book_section *frames = f->w.section[BOOK_SECTION_FRAMES];
    const struct book_site *sites = (const void *)f->w.at[BOOK_SECTION_SITES];
    const uint64_t *kept = (const uint64_t *)f->w.at[BOOK_SECTION_FRAMES];

    uint32_t whole = book_site_add(&f->w, &f->t, 1, pcs + 5, 100, 0);
    assert_int_equal(frames->used, 101); /* a link at the end */
    /* The same from further in, and from a place between. */
    uint32_t inner = book_site_add(&f->w, &f->t, 1, pcs + 3, 102, 0);
    assert_int_equal(frames->used, 104);
    assert_int_equal(sites[inner].frames, 3);
    assert_true(kept[sites[inner].first_frame + 2] ==
                BOOK_FRAME(BOOK_MODULE_LINK, sites[whole].first_frame + 1));
    uint32_t outer = book_site_add(&f->w, &f->t, 1, pcs + 50, 55, 0);
    assert_int_equal(frames->used, 104);
    assert_int_equal(sites[outer].first_frame, sites[whole].first_frame + 45);
    assert_int_equal(sites[outer].frames, 56);
    /* A stack that only ends the same is another one. */
    uint32_t shorter = book_site_add(&f->w, &f->t, 1, pcs + 5, 99, 0);
    assert_int_equal(frames->used, 204);
    /* All are found again, and no two are one. */
    assert_int_equal(book_site_add(&f->w, &f->t, 1, pcs + 5, 100, 0), whole);
    assert_int_equal(book_site_add(&f->w, &f->t, 1, pcs + 3, 102, 0), inner);
    assert_int_equal(book_site_add(&f->w, &f->t, 1, pcs + 50, 55, 0), outer);
    assert_int_equal(book_site_add(&f->w, &f->t, 1, pcs + 5, 99, 0), shorter);
    assert_int_equal(f->w.section[BOOK_SECTION_SITES]->used, 5);
    assert_int_equal(frames->used, 204);
    /* Too deep. */
    uint32_t deep = book_site_add(&f->w, &f->t, 1, pcs, BOOK_STACK_FRAMES_MAX + 1, 0);
    assert_int_equal(sites[deep].flags, BOOK_SITE_CUT);
    assert_int_equal(sites[deep].frames, BOOK_STACK_FRAMES_MAX + 1);
    fixture_free(f);
}

static void places_of_outer_frames_spare_looking_for_them(void **unused)
{
    struct fixture *f = fixture_new(&(struct book_writer_options){.source = BOOK_SOURCE_CLIENT});
    struct book_script script = script_of("x.py", "f", 1);
    uint32_t number = book_script_add(&f->w, &f->t, &script);
    const struct book_section *frames = f->w.section[BOOK_SECTION_FRAMES];
    uintptr_t pcs[6];
    uint32_t places[6] = {0}, first[6];
    for (size_t i = 0; i < 6; i++)
        pcs[i] = BOOK_SCRIPT_FRAME(number, i + 1);
    uint32_t site = book_site_add_at(&f->w, &f->t, 1, pcs, 6, 0, places);
    memcpy(first, places, sizeof(first));
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(places[i], i + 1);
    /* Two other frames inside of the third: found from there on, and told. */
    pcs[0] = BOOK_SCRIPT_FRAME(number, 77);
    pcs[1] = BOOK_SCRIPT_FRAME(number, 78);
    places[0] = places[1] = 0;
    uint32_t other = book_site_add_at(&f->w, &f->t, 1, pcs, 6, 0, places);
    assert_int_equal(frames->used, 7 + 3);
    assert_int_equal(places[0], 8);
    assert_int_equal(places[1], 9);
    for (size_t i = 2; i < 6; i++)
        assert_int_equal(places[i], first[i]);
    /* Both are what they are without. */
    assert_int_equal(book_site_add(&f->w, &f->t, 1, pcs, 6, 0), other);
    pcs[0] = BOOK_SCRIPT_FRAME(number, 1);
    pcs[1] = BOOK_SCRIPT_FRAME(number, 2);
    assert_int_equal(book_site_add(&f->w, &f->t, 1, pcs, 6, 0), site);
    /* A stack that ends further in, at a place that is known. */
    uint32_t none[5] = {0};
    uint32_t inner = book_site_add_at(&f->w, &f->t, 1, pcs + 1, 5, 0, none);
    assert_int_equal(frames->used, 10);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(none[i], first[i + 1]);
    assert_int_not_equal(inner, site);
    fixture_free(f);
}

static void deep_stacks_take_little_room_each(void **unused)
{
    enum { DEEP = 400, STACKS = 2000 };
    struct fixture *f = fixture_new(&(struct book_writer_options){.source = BOOK_SOURCE_CLIENT});
    struct book_script script = script_of("x.py", "f", 1);
    uint32_t number = book_script_add(&f->w, &f->t, &script);
    uintptr_t pcs[DEEP];
    for (size_t i = 0; i < DEEP; i++)
        pcs[i] = BOOK_SCRIPT_FRAME(number, i + 1);
    for (uint32_t i = 0; i < STACKS; i++) {
        pcs[0] = BOOK_SCRIPT_FRAME(number, 1000 + i);
        if (book_site_add(&f->w, &f->t, 1, pcs, DEEP, 0) != i + 1)
            fail_msg("no room for stack %u", i);
    }
    assert_int_equal(f->w.section[BOOK_SECTION_FRAMES]->used, DEEP - 1 + 2 * STACKS);
    fixture_free(f);
}

static void scripts_without_room_are_counted(void **unused)
{
    struct fixture *f = fixture_new(&(struct book_writer_options){.source = BOOK_SOURCE_CLIENT});
    uint64_t most = f->w.section[BOOK_SECTION_SCRIPTS]->size / sizeof(struct book_script);
    for (uint64_t i = 1; i <= most; i++) {
        struct book_script script = script_of("x.py", "f", (uint32_t)i);
        assert_int_equal(book_script_add(&f->w, &f->t, &script), i < most ? i : 0);
    }
    assert_int_equal(f->w.header->losses[BOOK_LOSS_SCRIPTS_FULL], 1);
    fixture_free(f);
    f = fixture_new(&(struct book_writer_options){
        .source = BOOK_SOURCE_SOCKET, .on_behalf = true, .bare = true});
    assert_null(f->w.section[BOOK_SECTION_SCRIPTS]); /* bare books have no sites */
    struct book_script script = script_of("x.py", "f", 1);
    assert_int_equal(book_script_add(&f->w, &f->t, &script), 0);
    fixture_free(f);
}

/* Who was torn out of a report holds its lock until it comes by again. Then others wait for that lock as long as ever. */
static void a_lock_that_was_given_back_is_worth_waiting_for(void **unused)
{
    struct fixture *f = fixture_new(&own), *other = fixture_new(&own);
    uintptr_t pc = (uintptr_t)&fill + 1;
    char single = __libc_single_threaded;
    book_thread_init(&f->w, &other->t);
    __libc_single_threaded = 0;
    f->w.sealed = true; /* so that nobody sleeps here */
    assert_true(book_lock_take(&f->w, &f->t, &f->w.lock));
    for (uint32_t i = 1; i <= 3; i++) {
        assert_int_equal(book_site_add(&f->w, &other->t, 1, &pc, 1, 0), BOOK_SITE_NONE);
        assert_int_equal(f->w.waits_in_vain, i);
    }
    assert_ptr_equal(f->w.lost_lock, &f->w.lock);
    book_locks_give_back(&f->w, &f->t);
    assert_null(f->w.lost_lock);
    f->w.sealed = false;
    assert_int_not_equal(book_site_add(&f->w, &other->t, 1, &pc, 1, 0), BOOK_SITE_NONE);
    __libc_single_threaded = single;
    fixture_free(f);
    fixture_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_of_scripts_are_entered_once_and_make_sites),
        cmocka_unit_test(scripts_without_room_are_counted),
        cmocka_unit_test(a_lock_that_was_given_back_is_worth_waiting_for),
        cmocka_unit_test(stacks_share_what_is_outside),
        cmocka_unit_test(places_of_outer_frames_spare_looking_for_them),
        cmocka_unit_test(deep_stacks_take_little_room_each),
        cmocka_unit_test(private_image_is_carried_over),
        cmocka_unit_test(small_books_are_small),
        cmocka_unit_test(file_has_name_mode_and_magic),
        cmocka_unit_test(lock_tells_whether_the_writer_lives),
        cmocka_unit_test(descriptors_are_none_left),
        cmocka_unit_test(numbers_of_standard_streams_are_never_ours),
        cmocka_unit_test(earlier_images_are_counted_and_removed),
        cmocka_unit_test(a_book_is_wanted_of_the_named_process_only),
        cmocka_unit_test(failing_calls_leave_no_file_and_do_no_harm),
    };
    return cmocka_run_group_tests(tests, fixture_enter, fixture_leave);
}
