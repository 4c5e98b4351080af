/* Writes the first inputs of fuzz_reader: small books, whole and broken. Usage: seed_reader DIRECTORY */
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../unit/book_builder.h"
#include "../unit/book_extents.h"

static const char *directory;

/* Store the book in `fd`, with the changes in `late` (may be NULL) that happen while it is read. */
static void save(const char *name, int fd, const struct extents *late)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    struct extents e = extents_dump(fd);
    if (late)
        extents_append(&e, late->bytes, late->len);
    FILE *out = fopen(path, "w");
    if (!out || fwrite(e.bytes, 1, e.len, out) != e.len || fclose(out) != 0) {
        perror(path);
        exit(1);
    }
    free(e.bytes);
    close(fd);
}

static int sample(struct book_builder *b)
{
    int fd = builder_memfd();
    builder_sample(b, fd);
    return fd;
}

/* A late change of eight bytes. */
static void later(struct extents *e, uint64_t offset, uint64_t value)
{
    extents_add(e, offset | EXTENT_LATE, &value, sizeof(value));
}

static uint64_t section_at(const struct book_builder *b, uint32_t kind, size_t member)
{
    return (uint64_t)((const char *)b->section[kind] - (const char *)&b->h) + member;
}

static void save_growing(void)
{
    struct book_builder b;
    struct extents late = {0};
    int fd = sample(&b);
    later(&late, section_at(&b, BOOK_SECTION_REGISTRY, offsetof(struct book_section, open)), 65536);
    later(&late, section_at(&b, BOOK_SECTION_REGISTRY, offsetof(struct book_section, used)), 200);
    later(&late, section_at(&b, BOOK_SECTION_COUNTERS, offsetof(struct book_section, open)),
          1 << 20);
    later(&late, section_at(&b, BOOK_SECTION_COUNTER_INDEX, offsetof(struct book_section, used)),
          99);
    save("growing", fd, &late);
}

static void save_cut(void)
{
    struct book_builder b;
    struct extents late = {0};
    int fd = sample(&b);
    extents_add(&late, 65536 | EXTENT_LATE, NULL, 0);
    save("cut-while-read", fd, &late);
}

static void save_longer_entries(void)
{
    struct book_builder b;
    int fd = builder_memfd();
    builder_init(&b, fd);
    b.h.version = 2;
    b.section[BOOK_SECTION_REGISTRY]->entry_size = 320;
    b.section[BOOK_SECTION_COUNTERS]->entry_size = 8192;
    b.section[BOOK_SECTION_SITES]->entry_size = 40;
    b.section[BOOK_SECTION_BLOCKS]->entry_size = 8192;
    b.section[BOOK_SECTION_MOVES]->entry_size = 16;
    uint32_t account = builder_account(&b, 1, 0, "heap");
    builder_counter_page(&b, BOOK_COUNTERS_ACCOUNTS, 0);
    builder_counter_page(&b, BOOK_COUNTERS_SITES, 0);
    uint64_t frame = BOOK_FRAME(builder_module(&b, "/lib/a.so", "id"), 7);
    builder_site(&b, 2, 1, &frame, 1);
    builder_block(&b, 170, 1, 2, 0, account, 1, 3);
    builder_moves(&b, 170, 3);
    builder_publish(&b);
    save("longer-entries", fd, NULL);
}

static void save_broken(void)
{
    struct book_builder b;
    int fd = sample(&b);
    b.h.blocks_seq = 1;
    builder_block(&b, 9, 0x1000, 1000, 1, 2, 1, 1);
    save("died-while-moving", fd, NULL);

    fd = sample(&b);
    for (int i = 0; i < BOOK_SECTIONS_MAX; i++)
        b.h.sections[i].used = UINT64_MAX;
    builder_header(&b);
    save("used-too-much", fd, NULL);

    fd = sample(&b);
    b.section[BOOK_SECTION_TAGS]->offset = b.section[BOOK_SECTION_SITES]->offset;
    builder_header(&b);
    save("overlapping", fd, NULL);

    fd = builder_memfd();
    builder_init(&b, fd);
    save("not-ready", fd, NULL);

    fd = builder_memfd();
    builder_init(&b, fd);
    builder_publish(&b);
    save("empty", fd, NULL);
}

int main(int argc, char **argv)
{
    struct book_builder b;
    if (argc != 2)
        return 2;
    directory = argv[1];
    save("sample", sample(&b), NULL);
    int fd = builder_memfd();
    builder_sample_at(&b, fd, BOOK_HEADER_BYTES + BOOK_SECTION_ALIGN);
    save("shared-pages", fd, NULL);
    save_growing();
    save_cut();
    save_longer_entries();
    save_broken();
    return 0;
}
