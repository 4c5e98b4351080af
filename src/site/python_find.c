/* Finding the interpreter: by what a module on the stack exports. */
#include <pthread.h>
#include <string.h>

#include "base/atomic.h"
#include "base/hash.h"
#include "site/module.h"
#include "site/module_symbol.h"
#include "site/python.h"
#include "site/stack.h"

enum {
    RUNTIME_LOOKED_AT = 8192, /* bytes of _PyRuntime in which the key is looked for */
    KEYS_MAX = 1024,          /* PTHREAD_KEYS_MAX of glibc */
    PATIENCE = 1000,          /* looks at another thread that stores what it found */
};

/* Which version? Those from 3.11 on tell it; 3.13 also whether it has no GIL, which changes all objects. */
static const struct python_layout *layout_find(const struct module_object *object,
                                               const struct module_symbol *runtime)
{
    struct module_symbol symbol;
    if (module_symbol_find(object, "Py_Version", &symbol) < 0)
        return python_layout_sized(runtime->bytes);
    if (!stack_probe(symbol.addr, sizeof(uint64_t)))
        return NULL;
    const struct python_layout *layout = python_layout_of(stack_load(symbol.addr));
    if (!layout || layout->version < 0x030d)
        return layout;
    char mark[sizeof(PYTHON_DEBUG_MARK) - 1];
    if (!stack_probe(runtime->addr, PYTHON_DEBUG_FREE_THREADED + sizeof(uint64_t)))
        return NULL;
    memcpy(mark, (const void *)runtime->addr, sizeof(mark));
    if (memcmp(mark, PYTHON_DEBUG_MARK, sizeof(mark)) != 0 ||
        stack_load(runtime->addr + PYTHON_DEBUG_FREE_THREADED) != 0)
        return NULL;
    return layout;
}

/* The place in _PyRuntime of the key under which a thread finds its own state: what lies there must be a
 * key whose value, in this thread, is a state of this thread. It is looked for because it moved with
 * machines and patch releases; the rest did not. */
static uintptr_t key_find(const struct python_facts *facts)
{
    if (!stack_probe(facts->runtime, facts->runtime_bytes))
        return 0;
    for (uint64_t at = 0; at + 2 * sizeof(uint32_t) <= facts->runtime_bytes;
         at += sizeof(uint32_t)) {
        const volatile uint32_t *word = (const volatile uint32_t *)(facts->runtime + at);
        uint32_t key = word[PYTHON_TSS_KEY / sizeof(uint32_t)];
        if (word[0] != 1 || key >= KEYS_MAX)
            continue;
        uintptr_t state = (uintptr_t)pthread_getspecific((pthread_key_t)key);
        if (state == 0 || state % sizeof(uintptr_t) != 0 ||
            !stack_probe(state + facts->layout.thread_id, sizeof(uintptr_t)))
            continue;
        if (stack_load(state + facts->layout.thread_id) == (uintptr_t)pthread_self())
            return facts->runtime + at;
    }
    return 0;
}

/* All but the key. */
static bool interpreter_find(const struct module_object *object, struct python_facts *ret)
{
    struct module_symbol eval, runtime, code, text, bytes;
    if (module_symbol_find(object, "_PyEval_EvalFrameDefault", &eval) < 0 ||
        module_symbol_find(object, "_PyRuntime", &runtime) < 0 ||
        module_symbol_find(object, "PyCode_Type", &code) < 0 ||
        module_symbol_find(object, "PyUnicode_Type", &text) < 0 ||
        module_symbol_find(object, "PyBytes_Type", &bytes) < 0)
        return false;
    const struct python_layout *layout = layout_find(object, &runtime);
    if (!layout || runtime.addr % sizeof(uintptr_t) != 0)
        return false;
    *ret = (struct python_facts){
        .layout = *layout,
        .runtime = runtime.addr,
        .runtime_bytes = runtime.bytes < RUNTIME_LOOKED_AT ? runtime.bytes : RUNTIME_LOOKED_AT,
        .code_type = code.addr,
        .text_type = text.addr,
        .bytes_type = bytes.addr,
        .eval_start = eval.addr,
        .eval_end = eval.addr + eval.bytes,
        .map_start = object->map_start,
        .map_end = object->map_end,
        .map = object->map,
    };
    return true;
}

/* Modules that are known to be something else, by what tells them apart. */
static uint64_t module_mark(const struct module_object *object)
{
    uint64_t mark = hash_combine((uintptr_t)object->map, object->map_start);
    return hash_combine(mark, object->map_end) | 1;
}

static bool module_dismissed(const struct python *py, uint64_t mark)
{
    for (int i = 0; i < PYTHON_DISMISSED; i++)
        if (load_relaxed(&py->dismissed[i]) == mark)
            return true;
    return false;
}

/* Several threads may find it at once; one of them stores it. The others wait for these few stores, but not
 * for ever: they may have interrupted that thread. */
static void wait_for(struct python *py, uint32_t state)
{
    for (int i = 0; i < PATIENCE && load_acquire(&py->state) < state; i++)
        ;
}

/* A module on the stack that is an interpreter. */
static void module_look(struct python *py, const uintptr_t *pcs, size_t n)
{
    struct python_facts facts;
    struct module_object object = {0};
    uint32_t none = PYTHON_NONE;
    for (size_t i = 0; i < n; i++) {
        if (pcs[i] - 1 >= object.map_start && pcs[i] - 1 < object.map_end)
            continue;
        if (module_object_find(pcs[i] - 1, &object) < 0 || !object.map) {
            object = (struct module_object){0};
            continue;
        }
        uint64_t mark = module_mark(&object);
        if (module_dismissed(py, mark))
            continue;
        if (!interpreter_find(&object, &facts)) {
            uint32_t slot = fetch_add_relaxed(&py->n_dismissed, 1) % PYTHON_DISMISSED;
            store_relaxed(&py->dismissed[slot], mark);
            continue;
        }
        if (cas_acquire(&py->state, &none, PYTHON_FINDING)) {
            py->facts = facts;
            store_release(&py->state, PYTHON_SEEN);
        }
        wait_for(py, PYTHON_SEEN);
        return;
    }
}

/* While it starts, an interpreter has no state of this thread yet, and its loop does not run. */
static bool loop_runs(const struct python *py, const uintptr_t *pcs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (pcs[i] - 1 >= py->facts.eval_start && pcs[i] - 1 < py->facts.eval_end)
            return python_same(py, pcs[i]);
    return false;
}

void python_find(struct python *py, const uintptr_t *pcs, size_t n)
{
    if (load_acquire(&py->state) < PYTHON_SEEN)
        module_look(py, pcs, n);
    if (load_acquire(&py->state) != PYTHON_SEEN || load_relaxed(&py->tries) >= PYTHON_TRIES_MAX ||
        !loop_runs(py, pcs, n))
        return;
    uintptr_t key_at = key_find(&py->facts);
    uint32_t seen = PYTHON_SEEN;
    if (key_at == 0) {
        fetch_add_relaxed(&py->tries, 1);
    } else if (cas_acquire(&py->state, &seen, PYTHON_STORING)) {
        py->facts.key_at = key_at;
        store_release(&py->state, PYTHON_READY);
    } else {
        wait_for(py, PYTHON_READY);
    }
}
