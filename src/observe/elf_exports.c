/* Exported functions of a library. See elf_exports.h.
 *
 * The section headers are used, which every driver library has: a file without them has no probes. */
#include "observe/elf_exports.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

enum { SECTIONS_MAX = 4096, SEGMENTS_MAX = 256 };

/* An ELF file: its sections and segments. */
struct file {
    elf_read_fn *read;
    void *context;
    Elf64_Ehdr header;
    Elf64_Shdr *sections;
    Elf64_Phdr *segments;
};

static int read_at(const struct file *f, void *to, size_t bytes, uint64_t at)
{
    for (size_t done = 0; done < bytes;) {
        int64_t n = f->read(f->context, at + done, (char *)to + done, bytes - done);
        if (n < 0)
            return (int)n;
        if (n == 0 || (uint64_t)n > bytes - done)
            return -ENOEXEC;
        done += (size_t)n;
    }
    return 0;
}

static int read_new(const struct file *f, size_t bytes, uint64_t at, void **ret_bytes)
{
    MEMOIR_CLEANUP(freep)
    void *memory = malloc(bytes + 1);
    if (!memory)
        return -ENOMEM;
    int r = read_at(f, memory, bytes, at);
    if (r < 0)
        return r;
    ((char *)memory)[bytes] = '\0';
    *ret_bytes = MEMOIR_TAKE(memory);
    return 0;
}

static bool header_fits(const Elf64_Ehdr *h)
{
    return memcmp(h->e_ident, ELFMAG, SELFMAG) == 0 && h->e_ident[EI_CLASS] == ELFCLASS64 &&
           h->e_ident[EI_DATA] == ELFDATA2LSB && h->e_shentsize == sizeof(Elf64_Shdr) &&
           h->e_phentsize == sizeof(Elf64_Phdr) && h->e_shnum > 0 && h->e_shnum <= SECTIONS_MAX &&
           h->e_phnum > 0 && h->e_phnum <= SEGMENTS_MAX;
}

/* Where the code address lies in the file; 0: nowhere. */
static uint64_t offset_of(const Elf64_Phdr *segments, size_t n, uint64_t address)
{
    for (size_t i = 0; i < n; i++) {
        const Elf64_Phdr *p = &segments[i];
        if (p->p_type == PT_LOAD && p->p_flags & PF_X && address >= p->p_vaddr &&
            address - p->p_vaddr < p->p_filesz)
            return address - p->p_vaddr + p->p_offset;
    }
    return 0;
}

static void file_release(struct file *f)
{
    free(f->sections);
    free(f->segments);
}

static int file_read(struct file *f, elf_read_fn *read, void *context)
{
    void *sections = NULL, *segments = NULL;
    *f = (struct file){.read = read, .context = context};
    int r = read_at(f, &f->header, sizeof(f->header), 0);
    if (r < 0)
        return r;
    if (!header_fits(&f->header))
        return -ENOEXEC;
    r = read_new(f, f->header.e_shnum * sizeof(Elf64_Shdr), f->header.e_shoff, &sections);
    if (r >= 0)
        r = read_new(f, f->header.e_phnum * sizeof(Elf64_Phdr), f->header.e_phoff, &segments);
    f->sections = sections;
    f->segments = segments;
    return r;
}

struct limits {
    size_t symbols, strings;
};

static int symbols_tell(const struct file *f, const Elf64_Shdr *table, const struct limits *limits,
                        elf_function_fn *each, void *context)
{
    MEMOIR_CLEANUP(freep)
    void *symbol_bytes = NULL;
    MEMOIR_CLEANUP(freep)
    void *text_bytes = NULL;
    const Elf64_Shdr *texts = &f->sections[table->sh_link];
    size_t n = table->sh_size / sizeof(Elf64_Sym);
    if (n > limits->symbols || texts->sh_size > limits->strings)
        return -ENOEXEC;
    int r = read_new(f, n * sizeof(Elf64_Sym), table->sh_offset, &symbol_bytes);
    if (r >= 0)
        r = read_new(f, texts->sh_size, texts->sh_offset, &text_bytes);
    if (r < 0)
        return r;
    const Elf64_Sym *symbols = symbol_bytes;
    for (size_t i = 0; i < n; i++) {
        const Elf64_Sym *s = &symbols[i];
        if (ELF64_ST_TYPE(s->st_info) != STT_FUNC || s->st_shndx == SHN_UNDEF ||
            s->st_name >= texts->sh_size)
            continue;
        struct elf_function function = {
            .name = (const char *)text_bytes + s->st_name,
            .offset = offset_of(f->segments, f->header.e_phnum, s->st_value),
            .address = s->st_value,
            .bytes = s->st_size,
            .exported = table->sh_type == SHT_DYNSYM,
            .global = ELF64_ST_BIND(s->st_info) != STB_LOCAL,
        };
        if (function.offset)
            each(context, &function);
    }
    return 0;
}

int elf_exports(elf_read_fn *read, void *read_context, elf_function_fn *each, void *context)
{
    static const struct limits limits = {ELF_EXPORTS_SYMBOLS_MAX, ELF_EXPORTS_STRINGS_MAX};
    MEMOIR_CLEANUP(file_release)
    struct file f;
    int r = file_read(&f, read, read_context);
    if (r < 0)
        return r;
    for (size_t i = 0; f.header.e_type == ET_DYN && i < f.header.e_shnum; i++)
        if (f.sections[i].sh_type == SHT_DYNSYM && f.sections[i].sh_link < f.header.e_shnum)
            return symbols_tell(&f, &f.sections[i], &limits, each, context);
    return -ENOEXEC;
}

int elf_functions(elf_read_fn *read, void *read_context, elf_function_fn *each, void *context)
{
    static const struct limits limits = {ELF_FUNCTIONS_SYMBOLS_MAX, ELF_FUNCTIONS_STRINGS_MAX};
    MEMOIR_CLEANUP(file_release)
    struct file f;
    bool any = false;
    int r = file_read(&f, read, read_context);
    for (size_t i = 0; r >= 0 && i < f.header.e_shnum; i++) {
        const Elf64_Shdr *s = &f.sections[i];
        if ((s->sh_type != SHT_DYNSYM && s->sh_type != SHT_SYMTAB) ||
            s->sh_link >= f.header.e_shnum)
            continue;
        r = symbols_tell(&f, s, &limits, each, context);
        any = true;
    }
    return r < 0 ? r : any ? 0 : -ENOEXEC;
}
