/* Frames of Python code, read inside a process that runs CPython.
 *
 * A stack of C frames says nothing to a user of Python: it is the interpreter's. What he knows is in the
 * interpreter's own data: which function runs, called by which, each at which instruction. This reads
 * these data, joins them to the C stack, and names them.
 *
 * Everything here is async-signal-safe, takes no lock, allocates nothing, keeps errno and calls no
 * function of the interpreter. It needs no GIL: it reads the state of the calling thread only, found by
 * the thread's own key and believed only if that state says that it belongs to this thread. No other thread
 * changes it, and the frames that it leads to hold references to all that is read of them. That has
 * exceptions, so they are looked for:
 *  - Another thread finalizes the interpreter: then states of threads that still run are freed. While
 *    that goes on only the finalizing thread has frames.
 *  - A frame that is being cleared has given back its code object: one without references is not read.
 *  - A pointer may not have been stored yet when a signal came. Frames outside of where the thread stacks
 *    them and outside of the C stack (generators) are probed; so is a code object that is seen for the
 *    first time, and its type must be that of code objects.
 * Where anything does not fit there are no frames, or fewer. An unknown version, a free-threaded build, an
 * interpreter that hides its symbols: no frames at all, and the C stack stays as it was. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "site/python_layout.h"

enum {
    PYTHON_FRAMES_MAX = 160, /* Python frames looked at, innermost first */
    PYTHON_TRIES_MAX = 64, /* stacks with an interpreter not yet known that are looked at closely */
    PYTHON_DISMISSED = 32, /* other modules that are looked at only once */
    PYTHON_NAME_MAX = 128, /* bytes of a function's name, with the NUL; a longer one is cut */
    PYTHON_FILE_MAX = 368, /* of a file's; of a longer one the end is kept */
};

/* It only grows. */
enum python_state {
    PYTHON_NONE = 0,
    PYTHON_FINDING = 1, /* somebody stores the facts */
    PYTHON_SEEN = 2,    /* they are constant, and lack key_at: nobody ran Python code yet */
    PYTHON_STORING = 3, /* somebody stores it */
    PYTHON_READY = 4,   /* all is constant from now on */
};

/* An interpreter, all of it in one module. */
struct python_facts {
    struct python_layout layout;
    uintptr_t runtime; /* _PyRuntime */
    uint64_t runtime_bytes;
    uintptr_t key_at; /* the Py_tss_t in it that leads to a thread's state */
    uintptr_t code_type, text_type, bytes_type;
    uintptr_t eval_start, eval_end; /* _PyEval_EvalFrameDefault */
    /* The module: a program, or libpython, which may be unloaded. */
    uintptr_t map_start, map_end;
    const void *map;
};

/* The interpreter of this process, the first that is found. Zeroed memory: none is known. A copy made by
 * fork is as good. */
struct python {
    uint32_t state; /* enum python_state; any thread */
    uint32_t tries; /* how often one was there and this thread had no state yet; any thread adds */
    struct python_facts facts;
    uint64_t dismissed[PYTHON_DISMISSED]; /* modules that are no interpreter; any thread stores */
    uint32_t n_dismissed;
};

static inline bool python_ready(const struct python *py)
{
    return __atomic_load_n(&py->state, __ATOMIC_ACQUIRE) == PYTHON_READY;
}

/* Is one of these return addresses an interpreter's? Then `py` becomes ready, as soon as this thread runs
 * Python code there. For stacks that were not seen before, while it is not: about 10 ns an address. */
void python_find(struct python *py, const uintptr_t *pcs, size_t n);

/* A Python call: its code object, and the instruction, in bytes from the first (below 0: not begun). Good
 * while the call lasts. */
struct python_frame {
    uintptr_t code;
    int64_t at;
};

/* The calls of one run of the evaluation loop. */
struct python_run {
    uintptr_t stack; /* an address in the C frame of that run; 0: only the order is known */
    uint32_t end;    /* its frames end here */
};

struct python_stack {
    uint32_t n, n_runs;
    bool cut;                                      /* there are more */
    struct python_frame frames[PYTHON_FRAMES_MAX]; /* innermost first */
    struct python_run runs[PYTHON_FRAMES_MAX];
};

/* Is the interpreter among these return addresses, and still the one that was found? Ask this before
 * reading anything of it: only code with a frame on the stack is sure to be mapped. 10 ns when it is. */
bool python_on_stack(const struct python *py, const uintptr_t *pcs, size_t n);

/* Is the module around this return address, which is on our stack, the one that was found? */
bool python_same(const struct python *py, uintptr_t pc);

/* The Python calls of this thread. False: it has none, or nothing is known about them. */
bool python_stack_get(const struct python *py, struct python_stack *ret_stack);

/* One frame of a joined stack. */
struct python_joined {
    uintptr_t pc;                     /* a return address, or */
    const struct python_frame *frame; /* a Python call, if not NULL; in the stack that was given */
};

/* Put Python frames where they belong in the C stack: `sps[i]` is the stack pointer of the frame that
 * pcs[i] returns to (unwind.h). A C frame of the evaluation loop gives way to the Python calls that it
 * runs. C frames of the interpreter's own module further out do so, too; those inside of the innermost
 * Python call and those of other modules (extensions, the program around it) stay. Returns the number of
 * frames, at most `max`; 0 if the two do not fit together: use the C stack as it is. *cut is set when
 * there are more frames, and says when called whether the C stack has more. */
size_t python_join(const struct python *py, const struct python_stack *stack, const uintptr_t *pcs,
                   const uintptr_t *sps, size_t n, struct python_joined *out, size_t max,
                   bool *cut);

/* What a frame is called. */
struct python_name {
    char function[PYTHON_NAME_MAX]; /* UTF-8 */
    char file[PYTHON_FILE_MAX];
    bool function_cut, file_cut;
    uint32_t line;
    uint32_t first_line; /* of the function */
    size_t lines_used;   /* for python_frame_check() */
};

/* False if it cannot be read. About a microsecond. */
bool python_frame_name(const struct python *py, const struct python_frame *frame,
                       struct python_name *ret_name);

/* A number that is the same only while the name of this frame is. Caches keep it with what they learned
 * and compare before they believe it: a code object may have been freed, and another one, of another
 * function or of another version of the same one, lie at its address. From 3.12 on a code object has a
 * number of its own, which is used. Before, there is none, so it is made from all that the name is made
 * from: the strings' addresses, lengths and hashes, the first line, and those bytes of the line table that
 * decide (`lines_used`). 0 if it cannot be told. 3 ns, or 10 ns and a tenth of a nanosecond a byte. */
uint64_t python_frame_check(const struct python *py, const struct python_frame *frame,
                            size_t lines_used);
