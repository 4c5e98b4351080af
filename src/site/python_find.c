/* Finding the interpreter: by what a module on the stack exports. */
#include <errno.h>
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
static uintptr_t key_find(const struct python_layout *layout, const struct module_symbol *runtime)
{
    uint64_t bytes = runtime->bytes < RUNTIME_LOOKED_AT ? runtime->bytes : RUNTIME_LOOKED_AT;
    if (!stack_probe(runtime->addr, bytes))
        return 0;
    for (uint64_t at = 0; at + 2 * sizeof(uint32_t) <= bytes; at += sizeof(uint32_t)) {
        const volatile uint32_t *word = (const volatile uint32_t *)(runtime->addr + at);
        uint32_t key = word[PYTHON_TSS_KEY / sizeof(uint32_t)];
        if (word[0] != 1 || key >= KEYS_MAX)
            continue;
        uintptr_t state = (uintptr_t)pthread_getspecific((pthread_key_t)key);
        if (state == 0 || state % sizeof(uintptr_t) != 0 ||
            !stack_probe(state + layout->thread_id, sizeof(uintptr_t)))
            continue;
        if (stack_load(state + layout->thread_id) == (uintptr_t)pthread_self())
            return runtime->addr + at;
    }
    return 0;
}

/* -ENOENT: the module is no interpreter, for ever. -EAGAIN: not now. */
static int interpreter_find(const struct module_object *object, struct python_facts *ret)
{
    struct module_symbol eval, runtime, code, text, bytes;
    if (module_symbol_find(object, "_PyEval_EvalFrameDefault", &eval) < 0 ||
        module_symbol_find(object, "_PyRuntime", &runtime) < 0 ||
        module_symbol_find(object, "PyCode_Type", &code) < 0 ||
        module_symbol_find(object, "PyUnicode_Type", &text) < 0 ||
        module_symbol_find(object, "PyBytes_Type", &bytes) < 0)
        return -ENOENT;
    const struct python_layout *layout = layout_find(object, &runtime);
    if (!layout || runtime.addr % sizeof(uintptr_t) != 0)
        return -ENOENT;
    uintptr_t key_at = key_find(layout, &runtime);
    if (key_at == 0)
        return -EAGAIN;
    ret->layout = *layout;
    ret->runtime = runtime.addr;
    ret->key_at = key_at;
    ret->code_type = code.addr;
    ret->text_type = text.addr;
    ret->bytes_type = bytes.addr;
    ret->eval_start = eval.addr;
    ret->eval_end = eval.addr + eval.bytes;
    ret->map_start = object->map_start;
    ret->map_end = object->map_end;
    ret->map = object->map;
    return 0;
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
static void publish(struct python *py, const struct python_facts *facts)
{
    uint32_t state = PYTHON_NONE;
    if (cas_acquire(&py->state, &state, PYTHON_FINDING)) {
        py->facts = *facts;
        store_release(&py->state, PYTHON_READY);
        return;
    }
    for (int i = 0; i < PATIENCE && load_acquire(&py->state) != PYTHON_READY; i++)
        ;
}

void python_find(struct python *py, const uintptr_t *pcs, size_t n)
{
    if (load_relaxed(&py->tries) >= PYTHON_TRIES_MAX || load_relaxed(&py->state) == PYTHON_READY)
        return;
    struct python_facts facts = {0};
    struct module_object object = {0};
    int r = -ENOENT;
    for (size_t i = 0; i < n && r < 0; i++) {
        if (pcs[i] - 1 >= object.map_start && pcs[i] - 1 < object.map_end)
            continue;
        if (module_object_find(pcs[i] - 1, &object) < 0 || !object.map) {
            object = (struct module_object){0};
            continue;
        }
        uint64_t mark = module_mark(&object);
        if (module_dismissed(py, mark))
            continue;
        r = interpreter_find(&object, &facts);
        if (r == -ENOENT)
            store_relaxed(&py->dismissed[fetch_add_relaxed(&py->n_dismissed, 1) % PYTHON_DISMISSED],
                          mark);
        else if (r == -EAGAIN)
            fetch_add_relaxed(&py->tries, 1);
    }
    if (r == 0)
        publish(py, &facts);
}
