/* See link_map.h. */
#include "observe/link_map.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "observe/deadline.h"
#include "observe/elf_parser_internal.h"

static size_t auxv_read(pid_t pid, uint8_t to[static ELF_WIRE_AUXV_MAX])
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/auxv", (int)pid);
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, to, ELF_WIRE_AUXV_MAX);
    return n > 0 ? (size_t)n : 0;
}

static size_t ask(struct elf_parser *parser, const uint8_t *auxv, size_t auxv_bytes,
                  struct remote_memory *memory, uint64_t ret_bases[static LINK_MAP_MAX])
{
    uint32_t deaths = 0;
    struct elf_question q = {
        .ask = {.kind = ELF_ASK_LINK_MAP, .payload_bytes = (uint32_t)auxv_bytes},
        .payload = auxv,
        .memory = remote_memory_read,
        .memory_context = memory,
        .memory_left = LINK_MAP_BYTES,
        .pieces_left = LINK_MAP_PIECES,
        .told = ret_bases,
        .told_bytes = LINK_MAP_MAX * sizeof(ret_bases[0]),
        .told_item = sizeof(ret_bases[0]),
    };
    return elf_parser_ask_process(parser, &q, &deaths) < 0 ? 0
                                                           : q.done.bytes / sizeof(ret_bases[0]);
}

size_t link_map_each(pid_t pid, struct elf_parser *parser,
                     void (*each)(void *context, uint64_t base, size_t order), void *context)
{
    uint8_t auxv[ELF_WIRE_AUXV_MAX];
    uint64_t bases[LINK_MAP_MAX];
    struct remote_memory memory;
    struct deadline *deadline;
    if (deadline_new(&deadline) < 0)
        return 0;
    remote_memory_init(&memory, pid, deadline);
    size_t auxv_bytes = auxv_read(pid, auxv);
    size_t n = parser ? ask(parser, auxv, auxv_bytes, &memory, bases)
                      : link_map_walk(auxv, auxv_bytes, remote_memory_read, &memory, bases);
    for (size_t i = 0; i < n; i++)
        each(context, bases[i], i);
    deadline_free(deadline);
    return n;
}
