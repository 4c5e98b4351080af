/*
 * wrap_cxx.c: operator new and delete, under the names that C++ compilers give them.
 *
 * They take memory from malloc(), as those of libstdc++ and of the other allocators do, so that the caller
 * of new is the caller that counts. Where there is none, the real operator is asked: it knows the program's
 * new_handler and throws. Sized deletes must not be passed on: the block is larger than its type.
 */
#include "track/wrap.h"

/* Found when it is needed: a program without C++ has none. */
static void *operator_find(void *(**slot)(void), const char *name)
{
    void *found = (void *)load_relaxed(slot);
    if (!found) {
        found = real_symbol(name);
        store_relaxed(slot, (void *(*)(void))found);
    }
    return found;
}

#define NEW(name)                                                               \
    EXPORT void *name(size_t bytes);                                            \
    EXPORT void *name(size_t bytes)                                             \
    {                                                                           \
        static void *(*slot)(void);                                             \
        void *block = wrap_malloc(bytes, CALLER());                             \
        if (likely(block))                                                      \
            return block;                                                       \
        void *(*next)(size_t) = (void *(*)(size_t))operator_find(&slot, #name); \
        return next ? next(bytes) : NULL;                                       \
    }

#define NEW_NOTHROW(name)                                                 \
    EXPORT void *name(size_t bytes, const void *nothrow);                 \
    EXPORT void *name(size_t bytes, const void *nothrow)                  \
    {                                                                     \
        static void *(*slot)(void);                                       \
        void *block = wrap_malloc(bytes, CALLER());                       \
        if (likely(block))                                                \
            return block;                                                 \
        void *(*next)(size_t, const void *) =                             \
            (void *(*)(size_t, const void *))operator_find(&slot, #name); \
        return next ? next(bytes, nothrow) : NULL;                        \
    }

#define NEW_ALIGNED(name)                                                                       \
    EXPORT void *name(size_t bytes, size_t align);                                              \
    EXPORT void *name(size_t bytes, size_t align)                                               \
    {                                                                                           \
        static void *(*slot)(void);                                                             \
        void *block = wrap_aligned(align, bytes, CALLER());                                     \
        if (likely(block))                                                                      \
            return block;                                                                       \
        void *(*next)(size_t, size_t) = (void *(*)(size_t, size_t))operator_find(&slot, #name); \
        return next ? next(bytes, align) : NULL;                                                \
    }

#define NEW_ALIGNED_NOTHROW(name)                                                 \
    EXPORT void *name(size_t bytes, size_t align, const void *nothrow);           \
    EXPORT void *name(size_t bytes, size_t align, const void *nothrow)            \
    {                                                                             \
        static void *(*slot)(void);                                               \
        void *block = wrap_aligned(align, bytes, CALLER());                       \
        if (likely(block))                                                        \
            return block;                                                         \
        void *(*next)(size_t, size_t, const void *) =                             \
            (void *(*)(size_t, size_t, const void *))operator_find(&slot, #name); \
        return next ? next(bytes, align, nothrow) : NULL;                         \
    }

/* The further arguments (size, alignment, nothrow) do not matter, and need not be named. */
#define DELETE(name)               \
    EXPORT void name(void *block); \
    EXPORT void name(void *block)  \
    {                              \
        wrap_free(block);          \
    }

NEW(_Znwm)
NEW(_Znam)
NEW_NOTHROW(_ZnwmRKSt9nothrow_t)
NEW_NOTHROW(_ZnamRKSt9nothrow_t)
NEW_ALIGNED(_ZnwmSt11align_val_t)
NEW_ALIGNED(_ZnamSt11align_val_t)
NEW_ALIGNED_NOTHROW(_ZnwmSt11align_val_tRKSt9nothrow_t)
NEW_ALIGNED_NOTHROW(_ZnamSt11align_val_tRKSt9nothrow_t)

DELETE(_ZdlPv)
DELETE(_ZdaPv)
DELETE(_ZdlPvm)
DELETE(_ZdaPvm)
DELETE(_ZdlPvRKSt9nothrow_t)
DELETE(_ZdaPvRKSt9nothrow_t)
DELETE(_ZdlPvSt11align_val_t)
DELETE(_ZdaPvSt11align_val_t)
DELETE(_ZdlPvmSt11align_val_t)
DELETE(_ZdaPvmSt11align_val_t)
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t)
DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t)
