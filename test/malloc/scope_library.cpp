/* scope_library.cpp: a library that allocates and frees, by itself (SCOPE_needed) or with another one that it needs. */
#include "scope_library.h"

#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

extern "C" {
#ifdef SCOPE_needed
extern const scope_calls scope_needed;
#else
extern const scope_calls scope_calls_here, scope_needed;
const char *scope_name(void);
const char *scope_name(void)
{
    return "library";
}
#endif
}

static void *kept; /* from before dlopen() returned */

__attribute__((constructor)) static void come()
{
    kept = malloc(100);
}

__attribute__((destructor)) static void go()
{
    free(kept);
}

static void *give(scope_how how, size_t bytes)
{
    bytes = bytes < 16 ? 16 : bytes;
    void *block = nullptr;
    switch (how) {
    case SCOPE_MALLOC:
        return malloc(bytes);
    case SCOPE_CALLOC:
        return calloc(bytes, 1);
    case SCOPE_ALIGNED:
        return posix_memalign(&block, 64, bytes) == 0 ? block : nullptr;
    case SCOPE_STRDUP:
        return strdup("sixteen bytes, or more");
    case SCOPE_NEW:
        return operator new(bytes);
    case SCOPE_ARRAY:
        return new char[bytes];
    case SCOPE_STRING:
        return new std::string(bytes, 'x');
    default:
        return nullptr;
    }
}

static void take(scope_how how, void *block)
{
    if (how == SCOPE_NEW)
        operator delete(block);
    else if (how == SCOPE_ARRAY)
        delete[] static_cast<char *>(block);
    else if (how == SCOPE_STRING)
        delete static_cast<std::string *>(block);
    else
        free(block);
}

static void *resize(void *block, size_t bytes)
{
    return realloc(block, bytes);
}

static size_t usable(void *block)
{
    return malloc_usable_size(block);
}

static void *malloc_address()
{
    return reinterpret_cast<void *>(&malloc);
}

#ifdef SCOPE_needed
const scope_calls scope_needed = {give, take, resize, usable, malloc_address, nullptr, nullptr};
#else
const scope_calls scope_calls_here = {give,           take,       resize,       usable,
                                      malloc_address, scope_name, &scope_needed};
#endif
