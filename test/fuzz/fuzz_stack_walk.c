/* A copied stack of a hostile process, its registers, its unwind rules and the Python calls that the kernel captured: the walk and the join
 * of both (stack_walk.h, python_join()), which the observer does itself. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "observe/python_remote.h"
#include "observe/stack_walk.h"
#include "site/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CODES = 8, CALLS = 6 };

/* What comes before the bytes of the stack. */
struct input {
    uint64_t lo; /* 4 bits are used: near 0, near the end, or elsewhere */
    struct stack_registers registers;
    struct {
        uint64_t pc;
        uint32_t rule, spare;
    } codes[CODES];
    struct stack_return returns[2];
    uint32_t calls, flags;
    struct python_capture_entry entries[CALLS];
};

static struct walk_process *process_make(void)
{
    static struct module_files files;
    static struct stacks_figures figures;
    struct walk_process *p = calloc(1, sizeof(*p));
    if (!p || module_map_init(&p->map, &files, 1 << 30) < 0)
        abort();
    p->figures = &figures;
    p->gone = true; /* its maps are never read again */
    p->rules = calloc((size_t)1 << WALK_RULES_BITS, sizeof(*p->rules));
    if (!p->rules)
        abort();
    return p;
}

static void join_try(const struct input *in, const struct walk_stack *walked)
{
    static struct python_remote *r;
    static struct python_joined joined[STACK_FRAMES_MAX];
    struct python_capture capture = {.n = in->calls % (CALLS + 1), .flags = in->flags};
    uintptr_t pcs[WALK_FRAMES_MAX], sps[WALK_FRAMES_MAX];
    bool cut = !walked->complete;
    if (!r && !(r = calloc(1, sizeof(*r))))
        return;
    memcpy(capture.entries, in->entries, sizeof(in->entries));
    r->py.state = PYTHON_READY;
    r->py.facts.layout = python_layouts[in->flags >> 8 & 3];
    r->py.facts.eval_start = 0x10000;
    r->py.facts.eval_end = 0x20000;
    r->py.facts.map_start = 0x8000;
    r->py.facts.map_end = 0x40000;
    if (!python_remote_stack(r, &capture))
        return;
    for (uint32_t i = 0; i < walked->n; i++) {
        pcs[i] = walked->frames[i].pc;
        sps[i] = walked->frames[i].sp;
    }
    size_t n = python_join(&r->py, &r->stack, pcs, sps, walked->n, joined, STACK_FRAMES_MAX, &cut);
    if (n > STACK_FRAMES_MAX)
        abort();
    uint32_t native = 0; /* frames are in the order of the stack, as stacks.c relies on */
    for (size_t i = 0; i < n; i++) {
        if (joined[i].frame) {
            if (joined[i].frame < r->stack.frames ||
                joined[i].frame >= r->stack.frames + r->stack.n)
                abort();
            continue;
        }
        while (native < walked->n && walked->frames[native].pc != joined[i].pc)
            native++;
        if (native++ >= walked->n)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct walk_process *p;
    static struct walk_stack walked;
    static const uint64_t bases[] = {0x7f0000000000, 0, UINT64_MAX - 65536, UINT64_MAX - 8};
    struct input in;
    if (size < sizeof(in))
        return 0;
    memcpy(&in, data, sizeof(in));
    if (!p)
        p = process_make();
    memset(p->codes, 0, sizeof(p->codes));
    for (int i = 0; i < CODES; i++) {
        uint64_t pc = in.codes[i].pc - 1;
        uint32_t rule = in.codes[i].rule;
        if (pc && !(rule && rule_is_full(rule))) /* a row of a file is the parser's */
            p->codes[(pc * HASH_K0) >> (64 - WALK_CODES_BITS)] = (struct walk_code){pc, NULL, rule};
    }
    p->n_trampolines = 1;
    p->trampolines[0][0] = 0x30000;
    p->trampolines[0][1] = 0x31000;
    size_t n = size - sizeof(in);
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy)
        return 0;
    memcpy(copy, data + sizeof(in), n);
    struct stack_input input = {
        .registers = in.registers,
        .bytes = copy,
        .n_bytes = n,
        .returns = in.returns,
        .n_returns = 2,
    };
    input.registers.rsp = bases[in.lo & 3];
    walk_stack(p, &input, &walked);
    if (walked.n > WALK_FRAMES_MAX)
        abort();
    join_try(&in, &walked);
    free(copy);
    return 0;
}
