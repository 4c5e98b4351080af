/* See code_returns.h. First all code is walked, and every way into a piece of straight code is noted (struct edge). Then each piece is
 * looked at again from each way into it: what ends with a ret gives a place. */
#include "observe/code_returns.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "observe/code_instruction.h"
#include "observe/probe_place.h"

enum {
    SEEN = 2 * CODE_RETURNS_INSTRUCTIONS,
    STEPS_MAX = 4 * CODE_RETURNS_INSTRUCTIONS,
    RAX = 0,
};

/* A way from a jump to what follows. */
struct edge {
    uint64_t from, to;
    bool cheap; /* there is a jump at `from` that the kernel carries out itself */
    bool conditional, taken;
    uint8_t condition;
};

struct walk {
    code_read_fn *read;
    void *context;
    uint64_t seen[SEEN]; /* a hash of places + 1; 0: free */
    size_t n_seen;
    struct edge edges[CODE_RETURNS_INSTRUCTIONS];
    size_t n_edges;
    size_t
        steps; /* instructions of pieces, which overlap: bounded, since the code is a stranger's */
    struct code_return *places;
    int n;
};

/* False: it was there before. */
static bool seen_add(struct walk *w, uint64_t at)
{
    size_t i = (size_t)(at * 0x9e3779b97f4a7c15ull >> 40) % SEEN;
    while (w->seen[i] && w->seen[i] != at + 1)
        i = (i + 1) % SEEN;
    if (w->seen[i])
        return false;
    w->seen[i] = at + 1;
    w->n_seen++;
    return true;
}

static struct code_instruction instruction_at(const struct walk *w, uint64_t at, uint8_t *code)
{
    size_t n = w->read(w->context, at, code, CODE_INSTRUCTION_MAX);
    return code_instruction_read(code, n);
}

static int edge_add(struct walk *w, const struct edge *edge)
{
    if (w->n_edges == CODE_RETURNS_INSTRUCTIONS)
        return -E2BIG;
    w->edges[w->n_edges++] = *edge;
    return 0;
}

/* The ways that a jump or a call leads to. */
static int edges_add(struct walk *w, uint64_t at, const struct code_instruction *i,
                     const uint8_t *code)
{
    bool near = code[0] >= 0x70 && code[0] <= 0x7f;
    bool far = code[0] == 0x0f && code[1] >= 0x80 && code[1] <= 0x8f;
    struct edge edge = {.from = at, .to = at + (uint64_t)i->target};
    int r = 0;
    if (i->flow == CODE_JUMP) {
        edge.cheap = code[0] == 0xe9 || code[0] == 0xeb;
        return edge_add(w, &edge);
    }
    if (i->flow == CODE_BRANCH) {
        edge.cheap = near || far;
        edge.conditional = edge.taken = true;
        edge.condition = code[far] & 15;
        r = edge_add(w, &edge);
    }
    edge.taken = false;
    edge.to = at + i->bytes;
    return r < 0 ? r : edge_add(w, &edge);
}

/* From one place up to where the code goes elsewhere. */
static int straight_walk(struct walk *w, uint64_t at, bool called)
{
    for (bool first = true; seen_add(w, at); first = false) {
        uint8_t code[CODE_INSTRUCTION_MAX];
        struct code_instruction i = instruction_at(w, at, code);
        if (w->n_seen >= CODE_RETURNS_INSTRUCTIONS)
            return -E2BIG;
        if (i.flow == CODE_BAD)
            return -EILSEQ;
        if (first && called && i.nop && i.bytes > 1) /* padding: the call does not come back */
            return 0;
        if (i.flow == CODE_RETURN || i.flow == CODE_STOP)
            return 0;
        if (i.flow == CODE_JUMP || i.flow == CODE_BRANCH || i.call)
            return edges_add(w, at, &i, code);
        at += i.bytes;
    }
    return 0;
}

/* ---- pieces that end with a ret ---- */

/* What straight code does with the stack pointer: pop, and add to it. */
static bool stack_moves(const uint8_t *code, const struct code_instruction *i, uint32_t *up,
                        uint8_t holds[static PROBE_REGISTERS])
{
    size_t rex = code[0] == 0x41;
    if (code[rex] >= 0x58 && code[rex] <= 0x5f && i->bytes == rex + 1) {
        holds[(code[rex] & 7) | rex << 3] = PROBE_NONE;
        *up += 8;
        return true;
    }
    if (code[0] == 0x48 && code[1] == 0x83 && code[2] == 0xc4 && code[3] < 0x80) {
        *up += code[3];
        return true;
    }
    return false;
}

/* From `at` to a ret: its place, what the registers hold there, and how far the stack pointer moved. `sure` is false where one of the
 * instructions is not known well enough. False: it does not end with a ret. */
static bool piece_read(struct walk *w, uint64_t at, uint64_t *ret_at, uint32_t *up,
                       uint8_t holds[static PROBE_REGISTERS], bool *sure)
{
    while (w->steps++ < STEPS_MAX) {
        uint8_t code[CODE_INSTRUCTION_MAX];
        struct code_instruction i = instruction_at(w, at, code);
        *ret_at = at;
        if (i.flow == CODE_RETURN)
            return true;
        if (i.flow != CODE_NEXT || i.call)
            return false;
        if (!stack_moves(code, &i, up, holds) && !probe_instruction_follow(code, i.bytes, holds))
            *sure = false;
        at += i.bytes;
    }
    return false;
}

static int place_add(struct walk *w, const struct code_return *place)
{
    for (int i = 0; i < w->n; i++)
        if (w->places[i].at == place->at && w->places[i].taken == place->taken)
            return 0;
    if (w->n == CODE_RETURNS_MAX)
        return -E2BIG;
    w->places[w->n++] = *place;
    return 0;
}

static int edge_look(struct walk *w, const struct edge *edge)
{
    uint8_t holds[PROBE_REGISTERS];
    uint64_t at = 0;
    struct code_return place = {.at = edge->from,
                                .conditional = edge->conditional,
                                .taken = edge->taken,
                                .condition = edge->condition};
    bool sure = edge->cheap;
    for (uint8_t r = 0; r < PROBE_REGISTERS; r++)
        holds[r] = r;
    if (!piece_read(w, edge->to, &at, &place.up, holds, &sure))
        return 0;
    place.result = holds[RAX];
    if (!sure || place.result == PROBE_NONE || place.up > CODE_RETURNS_UP_MAX || place.up % 8)
        place = (struct code_return){.at = at, .slow = true};
    return place_add(w, &place);
}

int code_returns_find(code_read_fn *read, void *context, uint64_t start,
                      struct code_return ret_places[static CODE_RETURNS_MAX])
{
    MEMOIR_CLEANUP(freep)
    struct walk *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->read = read;
    w->context = context;
    w->places = ret_places;
    int r = edge_add(w, &(struct edge){.from = start, .to = start});
    for (size_t i = 0; i < w->n_edges && r == 0; i++) {
        uint8_t code[CODE_INSTRUCTION_MAX];
        bool called = instruction_at(w, w->edges[i].from, code).call;
        r = straight_walk(w, w->edges[i].to, called);
    }
    for (size_t i = 0; i < w->n_edges && r == 0; i++)
        r = edge_look(w, &w->edges[i]);
    return r < 0 ? r : w->steps > STEPS_MAX ? -E2BIG : w->n;
}
