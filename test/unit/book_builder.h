/* Compose a book by hand, byte for byte from layout.h and without the writer's code, so that tests of
 * the reader do not depend on what they should check and can make every kind of broken book.
 *
 *     struct book_builder b;
 *     builder_init(&b, fd);                       // an empty, sparse file: memfd or tmpfs
 *     uint32_t gpu = builder_device(&b, 1, 0, "GPU");
 *     uint32_t dram = builder_account(&b, MEMOIR_SPACE_DRAM, gpu, "dram");
 *     builder_publish(&b);                        // header and magic
 *
 * Everything may also be changed after publishing, as a live writer would. */
#pragma once

#include <stdint.h>

#include "book/layout.h"

struct book_builder {
    int fd; /* borrowed */
    struct book_header h;
    struct book_section *section[BOOK_SECTION_SCRIPTS + 1]; /* into h, by kind */
};

void builder_init(struct book_builder *b, int fd);

/* The same with the first section at that offset; the others follow, so that with one which is no
 * multiple of a page they share pages. */
void builder_init_at(struct book_builder *b, int fd, uint64_t first_section);

/* A memfd for a book; the caller closes it. */
int builder_memfd(void);

/* The same file by another open file description, as another process would have it. */
int builder_reopen(int fd);

/* Write the header (without its magic until published), or all of it. */
void builder_header(struct book_builder *b);
void builder_publish(struct book_builder *b);

/* Put one entry where it belongs, opening the section up to it. */
void builder_put(struct book_builder *b, uint32_t kind, uint64_t number, const void *entry,
                 uint64_t len);
/* Put it at the end; its number. Updates `used` in the file, too. */
uint64_t builder_add(struct book_builder *b, uint32_t kind, const void *entry, uint64_t len);

uint32_t builder_device(struct book_builder *b, uint32_t kind, int32_t ordinal, const char *name);
uint32_t builder_account(struct book_builder *b, uint32_t space, uint32_t device, const char *name);

/* Where the counters in an account's own record lie in the file. */
uint64_t builder_common_offset(const struct book_builder *b, uint32_t account);

/* A counter page; its number. */
uint32_t builder_counter_page(struct book_builder *b, uint32_t what, uint32_t first);
void builder_counters(struct book_builder *b, uint32_t page, uint32_t index,
                      const struct book_counters *counters);
void builder_site_counters(struct book_builder *b, uint32_t page, uint32_t index,
                           const struct book_site_counters *counters);

uint32_t builder_module(struct book_builder *b, const char *path, const char *build_id);
uint32_t builder_site(struct book_builder *b, uint32_t account, uint64_t key,
                      const uint64_t *frames, uint16_t n);
uint32_t builder_tag(struct book_builder *b, const char *name);
void builder_block(struct book_builder *b, uint64_t slot, uint64_t id, uint64_t bytes, uint32_t tag,
                   uint32_t account, uint32_t site, uint32_t time);
void builder_moves(struct book_builder *b, uint64_t slot, uint32_t count);

/* A small book that has something of everything: two accounts on a device and the heap, two counter
 * pages, two modules, two sites, a tag, three blocks. The figures are in the .c file and in the tests. */
void builder_sample(struct book_builder *b, int fd);
void builder_sample_at(struct book_builder *b, int fd, uint64_t first_section);
