/* Stacks with lines of scripts. */
#include "book/script_stack.h"

#include <string.h>

#include "book/text.h"
#include "book/writer.h"

static struct script_cache_entry *entry_of(struct script_thread *s,
                                           const struct python_frame *frame)
{
    uint64_t key = (frame->code ^ (uint64_t)frame->at << 24) * UINT64_C(0x9e3779b97f4a7c15);
    return &s->cache[key >> (64 - SCRIPT_CACHE_BITS)];
}

/* Read the frame's name and enter it. */
static uint64_t frame_learn(struct book_writer *w, struct book_thread *t, struct script_thread *s,
                            const struct python *py, const struct python_frame *frame,
                            struct script_cache_entry *entry)
{
    struct python_name *name = &s->name;
    s->misses++;
    if (!python_frame_name(py, frame, name))
        return BOOK_SCRIPT_FRAME(0, 0);
    struct book_script *script = &s->script;
    memset(script, 0, sizeof(*script));
    static_assert(sizeof(script->function) == sizeof(name->function), "one limit");
    static_assert(sizeof(script->file) == sizeof(name->file), "one limit");
    text_copy(script->function, sizeof(script->function), name->function);
    text_copy(script->file, sizeof(script->file), name->file);
    script->first_line = name->first_line;
    script->flags = (name->function_cut ? BOOK_SCRIPT_FUNCTION_CUT : 0) |
                    (name->file_cut ? BOOK_SCRIPT_FILE_CUT : 0);
    uint32_t number = book_script_add(w, t, script);
    if (number == 0)
        return BOOK_SCRIPT_FRAME(0, 0);
    uint64_t found = BOOK_SCRIPT_FRAME(number, name->line <= BOOK_SCRIPT_LINE_MAX ? name->line : 0);
    *entry = (struct script_cache_entry){
        .code = frame->code,
        .at = frame->at,
        .check = python_frame_check(py, frame, name->lines_used),
        .frame = found,
        .lines_used = name->lines_used,
    };
    return found;
}

/* An entry without a check (0) was never filled, or could not be told apart: it is read anew. */
static uint64_t frame_of(struct book_writer *w, struct book_thread *t, struct script_thread *s,
                         const struct python *py, const struct python_frame *frame)
{
    uint64_t known = script_frame_known(s, py, frame);
    return known ? known : frame_learn(w, t, s, py, frame, entry_of(s, frame));
}

uint64_t script_frame_known(struct script_thread *s, const struct python *py,
                            const struct python_frame *frame)
{
    const struct script_cache_entry *entry = entry_of(s, frame);
    bool known = entry->code == frame->code && entry->at == frame->at && entry->check != 0 &&
                 entry->check == python_frame_check(py, frame, entry->lines_used);
    return known ? entry->frame : 0;
}

size_t script_join(struct book_writer *w, struct book_thread *t, struct script_thread *s,
                   const struct python *py, size_t n, uintptr_t *frames, size_t max,
                   struct unwind_trace *trace)
{
    /* A stack that could not be followed to its end has more frames, too. */
    bool cut = !(trace->flags & UNWIND_COMPLETE);
    size_t joined = 0;
    if (python_on_stack(py, s->pcs, n) && python_stack_get(py, &s->stack))
        joined = python_join(py, &s->stack, s->pcs, s->sps, n, s->joined, max, &cut);
    if (joined == 0) {
        if (n > max) {
            n = max;
            trace->flags |= UNWIND_CUT;
        }
        memcpy(frames, s->pcs, n * sizeof(frames[0]));
        return n;
    }
    for (size_t i = 0; i < joined; i++)
        frames[i] =
            s->joined[i].frame ? frame_of(w, t, s, py, s->joined[i].frame) : s->joined[i].pc;
    if (cut)
        trace->flags |= UNWIND_CUT;
    return joined;
}

size_t script_stack(struct book_writer *w, struct book_thread *t, struct script_thread *s,
                    const struct python *py, struct unwind_cache *cache,
                    const struct unwind_state *from, uintptr_t *frames, size_t max,
                    struct unwind_trace *ret_trace)
{
    if (!python_ready(py))
        return unwind_stack_from(cache, from, frames, max, ret_trace);
    size_t n = unwind_stack_places(cache, from, s->pcs, s->sps, SCRIPT_NATIVE_MAX, ret_trace);
    return script_join(w, t, s, py, n, frames, max, ret_trace);
}
