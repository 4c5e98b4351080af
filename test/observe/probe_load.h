/* The test's probe, loaded and attached. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct probe;
struct probe_event;

/* Attach to the entry of a function of a library, or to its return, in one process. -EPERM and the like where that is not allowed, -ENOENT: no such function. */
int probe_new(const char *library, const char *function, bool at_return, pid_t pid,
              struct probe **ret_probe);
void probe_free(struct probe *probe);

/* Tell the kernel where Python's frames of the process are. */
struct python_kernel_facts;
int probe_python(struct probe *probe, pid_t pid, const struct python_kernel_facts *facts);

/* Call `each` for all events that came, until there is one. -ETIME after 10 s. */
typedef void probe_each_fn(const struct probe_event *event, void *context);
int probe_wait(struct probe *probe, probe_each_fn *each, void *context);
