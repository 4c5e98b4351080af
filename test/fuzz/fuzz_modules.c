/* What the observer reads of other processes: ELF files, maps, objects of CPython. The first byte says which. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "observe/elf_exports.h"
#include "observe/elf_image.h"
#include "observe/modules.h"
#include "observe/python_remote.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct bytes {
    const uint8_t *at;
    size_t n;
};

/* ---- ELF files ---- */

static int64_t read_file(void *context, uint64_t offset, void *to, size_t n)
{
    const struct bytes *b = context;
    if (offset >= b->n)
        return 0;
    n = n < b->n - offset ? n : b->n - offset;
    memcpy(to, b->at + offset, n);
    return (int64_t)n;
}

static bool read_stack(void *context, uintptr_t addr, uintptr_t *ret_value)
{
    *ret_value = addr * 3;
    return addr % 5 != 0;
}

static void row_try(struct elf_image *image, uint64_t vaddr)
{
    struct cfi_section section;
    struct cfi_row row;
    if (elf_image_row(image, vaddr, &section, &row) < 0)
        return;
    struct cfi_regs regs = {.pc = elf_image_pc(image, vaddr), .valid = 0xffff};
    for (int i = 0; i < ARCH_REG_COUNT; i++)
        regs.r[i] = 0x7000 + (uintptr_t)i * 64;
    cfi_step(&section, &row, read_stack, NULL, &regs);
}

static void function_look(void *context, const struct elf_function *function)
{
    uint64_t *sum = context;
    *sum += strlen(function->name) + function->offset;
}

static void elf_try(const struct bytes *b)
{
    struct elf_image image;
    struct elf_symbol symbol;
    uint64_t lo, hi, bias, sum = 0;
    elf_exports(read_file, (void *)b, function_look, &sum);
    elf_functions(read_file, (void *)b, function_look, &sum);
    if (elf_image_init(&image, read_file, (void *)b, ELF_CLUSTER) < 0)
        return;
    elf_image_span(&image, &lo, &hi);
    elf_image_bias(&image, 0x7f0000000000, 0x1000, &bias);
    for (uint64_t i = 0; i < 64; i++)
        row_try(&image, lo + (hi - lo) / 64 * i + i);
    /* Where entries are, the search table itself says. */
    for (uint32_t i = 0; i < image.n_segments; i++)
        row_try(&image, image.segments[i].vaddr + 1);
    elf_image_drop(&image);
    row_try(&image, lo + 0x1001);
    elf_image_symbol(&image, "capture", &symbol);
    elf_image_symbol(&image, "_PyRuntime", &symbol);
    elf_image_release(&image);
}

/* ---- maps ---- */

static void maps_try(const struct bytes *b)
{
    static struct module_files files;
    struct module_map map;
    if (module_map_init(&map, &files, 1 << 30) < 0)
        return;
    for (int round = 0; round < 2; round++) {
        if (module_map_parse(&map, (const char *)b->at, b->n) < 0)
            break;
        for (uint32_t i = 0; i < map.n_ranges; i++) {
            const struct module_range *r = &map.ranges[i];
            if (r->start >= r->end || (i > 0 && r->start < map.ranges[i - 1].end) ||
                module_map_range(&map, r->start) != r || module_map_range(&map, r->end - 1) != r)
                abort();
            if (strlen(map.names + r->name) > b->n)
                abort();
        }
    }
    module_map_release(&map);
}

/* ---- CPython ---- */

#define MEMORY_AT UINT64_C(0x10000)

static void read_memory(void *context, struct remote_piece *pieces, size_t n)
{
    const struct bytes *b = context;
    for (size_t i = 0; i < n; i++) {
        uint64_t at = pieces[i].address - MEMORY_AT;
        pieces[i].done = at <= b->n && pieces[i].bytes <= b->n - at;
        if (pieces[i].done)
            memcpy(pieces[i].to, b->at + at, pieces[i].bytes);
    }
}

/* Version (index of a layout), then a capture, then the memory. */
static void python_try(const struct bytes *b)
{
    static struct python_remote *remote;
    struct python_capture capture = {0};
    size_t head = 1 + sizeof(capture.n) + sizeof(capture.flags) + 8 * sizeof(capture.entries[0]);
    if (b->n < head || (!remote && !(remote = malloc(sizeof(*remote)))))
        return;
    memset(remote, 0, sizeof(*remote));
    struct bytes memory = {b->at + head, b->n - head};
    memcpy(&capture.n, b->at + 1, sizeof(capture.n));
    memcpy(&capture.flags, b->at + 5, sizeof(capture.flags));
    memcpy(capture.entries, b->at + 9, 8 * sizeof(capture.entries[0]));
    remote->read = read_memory;
    remote->context = &memory;
    remote->py.facts.layout = python_layouts[b->at[0] % 6];
    remote->py.facts.code_type = 0x20000;
    remote->py.facts.text_type = 0x20008;
    remote->py.facts.bytes_type = 0x20010;
    remote->py.state = PYTHON_READY;
    for (int round = 0; round < 2; round++) {
        if (!python_remote_stack(remote, &capture))
            return;
        if (remote->stack.n > PYTHON_CAPTURE_ENTRIES || remote->stack.n_runs > PYTHON_FRAMES_MAX)
            abort();
        uint32_t named = python_remote_names(remote, remote->stack.n);
        if (named > remote->stack.n)
            abort();
        for (uint32_t i = 0; i < remote->stack.n; i++)
            if (!memchr(remote->scripts[i].function, 0, sizeof(remote->scripts[i].function)) ||
                !memchr(remote->scripts[i].file, 0, sizeof(remote->scripts[i].file)))
                abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    /* A copy of its own, so that a sanitizer sees one byte too many. */
    struct bytes b = {NULL, size - 1};
    uint8_t *copy = malloc(b.n ? b.n : 1);
    if (!copy)
        return 0;
    memcpy(copy, data + 1, b.n);
    b.at = copy;
    if (data[0] % 3 == 0)
        elf_try(&b);
    else if (data[0] % 3 == 1)
        maps_try(&b);
    else
        python_try(&b);
    free(copy);
    return 0;
}
