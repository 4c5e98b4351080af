/* truth.hpp: truth.h for C++: new and delete that note what they do, on the line where they stand. */
#pragma once

#include <cstddef>
#include <new>

#include "truth.h"

/* An array of a type without a destructor has nothing in front of it. */
#define NEW(type) (new (TRUTH_OF(operator new(truth_bytes_), sizeof(type))) type())
#define NEW_ARRAY(type, n) \
    (static_cast<type *>(TRUTH_OF(operator new[](truth_bytes_), (n) * sizeof(type))))
#define DELETE(p)       truth_delete(p)
#define DELETE_ARRAY(p) (truth_gone(p), operator delete[](static_cast<void *>(p)))

template <class T> static inline void truth_delete(T *p)
{
    p->~T();
    truth_gone(p);
    operator delete(static_cast<void *>(p));
}
