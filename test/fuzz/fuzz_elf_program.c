/* A program's file may hold anything; memoir run tells what kind it is and reads nothing beyond it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/elf_program.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("program", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    char interpreter[ELF_PROGRAM_LOADER_MAX];
    memset(interpreter, 'x', sizeof(interpreter));
    enum elf_program_kind kind = elf_program_read(fd, interpreter);
    if (!memchr(interpreter, '\0', sizeof(interpreter)) ||
        (kind != ELF_PROGRAM_DYNAMIC && !elf_program_why_not(kind)))
        abort();
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (!interpreter[0] && elf_program_has_allocator(path) && kind != ELF_PROGRAM_DYNAMIC)
        abort();
    close(fd);
    return 0;
}
