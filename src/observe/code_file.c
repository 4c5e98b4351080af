/* Questions to the parser about instructions of a file, and checks of its answers. See code_file.h. */
#include "observe/code_file.h"

#include <errno.h>

#include "observe/elf_parser_internal.h"

enum { REGISTERS = PROBE_REGISTERS, CONDITIONS = 16 };

static int ask(struct elf_parser *parser, struct elf_question *q, elf_read_fn *read, void *context)
{
    q->read = read;
    q->read_context = context;
    int r = elf_parser_ensure(parser);
    if (r == 0)
        r = elf_parser_ask(parser, q);
    return r == -EPIPE ? -EBADMSG : r;
}

/* The entry, where the arguments are in their usual registers. */
static void place_entry(struct probe_place *ret)
{
    *ret = (struct probe_place){.at = {PROBE_RDI, PROBE_RSI, PROBE_RDX}};
}

static bool place_fits(const struct code_told_place *told, uint64_t bytes)
{
    for (int i = 0; i < PROBE_ARGUMENTS; i++)
        if (told->at[i] >= REGISTERS)
            return false;
    return told->offset < PROBE_PLACE_BYTES && (bytes == 0 || told->offset < bytes);
}

void code_file_place(struct elf_parser *parser, elf_read_fn *read, void *context, uint64_t offset,
                     uint64_t bytes, uint32_t needs, struct probe_place *ret_place)
{
    struct code_told_place told;
    struct elf_question q = {
        .ask = {.kind = ELF_ASK_PLACE, .vaddr = offset, .lo = bytes, .cluster = needs},
        .told = &told,
        .told_bytes = sizeof(told),
    };
    if (!parser) {
        code_place_here(read, context, offset, bytes, needs, ret_place);
        return;
    }
    place_entry(ret_place);
    if (ask(parser, &q, read, context) < 0 || !place_fits(&told, bytes))
        return;
    ret_place->offset = told.offset;
    ret_place->cheap = told.cheap != 0;
    for (int i = 0; i < PROBE_ARGUMENTS; i++)
        ret_place->at[i] = told.at[i];
}

static bool return_fits(const struct code_told_return *told)
{
    return told->at <= INT64_MAX && told->result < REGISTERS && told->condition < CONDITIONS &&
           told->up <= CODE_RETURNS_UP_MAX && told->up % 8 == 0;
}

int code_file_returns(struct elf_parser *parser, elf_read_fn *read, void *context, uint64_t offset,
                      struct code_return ret_places[static CODE_RETURNS_MAX])
{
    struct code_told_return told[CODE_RETURNS_MAX];
    struct elf_question q = {
        .ask = {.kind = ELF_ASK_RETURNS, .vaddr = offset},
        .told = told,
        .told_bytes = sizeof(told),
        .told_item = sizeof(told[0]),
    };
    if (!parser)
        return code_returns_here(read, context, offset, ret_places);
    int r = ask(parser, &q, read, context);
    if (r < 0)
        return r;
    int n = (int)(q.done.bytes / sizeof(told[0]));
    for (int i = 0; i < n; i++) {
        if (!return_fits(&told[i]))
            return -EBADMSG;
        ret_places[i] = (struct code_return){
            .at = told[i].at,
            .slow = told[i].slow != 0,
            .result = told[i].result,
            .up = told[i].up,
            .conditional = told[i].conditional != 0,
            .taken = told[i].taken != 0,
            .condition = told[i].condition,
        };
    }
    return n;
}

struct code_instruction code_file_first(struct elf_parser *parser, elf_read_fn *read, void *context,
                                        uint64_t offset)
{
    const struct code_instruction bad = {.flow = CODE_BAD};
    struct code_told_first told;
    struct elf_question q = {
        .ask = {.kind = ELF_ASK_FIRST, .vaddr = offset},
        .told = &told,
        .told_bytes = sizeof(told),
    };
    if (!parser)
        return code_first_here(read, context, offset);
    if (ask(parser, &q, read, context) < 0 || told.flow > CODE_STOP ||
        told.bytes > CODE_INSTRUCTION_MAX)
        return bad;
    return (struct code_instruction){
        .flow = (enum code_flow)told.flow,
        .bytes = told.bytes,
        .call = told.call != 0,
        .nop = told.nop != 0,
        .target = told.target,
    };
}
