/* trace_native.h: the trace of a process from memoird, by its native protocol
 * (doc/native-protocol.md, "Trace").
 *
 * Only root may ask an observer. memoird gives users the traces of their own processes. */
#ifndef MEMOIR_CLI_TRACE_NATIVE_H
#define MEMOIR_CLI_TRACE_NATIVE_H

#include <stddef.h>
#include <sys/types.h>

struct buffer;

/* Append the binary dump to `out`. `path` as in ask_connect(). 0; -ESRCH: there is no memoird,
 * or it does not trace the process; -EACCES: the process is another user's; -EREMOTEIO with its
 * reason in `ret_why`; other -errno. */
int trace_native_fetch(const char *path, pid_t pid, struct buffer *out, char *ret_why,
                       size_t why_size);

/* Append memoird's answer about the processes that it traces and the user may see: {"traced": [...]}, with rows
 * as an observer lists them. 0; -ESRCH: there is no memoird, or it does not trace; other -errno. */
int trace_native_list(const char *path, struct buffer *out);

#endif
