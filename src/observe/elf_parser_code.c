/* Questions to the child about instructions of a file, which it reads through the observer. See elf_parser.h. */
#include <string.h>
#include <unistd.h>

#include "observe/code_file.h"
#include "observe/elf_parser_child.h"

static void place(const struct elf_ask *ask)
{
    struct probe_place found;
    struct code_told_place told;
    code_place_here(elf_child_read, NULL, ask->vaddr, ask->lo, ask->cluster, &found);
    memset(&told, 0, sizeof(told));
    told.offset = (uint32_t)found.offset;
    told.cheap = found.cheap;
    memcpy(told.at, found.at, sizeof(told.at));
    elf_child_done(0, &told, sizeof(told));
}

static void returns(const struct elf_ask *ask)
{
    struct code_return places[CODE_RETURNS_MAX];
    static struct code_told_return told[CODE_RETURNS_MAX];
    int n = code_returns_here(elf_child_read, NULL, ask->vaddr, places);
    for (int i = 0; i < n; i++) {
        memset(&told[i], 0, sizeof(told[i]));
        told[i].at = places[i].at;
        told[i].up = places[i].up;
        told[i].slow = places[i].slow;
        told[i].result = places[i].result;
        told[i].conditional = places[i].conditional;
        told[i].taken = places[i].taken;
        told[i].condition = places[i].condition;
    }
    elf_child_done(n < 0 ? n : 0, told, n < 0 ? 0 : (size_t)n * sizeof(told[0]));
}

static void first(const struct elf_ask *ask)
{
    struct code_instruction i = code_first_here(elf_child_read, NULL, ask->vaddr);
    struct code_told_first told;
    memset(&told, 0, sizeof(told));
    told.flow = i.flow;
    told.bytes = (uint32_t)i.bytes;
    told.call = i.call;
    told.nop = i.nop;
    told.target = i.target;
    elf_child_done(0, &told, sizeof(told));
}

void elf_child_code(const struct elf_ask *ask)
{
    switch (ask->kind) {
    case ELF_ASK_PLACE:
        place(ask);
        return;
    case ELF_ASK_RETURNS:
        returns(ask);
        return;
    case ELF_ASK_FIRST:
        first(ask);
        return;
    }
    _exit(1);
}
