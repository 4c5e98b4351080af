/* Call sites in books that are written on behalf of other processes. */
#include "book/identity.h"
#include "site/key.h"
#include "site/module.h"
#include "site/unwind.h"
#include "writer_fixture.h"

static const struct book_writer_options behalf = {.source = BOOK_SOURCE_OBSERVER,
                                                  .on_behalf = true};

static struct book_module module_of(const char *path, uint8_t id, uint64_t bias)
{
    struct book_module m = {.bias = bias, .map_start = bias, .map_end = bias + 0x100000};
    if (id) {
        m.build_id_len = 20;
        memset(m.build_id, id, 20);
    }
    snprintf(m.path, sizeof(m.path), "%s", path);
    return m;
}

static struct book_script script_of(const char *file, const char *function)
{
    struct book_script s = {.first_line = 7};
    snprintf(s.file, sizeof(s.file), "%s", file);
    snprintf(s.function, sizeof(s.function), "%s", function);
    return s;
}

/* A stack of two modules, one without build-id, a script and code of no module. */
struct stack {
    struct book_module torch, plain;
    struct book_script train;
    struct book_frame frames[5];
};

static void stack_fill(struct stack *s)
{
    s->torch = module_of("/opt/lib/libtorch.so", 1, 0x7f0000000000);
    s->plain = module_of("/opt/lib/libplain.so", 0, 0x7e0000000000);
    s->train = script_of("/home/u/train.py", "Trainer.step");
    s->frames[0] = (struct book_frame){.module = &s->torch, .offset = 0x1234};
    s->frames[1] = (struct book_frame){.module = &s->torch, .offset = 0x2234};
    s->frames[2] = (struct book_frame){.module = &s->plain, .offset = 0x10};
    s->frames[3] = (struct book_frame){.script = &s->train, .offset = 41};
    s->frames[4] = (struct book_frame){.offset = 0x7d0000001000};
}

static uint64_t key_by_hand(const struct stack *s)
{
    uint64_t key = SITE_KEY_SEED, torch = site_key_module(s->torch.build_id, 20, NULL);
    key = site_key_add(key, torch, 0x1234);
    key = site_key_add(key, torch, 0x2234);
    key = site_key_add(key, site_key_module(NULL, 0, "libplain.so"), 0x10);
    key = site_key_add(key, site_key_script("train.py"), site_key_line("Trainer.step", 41));
    return site_key_finish(site_key_add(key, SITE_KEY_UNKNOWN, 0));
}

static struct fixture *book_new(int *ret_directory)
{
    struct fixture *f = fixture_new(&behalf);
    *ret_directory = open(fixture_root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(*ret_directory >= 0);
    snprintf(f->w.directory, sizeof(f->w.directory), "%s", fixture_root);
    return f;
}

struct opened {
    int fd;
    struct book_reader *reader;
    struct book_sites sites;
};

static void book_open(const struct fixture *f, struct opened *o)
{
    o->fd = fixture_open(f);
    assert_int_equal(book_reader_open_fd(o->fd, &o->reader), 0);
    assert_int_equal(book_reader_refresh(o->reader), 0);
    assert_int_equal(book_reader_sites(o->reader, o->fd, &o->sites), 0);
}

static void book_close(struct opened *o)
{
    book_sites_release(&o->sites);
    book_reader_free(o->reader);
    close(o->fd);
}

static void expect_stack(const struct book_sites *sites, uint32_t number, const struct stack *s)
{
    const struct book_site *site = &sites->sites[number];
    const uint64_t *words = sites->frames + site->first_frame;
    assert_int_equal(site->frames, 5);
    assert_int_equal(site->key, key_by_hand(s));
    assert_string_equal(book_sites_module(sites, words[0])->path, s->torch.path);
    assert_int_equal(book_sites_module(sites, words[0])->build_id_len, 20);
    assert_int_equal(BOOK_FRAME_OFFSET(words[1]), 0x2234);
    assert_string_equal(book_sites_module(sites, words[2])->path, s->plain.path);
    assert_string_equal(book_sites_script(sites, words[3])->function, "Trainer.step");
    assert_string_equal(book_sites_script(sites, words[3])->file, "/home/u/train.py");
    assert_int_equal(BOOK_FRAME_LINE(words[3]), 41);
    assert_int_equal(BOOK_FRAME_MODULE(words[4]), BOOK_MODULE_NONE);
    assert_int_equal(BOOK_FRAME_OFFSET(words[4]), 0x7d0000001000);
}

static void a_book_on_behalf_has_sites_with_counters(void **unused)
{
    int directory;
    struct stack s;
    struct opened o;
    struct fixture *f = book_new(&directory);
    stack_fill(&s);
    int account = book_account_add(&f->w, &f->t, 1, BOOK_DEVICE_HOST, "heap");
    uint32_t before = book_site_add_frames(&f->w, &f->t, (uint32_t)account, s.frames, 5, 0);
    book_alloc(&f->w, &f->t, 1, 1000, (uint64_t)before << 12 | (uint32_t)account);
    assert_int_equal(book_writer_publish_at(&f->w, directory), 0);
    /* The same stack is the same site, before and after the book became a file. */
    assert_int_equal(book_site_add_frames(&f->w, &f->t, (uint32_t)account, s.frames, 5, 0), before);
    uint32_t inner =
        book_site_add_frames(&f->w, &f->t, (uint32_t)account, s.frames + 1, 4, BOOK_SITE_CUT);
    assert_int_not_equal(inner, before);
    book_alloc(&f->w, &f->t, 2, 500, (uint64_t)inner << 12 | (uint32_t)account);
    book_free(&f->w, &f->t, (uint32_t)account, 1);
    book_open(f, &o);
    expect_stack(&o.sites, before, &s);
    assert_int_equal(o.sites.counters[before].alloc_bytes, 1000);
    assert_int_equal(o.sites.counters[before].freed_bytes, 1000);
    assert_int_equal(o.sites.counters[inner].alloc_bytes, 500);
    assert_true(o.sites.sites[inner].flags & BOOK_SITE_CUT);
    assert_int_equal(o.sites.n_modules, 3); /* number 0 is none */
    struct book_totals totals;
    ssize_t index = book_reader_account_index(o.reader, (uint32_t)account);
    assert_int_equal(book_reader_totals(o.reader, (size_t)index, &totals), 0);
    assert_int_equal(totals.live_bytes, 500);
    book_close(&o);
    close(directory);
    fixture_free(f);
}

static void a_successor_adopts_sites(void **unused)
{
    int directory;
    struct stack s;
    struct opened o, later;
    struct fixture *f = book_new(&directory);
    stack_fill(&s);
    int account = book_account_add(&f->w, &f->t, 1, BOOK_DEVICE_HOST, "heap");
    book_site_add_frames(&f->w, &f->t, (uint32_t)account, s.frames + 3, 1, 0);
    uint32_t site = book_site_add_frames(&f->w, &f->t, (uint32_t)account, s.frames, 5, 0);
    assert_int_equal(book_writer_publish_at(&f->w, directory), 0);
    book_open(f, &o);
    struct fixture *next = book_new(&directory);
    uint32_t adopted = book_site_adopt(&next->w, &next->t, (uint32_t)account, &o.sites, site);
    assert_int_equal(adopted, 1);
    /* What is found again is the same site. */
    assert_int_equal(book_site_add_frames(&next->w, &next->t, (uint32_t)account, s.frames, 5, 0),
                     adopted);
    assert_int_equal(book_site_adopt(&next->w, &next->t, (uint32_t)account, &o.sites, 0),
                     BOOK_SITE_NONE);
    assert_int_equal(
        book_site_adopt(&next->w, &next->t, (uint32_t)account, &o.sites, (uint32_t)o.sites.n_sites),
        BOOK_SITE_NONE);
    assert_int_equal(book_writer_publish_at(&next->w, directory), 0);
    book_open(next, &later);
    expect_stack(&later.sites, adopted, &s);
    book_close(&later);
    book_close(&o);
    close(directory);
    fixture_free(next);
    fixture_free(f);
}

/* What this process finds out about itself, given as another's. */
static void the_key_is_that_which_the_process_computes(void **unused)
{
    uintptr_t pcs[16];
    struct book_module modules[16];
    struct book_frame frames[16];
    struct fixture *own = fixture_new(&(struct book_writer_options){.source = BOOK_SOURCE_TRACK});
    size_t n = unwind_stack(NULL, pcs, 16);
    assert_true(n > 2);
    for (size_t i = 0; i < n; i++) {
        struct module_info info;
        assert_int_equal(module_find(pcs[i], &info), 0);
        modules[i] = (struct book_module){.bias = info.base, .build_id_len = info.build_id_len};
        memcpy(modules[i].build_id, info.build_id, info.build_id_len);
        snprintf(modules[i].path, sizeof(modules[i].path), "%s",
                 info.path[0] ? info.path : "/proc/self/exe");
        frames[i] =
            (struct book_frame){.module = &modules[i], .offset = module_offset(&info, pcs[i])};
    }
    uint32_t site = book_site_add(&own->w, &own->t, 1, pcs, n, 0);
    const struct book_site *sites = (const void *)own->w.at[BOOK_SECTION_SITES];
    assert_int_equal(book_frames_key(frames, n), sites[site].key);
    fixture_free(own);
}

static void modules_without_room_leave_frames_unknown(void **unused)
{
    struct fixture *f = fixture_new(&behalf);
    struct book_module module;
    struct book_frame frame = {.module = &module, .offset = 1};
    uint32_t site = 0;
    for (uint32_t i = 0; i < BOOK_MODULES_MAX + 1; i++) {
        char path[32];
        snprintf(path, sizeof(path), "/lib%u.so", i);
        module = module_of(path, 0, i * UINT64_C(0x100000));
        site = book_site_add_frames(&f->w, &f->t, 1, &frame, 1, 0);
        assert_int_not_equal(site, BOOK_SITE_NONE);
    }
    const struct book_site *sites = (const void *)f->w.at[BOOK_SECTION_SITES];
    const uint64_t *words = (const void *)f->w.at[BOOK_SECTION_FRAMES];
    assert_true(words[sites[site].first_frame] == BOOK_SCRIPT_FRAME(0, 0));
    assert_true(f->w.header->losses[BOOK_LOSS_MODULES_FULL] > 0);
    fixture_free(f);
}

static void a_library_that_moved_is_the_same_by_its_build_id(void **unused)
{
    struct fixture *f = fixture_new(&behalf);
    struct book_module first = module_of("/a.so", 1, 0x10000),
                       moved = module_of("/a.so", 1, 0x90000);
    struct book_module other = module_of("/a.so", 2, 0x10000);
    struct book_frame frame = {.module = &first, .offset = 1};
    uint32_t site = book_site_add_frames(&f->w, &f->t, 1, &frame, 1, 0);
    frame.module = &moved;
    assert_int_equal(book_site_add_frames(&f->w, &f->t, 1, &frame, 1, 0), site);
    frame.module = &other;
    assert_int_not_equal(book_site_add_frames(&f->w, &f->t, 1, &frame, 1, 0), site);
    const struct book_module *kept = (const void *)f->w.at[BOOK_SECTION_MODULES];
    assert_int_equal(kept[2].generation, 1);
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_book_on_behalf_has_sites_with_counters),
        cmocka_unit_test(a_successor_adopts_sites),
        cmocka_unit_test(the_key_is_that_which_the_process_computes),
        cmocka_unit_test(modules_without_room_leave_frames_unknown),
        cmocka_unit_test(a_library_that_moved_is_the_same_by_its_build_id),
    };
    return cmocka_run_group_tests(tests, fixture_enter, fixture_leave);
}
