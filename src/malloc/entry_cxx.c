/*
 * entry_cxx.c: operator new and delete, under the names that C++ compilers give them.
 *
 * A program may replace the plain forms; then the others must end in the program's, as those of the C++ library would. The loader
 * has put the address of the plain form that counts into our table, so a comparison tells.
 *
 * When there is no memory, the program's new_handler is asked, as often as it returns; then bad_alloc is thrown, by a function of the
 * C++ library. Both are found when they are needed: a C program has neither.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "malloc/entry.h"
#include "malloc/fatal.h"
#include "site/module_symbol.h"

typedef void handler_function(void);
extern handler_function *get_new_handler(void) __asm__("_ZSt15get_new_handlerv")
    __attribute__((weak));
extern void throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv") __attribute__((weak));

/* RISKY: without an exception of ours, but a handler's comes through. */
enum form { FORM_THROW, FORM_NOTHROW, FORM_RISKY };

/* In the C++ library, which may have been loaded later, and with RTLD_LOCAL as all extensions of Python are: then dlsym() does not see it. */
static void *find(void *known, const char *name)
{
    struct module_symbol symbol;
    void *found = known ? known : dlsym(RTLD_DEFAULT, name);
    if (!found && module_symbol_find_any((uintptr_t)find, name, &symbol) == 0)
        found = (void *)symbol.addr;
    return found;
}

static __attribute__((noinline, cold)) void *give_up(enum form form)
{
    if (form == FORM_THROW) {
        handler_function *thrower =
            (handler_function *)find((void *)throw_bad_alloc, "_ZSt17__throw_bad_allocv");
        if (thrower)
            thrower();
        fatal_end();
    }
    return NULL;
}

static void *without_memory(size_t bytes, size_t align, enum form form, uintptr_t caller);

/* What a handler throws must not leave these forms, and C cannot catch. The C++ library's own can: they call the plain
 * forms, which ask the handler. */
static void *without_throwing(size_t bytes, size_t align, uintptr_t caller)
{
    static const char nothrow; /* an empty object */
    const char *name = align ? "_ZnwmSt11align_val_tRKSt9nothrow_t" : "_ZnwmRKSt9nothrow_t";
    struct module_symbol symbol;
    void *next = dlsym(RTLD_NEXT, name);
    if (!next && module_symbol_find_any((uintptr_t)find, name, &symbol) == 0)
        next = (void *)symbol.addr;
    if (!next) /* linked in: there is but one */
        return without_memory(bytes, align, FORM_RISKY, caller);
    if (align)
        return ((void *(*)(size_t, size_t, const void *))next)(bytes, align, &nothrow);
    return ((void *(*)(size_t, const void *))next)(bytes, &nothrow);
}

static __attribute__((noinline, cold)) void *without_memory(size_t bytes, size_t align,
                                                            enum form form, uintptr_t caller)
{
    handler_function *(*ask)(void) =
        (handler_function * (*)(void)) find((void *)get_new_handler, "_ZSt15get_new_handlerv");
    handler_function *handler = ask ? ask() : NULL;
    if (handler && form == FORM_NOTHROW)
        return without_throwing(bytes, align, caller);
    for (; handler; handler = ask()) {
        handler(); /* may throw */
        void *block = align ? divert_memalign(align, bytes, caller) : divert_malloc(bytes, caller);
        if (block)
            return block;
    }
    return give_up(form);
}

static inline __attribute__((always_inline)) void *plain(size_t bytes, enum form form,
                                                         uintptr_t caller)
{
    void *block = entry_malloc(bytes, caller);
    return likely(block) ? block : without_memory(bytes, 0, form, caller);
}

/* An alignment that is none fails as it does in the C++ library, which asks no handler: memory would not help. */
static inline void *aligned(size_t bytes, size_t align, enum form form, uintptr_t caller)
{
    if (unlikely(align == 0 || (align & (align - 1)) != 0))
        return give_up(form);
    void *block = entry_memalign(align, bytes, caller);
    return likely(block) ? block : without_memory(bytes, align, form, caller);
}

/* The plain forms, and ours under a name that nobody can replace. */
EXPORT void *_Znwm(size_t bytes);
EXPORT void *_ZnwmSt11align_val_t(size_t bytes, size_t align);
EXPORT void _ZdlPv(void *block);
EXPORT void _ZdlPvSt11align_val_t(void *block, size_t align);
#define OURS(name) own_##name
#define OURS_OF(type, name, parameters) \
    extern type OURS(name)              \
    parameters __attribute__((alias(#name), visibility("hidden")))

void *_Znwm(size_t bytes)
{
    return plain(bytes, FORM_THROW, CALLER);
}

void *_ZnwmSt11align_val_t(size_t bytes, size_t align)
{
    return aligned(bytes, align, FORM_THROW, CALLER);
}

void _ZdlPv(void *block)
{
    entry_free(block, CALLER);
}

void _ZdlPvSt11align_val_t(void *block, size_t align)
{
    entry_free(block, CALLER);
}

OURS_OF(void *, _Znwm, (size_t));
OURS_OF(void *, _ZnwmSt11align_val_t, (size_t, size_t));
OURS_OF(void, _ZdlPv, (void *));
OURS_OF(void, _ZdlPvSt11align_val_t, (void *, size_t));

/* Through the loader's table: the compiler must not think that it knows. */
#define CHOSEN(name)                       \
    ({                                     \
        __typeof__(&name) chosen_ = &name; \
        __asm__("" : "+r"(chosen_));       \
        chosen_;                           \
    })
#define REPLACED(name) unlikely(CHOSEN(name) != OURS(name))

#define NEW(name, form, parameters)                                                 \
    EXPORT void *name parameters;                                                   \
    void *name parameters                                                           \
    {                                                                               \
        return REPLACED(_Znwm) ? CHOSEN(_Znwm)(bytes) : plain(bytes, form, CALLER); \
    }
#define NEW_ALIGNED(name, form, parameters)                                                \
    EXPORT void *name parameters;                                                          \
    void *name parameters                                                                  \
    {                                                                                      \
        return REPLACED(_ZnwmSt11align_val_t) ? CHOSEN(_ZnwmSt11align_val_t)(bytes, align) \
                                              : aligned(bytes, align, form, CALLER);       \
    }
#define DELETE(name, parameters)       \
    EXPORT void name parameters;       \
    void name parameters               \
    {                                  \
        if (REPLACED(_ZdlPv))          \
            CHOSEN(_ZdlPv)(block);     \
        else                           \
            entry_free(block, CALLER); \
    }
#define DELETE_ALIGNED(name, parameters)                 \
    EXPORT void name parameters;                         \
    void name parameters                                 \
    {                                                    \
        if (REPLACED(_ZdlPvSt11align_val_t))             \
            CHOSEN(_ZdlPvSt11align_val_t)(block, align); \
        else                                             \
            entry_free(block, CALLER);                   \
    }

NEW(_Znam, FORM_THROW, (size_t bytes))
NEW(_ZnwmRKSt9nothrow_t, FORM_NOTHROW, (size_t bytes, const void *nothrow))
NEW(_ZnamRKSt9nothrow_t, FORM_NOTHROW, (size_t bytes, const void *nothrow))
NEW_ALIGNED(_ZnamSt11align_val_t, FORM_THROW, (size_t bytes, size_t align))
NEW_ALIGNED(_ZnwmSt11align_val_tRKSt9nothrow_t, FORM_NOTHROW,
            (size_t bytes, size_t align, const void *nothrow))
NEW_ALIGNED(_ZnamSt11align_val_tRKSt9nothrow_t, FORM_NOTHROW,
            (size_t bytes, size_t align, const void *nothrow))

DELETE(_ZdaPv, (void *block))
DELETE(_ZdlPvm, (void *block, size_t bytes))
DELETE(_ZdaPvm, (void *block, size_t bytes))
DELETE(_ZdlPvRKSt9nothrow_t, (void *block, const void *nothrow))
DELETE(_ZdaPvRKSt9nothrow_t, (void *block, const void *nothrow))
DELETE_ALIGNED(_ZdaPvSt11align_val_t, (void *block, size_t align))
DELETE_ALIGNED(_ZdlPvmSt11align_val_t, (void *block, size_t bytes, size_t align))
DELETE_ALIGNED(_ZdaPvmSt11align_val_t, (void *block, size_t bytes, size_t align))
DELETE_ALIGNED(_ZdlPvSt11align_val_tRKSt9nothrow_t,
               (void *block, size_t align, const void *nothrow))
DELETE_ALIGNED(_ZdaPvSt11align_val_tRKSt9nothrow_t,
               (void *block, size_t align, const void *nothrow))
