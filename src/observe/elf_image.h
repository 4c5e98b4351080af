/* elf_image.h: what an unwinder needs of an ELF file that another process has mapped.
 *
 * The file is read, never mapped: it may be truncated or overwritten while we look. What was read is kept in private memory, so
 * a byte has one value for good. Unwind tables are read page by page as walks need them, since those of a large library take
 * tens of megabytes and a process uses a few pages of them. Every field of the file is checked before use.
 *
 * One thread at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "site/cfi.h"
#include "site/module.h" /* MODULE_BUILD_ID_MAX */

enum {
    ELF_CLUSTER = 4,
    ELF_SEGMENTS_MAX = 64,       /* PT_LOAD segments of a file */
    ELF_TABLE_MAX = 64 << 20,    /* bytes of .eh_frame_hdr */
    ELF_NOTES_MAX = 64 << 10,    /* bytes of a note segment that are looked at */
    ELF_DYNAMIC_MAX = 512,       /* entries of the dynamic section */
    ELF_SYMBOL_CHAIN_MAX = 4096, /* symbols of one hash bucket */
};
#define ELF_TABLES_SPAN_MAX (UINT64_C(4) << 30) /* address space for the unwind tables of a file */

/* Reads up to `n` bytes at an offset of the file: the number read, or -errno. */
typedef int64_t elf_read_fn(void *context, uint64_t offset, void *to, size_t n);

struct elf_segment {
    uint64_t vaddr, offset, file_bytes, memory_bytes;
    uint32_t flags; /* PF_X ... */
};

struct elf_image {
    elf_read_fn *read;
    void *context;
    struct elf_segment segments[ELF_SEGMENTS_MAX]; /* in order of vaddr */
    uint32_t n_segments;
    uint8_t build_id_len;
    uint8_t build_id[MODULE_BUILD_ID_MAX];
    uint64_t dynamic, dynamic_bytes; /* vaddr; 0: none */
    /* Unwind tables: [tables_lo, tables_hi) of the file's addresses, at `tables`, those pages whose bit is set. */
    uint64_t hdr;    /* vaddr of .eh_frame_hdr; 0: none */
    uint64_t fdes;   /* entries of its search table, which starts at */
    uint64_t search; /* this vaddr */
    uint64_t tables_lo, tables_hi;
    uint8_t *tables;
    uint64_t *loaded;
    uint64_t loaded_pages;
    uint32_t cluster; /* pages that are read together */
};

/* Read the headers. `context` is kept as long as the image. Tables are read `cluster` pages of 4 KiB at a time: ELF_CLUSTER, or more
 * where a read costs much. -ENOEXEC: no 64-bit ELF file of this machine; -EBADMSG: its headers
 * contradict each other. A file without usable unwind tables is no failure. */
int elf_image_init(struct elf_image *image, elf_read_fn *read, void *context, uint32_t cluster);
void elf_image_release(struct elf_image *image);

/* The difference between addresses of a process and of the file, given that the process has mapped the file's bytes at
 * `offset` to `start`. -ENOENT: no segment has these bytes. */
int elf_image_bias(const struct elf_image *image, uint64_t start, uint64_t offset,
                   uint64_t *ret_bias);

/* First address and one past the last of all segments. */
void elf_image_span(const struct elf_image *image, uint64_t *ret_lo, uint64_t *ret_hi);

/* The frame rules at a code address of the file, as cfi_find(); the section is good until elf_image_drop(). Expressions of the
 * row may be evaluated with it. -EIO, -ENODATA: the file cannot be read there. */
int elf_image_row(struct elf_image *image, uint64_t vaddr, struct cfi_section *ret_section,
                  struct cfi_row *ret_row);

/* The code address as pointers of the section have it. */
uintptr_t elf_image_pc(const struct elf_image *image, uint64_t vaddr);

/* Give back the pages of the unwind tables. They are read again when needed. */
void elf_image_drop(struct elf_image *image);
static inline uint64_t elf_image_loaded_bytes(const struct elf_image *image)
{
    return image->loaded_pages * 4096;
}

/* An exported symbol by its name, through DT_GNU_HASH. -ENOENT. */
struct elf_symbol {
    uint64_t vaddr, bytes;
};
int elf_image_symbol(struct elf_image *image, const char *name, struct elf_symbol *ret_symbol);

/* Bytes of the file at an address of a segment: 0, or -ENOENT, -ENODATA if they are not all in the file, -errno. */
int elf_image_read(struct elf_image *image, uint64_t vaddr, void *to, size_t n);
