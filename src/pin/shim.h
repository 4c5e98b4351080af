/*
 * shim.h: in front of the driver.
 *
 * A program reaches the driver by names that it is linked with, by dlsym(), or by
 * cuGetProcAddress(), from which the CUDA runtime (static or shared) takes all its functions. Each
 * of these leads to a function of ours with the same arguments, which calls the driver's. Nothing
 * else of the driver is touched.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pin/driver.h"

/* In front of which function; shim_table.h. */
enum shim {
#define SHIM(symbol, name, version) SHIM_##symbol,
#define TWIN(symbol, name, version) SHIM_##symbol,
#include "pin/shim_table.h"
#undef SHIM
#undef TWIN
    SHIMS
};

/* The driver's own function; never NULL: without a driver, one that fails with
 * CUDA_ERROR_NOT_INITIALIZED. */
void *shim_real(enum shim which);
#define SHIM_REAL(type, symbol) ((__typeof__(type) *)shim_real(SHIM_##symbol))

/* Ours in place of `real`, which a program found under an exported name, or by cuGetProcAddress().
 * NULL: we have none, keep it. */
void *shim_for_symbol(const char *symbol, void *real);
void *shim_for_name(const char *name, int version, bool per_thread, void *real);

/* Is the stream being captured into a graph? */
bool shim_captured(CUstream stream, bool per_thread);
/* Wait for an asynchronous copy, unless the program does so itself. */
CUresult shim_wait(CUstream stream, bool per_thread);
/* The end of an asynchronous copy whose call gave `result`: waits if its memory is pinned. */
struct pin_copy;
CUresult shim_finish(struct pin_copy *copy, CUresult result, CUstream stream, bool per_thread,
                     bool graph);

/* Every function of ours is exported. */
#define SHIM_API __attribute__((visibility("default")))
