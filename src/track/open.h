/* open.h: what dlopen() tells the rest of the library. */
#pragma once

#include <stdint.h>

/* Calls of dlopen() so far that may have added to the global scope: what dlsym() did not find before, it may find now. Counted before the
 * library is loaded. */
extern uint32_t open_globals __attribute__((visibility("hidden")));
