/* ELF files of other processes. See elf_image.h. */
#include "observe/elf_image.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "site/module.h"

enum {
    PAGE = 4096,     /* of the tables, whatever the machine's is */
    PHDRS_MAX = 256, /* program headers looked at */
    EH_TABLE =
        0x3b, /* encoding of the search table that linkers write: data-relative, 4 bytes signed */
    EH_OMIT = 0xff,
    EH_UDATA4 = 0x03,
};

#if defined(__x86_64__)
enum { MACHINE = EM_X86_64 };
#else
enum { MACHINE = EM_AARCH64 };
#endif

/* ---- reading ---- */

static int read_exact(const struct elf_image *image, uint64_t offset, void *to, size_t n)
{
    uint8_t *at = to;
    while (n > 0) {
        int64_t done = image->read(image->context, offset, at, n);
        if (done < 0)
            return (int)done;
        if (done == 0 || (uint64_t)done > n)
            return -ENODATA;
        at += done;
        offset += (uint64_t)done;
        n -= (size_t)done;
    }
    return 0;
}

static const struct elf_segment *segment_of(const struct elf_image *image, uint64_t vaddr)
{
    for (uint32_t i = 0; i < image->n_segments; i++)
        if (vaddr - image->segments[i].vaddr < image->segments[i].file_bytes)
            return &image->segments[i];
    return NULL;
}

int elf_image_read(struct elf_image *image, uint64_t vaddr, void *to, size_t n)
{
    const struct elf_segment *s = segment_of(image, vaddr);
    if (!s)
        return -ENOENT;
    uint64_t into = vaddr - s->vaddr;
    if (n > s->file_bytes - into)
        return -ENODATA;
    return read_exact(image, s->offset + into, to, n);
}

/* ---- headers ---- */

static int segment_compare(const void *a, const void *b)
{
    const struct elf_segment *x = a, *y = b;
    return x->vaddr < y->vaddr ? -1 : x->vaddr > y->vaddr;
}

static int segment_add(struct elf_image *image, const Elf64_Phdr *p)
{
    uint64_t end;
    if (p->p_memsz == 0)
        return 0;
    if (image->n_segments == ELF_SEGMENTS_MAX || p->p_filesz > p->p_memsz ||
        __builtin_add_overflow(p->p_vaddr, p->p_memsz, &end) || end > UINT64_C(1) << 48 ||
        __builtin_add_overflow(p->p_offset, p->p_filesz, &end) || end > INT64_MAX)
        return -EBADMSG;
    image->segments[image->n_segments++] = (struct elf_segment){
        .vaddr = p->p_vaddr,
        .offset = p->p_offset,
        .file_bytes = p->p_filesz,
        .memory_bytes = p->p_memsz,
        .flags = p->p_flags,
    };
    return 0;
}

static void build_id_take(struct elf_image *image, const Elf64_Phdr *p)
{
    const uint8_t *id;
    size_t id_len, len = p->p_filesz < ELF_NOTES_MAX ? p->p_filesz : ELF_NOTES_MAX;
    uint8_t *notes = image->build_id_len == 0 && len > 0 ? malloc(len) : NULL;
    if (notes && p->p_offset <= INT64_MAX && read_exact(image, p->p_offset, notes, len) == 0 &&
        module_note_build_id(notes, len, &id, &id_len) == 0) {
        image->build_id_len =
            (uint8_t)(id_len < MODULE_BUILD_ID_MAX ? id_len : MODULE_BUILD_ID_MAX);
        memcpy(image->build_id, id, image->build_id_len);
    }
    free(notes);
}

static int headers_read(struct elf_image *image, const Elf64_Phdr *phdrs, size_t n)
{
    uint64_t hdr = 0;
    for (size_t i = 0; i < n; i++) {
        int r = phdrs[i].p_type == PT_LOAD ? segment_add(image, &phdrs[i]) : 0;
        if (r < 0)
            return r;
        if (phdrs[i].p_type == PT_NOTE)
            build_id_take(image, &phdrs[i]);
        if (phdrs[i].p_type == PT_GNU_EH_FRAME)
            hdr = phdrs[i].p_vaddr;
        if (phdrs[i].p_type == PT_DYNAMIC) {
            image->dynamic = phdrs[i].p_vaddr;
            image->dynamic_bytes = phdrs[i].p_filesz;
        }
    }
    qsort(image->segments, image->n_segments, sizeof(image->segments[0]), segment_compare);
    for (uint32_t i = 1; i < image->n_segments; i++)
        if (image->segments[i].vaddr - image->segments[i - 1].vaddr <
            image->segments[i - 1].memory_bytes)
            return -EBADMSG;
    image->hdr = hdr;
    return image->n_segments > 0 ? 0 : -EBADMSG;
}

/* ---- unwind tables ---- */

static bool page_loaded(const struct elf_image *image, uint64_t page)
{
    return image->loaded[page / 64] >> (page % 64) & 1;
}

static int pages_load(struct elf_image *image, uint64_t page, uint64_t n)
{
    uint64_t size = image->tables_hi - image->tables_lo, from = page * PAGE;
    uint64_t bytes = n * PAGE < size - from ? n * PAGE : size - from;
    /* The first page may begin before the segment does. */
    const struct elf_segment *s = segment_of(image, image->tables_hi - 1);
    uint64_t skip = 0;
    if (!s)
        return -EBADMSG;
    if (image->tables_lo + from < s->vaddr)
        skip = s->vaddr - (image->tables_lo + from);
    if (skip >= bytes)
        return -EBADMSG;
    int r = read_exact(image, s->offset + (image->tables_lo + from + skip - s->vaddr),
                       image->tables + from + skip, bytes - skip);
    if (r < 0) {
        memset(image->tables + from, 0, bytes);
        return r;
    }
    for (uint64_t i = page; i < page + n; i++)
        image->loaded[i / 64] |= UINT64_C(1) << (i % 64);
    image->loaded_pages += n;
    return 0;
}

/* Have [vaddr, vaddr + n) of the tables in memory. */
static int tables_need(struct elf_image *image, uint64_t vaddr, uint64_t n)
{
    uint64_t size = image->tables_hi - image->tables_lo, at = vaddr - image->tables_lo;
    if (vaddr < image->tables_lo || at >= size || n > size - at)
        return -EBADMSG;
    uint64_t pages = (size + PAGE - 1) / PAGE;
    uint64_t end = (at + n + PAGE - 1) / PAGE;
    for (uint64_t page = at / PAGE; page < end; page++) {
        if (page_loaded(image, page))
            continue;
        uint64_t run = 1;
        while (page + run < pages && (run < image->cluster || page + run < end) &&
               !page_loaded(image, page + run))
            run++;
        int r = pages_load(image, page, run);
        if (r < 0 && run > 1) /* perhaps the file ends behind what is needed */
            r = pages_load(image, page, 1);
        if (r < 0)
            return r;
    }
    return 0;
}

static const uint8_t *table_at(const struct elf_image *image, uint64_t vaddr)
{
    return image->tables + (vaddr - image->tables_lo);
}

static uint32_t load_u32(const uint8_t *at)
{
    uint32_t v;
    memcpy(&v, at, sizeof(v));
    return v;
}

/* Size of an encoded pointer of the header; 0: not one that linkers write. */
static unsigned encoded_bytes(uint8_t encoding)
{
    switch (encoding & 0x0f) {
    case 0x02:
    case 0x0a:
        return 2;
    case 0x03:
    case 0x0b:
        return 4;
    case 0x00:
    case 0x04:
    case 0x0c:
        return 8;
    default:
        return 0;
    }
}

/* Room for the tables, and the search table itself. A file without it has no unwind tables for us. */
static int tables_init(struct elf_image *image)
{
    const struct elf_segment *s = segment_of(image, image->hdr);
    if (!s)
        return -ENOENT;
    /* .eh_frame may lie before or behind its header, in the same segment. */
    image->tables_lo = s->vaddr & ~(uint64_t)(PAGE - 1);
    image->tables_hi = s->vaddr + s->file_bytes;
    uint64_t span = image->tables_hi - image->tables_lo;
    if (span > ELF_TABLES_SPAN_MAX)
        return -EFBIG;
    image->tables = mmap(NULL, span, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (image->tables == MAP_FAILED) {
        image->tables = NULL;
        return -ENOMEM;
    }
    image->loaded = calloc((span / PAGE + 1) / 64 + 1, sizeof(image->loaded[0]));
    if (!image->loaded)
        return -ENOMEM;
    int r = tables_need(image, image->hdr, 4);
    if (r < 0)
        return r;
    const uint8_t *head = table_at(image, image->hdr);
    unsigned frame_bytes = encoded_bytes(head[1]);
    if (head[0] != 1 || head[2] != EH_UDATA4 || head[3] != EH_TABLE || head[1] == EH_OMIT ||
        frame_bytes == 0)
        return -ENOTSUP;
    uint64_t count_at = image->hdr + 4 + frame_bytes;
    r = tables_need(image, count_at, 4);
    if (r < 0)
        return r;
    image->fdes = load_u32(table_at(image, count_at));
    image->search = count_at + 4;
    if (image->fdes == 0 || image->fdes * 8 > ELF_TABLE_MAX)
        return -ENOTSUP;
    return image->search + image->fdes * 8 <= image->tables_hi ? 0 : -EBADMSG;
}

static void tables_release(struct elf_image *image)
{
    if (image->tables)
        munmap(image->tables, image->tables_hi - image->tables_lo);
    free(image->loaded);
    image->tables = NULL;
    image->loaded = NULL;
    image->loaded_pages = 0;
    image->hdr = 0;
}

void elf_image_drop(struct elf_image *image)
{
    if (!image->tables)
        return;
    uint64_t span = image->tables_hi - image->tables_lo;
    madvise(image->tables, span, MADV_DONTNEED);
    memset(image->loaded, 0, ((span / PAGE + 1) / 64 + 1) * sizeof(image->loaded[0]));
    image->loaded_pages = 0;
}

uintptr_t elf_image_pc(const struct elf_image *image, uint64_t vaddr)
{
    return (uintptr_t)image->tables + (uintptr_t)(vaddr - image->tables_lo);
}

/* The record that may cover a code address: cfi_find() searches in the same way, over the same entries. */
static int record_find(struct elf_image *image, uint64_t vaddr, uint64_t *ret_record)
{
    int64_t wanted = (int64_t)(vaddr - image->hdr);
    uint64_t low = 0, high = image->fdes;
    int r;
    if (wanted < INT32_MIN || wanted > INT32_MAX)
        return -ENOENT;
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if ((r = tables_need(image, image->search + mid * 8, 8)) < 0)
            return r;
        if ((int32_t)load_u32(table_at(image, image->search + mid * 8)) <= wanted)
            low = mid;
        else
            high = mid;
    }
    if ((r = tables_need(image, image->search + low * 8, 8)) < 0)
        return r;
    const uint8_t *pair = table_at(image, image->search + low * 8);
    if ((int32_t)load_u32(pair) > wanted)
        return -ENOENT;
    *ret_record = image->hdr + (uint64_t)(int64_t)(int32_t)load_u32(pair + 4);
    return 0;
}

/* A whole CIE or FDE. */
static int record_need(struct elf_image *image, uint64_t record)
{
    int r = tables_need(image, record, 8);
    if (r < 0)
        return r;
    uint32_t length = load_u32(table_at(image, record));
    return length <= CFI_PROGRAM_MAX ? tables_need(image, record, 4 + (uint64_t)length) : -ENOTSUP;
}

int elf_image_row(struct elf_image *image, uint64_t vaddr, struct cfi_section *ret_section,
                  struct cfi_row *ret_row)
{
    uint64_t record;
    if (!image->tables)
        return -ENOENT;
    /* The header with the number of entries may have been dropped. */
    int r = tables_need(image, image->hdr, image->search - image->hdr);
    if (r == 0)
        r = record_find(image, vaddr, &record);
    if (r == 0)
        r = record_need(image, record);
    if (r == 0)
        r = record_need(image, record + 4 - load_u32(table_at(image, record + 4)));
    if (r < 0)
        return r;
    *ret_section = (struct cfi_section){
        .hdr = table_at(image, image->hdr),
        .lo = image->tables,
        .hi = image->tables + (image->tables_hi - image->tables_lo),
        .shift = elf_image_pc(image, 0),
    };
    return cfi_find(ret_section, elf_image_pc(image, vaddr), ret_row);
}

/* ---- life ---- */

int elf_image_init(struct elf_image *image, elf_read_fn *read, void *context, uint32_t cluster)
{
    Elf64_Ehdr ehdr;
    *image = (struct elf_image){.read = read, .context = context, .cluster = cluster};
    int r = read_exact(image, 0, &ehdr, sizeof(ehdr));
    if (r < 0)
        return r == -ENODATA ? -ENOEXEC : r;
    if (memcmp(ehdr.e_ident, ELFMAG, SELFMAG) != 0 || ehdr.e_ident[EI_CLASS] != ELFCLASS64 ||
        ehdr.e_ident[EI_DATA] != ELFDATA2LSB || ehdr.e_machine != MACHINE ||
        ehdr.e_phentsize != sizeof(Elf64_Phdr) || ehdr.e_phnum == 0 || ehdr.e_phnum > PHDRS_MAX ||
        ehdr.e_phoff > INT64_MAX)
        return -ENOEXEC;
    Elf64_Phdr *phdrs = calloc(ehdr.e_phnum, sizeof(*phdrs));
    if (!phdrs)
        return -ENOMEM;
    r = read_exact(image, ehdr.e_phoff, phdrs, ehdr.e_phnum * sizeof(*phdrs));
    if (r == 0)
        r = headers_read(image, phdrs, ehdr.e_phnum);
    free(phdrs);
    if (r < 0)
        return r == -ENODATA ? -EBADMSG : r;
    if (image->hdr != 0 && tables_init(image) < 0)
        tables_release(image);
    return 0;
}

void elf_image_release(struct elf_image *image)
{
    tables_release(image);
    *image = (struct elf_image){0};
}

int elf_image_bias(const struct elf_image *image, uint64_t start, uint64_t offset,
                   uint64_t *ret_bias)
{
    for (uint32_t i = 0; i < image->n_segments; i++) {
        const struct elf_segment *s = &image->segments[i];
        uint64_t first = s->offset & ~(uint64_t)(PAGE - 1);
        if (!(s->flags & PF_X) || offset < first || offset >= s->offset + s->file_bytes)
            continue;
        *ret_bias = start - (s->vaddr + (offset - s->offset));
        return 0;
    }
    return -ENOENT;
}

void elf_image_span(const struct elf_image *image, uint64_t *ret_lo, uint64_t *ret_hi)
{
    const struct elf_segment *last = &image->segments[image->n_segments - 1];
    *ret_lo = image->segments[0].vaddr & ~(uint64_t)(PAGE - 1);
    *ret_hi = (last->vaddr + last->memory_bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
}

/* ---- symbols ---- */

struct symbol_tables {
    uint64_t hash, symbols, strings;
};

static int symbol_tables_find(struct elf_image *image, struct symbol_tables *ret)
{
    struct symbol_tables t = {0};
    uint64_t n = image->dynamic_bytes / sizeof(Elf64_Dyn);
    for (uint64_t i = 0; i < n && i < ELF_DYNAMIC_MAX; i++) {
        Elf64_Dyn d;
        int r = elf_image_read(image, image->dynamic + i * sizeof(d), &d, sizeof(d));
        if (r < 0)
            return r;
        if (d.d_tag == DT_NULL)
            break;
        if (d.d_tag == DT_GNU_HASH)
            t.hash = d.d_un.d_ptr;
        else if (d.d_tag == DT_SYMTAB)
            t.symbols = d.d_un.d_ptr;
        else if (d.d_tag == DT_STRTAB)
            t.strings = d.d_un.d_ptr;
    }
    *ret = t;
    return t.hash && t.symbols && t.strings ? 0 : -ENOENT;
}

static uint32_t gnu_hash(const char *name)
{
    uint32_t hash = 5381;
    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static int symbol_check(struct elf_image *image, const struct symbol_tables *t, uint32_t index,
                        const char *name, struct elf_symbol *ret)
{
    char text[128];
    Elf64_Sym symbol;
    size_t len = strlen(name) + 1;
    if (len > sizeof(text))
        return -EINVAL;
    int r = elf_image_read(image, t->symbols + (uint64_t)index * sizeof(symbol), &symbol,
                           sizeof(symbol));
    if (r == 0)
        r = elf_image_read(image, t->strings + symbol.st_name, text, len);
    if (r < 0)
        return r;
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_value == 0 || memcmp(text, name, len) != 0)
        return -ENOENT;
    *ret = (struct elf_symbol){.vaddr = symbol.st_value, .bytes = symbol.st_size};
    return 0;
}

int elf_image_symbol(struct elf_image *image, const char *name, struct elf_symbol *ret_symbol)
{
    struct symbol_tables t;
    uint32_t head[4], index, chain;
    int r = symbol_tables_find(image, &t);
    if (r == 0)
        r = elf_image_read(image, t.hash, head, sizeof(head));
    if (r < 0 || head[0] == 0)
        return -ENOENT;
    /* Four words, the Bloom filter, the buckets, and a chain for each symbol. */
    uint32_t hash = gnu_hash(name);
    uint64_t buckets = t.hash + sizeof(head) + (uint64_t)head[2] * sizeof(uint64_t);
    uint64_t chains = buckets + (uint64_t)head[0] * sizeof(uint32_t);
    r = elf_image_read(image, buckets + (uint64_t)(hash % head[0]) * 4, &index, sizeof(index));
    for (int n = 0; r == 0 && index >= head[1] && index != 0 && n < ELF_SYMBOL_CHAIN_MAX;
         n++, index++) {
        r = elf_image_read(image, chains + (uint64_t)(index - head[1]) * 4, &chain, sizeof(chain));
        if (r < 0)
            break;
        if ((chain | 1) == (hash | 1) && symbol_check(image, &t, index, name, ret_symbol) == 0)
            return 0;
        if (chain & 1)
            break;
    }
    return -ENOENT;
}
