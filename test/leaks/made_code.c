/* Code made at run time that asks for memory, and is made anew elsewhere while it runs, as compilers of languages do it. With the
 * argument 'map' it tells the names of the code as perf reads them.
 *
 * Holds it all and waits for the end of its input. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { VERSIONS = 200, CALLS = 100, CODE_BYTES = 64, BLOCK_BYTES = 2000 };

#if defined(__x86_64__)
/* push %rbp; mov %rsp, %rbp; mov $malloc, %rax; call *%rax; pop %rbp; ret */
static const uint8_t code_bytes[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xb8, 0,    0,    0,
                                     0,    0,    0,    0,    0,    0xff, 0xd0, 0x5d, 0xc3};
enum { ADDRESS_AT = 6 };
#elif defined(__aarch64__)
/* stp x29, x30, [sp, #-16]!; mov x29, sp; ldr x16, .+16; blr x16; ldp x29, x30, [sp], #16; ret; .quad malloc */
static const uint32_t code_bytes[] = {0xa9bf7bfd, 0x910003fd, 0x58000090, 0xd63f0200,
                                      0xa8c17bfd, 0xd65f03c0, 0,          0};
enum { ADDRESS_AT = 24 };
#endif

__attribute__((noinline)) static void *grow(void *(*made)(size_t))
{
    char *block = made(BLOCK_BYTES);
    if (block)
        block[0] = 1;
    return block;
}

int main(int argc, char **argv)
{
    static void *kept[VERSIONS][CALLS];
    uint8_t *room = mmap(NULL, VERSIONS * CODE_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char path[64];
    snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
    FILE *map = argc > 1 && strcmp(argv[1], "map") == 0 ? fopen(path, "we") : NULL;
    if (room == MAP_FAILED)
        return 1;
    for (int v = 0; v < VERSIONS; v++) {
        uint8_t *at = room + v * CODE_BYTES;
        void *(*function)(size_t) = malloc;
        memcpy(at, code_bytes, sizeof(code_bytes));
        memcpy(at + ADDRESS_AT, &function, sizeof(function));
        __builtin___clear_cache((char *)at, (char *)at + CODE_BYTES);
        if (map)
            fprintf(map, "%lx %x made_%s\n", (unsigned long)(uintptr_t)at, CODE_BYTES, "grow");
        void *(*made)(size_t);
        memcpy(&made, &at, sizeof(made));
        for (int i = 0; i < CALLS; i++)
            kept[v][i] = grow(made);
    }
    if (map)
        fclose(map);
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    if (map)
        unlink(path);
    return kept[0][0] == NULL;
}
