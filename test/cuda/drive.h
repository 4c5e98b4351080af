/* drive.h: the parts of cuda_drive. Each part calls functions of the driver and notes what came out otherwise than expected. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "driver.h"

/* Note a failure unless `got` is `want`. Thread-safe. */
void drive_expect(const char *what, long long got, long long want);
#define OK(symbol, ...)          drive_expect(#symbol, CU(symbol)(__VA_ARGS__), CUDA_SUCCESS)
#define FAILS(code, symbol, ...) drive_expect(#symbol, CU(symbol)(__VA_ARGS__), code)
#define OK_TWIN(symbol, suffix, ...) \
    drive_expect(#symbol, CU_TWIN(twin, symbol, suffix)(__VA_ARGS__), CUDA_SUCCESS)
#define FAILS_TWIN(code, symbol, suffix, ...) \
    drive_expect(#symbol, CU_TWIN(twin, symbol, suffix)(__VA_ARGS__), code)
#define HOLDS(condition) drive_expect(#condition, (condition) ? 1 : 0, 1)

/* Every entry point at least once, with what it moves checked byte for byte. `twin`: the forms for a default stream per thread.
 * A context is current; nothing that they allocate stays. */
void every_device(void);
void every_context(void);
void every_memory(bool twin);
void every_virtual(bool twin);
void every_shared(void);
void every_copy(bool twin);
void every_shape(bool twin);
void every_set(bool twin);
void every_graph(bool twin);

/* Calls that must fail, and how. */
void drive_errors(void);

/* `threads` threads allocate, copy and free `count` blocks each, all of one size: an address that one frees is the next that
 * another gets. */
void drive_churn(unsigned long count, unsigned threads);
/* Pairs of threads: one allocates `count` blocks, the other frees them. */
void drive_handoff(unsigned long count, unsigned pairs);
/* Contexts are made and destroyed `count` times, with blocks in them. */
void drive_contexts(unsigned long count);
