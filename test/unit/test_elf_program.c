/* What kind of program a file is, told from bytes that may say anything. */
#include "base/elf_program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static char root[64];

static int enter(void **unused)
{
    strcpy(root, "/tmp/memoir-test-elf-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int leave(void **unused)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command) == 0 ? 0 : -1;
}

/* An ELF file with one program header of this type and what it points to. */
struct image {
    ElfW(Ehdr) elf;
    ElfW(Phdr) header;
    char content[64];
};

static struct image image_of(uint32_t type, const void *content, size_t n)
{
    struct image image = {
        .elf = {.e_phoff = offsetof(struct image, header),
                .e_phentsize = sizeof(ElfW(Phdr)),
                .e_phnum = 1,
                .e_type = ET_DYN},
        .header = {.p_type = type, .p_offset = offsetof(struct image, content), .p_filesz = n}};
    memcpy(image.elf.e_ident, ELFMAG, SELFMAG);
    image.elf.e_ident[EI_CLASS] = ELFCLASS64;
    image.elf.e_ident[EI_DATA] = ELFDATA2LSB;
#ifdef __x86_64__
    image.elf.e_machine = EM_X86_64;
#else
    image.elf.e_machine = EM_AARCH64;
#endif
    memcpy(image.content, content, n);
    return image;
}

static char interpreter[ELF_PROGRAM_LOADER_MAX];

static enum elf_program_kind kind_of(const void *bytes, size_t n)
{
    int fd = memfd_create("program", 0);
    assert_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    enum elf_program_kind kind = elf_program_read(fd, interpreter);
    close(fd);
    return kind;
}

static enum elf_program_kind kind_of_image(const struct image *image)
{
    return kind_of(image, sizeof(*image));
}

static void the_loader_tells_dynamic_programs_and_their_libc(void **unused)
{
    struct image image = image_of(PT_INTERP, "/lib64/ld-linux-x86-64.so.2", 28);
    assert_int_equal(kind_of_image(&image), ELF_PROGRAM_DYNAMIC);
    image = image_of(PT_INTERP, "/lib/ld-musl-x86_64.so.1", 25);
    assert_int_equal(kind_of_image(&image), ELF_PROGRAM_LIBC);
    image = image_of(PT_LOAD, "", 1);
    assert_int_equal(kind_of_image(&image), ELF_PROGRAM_STATIC);
}

static void a_note_tells_go_programs(void **unused)
{
    static const struct {
        uint32_t name_bytes, value_bytes, type;
        char name[4], value[8];
    } go = {4, 8, 4, "Go", "buildid"}, gnu = {4, 8, 3, "GNU", "buildid"};
    struct image image = image_of(PT_NOTE, &go, sizeof(go));
    assert_int_equal(kind_of_image(&image), ELF_PROGRAM_GO);
    image = image_of(PT_NOTE, &gnu, sizeof(gnu));
    assert_int_equal(kind_of_image(&image), ELF_PROGRAM_STATIC);
}

static void other_machines_and_widths_are_told_apart(void **unused)
{
    struct image image = image_of(PT_INTERP, "/lib64/ld-linux-x86-64.so.2", 28);
    image.elf.e_ident[EI_CLASS] = ELFCLASS32;
    assert_int_equal(kind_of_image(&image), ELF_PROGRAM_CLASS);
    image.elf.e_ident[EI_CLASS] = ELFCLASS64;
    image.elf.e_machine = EM_S390;
    assert_int_equal(kind_of_image(&image), ELF_PROGRAM_MACHINE);
    image.elf.e_ident[EI_DATA] = ELFDATA2MSB;
    assert_int_equal(kind_of_image(&image), ELF_PROGRAM_MACHINE);
    assert_false(elf_program_takes_preload(ELF_PROGRAM_CLASS));
    assert_false(elf_program_takes_preload(ELF_PROGRAM_LIBC));
    assert_true(elf_program_takes_preload(ELF_PROGRAM_STATIC)); /* its children may be others */
}

static void hostile_lengths_are_no_harm(void **unused)
{
    struct image image = image_of(PT_INTERP, "/lib64/ld-linux-x86-64.so.2", 28);
    image.header.p_filesz = UINT64_MAX;
    kind_of_image(&image);
    image.header.p_offset = UINT64_MAX;
    kind_of_image(&image);
    image.header.p_type = PT_NOTE;
    kind_of_image(&image);
    image.elf.e_phoff = UINT64_MAX - 8;
    assert_int_equal(kind_of_image(&image), ELF_PROGRAM_NEITHER);
    image.elf.e_phentsize = 1;
    assert_int_equal(kind_of_image(&image), ELF_PROGRAM_NEITHER);
    image = image_of(PT_NOTE, "\xff\xff\xff\xff\xff\xff\xff\xff\4\0\0\0Go", 15);
    image.elf.e_phnum = UINT16_MAX; /* more than there are */
    assert_int_equal(kind_of_image(&image), ELF_PROGRAM_NEITHER);
    for (size_t n = 0; n < sizeof(image); n++)
        kind_of(&image, n);
}

static void scripts_name_their_interpreter(void **unused)
{
    static const char line[] = "#! \t/usr/bin/env -S python3 -u\nprint()\n";
    assert_int_equal(kind_of(line, sizeof(line) - 1), ELF_PROGRAM_NEITHER);
    assert_string_equal(interpreter, "/usr/bin/env");
    assert_int_equal(kind_of("#!", 2), ELF_PROGRAM_NEITHER);
    assert_string_equal(interpreter, "");
    assert_int_equal(kind_of("text", 4), ELF_PROGRAM_NEITHER);
    assert_string_equal(interpreter, "");
}

static const char *make(const char *name, const char *text, mode_t mode)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    return path;
}

static void a_script_is_what_its_interpreter_is(void **unused)
{
    char text[128];
    assert_int_equal(elf_program_inspect(make("a", "#!/bin/sh\n", 0755)), ELF_PROGRAM_DYNAMIC);
    snprintf(text, sizeof(text), "#!%s/a\n", root);
    assert_int_equal(elf_program_inspect(make("b", text, 0755)), ELF_PROGRAM_DYNAMIC);
    snprintf(text, sizeof(text), "#!%s/loop\n", root);
    assert_int_equal(elf_program_inspect(make("loop", text, 0755)), ELF_PROGRAM_NEITHER);
    assert_int_equal(elf_program_inspect("/nowhere/at/all"), ELF_PROGRAM_NO_ACCESS);
}

static void programs_are_found_as_exec_finds_them(void **unused)
{
    char path[256], search[256];
    make("tool", "#!/bin/sh\n", 0755);
    make("text", "words\n", 0644);
    snprintf(search, sizeof(search), "/nowhere:%s:/usr/bin", root);
    assert_int_equal(elf_program_find("tool", search, path, sizeof(path)), 0);
    assert_memory_equal(path, root, strlen(root));
    assert_int_equal(elf_program_find("text", search, path, sizeof(path)), -EACCES);
    assert_int_equal(elf_program_find("no-such-tool", search, path, sizeof(path)), -ENOENT);
    assert_int_equal(elf_program_find("", search, path, sizeof(path)), -ENOENT);
    assert_int_equal(elf_program_find("/no/such", search, path, sizeof(path)), -ENOENT);
    assert_int_equal(elf_program_find("tool", search, path, 8), -ENOENT);
    for (int kind = 0; kind <= ELF_PROGRAM_NO_ACCESS; kind++)
        assert_int_equal(elf_program_why_not((enum elf_program_kind)kind) != NULL, kind != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loader_tells_dynamic_programs_and_their_libc),
        cmocka_unit_test(a_note_tells_go_programs),
        cmocka_unit_test(other_machines_and_widths_are_told_apart),
        cmocka_unit_test(hostile_lengths_are_no_harm),
        cmocka_unit_test(scripts_name_their_interpreter),
        cmocka_unit_test(a_script_is_what_its_interpreter_is),
        cmocka_unit_test(programs_are_found_as_exec_finds_them),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
