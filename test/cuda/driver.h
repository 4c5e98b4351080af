/* driver.h: the functions of libcuda.so.1 for test programs, found at run time in one of two ways. */
#pragma once

#include <stdbool.h>

#include "standin/counts.h"
#include "standin/cuda.h"

#define PROTOTYPE(symbol, params) typedef CUresult fn_##symbol params;
#include "standin/prototypes.h"
#undef PROTOTYPE

enum driver_way {
    DRIVER_BY_NAME,    /* dlsym() of each symbol */
    DRIVER_BY_VERSION, /* cuGetProcAddress_v2(), as the CUDA runtime does */
};

/* Load the driver. Ends the program with a message if there is none. */
void driver_open(enum driver_way way);

/* The function with this name; remembers that it was used. Ends the program with a message if there is none. */
void *driver_symbol(const char *symbol);

/* Symbols that the table of the stand-in has and that were never used, separated by spaces. */
void driver_unused(char *ret, unsigned size);

/* The counts of the stand-in; false with another driver. */
bool driver_counts(struct standin_counts *ret);

#define DRIVER_FUNCTION(symbol, name)                                                           \
    ({                                                                                          \
        static fn_##symbol *function_;                                                          \
        if (!__atomic_load_n(&function_, __ATOMIC_ACQUIRE))                                     \
            __atomic_store_n(&function_, (fn_##symbol *)driver_symbol(name), __ATOMIC_RELEASE); \
        function_;                                                                              \
    })
#define CU(symbol) DRIVER_FUNCTION(symbol, #symbol)

/* Either form of a function that has a twin. */
#define CU_TWIN(twin, symbol, suffix) \
    ((twin) ? DRIVER_FUNCTION(symbol, #symbol "_" #suffix) : DRIVER_FUNCTION(symbol, #symbol))
