/* Exported functions of a library. See elf_exports.h.
 *
 * The section headers are used, which every driver library has: a file without them has no probes. */
#include "observe/elf_exports.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { SECTIONS_MAX = 4096, SEGMENTS_MAX = 256 };

static int read_at(int fd, void *to, size_t bytes, uint64_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)to + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -ENOEXEC;
        done += (size_t)n;
    }
    return 0;
}

static int read_new(int fd, size_t bytes, uint64_t at, void **ret_bytes)
{
    MEMOIR_CLEANUP(freep)
    void *memory = malloc(bytes + 1);
    if (!memory)
        return -ENOMEM;
    int r = read_at(fd, memory, bytes, at);
    if (r < 0)
        return r;
    ((char *)memory)[bytes] = '\0';
    *ret_bytes = MEMOIR_TAKE(memory);
    return 0;
}

static bool header_fits(const Elf64_Ehdr *h)
{
    return memcmp(h->e_ident, ELFMAG, SELFMAG) == 0 && h->e_ident[EI_CLASS] == ELFCLASS64 &&
           h->e_ident[EI_DATA] == ELFDATA2LSB && h->e_type == ET_DYN &&
           h->e_shentsize == sizeof(Elf64_Shdr) && h->e_phentsize == sizeof(Elf64_Phdr) &&
           h->e_shnum > 0 && h->e_shnum <= SECTIONS_MAX && h->e_phnum > 0 &&
           h->e_phnum <= SEGMENTS_MAX;
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

static int symbols_tell(int fd, const Elf64_Shdr *table, const Elf64_Shdr *texts,
                        const Elf64_Phdr *segments, size_t n_segments,
                        void (*each)(void *context, const char *name, uint64_t offset),
                        void *context)
{
    MEMOIR_CLEANUP(freep)
    void *symbol_bytes = NULL;
    MEMOIR_CLEANUP(freep)
    void *text_bytes = NULL;
    size_t n = table->sh_size / sizeof(Elf64_Sym);
    if (n > ELF_EXPORTS_SYMBOLS_MAX || texts->sh_size > ELF_EXPORTS_STRINGS_MAX)
        return -ENOEXEC;
    int r = read_new(fd, n * sizeof(Elf64_Sym), table->sh_offset, &symbol_bytes);
    if (r >= 0)
        r = read_new(fd, texts->sh_size, texts->sh_offset, &text_bytes);
    if (r < 0)
        return r;
    const Elf64_Sym *symbols = symbol_bytes;
    for (size_t i = 0; i < n; i++) {
        const Elf64_Sym *s = &symbols[i];
        if (ELF64_ST_TYPE(s->st_info) != STT_FUNC || s->st_shndx == SHN_UNDEF ||
            s->st_name >= texts->sh_size)
            continue;
        uint64_t offset = offset_of(segments, n_segments, s->st_value);
        if (offset)
            each(context, (const char *)text_bytes + s->st_name, offset);
    }
    return 0;
}

int elf_exports(int fd, void (*each)(void *context, const char *name, uint64_t offset),
                void *context)
{
    Elf64_Ehdr header;
    MEMOIR_CLEANUP(freep)
    void *section_bytes = NULL;
    MEMOIR_CLEANUP(freep)
    void *segment_bytes = NULL;
    int r = read_at(fd, &header, sizeof(header), 0);
    if (r < 0)
        return r;
    if (!header_fits(&header))
        return -ENOEXEC;
    r = read_new(fd, header.e_shnum * sizeof(Elf64_Shdr), header.e_shoff, &section_bytes);
    if (r >= 0)
        r = read_new(fd, header.e_phnum * sizeof(Elf64_Phdr), header.e_phoff, &segment_bytes);
    if (r < 0)
        return r;
    const Elf64_Shdr *sections = section_bytes;
    for (size_t i = 0; i < header.e_shnum; i++)
        if (sections[i].sh_type == SHT_DYNSYM && sections[i].sh_link < header.e_shnum)
            return symbols_tell(fd, &sections[i], &sections[sections[i].sh_link], segment_bytes,
                                header.e_phnum, each, context);
    return -ENOEXEC;
}
