/* Identity of call sites and modules. Started with an argument, this program prints the key of one of
 * its own stacks and its load address. */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/personality.h>

#include <cmocka.h>

#include "site/key.h"
#include "site/module.h"
#include "site/unwind.h"

enum { MAX = 32 };

static const uint8_t id_a[20] = {1, 2, 3}, id_b[20] = {1, 2, 4};

static void key_is_what_it_always_was(void **state)
{
    struct site_frame frames[] = {
        {.build_id = id_a, .build_id_len = 20, .offset = 0x1234},
        {.path = "/usr/lib/libfoo.so.1", .offset = 0x5678},
        {.offset = 0x7f0000001000},
    };
    /* Keys are stored for years: a failure here means that every stored key lost its meaning. */
    assert_true(site_key(frames, 1) == UINT64_C(0xb3dba028721e379d));
    assert_true(site_key(frames, 2) == UINT64_C(0xac6fda30835c6ec4));
    assert_true(site_key(frames, 3) == UINT64_C(0xf691236ab98d4e73));
    assert_true(site_key(NULL, 0) == UINT64_C(0x8883184e145ca426));
}

static void key_of_a_script_is_what_it_always_was(void **state)
{
    uint64_t file = site_key_script("/srv/jobs/train.py");
    uint64_t line = site_key_line("Loader.load_batch", 41);
    assert_true(file == site_key_script("train.py")); /* wherever it is installed */
    assert_true(file != site_key_script("eval.py"));
    assert_true(line != site_key_line("Loader.load_batch", 42));
    assert_true(line != site_key_line("load_batch", 41));
    assert_true(file == UINT64_C(0x7c25820a91432b4a));
    assert_true(line == UINT64_C(0x881906d1d144b7c5));
    uint64_t key = site_key_finish(site_key_add(SITE_KEY_SEED, file, line));
    assert_true(key == UINT64_C(0x7fb6c8a2e0b9097d));
}

static void key_depends_on_module_offset_and_order(void **state)
{
    struct site_frame ab[] = {{.build_id = id_a, .build_id_len = 20, .offset = 1},
                              {.build_id = id_b, .build_id_len = 20, .offset = 2}};
    struct site_frame ba[] = {ab[1], ab[0]}, other[] = {ab[0], ab[1]};
    other[1].offset = 3;
    uint64_t key = site_key(ab, 2);
    assert_true(key != site_key(ba, 2));
    assert_true(key != site_key(other, 2));
    assert_true(key != site_key(ab, 1));
    assert_true(key == site_key((struct site_frame[]){ab[0], ab[1]}, 2));
}

static void path_counts_only_without_build_id_and_by_its_last_part(void **state)
{
    struct site_frame a = {.path = "/usr/lib/libfoo.so", .offset = 1};
    struct site_frame b = {.path = "/opt/x/libfoo.so", .offset = 1};
    struct site_frame c = {.path = "/usr/lib/libbar.so", .offset = 1};
    assert_true(site_key(&a, 1) == site_key(&b, 1));
    assert_true(site_key(&a, 1) != site_key(&c, 1));
    a.build_id = c.build_id = id_a;
    a.build_id_len = c.build_id_len = 20;
    assert_true(site_key(&a, 1) == site_key(&c, 1));
}

static void unknown_code_counts_once_and_without_its_address(void **state)
{
    struct site_frame known = {.build_id = id_a, .build_id_len = 20, .offset = 9};
    struct site_frame one[] = {{.offset = 111}, known}, other[] = {{.offset = 222}, known};
    struct site_frame two[] = {{.offset = 1}, {.path = "", .offset = 2}, known};
    assert_true(site_key(one, 2) == site_key(other, 2));
    assert_true(site_key(one, 2) == site_key(two, 3));
    assert_true(site_key(one, 2) != site_key(&known, 1));
}

static void parts_make_the_same_key(void **state)
{
    struct site_frame frames[] = {{.build_id = id_a, .build_id_len = 20, .offset = 1},
                                  {.path = "libx.so", .offset = 2},
                                  {.offset = 3}};
    uint64_t key = SITE_KEY_SEED;
    for (int i = 0; i < 3; i++) {
        const struct site_frame *f = &frames[i];
        key = site_key_add(key, site_key_module(f->build_id, f->build_id_len, f->path), f->offset);
    }
    assert_true(site_key_finish(key) == site_key(frames, 3));
}

/* ---- in a real process ---- */

static __attribute__((noinline)) uint64_t key_of_this_stack(void)
{
    static struct unwind_cache cache;
    uintptr_t pcs[MAX];
    struct module_info infos[MAX];
    struct site_frame frames[MAX];
    size_t n = unwind_stack(&cache, pcs, MAX);
    for (size_t i = 0; i < n; i++) {
        frames[i] = (struct site_frame){.offset = pcs[i]};
        if (module_find(pcs[i] - 1, &infos[i]) == 0)
            frames[i] = (struct site_frame){.build_id = infos[i].build_id,
                                            .build_id_len = infos[i].build_id_len,
                                            .path = infos[i].path,
                                            .offset = module_offset(&infos[i], pcs[i])};
    }
    return site_key(frames, n);
}

static int by_key(const void *a, const void *b)
{
    return *(const uint64_t *)b == 0 ? (*(uint64_t *)b = key_of_this_stack(), -1) : -1;
}

static void print_key(void)
{
    uint64_t keys[2] = {0, 0};
    struct module_info info;
    qsort(keys, 2, sizeof(keys[0]), by_key); /* through libc as well */
    module_find((uintptr_t)print_key, &info);
    printf("%016llx %lx\n", (unsigned long long)(keys[0] | keys[1]), (unsigned long)info.base);
}

static void key_is_the_same_in_every_run(void **state)
{
    char lines[3][80], base[3][40], key[3][40];
    for (int i = 0; i < 3; i++) {
        char command[4200];
        snprintf(command, sizeof(command), "exec \"%s\" key", (const char *)*state);
        FILE *f = popen(command, "r");
        assert_non_null(fgets(lines[i], sizeof(lines[i]), f));
        assert_int_equal(pclose(f), 0);
        assert_int_equal(sscanf(lines[i], "%39s %39s", key[i], base[i]), 2);
    }
    assert_string_equal(key[0], key[1]);
    assert_string_equal(key[0], key[2]);
    /* The load address is what differs, unless addresses are fixed here. */
    if (!(personality(0xffffffff) & ADDR_NO_RANDOMIZE))
        assert_true(strcmp(base[0], base[1]) != 0 || strcmp(base[0], base[2]) != 0);
}

static void module_has_bounds_bias_and_build_id(void **state)
{
    struct module_info info;
    Dl_info dl;
    uintptr_t pc = (uintptr_t)key_of_this_stack;
    assert_int_equal(module_find(pc, &info), 0);
    assert_true(dladdr((void *)pc, &dl) != 0);
    assert_true(info.map_start == (uintptr_t)dl.dli_fbase);
    assert_true(pc >= info.map_start && pc < info.map_end);
    assert_int_equal(info.build_id_len, 20);
    assert_int_equal(module_find((uintptr_t)dlsym(RTLD_DEFAULT, "puts"), &info), 0);
    assert_true(module_offset(&info, info.map_start) == 0);
}

static void code_of_no_module_is_unknown(void **state)
{
    struct module_info info;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(module_find((uintptr_t)page, &info), -ENOENT);
    assert_int_equal(module_find(getauxval(AT_SYSINFO_EHDR) + 16, &info), -ENOENT);
    assert_int_equal(module_find(0, &info), -ENOENT);
    assert_int_equal(module_find(UINTPTR_MAX, &info), -ENOENT);
    munmap(page, 4096);
}

/* ---- notes ---- */

static size_t add_note(uint8_t *at, uint32_t namesz, uint32_t descsz, uint32_t type,
                       const char *name)
{
    Elf64_Nhdr note = {namesz, descsz, type};
    size_t name_len = (namesz + 3u) & ~3u, desc_len = (descsz + 3u) & ~3u;
    memcpy(at, &note, sizeof(note));
    memcpy(at + sizeof(note), name, namesz);
    memset(at + sizeof(note) + name_len, 0xab, desc_len);
    return sizeof(note) + name_len + desc_len;
}

static void build_id_is_found_among_other_notes(void **state)
{
    uint8_t notes[256] = {0};
    const uint8_t *id;
    size_t len, at = add_note(notes, 4, 16, NT_GNU_ABI_TAG, "GNU");
    at += add_note(notes + at, 8, 7, NT_GNU_BUILD_ID, "NOT-GNU");
    size_t expected = at + sizeof(Elf64_Nhdr) + 4;
    at += add_note(notes + at, 4, 20, NT_GNU_BUILD_ID, "GNU");
    assert_int_equal(module_note_build_id(notes, at, &id, &len), 0);
    assert_int_equal(len, 20);
    assert_ptr_equal(id, notes + expected);
    for (size_t cut = 0; cut < at; cut++)
        assert_int_equal(module_note_build_id(notes, cut, &id, &len), -ENOENT);
}

static void notes_that_lie_about_their_size_are_refused(void **state)
{
    uint8_t notes[64];
    const uint8_t *id;
    size_t len;
    static const uint32_t sizes[] = {0xffffffff, 0xfffffffc, 0x7fffffff, 100, 0};
    for (size_t i = 0; i < 5; i++) {
        for (size_t k = 0; k < 5; k++) {
            Elf64_Nhdr note = {sizes[i], sizes[k], NT_GNU_BUILD_ID};
            memset(notes, 0, sizeof(notes));
            memcpy(notes, &note, sizeof(note));
            assert_int_equal(module_note_build_id(notes, sizeof(notes), &id, &len), -ENOENT);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        print_key();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_is_what_it_always_was),
        cmocka_unit_test(key_of_a_script_is_what_it_always_was),
        cmocka_unit_test(key_depends_on_module_offset_and_order),
        cmocka_unit_test(path_counts_only_without_build_id_and_by_its_last_part),
        cmocka_unit_test(unknown_code_counts_once_and_without_its_address),
        cmocka_unit_test(parts_make_the_same_key),
        cmocka_unit_test_prestate(key_is_the_same_in_every_run, argv[0]),
        cmocka_unit_test(module_has_bounds_bias_and_build_id),
        cmocka_unit_test(code_of_no_module_is_unknown),
        cmocka_unit_test(build_id_is_found_among_other_notes),
        cmocka_unit_test(notes_that_lie_about_their_size_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
