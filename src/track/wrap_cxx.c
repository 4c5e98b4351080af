/*
 * wrap_cxx.c: operator new and delete, under the names that C++ compilers give them.
 *
 * They take memory from malloc(), as those of libstdc++ and of the other allocators do, so that the caller
 * of new is the caller that counts. Where there is no memory, the real operator is asked: it knows the program's
 * new_handler and throws. Sized deletes must not be passed on: the block is larger than its type.
 *
 * A program may have some of these operators itself. Then those of the C++ library end in the program's: an array is
 * made by its operator new, a sized delete is its plain one. So if it has any, or a malloc() of its own, ours
 * behave as if they were not there.
 */
#include <stdlib.h>

#include "site/module.h"
#include "site/module_symbol.h"
#include "track/chosen.h"
#include "track/open.h"
#include "track/wrap.h"

/* Everything that an operator may end in, and the operators. */
#define NAMES(X)                           \
    X(malloc)                              \
    X(free)                                \
    X(aligned_alloc)                       \
    X(_Znwm)                               \
    X(_Znam)                               \
    X(_ZnwmRKSt9nothrow_t)                 \
    X(_ZnamRKSt9nothrow_t)                 \
    X(_ZnwmSt11align_val_t)                \
    X(_ZnamSt11align_val_t)                \
    X(_ZnwmSt11align_val_tRKSt9nothrow_t)  \
    X(_ZnamSt11align_val_tRKSt9nothrow_t)  \
    X(_ZdlPv)                              \
    X(_ZdaPv)                              \
    X(_ZdlPvm)                             \
    X(_ZdaPvm)                             \
    X(_ZdlPvRKSt9nothrow_t)                \
    X(_ZdaPvRKSt9nothrow_t)                \
    X(_ZdlPvSt11align_val_t)               \
    X(_ZdaPvSt11align_val_t)               \
    X(_ZdlPvmSt11align_val_t)              \
    X(_ZdaPvmSt11align_val_t)              \
    X(_ZdlPvSt11align_val_tRKSt9nothrow_t) \
    X(_ZdaPvSt11align_val_tRKSt9nothrow_t)

#define INDEX_OF(name) AT_##name,
#define TEXT_OF(name)  #name,
enum { NAMES(INDEX_OF) N_NAMES };
static const char *const names[N_NAMES] = {NAMES(TEXT_OF)};

static void *chosen[N_NAMES]; /* what the program calls by that name, */
static void
    *next[N_NAMES]; /* and what it would call without us, once that was looked for and found */
static uint32_t missed[N_NAMES]; /* 1 + open_globals when it was not */

/* Nothing is asked for that is not there: dlsym() leaves an error for the program's next dlerror(). */
void real_operators_find(struct real *r)
{
    struct module_object our = {0};
    bool ours = module_object_find((uintptr_t)real_operators_find, &our) == 0;
    for (int i = 0; i < N_NAMES; i++) {
        uintptr_t found = chosen_symbol(names[i]);
        chosen[i] = (void *)found;
        ours = ours && found >= our.map_start && found < our.map_end;
    }
    r->operators = ours;
}

/* The operator after ours, or NULL. There may be none for long: the C++ library of an extension that was loaded with RTLD_LOCAL, as
 * Python's are, is in no scope of ours. Looked for again only when the global scope may have grown. */
static void *next_of(int i)
{
    void *found = load_relaxed(&next[i]);
    uint32_t now = load_relaxed(&open_globals) + 1;
    if (likely(found) || load_relaxed(&missed[i]) == now)
        return found;
    found = real_symbol(names[i]);
    if (found)
        store_relaxed(&next[i], found);
    else
        store_relaxed(&missed[i], now);
    return found;
}

/* The same for who has no memory left, who needs the C++ library's own, wherever it is: to ask the program's new_handler and to throw. */
static __attribute__((noinline, cold)) void *next_anywhere(int i)
{
    struct module_symbol symbol;
    void *found = next_of(i);
    if (!found && module_symbol_find_any((uintptr_t)names, names[i], &symbol) == 0)
        found = (void *)symbol.addr;
    return found;
}

/* Is this operator not to be used? */
static inline bool replaced(void)
{
    return unlikely(!real.operators) && real_ready() && !real.operators;
}

/* What an operator of the C++ library would call, if there is none after ours. */
static __attribute__((noinline)) void *chosen_malloc(size_t bytes)
{
    return ((void *(*)(size_t))chosen[AT_malloc])(bytes ? bytes : 1);
}

static __attribute__((noinline)) void *chosen_aligned(size_t align, size_t bytes)
{
    size_t whole = (bytes + (bytes == 0) + align - 1) & ~(align - 1);
    return whole < bytes ? NULL
                         : ((void *(*)(size_t, size_t))chosen[AT_aligned_alloc])(align, whole);
}

#define NEW_FORM(name, parameters, arguments, block_taken, block_chosen)             \
    EXPORT void *name parameters;                                                    \
    EXPORT void *name parameters                                                     \
    {                                                                                \
        void *block = likely(!replaced())  ? block_taken                             \
                      : next_of(AT_##name) ? NULL                                    \
                                           : block_chosen;                           \
        if (likely(block))                                                           \
            return block;                                                            \
        void *(*real_one)parameters = (void *(*)parameters)next_anywhere(AT_##name); \
        return real_one ? real_one arguments : NULL;                                 \
    }

#define NEW(name) \
    NEW_FORM(name, (size_t bytes), (bytes), wrap_malloc(bytes, CALLER()), chosen_malloc(bytes))
#define NEW_NOTHROW(name)                                                 \
    NEW_FORM(name, (size_t bytes, const void *nothrow), (bytes, nothrow), \
             wrap_malloc(bytes, CALLER()), chosen_malloc(bytes))
#define NEW_ALIGNED(name)                                        \
    NEW_FORM(name, (size_t bytes, size_t align), (bytes, align), \
             wrap_aligned(align, bytes, CALLER()), chosen_aligned(align, bytes))
#define NEW_ALIGNED_NOTHROW(name)                                                              \
    NEW_FORM(name, (size_t bytes, size_t align, const void *nothrow), (bytes, align, nothrow), \
             wrap_aligned(align, bytes, CALLER()), chosen_aligned(align, bytes))

/* A plain delete. The further arguments of all forms (size, alignment, nothrow) do not matter to ours. */
#define DELETE(name, parameters, arguments)                     \
    EXPORT void name parameters;                                \
    EXPORT void name parameters                                 \
    {                                                           \
        if (likely(!replaced()))                                \
            wrap_free(block);                                   \
        else if (next_of(AT_##name))                            \
            ((void(*) parameters)next_of(AT_##name)) arguments; \
        else                                                    \
            ((void (*)(void *))chosen[AT_free])(block);         \
    }

/* The others are the plain one, whosever it is. */
#define DELETE_AS(plain, name, parameters, plain_parameters, plain_arguments) \
    EXPORT void name parameters;                                              \
    EXPORT void name parameters                                               \
    {                                                                         \
        if (unlikely(replaced()) && chosen[AT_##plain])                       \
            ((void(*) plain_parameters)chosen[AT_##plain]) plain_arguments;   \
        else                                                                  \
            wrap_free(block);                                                 \
    }

#define ONE             (void *block)
#define SIZED           (void *block, size_t bytes __attribute__((unused)))
#define NOTHROW         (void *block, const void *nothrow __attribute__((unused)))
#define ALIGNED         (void *block, size_t align)
#define SIZED_ALIGNED   (void *block, size_t bytes __attribute__((unused)), size_t align)
#define ALIGNED_NOTHROW (void *block, size_t align, const void *nothrow __attribute__((unused)))

NEW(_Znwm)
NEW(_Znam)
NEW_NOTHROW(_ZnwmRKSt9nothrow_t)
NEW_NOTHROW(_ZnamRKSt9nothrow_t)
NEW_ALIGNED(_ZnwmSt11align_val_t)
NEW_ALIGNED(_ZnamSt11align_val_t)
NEW_ALIGNED_NOTHROW(_ZnwmSt11align_val_tRKSt9nothrow_t)
NEW_ALIGNED_NOTHROW(_ZnamSt11align_val_tRKSt9nothrow_t)

DELETE(_ZdlPv, ONE, (block))
DELETE(_ZdaPv, ONE, (block))
DELETE_AS(_ZdlPv, _ZdlPvm, SIZED, ONE, (block))
DELETE_AS(_ZdaPv, _ZdaPvm, SIZED, ONE, (block))
DELETE_AS(_ZdlPv, _ZdlPvRKSt9nothrow_t, NOTHROW, ONE, (block))
DELETE_AS(_ZdaPv, _ZdaPvRKSt9nothrow_t, NOTHROW, ONE, (block))
DELETE(_ZdlPvSt11align_val_t, ALIGNED, (block, align))
DELETE(_ZdaPvSt11align_val_t, ALIGNED, (block, align))
DELETE_AS(_ZdlPvSt11align_val_t, _ZdlPvmSt11align_val_t, SIZED_ALIGNED, ALIGNED, (block, align))
DELETE_AS(_ZdaPvSt11align_val_t, _ZdaPvmSt11align_val_t, SIZED_ALIGNED, ALIGNED, (block, align))
DELETE_AS(_ZdlPvSt11align_val_t, _ZdlPvSt11align_val_tRKSt9nothrow_t, ALIGNED_NOTHROW, ALIGNED,
          (block, align))
DELETE_AS(_ZdaPvSt11align_val_t, _ZdaPvSt11align_val_tRKSt9nothrow_t, ALIGNED_NOTHROW, ALIGNED,
          (block, align))
