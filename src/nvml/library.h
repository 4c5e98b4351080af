/* NVML itself: loaded at run time, and read. Only the worker process (worker.h) calls it, since the library may hang or
 * crash. One thread. */
#pragma once

#include <stddef.h>

struct buffer;
struct nvml_library;

enum { NVML_WHY_MAX = 256 };

/* Loads `path` (NULL: NVML_LIBRARY by the loader's search) and initialises it. -ENOENT: there is none; -ENODEV: it refused
 * (no driver, another version); -ENOEXEC: not NVML. `ret_why` then says so in one line. Opened for the life of the process. */
int nvml_library_open(const char *path, struct nvml_library **ret_library,
                      char ret_why[static NVML_WHY_MAX]);

/* Appends one reading as nvml_facts_read() takes it. -ENODEV when NVML fails as a whole. */
int nvml_library_read(struct nvml_library *library, struct buffer *out,
                      char ret_why[static NVML_WHY_MAX]);
