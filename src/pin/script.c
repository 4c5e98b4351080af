/* script.c: see script.h. */
#include "pin/script.h"

#include <string.h>

#include "base/hash.h"
#include "pin/text.h"
#include "site/python.h"

static struct python python;

static bool is_library(const char *file)
{
    return strstr(file, "/site-packages/") || strstr(file, "/dist-packages/") ||
           strstr(file, "/lib/python3") || file[0] == '<';
}

static void label_make(const struct python_name *name, char label[static SCRIPT_LABEL_MAX])
{
    const char *slash = strrchr(name->file, '/');
    struct pin_text t = {.at = label, .left = SCRIPT_LABEL_MAX - 1};
    pin_text_string(&t, slash ? slash + 1 : name->file);
    pin_text_string(&t, ":");
    pin_text_number(&t, name->line);
    pin_text_string(&t, " ");
    pin_text_string(&t, name->function);
    *t.at = '\0';
}

static uint64_t name_hash(uint64_t hash, const struct python_name *name)
{
    hash = hash_combine(hash, hash_bytes(name->file, strlen(name->file), name->line));
    return hash_combine(hash, hash_bytes(name->function, strlen(name->function), 0));
}

bool script_read(const uintptr_t *pcs, size_t n, struct script *ret)
{
    struct python_stack stack;
    struct python_name name;
    struct script script = {0};
    bool own = false;
    if (!python_ready(&python))
        python_find(&python, pcs, n);
    if (!python_ready(&python) || !python_on_stack(&python, pcs, n) ||
        !python_stack_get(&python, &stack))
        return false;
    for (uint32_t i = 0, used = 0; i < stack.n && used < SCRIPT_CALLS && !own; i++) {
        if (!python_frame_name(&python, &stack.frames[i], &name))
            continue;
        script.hash = name_hash(script.hash, &name);
        own = !is_library(name.file);
        if (own || used == 0)
            label_make(&name, script.label);
        used++;
    }
    if (!script.label[0])
        return false;
    script.hash = script.hash ? script.hash : 1;
    *ret = script;
    return true;
}
