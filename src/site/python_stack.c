/* The Python calls of a thread, from the interpreter's own records. */
#include <pthread.h>

#include "site/module.h"
#include "site/python.h"
#include "site/stack.h"

enum {
    FRAME_BYTES = 112, /* no field that is read lies further on, in any version */
    RECORD_BYTES = 24,
    CODE_UNIT = 2,
    CHUNKS_MAX = 16,
};

/* What a walk knows to be readable. */
struct walk {
    const struct python *py;
    const struct python_layout *layout;
    uintptr_t state; /* this thread's PyThreadState */
    struct stack_bounds bounds;
    uintptr_t
        chunk;      /* the memory in which the thread stacks its frames at present, and before it */
    uintptr_t page; /* the last one that was probed; UINTPTR_MAX: none */
};

static uint8_t load_byte(uintptr_t addr)
{
    return (uint8_t)(stack_load(addr & ~(sizeof(uintptr_t) - 1)) >> (addr % sizeof(uintptr_t) * 8));
}

static bool on_stack(struct walk *w, uintptr_t addr, size_t bytes)
{
    return addr % sizeof(uintptr_t) == 0 && addr >= w->bounds.lo &&
           (stack_has_word(&w->bounds, addr + bytes - sizeof(uintptr_t)) ||
            stack_reach(&w->bounds, addr + bytes - sizeof(uintptr_t)));
}

/* A thread has one chunk of a few pages, or more when it is deep: a list, the latest first. */
static bool in_chunks(const struct walk *w, uintptr_t frame)
{
    uintptr_t chunk = w->chunk;
    for (int n = 0; chunk != 0 && chunk % sizeof(uintptr_t) == 0 && n < CHUNKS_MAX; n++) {
        if (frame > chunk && frame - chunk + FRAME_BYTES <= stack_load(chunk + PYTHON_CHUNK_BYTES))
            return true;
        chunk = stack_load(chunk + PYTHON_CHUNK_PREVIOUS);
    }
    return false;
}

static bool frame_readable(struct walk *w, uintptr_t frame)
{
    const uintptr_t in_page = STACK_PAGE - 1;
    if (frame == 0 || frame % sizeof(uintptr_t) != 0)
        return false;
    if (in_chunks(w, frame))
        return true;
    if (frame >= w->bounds.lo && frame < w->bounds.limit)
        return on_stack(w, frame, FRAME_BYTES);
    if ((frame & ~in_page) == w->page && (frame & in_page) + FRAME_BYTES <= STACK_PAGE)
        return true;
    if (!stack_probe(frame, FRAME_BYTES))
        return false;
    w->page = frame & ~in_page;
    return true;
}

/* This thread's state, if it has one and may read it. */
static uintptr_t state_find(const struct python *py)
{
    const volatile uint32_t *key = (const volatile uint32_t *)py->facts.key_at;
    if (key[0] != 1)
        return 0; /* finalized */
    uintptr_t state =
        (uintptr_t)pthread_getspecific((pthread_key_t)key[PYTHON_TSS_KEY / sizeof(uint32_t)]);
    if (state == 0 || state % sizeof(uintptr_t) != 0)
        return 0;
    uintptr_t finalizing = stack_load(py->facts.runtime + py->facts.layout.runtime_finalizing);
    if (finalizing != 0 && finalizing != state)
        return 0;
    if (stack_load(state + py->facts.layout.thread_id) != (uintptr_t)pthread_self())
        return 0;
    return state;
}

/* Where in its code a frame is. Up to 3.10 that is a number, in 3.10 of instructions. */
static int64_t frame_at(const struct python_layout *l, uintptr_t frame, uintptr_t code)
{
    uintptr_t instr = stack_load(frame + (l->frame_instr & ~7u));
    if (l->code_start)
        return (int64_t)(instr - (code + l->code_start));
    int32_t number = (int32_t)(instr >> (l->frame_instr & 7u) * 8);
    return l->link == PYTHON_LINK_RECORD ? (int64_t)number * CODE_UNIT : number;
}

static bool frame_push(struct walk *w, uintptr_t frame, struct python_stack *s)
{
    if (s->n == PYTHON_FRAMES_MAX) {
        s->cut = true;
        return false;
    }
    uintptr_t code = stack_load(frame + w->layout->frame_code);
    s->frames[s->n++] = (struct python_frame){code, frame_at(w->layout, frame, code)};
    return true;
}

static void run_push(struct python_stack *s, uintptr_t stack)
{
    s->runs[s->n_runs++] = (struct python_run){stack, s->n};
}

/* 3.8 to 3.11: records on the C stack, where there are any, and frames that belong to them in turn. */
static void walk_records(struct walk *w, struct python_stack *s)
{
    const struct python_layout *l = w->layout;
    bool flagged = l->link == PYTHON_LINK_FLAG;
    uintptr_t record = l->thread_record ? stack_load(w->state + l->thread_record) : 0;
    if (l->thread_record && !on_stack(w, record, RECORD_BYTES))
        return; /* the one in the state itself: nothing runs */
    uintptr_t frame =
        flagged ? stack_load(record + l->record_frame) : stack_load(w->state + l->thread_frame);
    while (frame_readable(w, frame) && frame_push(w, frame, s)) {
        if (!flagged || load_byte(frame + l->frame_flag)) {
            run_push(s, record);
            uintptr_t outer = record ? stack_load(record + l->record_previous) : 0;
            if (record && (outer <= record || !on_stack(w, outer, RECORD_BYTES)))
                return;
            record = outer;
        }
        frame = stack_load(frame + l->frame_previous);
    }
    if (s->cut && s->n_runs < PYTHON_FRAMES_MAX) /* each frame may have a run of its own */
        run_push(s, record);
}

/* From 3.12 on: the outermost frame of a run lies in the C frame of the loop. */
static void walk_shims(struct walk *w, struct python_stack *s)
{
    const struct python_layout *l = w->layout;
    uintptr_t frame;
    if (l->thread_record) {
        uintptr_t record = stack_load(w->state + l->thread_record);
        if (!on_stack(w, record, RECORD_BYTES))
            return;
        frame = stack_load(record + l->record_frame);
    } else {
        frame = stack_load(w->state + l->thread_frame);
    }
    uintptr_t last = 0;
    while (frame_readable(w, frame)) {
        if (load_byte(frame + l->frame_owner) == PYTHON_OWNER_C_STACK) {
            if (frame <= last || !on_stack(w, frame, FRAME_BYTES) || s->n_runs == PYTHON_FRAMES_MAX)
                return;
            run_push(s, last = frame);
        } else if (!frame_push(w, frame, s)) {
            break;
        }
        frame = stack_load(frame + l->frame_previous);
    }
    if (s->cut && s->n_runs < PYTHON_FRAMES_MAX)
        run_push(s, 0);
}

bool python_same(const struct python *py, uintptr_t pc)
{
    struct module_object object;
    return module_object_find(pc - 1, &object) == 0 && object.map == py->facts.map &&
           object.map_start == py->facts.map_start && object.map_end == py->facts.map_end;
}

bool python_on_stack(const struct python *py, const uintptr_t *pcs, size_t n)
{
    if (!python_ready(py))
        return false;
    for (size_t i = 0; i < n; i++)
        if (pcs[i] - 1 >= py->facts.map_start && pcs[i] - 1 < py->facts.map_end)
            return python_same(py, pcs[i]);
    return false;
}

bool python_stack_get(const struct python *py, struct python_stack *ret_stack)
{
    struct walk w = {
        .py = py, .layout = &py->facts.layout, .state = state_find(py), .page = UINTPTR_MAX};
    ret_stack->n = ret_stack->n_runs = 0;
    ret_stack->cut = false;
    if (w.state == 0)
        return false;
    stack_bounds_find((uintptr_t)__builtin_frame_address(0), &w.bounds);
    if (py->facts.layout.thread_chunk)
        w.chunk = stack_load(w.state + py->facts.layout.thread_chunk);
    if (py->facts.layout.link == PYTHON_LINK_SHIM)
        walk_shims(&w, ret_stack);
    else
        walk_records(&w, ret_stack);
    /* What came after the last run that is whole belongs to none. */
    ret_stack->n = ret_stack->n_runs ? ret_stack->runs[ret_stack->n_runs - 1].end : 0;
    return ret_stack->n > 0;
}
