/* Suspects: rows of a watch taken over, and what the books add to them: names, stacks and sample blocks. */
#include <link.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "ledger/leaks.h"
#include "ledger_world.h"
#include "profile/book_names.h"
#include "profile/site_names.h"
#include "profile/suspects.h"
#include "profile_fixture.h"

static struct detect_result growth(void)
{
    return (struct detect_result){
        .verdict = DETECT_LEAK,
        .reason = DETECT_SUSTAINED,
        .confidence = 0.875,
        .bytes_per_s = 1500.5,
        .blocks_per_s = 2.25,
        .ever_freed = 0.25,
        .span_ns = 120 * NS_PER_S,
    };
}

/* ---- of a watch ---- */

struct parts {
    struct ledger_process process;
    struct ledger_account account;
    struct ledger_device device;
    struct book_identity identity;
    struct ledger_book book;
};

static struct leak leak_of(struct parts *p)
{
    p->process =
        (struct ledger_process){.pid = 10, .uid = 1000, .valid = LEDGER_HAS_PID | LEDGER_HAS_USER};
    strcpy(p->process.name, "shop");
    strcpy(p->process.user, "alice");
    p->account = (struct ledger_account){.space = MEMOIR_SPACE_HEAP};
    strcpy(p->account.name, "arena");
    p->device = (struct ledger_device){.ordinal = 3};
    strcpy(p->device.name, "H200");
    strcpy(p->device.uid, "GPU-1");
    p->identity = (struct book_identity){.st_ino = 99};
    p->book = (struct ledger_book){.identity = &p->identity};
    struct leak leak = {
        .process = &p->process,
        .account = &p->account,
        .book = &p->book,
        .site = 7,
        .key = 0xabc,
        .frame = (char *)"/usr/bin/shop+0x12",
        .result = growth(),
        .live_bytes = 4096,
        .live_blocks = 64,
        .growing_ns = 60 * NS_PER_S,
        .spark = {10, 20, 30},
        .n_spark = 3,
        .headroom = {HEADROOM_CGROUP, 1000, 2000},
        .left_ns = 3600 * NS_PER_S,
    };
    return leak;
}

static struct suspects take(struct leak *leak)
{
    struct suspects suspects = {0};
    struct leaks leaks = {.rows = leak,
                          .n = 1,
                          .judged = 5,
                          .verdicts = {1, 0, 0, 1, 3},
                          .span_ns = 9,
                          .incomplete = true};
    assert_int_equal(suspects_from(&leaks, &suspects), 0);
    assert_int_equal(suspects.n, 1);
    assert_int_equal(suspects.sites, 5);
    assert_int_equal(suspects.verdicts[DETECT_LEAK], 3);
    assert_int_equal(suspects.span_ns, 9);
    assert_true(suspects.incomplete);
    return suspects;
}

static void a_row_of_a_watch_is_taken_over(void **state)
{
    struct parts parts;
    struct leak leak = leak_of(&parts);
    struct suspects suspects = take(&leak);
    const struct suspect *s = &suspects.rows[0];
    assert_int_equal(s->pid, 10);
    assert_int_equal(s->uid, 1000);
    assert_string_equal(s->program, "shop");
    assert_string_equal(s->user, "alice");
    assert_string_equal(s->device, "host");
    assert_int_equal(s->ordinal, -1);
    assert_true(!s->device_name && !s->device_uid);
    assert_string_equal(s->space, "arena");
    assert_int_equal(s->verdict, DETECT_LEAK);
    assert_string_equal(s->reason, "sustained");
    assert_non_null(s->why);
    assert_null(strstr(s->why, "resident"));
    assert_true(s->confidence == 0.875 && s->bytes_per_s == 1500.5 && s->blocks_per_s == 2.25);
    assert_true(s->ever_freed == 0.25);
    assert_int_equal(s->live_bytes, 4096);
    assert_int_equal(s->live_blocks, 64);
    assert_int_equal(s->span_ns, 120 * NS_PER_S);
    assert_int_equal(s->growing_ns, 60 * NS_PER_S);
    assert_int_equal(s->left_ns, 3600 * NS_PER_S);
    assert_int_equal(s->limit_bytes, 2000);
    assert_string_equal(s->limit, "cgroup");
    assert_int_equal(s->n_spark, 3);
    assert_int_equal(s->spark[2], 30);
    assert_int_equal(s->book_ino, 99);
    assert_int_equal(s->site_number, 7);
    assert_int_equal(s->key, 0xabc);
    assert_string_equal(s->frame, "/usr/bin/shop+0x12");
    assert_false(s->resident || s->outside || s->by_samples);
    assert_int_equal(s->n_stack + s->n_blocks, 0);
    suspects_release(&suspects);
    assert_true(!suspects.rows && !suspects.n);
}

static void what_a_watch_does_not_know_stays_unknown(void **state)
{
    struct parts parts;
    struct leak leak = leak_of(&parts);
    parts.process.valid = 0;
    parts.process.name[0] = '\0';
    parts.account.name[0] = '\0';
    leak.frame = NULL;
    leak.headroom = (struct headroom){0};
    struct suspects suspects = take(&leak);
    const struct suspect *s = &suspects.rows[0];
    assert_int_equal(s->pid, 0);
    assert_string_equal(s->user, "1000"); /* by its number */
    assert_true(!s->program && !s->frame && !s->limit);
    assert_string_equal(s->space, ledger_space_name(MEMOIR_SPACE_HEAP));
    suspects_release(&suspects);
}

static void memory_of_a_device_is_named_after_it(void **state)
{
    struct parts parts;
    struct leak leak = leak_of(&parts);
    parts.account.device = &parts.device;
    struct suspects suspects = take(&leak);
    assert_string_equal(suspects.rows[0].device, "3 H200");
    assert_string_equal(suspects.rows[0].device_name, "H200");
    assert_string_equal(suspects.rows[0].device_uid, "GPU-1");
    assert_int_equal(suspects.rows[0].ordinal, 3);
    suspects_release(&suspects);
    parts.device.name[0] = parts.device.uid[0] = '\0';
    suspects = take(&leak);
    assert_string_equal(suspects.rows[0].device, "3");
    assert_true(!suspects.rows[0].device_name && !suspects.rows[0].device_uid);
    suspects_release(&suspects);
}

static void growth_outside_of_malloc_says_so(void **state)
{
    struct parts parts;
    struct leak leak = leak_of(&parts);
    leak.outside = true;
    struct suspects suspects = take(&leak);
    const struct suspect *s = &suspects.rows[0];
    assert_true(s->resident && s->outside);
    assert_string_equal(s->space, "outside malloc");
    assert_string_equal(s->reason, "outside malloc");
    assert_non_null(strstr(s->why, "not served by malloc"));
    assert_true(s->ever_freed < 0); /* not known */
    suspects_release(&suspects);
}

/* ---- of the books ---- */

enum { SHIFT = 20 /* a tick of a block's time is 2^20 ns */ };

struct fixture {
    struct book_builder b;
    uint32_t account, program, library;
    uint64_t blocks;
};

static void fixture_begin(struct world *w, struct fixture *f)
{
    f->blocks = 0;
    book_begin(w, &f->b, "1.book", BOOK_SOURCE_TRACK);
    f->b.h.time_shift = SHIFT;
    strcpy(f->b.h.exe, "/usr/bin/shop");
    f->account = account_add(&f->b, MEMOIR_SPACE_HEAP, BOOK_DEVICE_HOST, 10, 1000);
    f->program = builder_module(&f->b, "", "\xde\xad\xbe\xef");
    f->library = builder_module(&f->b, "/usr/lib/libtorch.so", "\x01\x02\x03");
}

static void block_add(struct fixture *f, uint32_t site, uint64_t id, uint32_t tick)
{
    builder_block(&f->b, f->blocks++, id, id * 10, 0, f->account, site, tick);
}

static const struct ledger_book *fixture_end(struct world *w, struct fixture *f)
{
    builder_publish(&f->b);
    struct ledger_book *book = add(w, "1.book");
    ledger_update_state(w->ledger, book->process);
    ledger_refresh(w->ledger);
    return book;
}

static struct suspect row_of(const struct ledger_book *book, uint32_t site)
{
    return (struct suspect){
        .pid = (uint64_t)getpid(), .book_ino = book->identity->st_ino, .site_number = site};
}

static void name(struct world *w, struct suspect *rows, size_t n)
{
    suspects_name(&(struct suspects){.rows = rows, .n = n}, n, w->ledger, NULL);
}

/* "SITE frame FRAME [STACK]", then how many samples speak for it. */
static const char *text_of(const struct suspect *s)
{
    static char text[2048];
    size_t len = (size_t)snprintf(text, sizeof(text), "%s frame %s [", s->site, s->frame);
    for (unsigned i = 0; i < s->n_stack; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s", i ? " " : "", s->stack[i]);
    snprintf(text + len, sizeof(text) - len, "] inside %u, %u of %u%s", s->n_inside,
             s->stack_samples, s->samples, s->by_samples ? " sampled" : "");
    return text;
}

static void stacks_are_named_frame_by_frame(void **state)
{
    struct world *w = *state;
    struct fixture f;
    fixture_begin(w, &f);
    const uint64_t frames[] = {BOOK_FRAME(f.library, 0x1234), BOOK_FRAME(f.program, 0x5678),
                               BOOK_FRAME(f.program, 0x9abc)};
    /* Code made at run time has no names: frames of it are one. */
    const uint64_t made[] = {BOOK_FRAME(f.program, 0x77), BOOK_FRAME(BOOK_MODULE_NONE, 0x1000),
                             BOOK_FRAME(BOOK_MODULE_NONE, 0x2000), BOOK_FRAME(f.program, 0x88),
                             BOOK_FRAME(f.program, 0x88)};
    uint64_t deep[40];
    for (size_t i = 0; i < 40; i++)
        deep[i] = BOOK_FRAME(f.program, 0x100 + i);
    const uint32_t sites[] = {
        builder_site(&f.b, f.account, 1, frames, 3), builder_site(&f.b, f.account, 2, frames, 1),
        builder_site(&f.b, f.account, 3, made, 5), builder_site(&f.b, f.account, 4, deep, 40)};
    const struct ledger_book *book = fixture_end(w, &f);
    struct suspect rows[4];
    for (size_t i = 0; i < 4; i++)
        rows[i] = row_of(book, sites[i]);
    name(w, rows, 4);
    assert_string_equal(text_of(&rows[0]),
                        "shop+0x5678 frame /usr/bin/shop+0x5678 " /* the program's own */
                        "[libtorch.so+0x1234 shop+0x5678 shop+0x9abc] inside 1, 0 of 0");
    assert_string_equal(text_of(&rows[1]), "libtorch.so+0x1234 frame /usr/lib/libtorch.so+0x1234 "
                                           "[] inside 0, 0 of 0"); /* one frame is no stack */
    assert_string_equal(text_of(&rows[2]),
                        "shop+0x77 frame /usr/bin/shop+0x77 "
                        "[shop+0x77 [JIT] shop+0x88 shop+0x88] inside 0, 0 of 0");
    assert_int_equal(rows[3].n_stack, SUSPECT_FRAMES);
    assert_string_equal(rows[3].stack[SUSPECT_FRAMES - 1], "shop+0x117");
    for (size_t i = 0; i < 4; i++)
        suspect_release(&rows[i]);
}

/* Rows of other processes, other books, sites that are not there, and rows that have a name already stay as they are. */
static void only_rows_of_the_book_are_named(void **state)
{
    struct world *w = *state;
    struct fixture f;
    fixture_begin(w, &f);
    const uint64_t frames[] = {BOOK_FRAME(f.program, 0x10), BOOK_FRAME(f.program, 0x20)};
    uint32_t site = builder_site(&f.b, f.account, 1, frames, 2);
    block_add(&f, site, 0x100, 1);
    const struct ledger_book *book = fixture_end(w, &f);
    enum { ROWS = 8 };
    struct suspect rows[ROWS];
    for (size_t i = 0; i < ROWS; i++)
        rows[i] = row_of(book, site);
    rows[1].pid++;
    rows[2].book_ino++;
    rows[3].site_number = site + 1000000;
    rows[4].site = strdup("known");
    rows[5].outside = true;
    rows[6].site_number = 0;
    name(w, rows, ROWS - 1); /* the last one is not asked for */
    static const bool expected[ROWS] = {true};
    for (size_t i = 0; i < ROWS; i++) {
        /* One that is outside of malloc shares the pass that another row of its book needs. */
        bool named = rows[i].site && strcmp(rows[i].site, "shop+0x10") == 0;
        assert_int_equal(named, expected[i] || i == 5);
        assert_int_equal(rows[i].n_stack, named ? 2 : 0);
        suspect_release(&rows[i]);
    }
    rows[0] = row_of(book, site);
    rows[0].outside = true;
    rows[1] = row_of(book, site);
    struct suspects suspects = {.rows = rows, .n = 1};
    suspects_name(&suspects, 1, w->ledger, NULL);
    assert_null(rows[0].site);
    rows[0].outside = false;
    suspects_name(&suspects, 5, w->ledger, NULL); /* more than there are */
    assert_non_null(rows[0].site);
    assert_null(rows[1].site);
    suspect_release(&rows[0]);
}

static uint32_t script_add(struct fixture *f, const char *function, const char *file)
{
    struct book_script script = {.first_line = 1};
    strcpy(script.function, function);
    strcpy(script.file, file);
    return (uint32_t)builder_add(&f->b, BOOK_SECTION_SCRIPTS, &script, sizeof(script));
}

/* Lines of scripts have names without a symbol helper. */
static void a_line_has_its_function_and_file(void **state)
{
    struct world *w = *state;
    struct fixture f;
    fixture_begin(w, &f);
    uint32_t load = script_add(&f, "load", "/srv/train.py"),
             run = script_add(&f, "run", "/srv/x.py");
    const uint64_t frames[] = {BOOK_FRAME(f.library, 0x10), BOOK_SCRIPT_FRAME(load, 41),
                               BOOK_SCRIPT_FRAME(run, 7)};
    uint32_t site = builder_site(&f.b, f.account, 1, frames, 3);
    struct suspect row = row_of(fixture_end(w, &f), site);
    name(w, &row, 1);
    assert_string_equal(text_of(&row), "train.py:41 in load frame /srv/train.py:41 "
                                       "[libtorch.so+0x10 train.py:41 in load x.py:7 in run] "
                                       "inside 1, 0 of 0");
    assert_string_equal(row.function, "load");
    assert_string_equal(row.file, "/srv/train.py");
    assert_int_equal(row.line, 41);
    assert_string_equal(row.via, "libtorch.so+0x10");
    suspect_release(&row);
}

/* This program: where it is loaded, and its build-id. */
struct self {
    uint64_t base;
    struct book_module module;
};

static int self_find(struct dl_phdr_info *info, size_t size, void *context)
{
    struct self *self = context;
    self->base = info->dlpi_addr;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const char *at = (const char *)(info->dlpi_addr + p->p_vaddr), *end = at + p->p_memsz;
        while (p->p_type == PT_NOTE && at + sizeof(ElfW(Nhdr)) <= end) {
            const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)at;
            const char *name = at + sizeof(*note), *bytes = name + (note->n_namesz + 3) / 4 * 4;
            if (note->n_type == NT_GNU_BUILD_ID &&
                note->n_descsz <= sizeof(self->module.build_id)) {
                self->module.build_id_len = (uint8_t)note->n_descsz;
                memcpy(self->module.build_id, bytes, note->n_descsz);
            }
            at = bytes + (note->n_descsz + 3) / 4 * 4;
        }
    }
    return 1; /* the program itself is the first */
}

__attribute__((noinline)) static int outermost(int n)
{
    __asm__ volatile("" : "+r"(n));
    return n + 1;
}

/* With a symbol helper each frame has its function, also those that the choice of the line does not need. */
static void frames_of_a_stack_have_names(void **state)
{
    struct world *w = *state;
    struct fixture f;
    struct self self = {0};
    MEMOIR_CLEANUP(site_names_freep)
    struct site_names *symbols = site_names_new();
    dl_iterate_phdr(self_find, &self);
    if (!symbols || !self.module.build_id_len)
        skip();
    fixture_begin(w, &f);
    ssize_t n = readlink("/proc/self/exe", f.b.h.exe, sizeof(f.b.h.exe) - 1);
    assert_true(n > 0);
    f.b.h.exe[n] = '\0';
    uint32_t module =
        (uint32_t)builder_add(&f.b, BOOK_SECTION_MODULES, &self.module, sizeof(self.module));
    uint64_t frames[30] = {BOOK_FRAME(module, (uint64_t)(uintptr_t)self_find - self.base + 1)};
    for (size_t i = 1; i < 30; i++)
        frames[i] = BOOK_FRAME(module, (uint64_t)(uintptr_t)outermost - self.base + 1);
    uint32_t site = builder_site(&f.b, f.account, 1, frames, 30);
    struct suspect row = row_of(fixture_end(w, &f), site);
    suspects_name(&(struct suspects){.rows = &row, .n = 1}, 1, w->ledger, symbols);
    assert_int_equal(row.n_stack, SUSPECT_FRAMES);
    assert_non_null(strstr(row.stack[0], "self_find"));
    for (size_t i = 1; i < SUSPECT_FRAMES; i++)
        assert_non_null(strstr(row.stack[i], "outermost"));
    suspect_release(&row);
    assert_int_equal(outermost(1), 2);
}

/* ---- stacks in words ---- */

static void check_stack(const struct profile *p, const uint32_t *frames, size_t n, size_t headline,
                        const char *expected)
{
    struct book_stack stack = {.n = n, .headline = headline};
    struct suspect s = {0};
    memcpy(stack.frames, frames, n * sizeof(*frames));
    suspect_stack(&s, p, &stack);
    char *text = strdup(text_of(&s));
    assert_string_equal(strchr(text, '['), expected);
    free(text);
    suspect_release(&s);
}

static void stacks_have_inlined_calls_and_one_frame_of_made_code(void **state)
{
    struct profile *p = profile_new();
    uint32_t program = fixture_module(p, "/usr/bin/shop", "id");
    uint32_t made = profile_add_module(p, &(struct profile_module){.kind = PROFILE_MODULE_ADDRESS});
    uint32_t main_ = fixture_frame(p, program, 0x10, "main", "/src/main.c", 5);
    uint32_t cart = profile_add_frame(p, program, 0x20);
    const struct profile_line lines[] = {
        {profile_add_string(p, "push"), profile_add_string(p, "/usr/include/c++/12/vector"), 9},
        {profile_add_string(p, "add"), profile_add_string(p, "/src/cart.c"), 12},
    };
    profile_set_lines(p, cart, lines, 2);
    uint32_t sum = profile_add_frame(p, program, 0x30);
    const struct profile_line other[] = {lines[1], lines[0]}; /* the program's own line is inside */
    profile_set_lines(p, sum, other, 2);
    uint32_t raw[] = {profile_add_frame(p, made, 0x1000), profile_add_frame(p, made, 0x2000)};
    uint32_t named = fixture_frame(p, made, 0x3000, "sort", NULL, 0);
#define CHECK(headline, expected, ...)              \
    check_stack(p, (const uint32_t[]){__VA_ARGS__}, \
                sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), headline, expected)
    CHECK(0, "[] inside 0, 0 of 0", main_); /* one frame is no stack */
    CHECK(1, "[vector:9 push cart.c:12 add main.c:5 main] inside 2, 0 of 0", cart, main_);
    CHECK(0, "[vector:9 push cart.c:12 add main.c:5 main] inside 1, 0 of 0", cart, main_);
    CHECK(0, "[cart.c:12 add vector:9 push main.c:5 main] inside 0, 0 of 0", sum, main_);
    CHECK(0, "[[JIT] main.c:5 main] inside 0, 0 of 0", raw[0], raw[1], raw[0], main_);
    CHECK(0, "[[JIT] main.c:5 main [JIT]] inside 0, 0 of 0", raw[0], main_, raw[1]);
    CHECK(0, "[main.c:5 main main.c:5 main] inside 0, 0 of 0", main_, main_);
    CHECK(0, "[sort sort] inside 0, 0 of 0", named, named); /* a recursion with a name */
    profile_free(p);
}

/* ---- sample blocks ---- */

static void check_blocks(struct world *w, const uint32_t *ticks, size_t n, const char *expected)
{
    struct fixture f;
    char text[256] = "";
    size_t len = 0;
    fixture_begin(w, &f);
    const uint64_t frame = BOOK_FRAME(f.program, 0x10);
    uint32_t other = builder_site(&f.b, f.account, 1, &frame, 1);
    uint32_t site = builder_site(&f.b, f.account, 2, &frame, 1);
    block_add(&f, other, 0x999, 1);
    for (size_t i = 0; i < n; i++)
        block_add(&f, site, ticks[i], ticks[i]); /* its ID is its time */
    block_add(&f, 0, 0x998, 500);
    const struct ledger_book *book = fixture_end(w, &f);
    struct suspect row = row_of(book, site);
    name(w, &row, 1);
    for (unsigned i = 0; i < row.n_blocks; i++) {
        const struct suspect_block *b = &row.blocks[i];
        len += (size_t)snprintf(text + len, sizeof(text) - len, " %u", (unsigned)b->id);
        assert_int_equal(b->bytes, b->id * 10);
        if (i > 0)
            assert_int_equal(row.blocks[i - 1].age_ns - b->age_ns, (b->id - row.blocks[i - 1].id)
                                                                       << SHIFT);
    }
    assert_string_equal(text, expected);
    assert_true(row.n_blocks == 0 ||
                row.blocks[0].age_ns <= proc_monotonic_ns() - book->identity->created_monotonic_ns);
    suspect_release(&row);
    assert_int_equal(unlinkat(w->dirfd, "1.book", 0), 0);
    ledger_book_remove(w->ledger, (struct ledger_book *)book);
}

/* The oldest, the one nearest to the middle of the time between, and the newest, in whatever order they lie. */
static void blocks_are_the_oldest_the_middle_and_the_newest(void **state)
{
    static const struct {
        uint32_t ticks[9];
        size_t n;
        const char *expected;
    } cases[] = {
        {{0}, 0, ""},
        {{5}, 1, " 5"},
        {{5, 9}, 2, " 5 9"},
        {{9, 5}, 2, " 5 9"},
        {{5, 9, 7}, 3, " 5 7 9"},
        {{9, 7, 5}, 3, " 5 7 9"},
        {{10, 20, 30, 40, 50, 60, 70, 80, 90}, 9, " 10 50 90"},
        {{90, 80, 70, 60, 50, 40, 30, 20, 10}, 9, " 10 50 90"},
        {{40, 90, 11, 10, 60, 12, 89, 88, 13}, 9, " 10 40 90"}, /* as near as 60, and first */
        {{60, 90, 11, 10, 40, 12, 89, 88, 13}, 9, " 10 60 90"},
        {{11, 12, 13, 10, 100, 14}, 6, " 10 14 100"},
        {{99, 98, 97, 10, 100, 96}, 6, " 10 96 100"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        check_blocks(*state, cases[i].ticks, cases[i].n, cases[i].expected);
}

/* ---- what samples agree on ---- */

static uint32_t sampled_site(struct fixture *f, uint64_t key, const uint64_t *frames, uint16_t n)
{
    uint32_t site = builder_site(&f->b, f->account, key, frames, n);
    struct book_site entry;
    const struct book_section *s = f->b.section[BOOK_SECTION_SITES];
    off_t at = (off_t)(s->offset + site * s->entry_size);
    assert_int_equal(pread(f->b.fd, &entry, sizeof(entry), at), sizeof(entry));
    entry.flags |= BOOK_SITE_SAMPLED;
    assert_int_equal(pwrite(f->b.fd, &entry, sizeof(entry), at), sizeof(entry));
    return site;
}

/* A caller is counted exactly, its stacks are samples: the one that enough live samples speak for is told, and their blocks
 * are the suspect's. Where the caller is a library's, the line of the program is found by them, too. */
static void a_stack_needs_enough_samples(void **state)
{
    struct world *w = *state;
    for (uint32_t i = 0; i < 10; i++) {
        uint32_t live = i / 2, enough = live >= SUSPECT_SAMPLES_MIN;
        bool own = i % 2;
        struct fixture f;
        char expected[256];
        fixture_begin(w, &f);
        const uint64_t stack[] = {BOOK_FRAME(own ? f.program : f.library, 0x10),
                                  BOOK_FRAME(f.program, 0x20)};
        uint32_t caller = builder_site(&f.b, f.account, 1, stack, 1);
        uint32_t sampled = sampled_site(&f, 2, stack, 2);
        uint32_t page = builder_counter_page(&f.b, BOOK_COUNTERS_SITES, 0);
        builder_site_counters(&f.b, page, sampled,
                              &(struct book_site_counters){.alloc_bytes = 500, .alloc_blocks = 5});
        for (uint32_t k = 0; k < live; k++)
            block_add(&f, sampled, 1 + k, 1 + k);
        const struct ledger_book *book = fixture_end(w, &f);
        struct suspect row = row_of(book, caller);
        name(w, &row, 1);
        const char *innermost = own ? "shop+0x10" : "libtorch.so+0x10";
        const char *folder = own ? "/usr/bin/" : "/usr/lib/";
        bool found = !own && enough; /* the line further out */
        snprintf(expected, sizeof(expected), "%s frame %s%s [%s%s] inside %d, %u of %u%s",
                 found ? "shop+0x20" : innermost, found ? "/usr/bin/" : folder,
                 found ? "shop+0x20" : innermost, enough ? innermost : "",
                 enough ? " shop+0x20" : "", found, live, live, found ? " sampled" : "");
        assert_string_equal(text_of(&row), expected);
        assert_int_equal(row.n_blocks, live < 3 ? live : 3);
        suspect_release(&row);
        assert_int_equal(unlinkat(w->dirfd, "1.book", 0), 0);
        ledger_book_remove(w->ledger, (struct ledger_book *)book);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_of_a_watch_is_taken_over),
        cmocka_unit_test(what_a_watch_does_not_know_stays_unknown),
        cmocka_unit_test(memory_of_a_device_is_named_after_it),
        cmocka_unit_test(growth_outside_of_malloc_says_so),
        WORLD_TEST(stacks_are_named_frame_by_frame),
        WORLD_TEST(only_rows_of_the_book_are_named),
        WORLD_TEST(a_line_has_its_function_and_file),
        WORLD_TEST(frames_of_a_stack_have_names),
        cmocka_unit_test(stacks_have_inlined_calls_and_one_frame_of_made_code),
        WORLD_TEST(blocks_are_the_oldest_the_middle_and_the_newest),
        WORLD_TEST(a_stack_needs_enough_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
