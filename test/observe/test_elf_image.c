/* ELF files as the observer reads them: whole, truncated, damaged, changing. */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"
#include "observe/elf_image.h"
#include "observe/modules.h"
#include "site/module.h"

struct bytes {
    uint8_t *at;
    size_t n;
    size_t fail_from; /* reads beyond fail, if not 0: as of a file that was cut */
};

static int64_t read_bytes(void *context, uint64_t offset, void *to, size_t n)
{
    const struct bytes *b = context;
    size_t end = b->fail_from && b->fail_from < b->n ? b->fail_from : b->n;
    if (offset >= end)
        return 0;
    n = n < end - offset ? n : end - offset;
    memcpy(to, b->at + offset, n);
    return (int64_t)n;
}

/* A library that this process has loaded, and where. */
struct library {
    struct bytes file;
    struct module_info info;
    void *symbol;
};

static void library_read(struct library *l)
{
    struct stat st;
    memset(l, 0, sizeof(*l));
    l->symbol = dlsym(RTLD_DEFAULT, "lfind"); /* no sanitizer stands in for it */
    assert_int_equal(module_find((uintptr_t)l->symbol, &l->info), 0);
    int fd = open(l->info.path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    l->file.n = (size_t)st.st_size;
    l->file.at = malloc(l->file.n);
    assert_int_equal(read(fd, l->file.at, l->file.n), st.st_size);
    close(fd);
}

static void headers_are_those_that_the_loader_saw(void **state)
{
    struct library l;
    struct elf_image image;
    struct elf_symbol symbol;
    library_read(&l);
    assert_int_equal(elf_image_init(&image, read_bytes, &l.file, ELF_CLUSTER), 0);
    assert_int_equal(image.build_id_len, l.info.build_id_len);
    assert_memory_equal(image.build_id, l.info.build_id, l.info.build_id_len);
    assert_int_equal(elf_image_symbol(&image, "lfind", &symbol), 0);
    assert_int_equal(symbol.vaddr + l.info.base, (uintptr_t)l.symbol);
    assert_int_equal(elf_image_symbol(&image, "no_such_function", &symbol), -ENOENT);
    elf_image_release(&image);
    free(l.file.at);
}

/* All of .text: the same rows as from the tables in memory, whatever was dropped meanwhile. */
static void rows_are_those_of_the_tables_in_memory(void **state)
{
    struct library l;
    struct elf_image image;
    struct module_object object;
    struct cfi_section mapped = {0}, section;
    uint64_t lo = 0, hi = 0, found = 0;
    library_read(&l);
    assert_int_equal(elf_image_init(&image, read_bytes, &l.file, ELF_CLUSTER), 0);
    assert_int_equal(module_object_find((uintptr_t)l.symbol, &object), 0);
    mapped.hdr = object.eh_frame_hdr;
    assert_int_equal(module_segment_find(&object, (uintptr_t)mapped.hdr, &mapped.lo, &mapped.hi),
                     0);
    for (uint32_t i = 0; i < image.n_segments; i++) {
        if (!(image.segments[i].flags & PF_X))
            continue;
        lo = image.segments[i].vaddr;
        hi = lo + image.segments[i].file_bytes;
    }
    for (uint64_t at = lo; at < hi; at += 97) {
        struct cfi_row row = {0}, expected = {0};
        int r = cfi_find(&mapped, at + l.info.base, &expected);
        assert_int_equal(elf_image_row(&image, at, &section, &row), r);
        if (r < 0)
            continue;
        found++;
        assert_int_equal(row.cfa_reg, expected.cfa_reg);
        assert_memory_equal(row.how, expected.how, sizeof(row.how));
        if (!row.cfa_is_expression)
            assert_int_equal(row.cfa_value, expected.cfa_value);
        if (found % 1000 == 0)
            elf_image_drop(&image);
    }
    assert_true(found > 1000);
    elf_image_release(&image);
    free(l.file.at);
}

static void a_truncated_file_fails_in_order(void **state)
{
    struct library l;
    struct elf_symbol symbol;
    struct cfi_section section;
    struct cfi_row row;
    library_read(&l);
    struct elf_image image;
    for (size_t n = 0; n < l.file.n; n = n < 4096 ? n + 61 : n + n / 16) {
        l.file.fail_from = n + 1;
        if (elf_image_init(&image, read_bytes, &l.file, ELF_CLUSTER) < 0)
            continue;
        elf_image_row(&image, (uintptr_t)l.symbol - l.info.base, &section, &row);
        elf_image_symbol(&image, "lfind", &symbol);
        elf_image_release(&image);
    }
    /* One that is cut while it is in use. */
    l.file.fail_from = 0;
    assert_int_equal(elf_image_init(&image, read_bytes, &l.file, ELF_CLUSTER), 0);
    l.file.fail_from = 4096;
    assert_true(elf_image_row(&image, (uintptr_t)l.symbol - l.info.base, &section, &row) < 0);
    l.file.fail_from = 0;
    assert_int_equal(elf_image_row(&image, (uintptr_t)l.symbol - l.info.base, &section, &row), 0);
    elf_image_release(&image);
    free(l.file.at);
}

static void damaged_files_are_survived(void **state)
{
    struct library l;
    unsigned seed = check_seed();
    library_read(&l);
    uint8_t *whole = l.file.at;
    l.file.at = malloc(l.file.n);
    for (int round = 0; round < 300; round++) {
        struct elf_image image;
        struct elf_symbol symbol;
        memcpy(l.file.at, whole, l.file.n);
        for (int i = 0; i < 40; i++) {
            seed = seed * 1103515245 + 12345;
            size_t span = round % 2 ? l.file.n : 1024; /* headers, or anything */
            l.file.at[(seed >> 4) % span] = (uint8_t)(seed >> 20);
        }
        memcpy(l.file.at, whole, 20); /* else it is no ELF file at all */
        if (elf_image_init(&image, read_bytes, &l.file, ELF_CLUSTER) < 0)
            continue;
        for (unsigned i = 0; i < 200; i++) {
            struct cfi_section section;
            struct cfi_row row;
            elf_image_row(&image, (uintptr_t)l.symbol - l.info.base + i * 400, &section, &row);
        }
        elf_image_symbol(&image, "lfind", &symbol);
        elf_image_release(&image);
    }
    free(l.file.at);
    free(whole);
}

/* Addresses that are not relative to where they stand: as some assemblers write them for programs at a fixed address. */
static void absolute_addresses_are_those_of_the_file(void **state)
{
    enum { TEXT = 0x401000, HDR = 0x402000 };
    static uint8_t tables[4096] __attribute__((aligned(4096)));
    uint8_t *at = tables;
    int32_t pair[2] = {TEXT - HDR, 64 + 28};
    memcpy(at, "\1\x1b\3\x3b", 4);
    memcpy(at + 8, "\1\0\0\0", 4);
    memcpy(at + 12, pair, 8);
    /* CIE: "zR" with absolute pointers; CFA = rsp + 8, return address below it. */
    static const uint8_t cie[] = {24, 0, 0, 0,    0, 0, 0,    0, 1, 'z', 'R', 0, 1, 0x78,
                                  16, 1, 0, 0x0c, 7, 8, 0x90, 1, 0, 0,   0,   0, 0, 0};
    memcpy(at + 64, cie, sizeof(cie));
    uint32_t length = 24, back = 28 + 4; /* to the CIE */
    uint64_t start = TEXT, range = 16;
    memcpy(at + 92, &length, 4);
    memcpy(at + 96, &back, 4);
    memcpy(at + 100, &start, 8);
    memcpy(at + 108, &range, 8);
    struct cfi_section section = {.hdr = tables, .lo = tables, .hi = tables + sizeof(tables)};
    section.shift = (uintptr_t)tables - HDR;
    struct cfi_row row;
    assert_int_equal(cfi_find(&section, (uintptr_t)tables - HDR + TEXT + 4, &row), 0);
    assert_int_equal(row.cfa_reg, 7);
    assert_int_equal(row.cfa_value, 8);
    assert_int_equal(cfi_find(&section, (uintptr_t)tables - HDR + TEXT + 16, &row), -ENOENT);
    section.shift = 0;
    assert_int_equal(cfi_find(&section, (uintptr_t)tables - HDR + TEXT + 4, &row), -ENOENT);
}

/* ---- maps ---- */

static void maps_are_read_as_the_kernel_writes_them(void **state)
{
    static struct module_files files;
    struct module_map map;
    static const char text[] =
        "55d000000000-55d000001000 r--p 00000000 fe:00 123 /usr/bin/prog\n"
        "55d000001000-55d000002000 r-xp 00001000 fe:00 123                        /usr/bin/prog\n"
        "7f0000000000-7f0000001000 r-xp 00001000 00:1a 77 /tmp/a b\\012c.so (deleted)\n"
        "7f0000002000-7f0000003000 rwxp 00000000 00:00 0\n"
        "7ffc00100000-7ffc00102000 r-xp 00000000 00:00 0                          [vdso]\n"
        "7fffffffe000-7ffffffff000 --xp 00000000 00:00 0                          [uprobes]\n";
    assert_int_equal(module_map_init(&map, &files, getpid()), 0);
    assert_int_equal(module_map_parse(&map, text, sizeof(text) - 1), 0);
    assert_int_equal(map.n_ranges, 5);
    assert_null(module_map_range(&map, 0x55d000000000));
    const struct module_range *r = module_map_range(&map, 0x55d000001fff);
    assert_ptr_equal(r, &map.ranges[0]);
    assert_int_equal(r->offset, 0x1000);
    assert_int_equal(r->ino, 123);
    assert_int_equal(r->kind, MODULE_RANGE_FILE);
    assert_null(module_map_range(&map, 0x55d000002000));
    assert_string_equal(map.names + map.ranges[1].name, "/tmp/a b\nc.so");
    assert_int_equal(map.ranges[2].kind, MODULE_RANGE_ANONYMOUS);
    assert_int_equal(map.ranges[3].kind, MODULE_RANGE_ANONYMOUS);
    assert_int_equal(map.ranges[4].kind, MODULE_RANGE_TRAMPOLINE);
    module_map_release(&map);
}

/* The files of two processes are shared, and every module is found where it is. */
static void files_are_shared_by_processes(void **state)
{
    static struct module_files files;
    struct module_map maps[2];
    struct module *modules[2];
    struct library l;
    library_read(&l);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(module_map_init(&maps[i], &files, getpid()), 0);
        assert_int_equal(module_map_read(&maps[i]), 0);
        struct module_range *r = module_map_range(&maps[i], (uintptr_t)l.symbol);
        assert_non_null(r);
        modules[i] = module_map_module(&maps[i], r);
        assert_non_null(modules[i]);
        assert_int_equal(modules[i]->bias, l.info.base);
        assert_int_equal(modules[i]->info.map_start, l.info.map_start);
        assert_int_equal(modules[i]->info.build_id_len, l.info.build_id_len);
        assert_memory_equal(modules[i]->info.build_id, l.info.build_id, l.info.build_id_len);
        /* Reading the maps again changes nothing. */
        assert_int_equal(module_map_read(&maps[i]), 0);
        r = module_map_range(&maps[i], (uintptr_t)l.symbol);
        assert_ptr_equal(module_map_module(&maps[i], r), modules[i]);
    }
    assert_ptr_equal(modules[0]->file, modules[1]->file);
    assert_int_equal(modules[0]->file->references, 2);
    assert_int_equal(files.n, 1);
    module_map_release(&maps[0]);
    module_map_release(&maps[1]);
    module_files_release(&files);
    free(l.file.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_those_that_the_loader_saw),
        cmocka_unit_test(rows_are_those_of_the_tables_in_memory),
        cmocka_unit_test(a_truncated_file_fails_in_order),
        cmocka_unit_test(damaged_files_are_survived),
        cmocka_unit_test(absolute_addresses_are_those_of_the_file),
        cmocka_unit_test(maps_are_read_as_the_kernel_writes_them),
        cmocka_unit_test(files_are_shared_by_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
