/*
 * wrap_cxx.c: operator new and delete, under the names that C++ compilers give them.
 *
 * They take memory from malloc(), as those of libstdc++ and of the other allocators do, so that the caller
 * of new is the caller that counts. Where there is none, the real operator is asked: it knows the program's
 * new_handler and throws. Sized deletes must not be passed on: the block is larger than its type.
 *
 * A program may have some of these operators itself. Then those of the C++ library end in the program's: an array is
 * made by its operator new, a sized delete is its plain one. So if it has any, or a malloc() of its own, ours
 * behave as if they were not there.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "site/module.h"
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
static void *next[N_NAMES];   /* and what it would call without us, once somebody has asked */

/* Nothing is asked for that is not there: dlsym() leaves an error for the program's next dlerror(). */
void real_operators_find(struct real *r)
{
    struct module_object our = {0};
    bool ours = module_object_find((uintptr_t)real_operators_find, &our) == 0;
    for (int i = 0; i < N_NAMES; i++) {
        uintptr_t found = (uintptr_t)dlsym(RTLD_DEFAULT, names[i]);
        chosen[i] = (void *)found;
        ours = ours && found >= our.map_start && found < our.map_end;
    }
    r->operators = ours;
}

static void *next_of(int i)
{
    if (!load_relaxed(&next[i]))
        store_relaxed(&next[i], real_symbol(names[i]));
    return load_relaxed(&next[i]);
}

/* Is this operator not to be used? */
static inline bool replaced(void)
{
    return unlikely(!real.operators) && real_ready() && !real.operators;
}

#define NEW_FORM(name, parameters, arguments, block_taken)                             \
    EXPORT void *name parameters;                                                      \
    EXPORT void *name parameters                                                       \
    {                                                                                  \
        void *block = unlikely(replaced()) && next_of(AT_##name) ? NULL : block_taken; \
        if (likely(block))                                                             \
            return block;                                                              \
        void *(*real_one)parameters = (void *(*)parameters)next_of(AT_##name);         \
        return real_one ? real_one arguments : NULL;                                   \
    }

#define NEW(name) NEW_FORM(name, (size_t bytes), (bytes), wrap_malloc(bytes, CALLER()))
#define NEW_NOTHROW(name)                                                 \
    NEW_FORM(name, (size_t bytes, const void *nothrow), (bytes, nothrow), \
             wrap_malloc(bytes, CALLER()))
#define NEW_ALIGNED(name)                                        \
    NEW_FORM(name, (size_t bytes, size_t align), (bytes, align), \
             wrap_aligned(align, bytes, CALLER()))
#define NEW_ALIGNED_NOTHROW(name)                                                              \
    NEW_FORM(name, (size_t bytes, size_t align, const void *nothrow), (bytes, align, nothrow), \
             wrap_aligned(align, bytes, CALLER()))

/* A plain delete. The further arguments of all forms (size, alignment, nothrow) do not matter to ours. */
#define DELETE(name, parameters, arguments)                     \
    EXPORT void name parameters;                                \
    EXPORT void name parameters                                 \
    {                                                           \
        if (unlikely(replaced()) && next_of(AT_##name))         \
            ((void(*) parameters)next_of(AT_##name)) arguments; \
        else                                                    \
            wrap_free(block);                                   \
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
