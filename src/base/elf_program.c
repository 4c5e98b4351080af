/* What kind of program a file is. See elf_program.h. */
#include "base/elf_program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sanitizer.h"

enum {
    HEADERS_MAX = 128,     /* program headers looked at; real programs have a dozen */
    NOTES_MAX = 16 << 10,  /* bytes of notes looked at */
    SCRIPT_LINE_MAX = 256, /* as the kernel reads */
    GO_NOTE_BUILD_ID = 4,  /* its type, in notes of "Go" */
    DYNAMIC_MAX = 128,     /* entries of the dynamic section looked at: libraries come first */
};

#if defined(__x86_64__)
enum { MACHINE = EM_X86_64, DATA = ELFDATA2LSB };
#elif defined(__aarch64__)
enum { MACHINE = EM_AARCH64, DATA = ELFDATA2LSB };
#else
#error "name this processor's ELF machine here"
#endif
enum { CLASS = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32 };

const char *elf_program_why_not(enum elf_program_kind kind)
{
    static const char *const words[] = {
        [ELF_PROGRAM_DYNAMIC] = NULL,
        [ELF_PROGRAM_STATIC] = "it is linked statically, so nothing can be preloaded into it",
        [ELF_PROGRAM_GO] = "it is a static Go program, whose memory is not malloc's",
        [ELF_PROGRAM_CLASS] =
            sizeof(void *) == 8 ? "it is a 32-bit program" : "it is a 64-bit program",
        [ELF_PROGRAM_MACHINE] = "it is made for another processor",
        [ELF_PROGRAM_LIBC] = "it uses another C library than glibc",
        [ELF_PROGRAM_SANITIZED] =
            "it is made with -fsanitize, and its sanitizer must come before all other libraries: run "
            "one that is made without",
        [ELF_PROGRAM_SETID] =
            "it is set-uid or set-gid, and the loader preloads nothing into such programs",
        [ELF_PROGRAM_CAPABLE] =
            "it has file capabilities, and the loader preloads nothing into such programs",
        [ELF_PROGRAM_NEITHER] = "it is neither an ELF program nor a script",
        [ELF_PROGRAM_NO_ACCESS] = "its file cannot be read, so it may be of any kind",
    };
    return words[kind];
}

bool elf_program_takes_preload(enum elf_program_kind kind)
{
    return kind != ELF_PROGRAM_CLASS && kind != ELF_PROGRAM_MACHINE && kind != ELF_PROGRAM_LIBC &&
           kind != ELF_PROGRAM_SANITIZED;
}

/* All of it, or false. */
static bool read_at(int fd, void *to, size_t n, uint64_t offset)
{
    return offset <= INT64_MAX - n && pread(fd, to, n, (off_t)offset) == (ssize_t)n;
}

/* ---- ELF ---- */

struct notes {
    const uint8_t *at;
    size_t left;
};

/* Names and values are padded to words; a length that does not fit ends the walk. */
static bool note_is_go(struct notes *notes, bool *ret_go)
{
    ElfW(Nhdr) head;
    if (notes->left < sizeof(head))
        return false;
    memcpy(&head, notes->at, sizeof(head));
    size_t left = notes->left - sizeof(head);
    size_t name = ((size_t)head.n_namesz + 3) & ~(size_t)3;
    size_t value = ((size_t)head.n_descsz + 3) & ~(size_t)3;
    if (name > left || value > left - name)
        return false;
    const uint8_t *text = notes->at + sizeof(head);
    *ret_go = head.n_type == GO_NOTE_BUILD_ID && head.n_namesz == 4 && memcmp(text, "Go", 3) == 0;
    notes->at = text + name + value;
    notes->left = left - name - value;
    return true;
}

static bool has_go_note(int fd, const ElfW(Phdr) * header)
{
    uint8_t bytes[NOTES_MAX];
    size_t n = header->p_filesz < sizeof(bytes) ? (size_t)header->p_filesz : sizeof(bytes);
    if (!read_at(fd, bytes, n, header->p_offset))
        return false;
    struct notes notes = {bytes, n};
    bool go = false;
    while (!go && note_is_go(&notes, &go))
        ;
    return go;
}

/* Every C library but glibc calls its loader by another name: ld-musl-x86_64.so.1, linker64. */
static bool loader_is_glibc(int fd, const ElfW(Phdr) * header)
{
    char path[ELF_PROGRAM_LOADER_MAX] = "";
    if (header->p_filesz == 0 || header->p_filesz > sizeof(path) ||
        !read_at(fd, path, (size_t)header->p_filesz, header->p_offset) ||
        path[header->p_filesz - 1] != '\0')
        return true; /* nonsense: the kernel refuses it */
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return strncmp(name, "ld-linux", 8) == 0 || strncmp(name, "ld.so", 5) == 0 ||
           strncmp(name, "ld64.so", 7) == 0;
}

/* Where in the file the byte is that will be at this address; false if none will. */
static bool offset_of(int fd, const ElfW(Ehdr) * elf, size_t n, uint64_t addr, uint64_t *ret_offset)
{
    for (size_t i = 0; i < n; i++) {
        ElfW(Phdr) header;
        if (!read_at(fd, &header, sizeof(header), elf->e_phoff + i * sizeof(header)))
            return false;
        if (header.p_type != PT_LOAD || addr < header.p_vaddr ||
            addr - header.p_vaddr >= header.p_filesz)
            continue;
        return !__builtin_add_overflow(header.p_offset, addr - header.p_vaddr, ret_offset);
    }
    return false;
}

/* Is a library that it needs of the kind? `first`: only the first one counts. */
static bool needs(int fd, const ElfW(Ehdr) * elf, size_t n, const ElfW(Phdr) * dynamic,
                  bool (*is_kind)(const char *name), bool first)
{
    uint64_t names = UINT64_MAX, offset;
    ElfW(Dyn) entries[DYNAMIC_MAX];
    size_t bytes = dynamic->p_filesz < sizeof(entries) ? dynamic->p_filesz : sizeof(entries);
    size_t n_entries = bytes / sizeof(entries[0]);
    if (!read_at(fd, entries, bytes, dynamic->p_offset))
        return false;
    for (size_t i = 0; i < n_entries && entries[i].d_tag != DT_NULL; i++)
        if (entries[i].d_tag == DT_STRTAB)
            names = entries[i].d_un.d_ptr;
    for (size_t i = 0; i < n_entries && entries[i].d_tag != DT_NULL; i++) {
        char name[SANITIZER_NAME_MAX + 1] = "";
        uint64_t needed = entries[i].d_un.d_val;
        if (entries[i].d_tag != DT_NEEDED)
            continue;
        if (needed > UINT32_MAX || names > INT64_MAX ||
            !offset_of(fd, elf, n, names + needed, &offset) ||
            !read_at(fd, name, sizeof(name) - 1, offset))
            return false;
        if (is_kind(name))
            return true;
        if (first)
            return false;
    }
    return false;
}

const char *const elf_program_allocators[] = {
    "libjemalloc", "libtcmalloc", "libmimalloc", "libtbbmalloc", "libsnmalloc", "libhoard", NULL};

static bool is_allocator(const char *name)
{
    for (size_t i = 0; elf_program_allocators[i]; i++)
        if (strncmp(name, elf_program_allocators[i], strlen(elf_program_allocators[i])) == 0)
            return true;
    return false;
}

static bool reads_allocator(int fd)
{
    ElfW(Ehdr) elf;
    ElfW(Phdr) header;
    if (!read_at(fd, &elf, sizeof(elf), 0) || elf.e_phentsize != sizeof(header) ||
        elf.e_phoff > INT64_MAX / 2)
        return false;
    size_t n = elf.e_phnum < HEADERS_MAX ? elf.e_phnum : HEADERS_MAX;
    for (size_t i = 0; i < n; i++)
        if (read_at(fd, &header, sizeof(header), elf.e_phoff + i * sizeof(header)) &&
            header.p_type == PT_DYNAMIC && needs(fd, &elf, n, &header, is_allocator, false))
            return true;
    return false;
}

static enum elf_program_kind read_elf(int fd, const ElfW(Ehdr) * elf)
{
    size_t n = elf->e_phnum < HEADERS_MAX ? elf->e_phnum : HEADERS_MAX;
    if (elf->e_phentsize != sizeof(ElfW(Phdr)))
        return ELF_PROGRAM_NEITHER;
    bool go = false, dynamic = false, glibc = false, sanitized = false;
    for (size_t i = 0; i < n; i++) {
        ElfW(Phdr) header;
        if (elf->e_phoff > INT64_MAX / 2 ||
            !read_at(fd, &header, sizeof(header), elf->e_phoff + i * sizeof(header)))
            return ELF_PROGRAM_NEITHER;
        if (header.p_type == PT_INTERP) {
            dynamic = true;
            glibc = loader_is_glibc(fd, &header);
        }
        /* The runtime of a sanitizer has to be the first of all. */
        if (header.p_type == PT_DYNAMIC && needs(fd, elf, n, &header, sanitizer_is_runtime, true))
            sanitized = true;
        if (header.p_type == PT_NOTE && has_go_note(fd, &header))
            go = true;
    }
    if (dynamic)
        return !glibc ? ELF_PROGRAM_LIBC : sanitized ? ELF_PROGRAM_SANITIZED : ELF_PROGRAM_DYNAMIC;
    return go ? ELF_PROGRAM_GO : ELF_PROGRAM_STATIC;
}

/* "#! /usr/bin/env -S x": the path is the first word behind the mark. */
static void read_script(const char *line, char ret_interpreter[static ELF_PROGRAM_LOADER_MAX])
{
    line += 2;
    line += strspn(line, " \t");
    size_t n = strcspn(line, " \t\n");
    if (n >= ELF_PROGRAM_LOADER_MAX)
        return;
    memcpy(ret_interpreter, line, n);
    ret_interpreter[n] = '\0';
}

enum elf_program_kind elf_program_read(int fd, char ret_interpreter[static ELF_PROGRAM_LOADER_MAX])
{
    union {
        unsigned char ident[EI_NIDENT];
        ElfW(Ehdr) elf;
        char line[SCRIPT_LINE_MAX + 1];
    } head = {{0}};
    ret_interpreter[0] = '\0';
    ssize_t n = pread(fd, head.line, SCRIPT_LINE_MAX, 0);
    if (n < 0)
        return ELF_PROGRAM_NO_ACCESS;
    head.line[n] = '\0';
    if (n > 2 && memcmp(head.line, "#!", 2) == 0) {
        read_script(head.line, ret_interpreter);
        return ELF_PROGRAM_NEITHER;
    }
    if (n < (ssize_t)sizeof(head.elf) || memcmp(head.ident, ELFMAG, SELFMAG) != 0)
        return ELF_PROGRAM_NEITHER;
    /* x32 and arm32 have another class, a foreign byte order another machine. */
    if (head.ident[EI_DATA] != DATA)
        return ELF_PROGRAM_MACHINE;
    if (head.elf.e_machine == MACHINE)
        return head.ident[EI_CLASS] == CLASS ? read_elf(fd, &head.elf) : ELF_PROGRAM_CLASS;
    bool small = MACHINE == EM_X86_64 ? head.elf.e_machine == EM_386 : head.elf.e_machine == EM_ARM;
    return small ? ELF_PROGRAM_CLASS : ELF_PROGRAM_MACHINE;
}

/* ---- files ---- */

/* A change of identity at exec puts the loader into its safe mode. Set-id bits do nothing where the file system
 * is mounted nosuid or where the identity is ours already. */
static bool changes_identity(int fd, enum elf_program_kind *ret_kind)
{
    struct stat info;
    if (fstat(fd, &info) < 0)
        return false;
    bool setuid = (info.st_mode & S_ISUID) && info.st_uid != getuid();
    bool setgid = (info.st_mode & S_ISGID) && (info.st_mode & S_IXGRP) && info.st_gid != getgid();
    *ret_kind = ELF_PROGRAM_SETID;
    if (setuid || setgid)
        return true;
    *ret_kind = ELF_PROGRAM_CAPABLE;
    return getuid() != 0 && fgetxattr(fd, "security.capability", NULL, 0) > 0;
}

enum elf_program_kind elf_program_inspect(const char *path)
{
    char at[ELF_PROGRAM_LOADER_MAX];
    for (int depth = 0; depth < ELF_PROGRAM_DEPTH_MAX; depth++) {
        MEMOIR_CLEANUP(closep)
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (fd < 0)
            return ELF_PROGRAM_NO_ACCESS;
        char next[ELF_PROGRAM_LOADER_MAX];
        enum elf_program_kind kind = elf_program_read(fd, next), identity;
        if (!next[0]) /* the kernel ignores set-id bits of scripts */
            return kind != ELF_PROGRAM_NEITHER && changes_identity(fd, &identity) ? identity : kind;
        memcpy(at, next, sizeof(at));
        path = at;
    }
    return ELF_PROGRAM_NEITHER;
}

bool elf_program_has_allocator(const char *path)
{
    char at[ELF_PROGRAM_LOADER_MAX];
    for (int depth = 0; depth < ELF_PROGRAM_DEPTH_MAX; depth++) {
        MEMOIR_CLEANUP(closep)
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        char next[ELF_PROGRAM_LOADER_MAX];
        if (fd < 0)
            return false;
        enum elf_program_kind kind = elf_program_read(fd, next);
        if (!next[0])
            return kind == ELF_PROGRAM_DYNAMIC && reads_allocator(fd);
        memcpy(at, next, sizeof(at));
        path = at;
    }
    return false;
}

static bool is_program(const char *path)
{
    struct stat info;
    return access(path, X_OK) == 0 && stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

int elf_program_find(const char *name, const char *search, char *ret_path, size_t size)
{
    if (!name[0])
        return -ENOENT;
    if (strchr(name, '/')) {
        if ((size_t)snprintf(ret_path, size, "%s", name) >= size)
            return -ENAMETOOLONG;
        return access(name, F_OK) == 0 ? 0 : -errno;
    }
    int error = -ENOENT;
    for (const char *at = search ? search : "/bin:/usr/bin"; at;) {
        size_t n = strcspn(at, ":");
        /* An empty part is the current directory. */
        int len = snprintf(ret_path, size, "%.*s%s%s", (int)n, at, n ? "/" : "./", name);
        if (len > 0 && (size_t)len < size && is_program(ret_path))
            return 0;
        if (len > 0 && (size_t)len < size && access(ret_path, F_OK) == 0)
            error = -EACCES;
        at = at[n] ? at + n + 1 : NULL;
    }
    return error;
}
