/* One stack out of two: C frames and Python frames, each where people expect it. */
#include "site/python.h"

/* The C stack and how far it is used up. */
struct join {
    const struct python *py;
    const struct python_stack *stack;
    const uintptr_t *pcs, *sps;
    size_t n;
    struct python_joined *out;
    size_t n_out, max;
    bool full;
};

static bool in_module(const struct python *py, uintptr_t pc)
{
    return pc - 1 >= py->facts.map_start && pc - 1 < py->facts.map_end;
}

static bool in_loop(const struct python *py, uintptr_t pc)
{
    return pc - 1 >= py->facts.eval_start && pc - 1 < py->facts.eval_end;
}

static void put(struct join *j, struct python_joined frame)
{
    if (j->n_out == j->max)
        j->full = true;
    else
        j->out[j->n_out++] = frame;
}

/* C frames between two places. Those of the interpreter stay only inside of all Python calls: there they
 * tell what the interpreter was doing, further out only how it calls. */
static void put_native(struct join *j, size_t from, size_t to, bool innermost)
{
    for (size_t i = from; i < to; i++)
        if (innermost || !in_module(j->py, j->pcs[i]))
            put(j, (struct python_joined){.pc = j->pcs[i]});
}

static void put_python(struct join *j, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        put(j, (struct python_joined){.frame = &j->stack->frames[i]});
}

/* The C frame that an address of the stack lies in, from frame `i` on; j->n if there is none. Of the last
 * frame nobody knows where it ends: it is the one if it is a frame of the loop. */
static size_t frame_around(const struct join *j, size_t i, uintptr_t addr)
{
    for (; i + 1 < j->n; i++)
        if (addr >= j->sps[i] && addr < j->sps[i + 1])
            return i;
    return i < j->n && addr >= j->sps[i] && in_loop(j->py, j->pcs[i]) ? i : j->n;
}

static size_t next_in_loop(const struct join *j, size_t i)
{
    while (i < j->n && !in_loop(j->py, j->pcs[i]))
        i++;
    return i;
}

/* Where only the order is known, both sides must have the same number of runs: unless one was cut, in
 * which case it has fewer. */
static bool order_fits(const struct join *j, bool cut)
{
    size_t loops = 0;
    for (size_t i = 0; i < j->n; i++)
        loops += in_loop(j->py, j->pcs[i]);
    return loops == j->stack->n_runs || (loops < j->stack->n_runs && cut) ||
           (loops > j->stack->n_runs && j->stack->cut);
}

size_t python_join(const struct python *py, const struct python_stack *stack, const uintptr_t *pcs,
                   const uintptr_t *sps, size_t n, struct python_joined *out, size_t max, bool *cut)
{
    struct join j = {
        .py = py, .stack = stack, .pcs = pcs, .sps = sps, .n = n, .out = out, .max = max};
    bool by_order = py->facts.layout.link == PYTHON_LINK_ORDER;
    if (by_order && !order_fits(&j, *cut))
        return 0;
    size_t i = 0;
    uint32_t f = 0;
    for (uint32_t r = 0; r < stack->n_runs; r++) {
        const struct python_run *run = &stack->runs[r];
        size_t at = j.n;
        if (by_order)
            at = next_in_loop(&j, i);
        else if (run->stack)
            at = frame_around(&j, i, run->stack);
        bool beyond = at == j.n; /* of what is known of the C stack */
        if (beyond ? !*cut && run->stack : !in_module(py, pcs[at]))
            return 0;
        put_native(&j, i, at, f == 0);
        put_python(&j, f, run->end);
        i = beyond ? at : at + 1;
        f = run->end;
    }
    put_native(&j, i, n, f == 0);
    *cut = *cut || j.full || stack->cut;
    return j.n_out;
}
