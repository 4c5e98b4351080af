/* book_builder.c: see book_builder.h. Anything that fails here is a broken test: it aborts. */
#include "book_builder.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memoir/memoir.h>

enum { PAGE = 4096 };

static const struct {
    uint32_t kind, entry_size;
    uint64_t size;
} shapes[] = {
    {BOOK_SECTION_CONTROL, sizeof(struct book_control), 65536},
    {BOOK_SECTION_REGISTRY, BOOK_RECORD_BYTES, 1 << 20},
    {BOOK_SECTION_COUNTER_INDEX, sizeof(struct book_counter_page), 65536},
    {BOOK_SECTION_COUNTERS, BOOK_COUNTER_PAGE_BYTES, 16 << 20},
    {BOOK_SECTION_MODULES, sizeof(struct book_module), 1 << 20},
    {BOOK_SECTION_FRAMES, sizeof(uint64_t), 1 << 20},
    {BOOK_SECTION_SITES, sizeof(struct book_site), 1 << 20},
    {BOOK_SECTION_TAGS, sizeof(struct book_tag), 1 << 20},
    {BOOK_SECTION_BLOCKS, sizeof(struct book_block_page), 16 << 20},
    {BOOK_SECTION_MOVES, sizeof(struct book_moves), 8 << 20},
    {BOOK_SECTION_SCRIPTS, sizeof(struct book_script), 1 << 20},
};

static void must(bool ok, const char *what)
{
    if (!ok) {
        perror(what);
        abort();
    }
}

/* Not inlined: gcc 12 mistakes the header for its first member. */
__attribute__((noinline)) static void put_bytes(const struct book_builder *b, const void *bytes,
                                                size_t len, uint64_t offset)
{
    must(pwrite(b->fd, bytes, len, (off_t)offset) == (ssize_t)len, "pwrite");
}

int builder_memfd(void)
{
    int fd = memfd_create("book", MFD_CLOEXEC);
    must(fd >= 0, "memfd_create");
    return fd;
}

int builder_reopen(int fd)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int other = open(path, O_RDWR | O_CLOEXEC);
    must(other >= 0, "open");
    return other;
}

void builder_init(struct book_builder *b, int fd)
{
    builder_init_at(b, fd, 65536);
}

void builder_init_at(struct book_builder *b, int fd, uint64_t first_section)
{
    *b = (struct book_builder){.fd = fd};
    struct book_header *h = &b->h;
    h->endian_mark = BOOK_ENDIAN_MARK;
    h->version = BOOK_VERSION;
    h->header_bytes = BOOK_HEADER_BYTES;
    h->page_size = PAGE;
    h->source = BOOK_SOURCE_CLIENT;
    for (int i = 0; i < 16; i++)
        h->boot_id[i] = (uint8_t)(0xa0 + i);
    h->pid_ns = 4026531836;
    h->time_ns = 4026531834;
    h->start_ticks = 123456;
    h->exec_id = 0x1122334455667788;
    h->pid = 4242;
    h->parent_pid = 4200;
    h->writer_pid = 4242;
    h->uid = 1000;
    h->exec_count = 3;
    h->time_shift = 20;
    h->created_realtime_ns = 1700000000000000000;
    h->created_monotonic_ns = 5000000000;
    h->state = BOOK_STATE_OPEN;
    h->block_index_format = BOOK_INDEX_FORMAT;
    h->peak_error = 65536;
    strcpy(h->comm, "train.py");
    strcpy(h->exe, "/usr/bin/python3.11");
    strcpy(h->command, "python3 train.py --epochs 3");
    uint64_t offset = first_section;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct book_section *s = &h->sections[i];
        *s = (struct book_section){.kind = shapes[i].kind,
                                   .entry_size = shapes[i].entry_size,
                                   .offset = offset,
                                   .size = shapes[i].size};
        b->section[s->kind] = s;
        offset += s->size;
    }
    h->file_size = offset;
    must(ftruncate(fd, (off_t)offset) == 0, "ftruncate");
    builder_put(b, BOOK_SECTION_CONTROL, 0, &(struct book_control){0}, sizeof(struct book_control));
    b->section[BOOK_SECTION_REGISTRY]->used = 1;
    b->section[BOOK_SECTION_SITES]->used = 1;
    b->section[BOOK_SECTION_MODULES]->used = 1;
    b->section[BOOK_SECTION_TAGS]->used = 1;
    b->section[BOOK_SECTION_SCRIPTS]->used = 1;
}

void builder_header(struct book_builder *b)
{
    put_bytes(b, &b->h, sizeof(b->h), 0);
}

void builder_publish(struct book_builder *b)
{
    memcpy(b->h.magic, BOOK_MAGIC, sizeof(b->h.magic));
    builder_header(b);
}

void builder_put(struct book_builder *b, uint32_t kind, uint64_t number, const void *entry,
                 uint64_t len)
{
    struct book_section *s = b->section[kind];
    uint64_t at = number * s->entry_size, end = at + s->entry_size;
    must(end <= s->size && len <= s->entry_size, "entry fits its section");
    put_bytes(b, entry, len, s->offset + at);
    end = (end + PAGE - 1) / PAGE * PAGE;
    if (end > s->open)
        s->open = end;
}

uint64_t builder_add(struct book_builder *b, uint32_t kind, const void *entry, uint64_t len)
{
    struct book_section *s = b->section[kind];
    uint64_t number = s->used;
    builder_put(b, kind, number, entry, len);
    s->used++;
    if (b->h.magic[0])
        builder_header(b);
    return number;
}

uint32_t builder_device(struct book_builder *b, uint32_t kind, int32_t ordinal, const char *name)
{
    struct book_device d = {.type = BOOK_RECORD_DEVICE, .kind = kind, .ordinal = ordinal};
    snprintf(d.name, sizeof(d.name), "%s", name);
    snprintf(d.uid, sizeof(d.uid), "uid-%d", ordinal);
    snprintf(d.bus, sizeof(d.bus), "0000:%02x:00.0", (unsigned)(ordinal & 0xff));
    return (uint32_t)builder_add(b, BOOK_SECTION_REGISTRY, &d, sizeof(d));
}

uint32_t builder_account(struct book_builder *b, uint32_t space, uint32_t device, const char *name)
{
    struct book_account a = {.type = BOOK_RECORD_ACCOUNT, .space = space, .device = device};
    snprintf(a.name, sizeof(a.name), "%s", name);
    return (uint32_t)builder_add(b, BOOK_SECTION_REGISTRY, &a, sizeof(a));
}

uint64_t builder_common_offset(const struct book_builder *b, uint32_t account)
{
    const struct book_section *s = b->section[BOOK_SECTION_REGISTRY];
    return s->offset + (uint64_t)account * s->entry_size + offsetof(struct book_account, common);
}

uint32_t builder_counter_page(struct book_builder *b, uint32_t what, uint32_t first)
{
    static const char zeros[BOOK_COUNTER_PAGE_BYTES];
    struct book_counter_page page = {.what = what, .first = first};
    builder_add(b, BOOK_SECTION_COUNTERS, zeros, sizeof(zeros));
    return (uint32_t)builder_add(b, BOOK_SECTION_COUNTER_INDEX, &page, sizeof(page));
}

static uint64_t page_offset(const struct book_builder *b, uint32_t page)
{
    const struct book_section *s = b->section[BOOK_SECTION_COUNTERS];
    return s->offset + (uint64_t)page * s->entry_size;
}

void builder_counters(struct book_builder *b, uint32_t page, uint32_t index,
                      const struct book_counters *counters)
{
    put_bytes(b, counters, sizeof(*counters), page_offset(b, page) + index * sizeof(*counters));
}

void builder_site_counters(struct book_builder *b, uint32_t page, uint32_t index,
                           const struct book_site_counters *counters)
{
    put_bytes(b, counters, sizeof(*counters), page_offset(b, page) + index * sizeof(*counters));
}

uint32_t builder_module(struct book_builder *b, const char *path, const char *build_id)
{
    struct book_module m = {
        .bias = 0x7f0000000000, .map_start = 0x7f0000001000, .map_end = 0x7f0000200000};
    snprintf(m.path, sizeof(m.path), "%s", path);
    m.build_id_len = (uint8_t)strlen(build_id);
    memcpy(m.build_id, build_id, m.build_id_len);
    return (uint32_t)builder_add(b, BOOK_SECTION_MODULES, &m, sizeof(m));
}

uint32_t builder_site(struct book_builder *b, uint32_t account, uint64_t key,
                      const uint64_t *frames, uint16_t n)
{
    struct book_site site = {.key = key, .frames = n, .time = 7, .account = account};
    site.first_frame = (uint32_t)b->section[BOOK_SECTION_FRAMES]->used;
    for (uint16_t i = 0; i < n; i++)
        builder_add(b, BOOK_SECTION_FRAMES, &frames[i], sizeof(frames[i]));
    return (uint32_t)builder_add(b, BOOK_SECTION_SITES, &site, sizeof(site));
}

uint32_t builder_tag(struct book_builder *b, const char *name)
{
    struct book_tag tag = {{0}};
    snprintf(tag.name, sizeof(tag.name), "%s", name);
    return (uint32_t)builder_add(b, BOOK_SECTION_TAGS, &tag, sizeof(tag));
}

void builder_block(struct book_builder *b, uint64_t slot, uint64_t id, uint64_t bytes, uint32_t tag,
                   uint32_t account, uint32_t site, uint32_t time)
{
    struct book_section *s = b->section[BOOK_SECTION_BLOCKS];
    uint64_t page = slot / BOOK_BLOCKS_PER_PAGE, i = slot % BOOK_BLOCKS_PER_PAGE;
    struct book_block block = {.id = id,
                               .size_tag = bytes | (uint64_t)tag << BOOK_BLOCK_SIZE_BITS,
                               .place = account | (uint64_t)site << 12 | (uint64_t)time << 32};
    put_bytes(b, &block, sizeof(block), s->offset + page * s->entry_size + i * sizeof(block));
    if ((page + 1) * s->entry_size > s->open)
        s->open = (page + 1) * s->entry_size;
    if (b->h.magic[0])
        builder_header(b);
}

void builder_moves(struct book_builder *b, uint64_t slot, uint32_t count)
{
    struct book_moves moves = {.count = count, .time = 9};
    builder_put(b, BOOK_SECTION_MOVES, slot, &moves, sizeof(moves));
    if (b->h.magic[0])
        builder_header(b);
}

void builder_sample(struct book_builder *b, int fd)
{
    builder_sample_at(b, fd, 65536);
}

void builder_sample_at(struct book_builder *b, int fd, uint64_t first_section)
{
    builder_init_at(b, fd, first_section);
    uint32_t gpu = builder_device(b, MEMOIR_DEVICE_GPU, 0, "NVIDIA H200");           /* record 1 */
    uint32_t dram = builder_account(b, MEMOIR_SPACE_DRAM, gpu, "dram");              /* record 2 */
    uint32_t heap = builder_account(b, MEMOIR_SPACE_HEAP, BOOK_DEVICE_HOST, "heap"); /* record 3 */
    struct book_counters common = {.freed_bytes = 100,
                                   .freed_blocks = 1,
                                   .alloc_bytes = 1100,
                                   .alloc_blocks = 3,
                                   .freed_served = 128,
                                   .alloc_served = 1280};
    put_bytes(b, &common, sizeof(common), builder_common_offset(b, dram));
    uint64_t capacity = UINT64_C(141) << 30;
    put_bytes(b, &capacity, sizeof(capacity),
              builder_common_offset(b, dram) - offsetof(struct book_account, common) +
                  offsetof(struct book_account, capacity));
    uint32_t page = builder_counter_page(b, BOOK_COUNTERS_ACCOUNTS, 0);
    builder_counters(b, page, dram,
                     &(struct book_counters){.freed_bytes = 200,
                                             .freed_blocks = 1,
                                             .alloc_bytes = 4200,
                                             .alloc_blocks = 2,
                                             .reallocs = 5,
                                             .freed_served = 256,
                                             .alloc_served = 4352,
                                             .moved_in_bytes = 64,
                                             .moved_in = 2,
                                             .moved_out_bytes = 32,
                                             .moved_out = 1});
    builder_counters(
        b, page, heap,
        &(struct book_counters){.alloc_bytes = 77, .alloc_blocks = 1, .alloc_served = 80});
    uint32_t program = builder_module(b, "", "\xde\xad\xbe\xef");
    uint32_t library = builder_module(b, "/usr/lib/libtorch.so", "\x01\x02\x03");
    uint64_t stack[] = {BOOK_FRAME(library, 0x1234), BOOK_FRAME(program, 0x5678)};
    uint32_t deep = builder_site(b, dram, 0xfeedface, stack, 2);
    uint64_t jit[] = {BOOK_FRAME(BOOK_MODULE_NONE, 0x7fff12345678)};
    uint32_t shallow = builder_site(b, heap, 0xcafe, jit, 1);
    uint32_t sites = builder_counter_page(b, BOOK_COUNTERS_SITES, 0);
    builder_site_counters(
        b, sites, deep,
        &(struct book_site_counters){
            .freed_bytes = 300, .freed_blocks = 2, .alloc_bytes = 5300, .alloc_blocks = 5});
    builder_site_counters(b, sites, shallow,
                          &(struct book_site_counters){.alloc_bytes = 77, .alloc_blocks = 1});
    uint32_t tag = builder_tag(b, "weights");
    builder_block(b, 3, 0x1000, 1000, tag, dram, deep, 1);
    builder_block(b, 200, 0x2000, 4000, 0, dram, deep, 2);
    builder_block(b, 5000, 0x1000, 77, 0, heap, shallow, 3);
    builder_moves(b, 200, 6);
    b->h.block_shards = 1;
    b->h.block_pages[0] = 3; /* not that they lie so: a hint, for statistics */
    builder_publish(b);
}
