/* The process that loads NVML and reads it for another one.
 *
 * It is the asking program again, started under the name NVML_WORKER, so that main() has to look for that name first:
 *
 *     if (nvml_worker_is_this(argc, argv))
 *         return nvml_worker_main();
 *
 * Each byte that comes on descriptor 0 is a question; the answer is one reading (wire.h) on the same descriptor. The library
 * stays loaded between questions. The worker ends when the descriptor is closed and with its parent. */
#pragma once

#include <stdbool.h>

#define NVML_WORKER "memoir-nvml" /* its argv[0] */

bool nvml_worker_is_this(int argc, char *const *argv);
int nvml_worker_main(void);
