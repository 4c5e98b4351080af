/* The line that is written when a process is gone. */
#pragma once

struct buffer;
struct retired_process;

/* "PID 4242 (train.py, killed by SIGKILL) gone: removed 150 buffers (25.5 MB), 800 CBs (22.4 MB),
 * 30 kernels (0.2 MB)". 0 or the buffer's error. */
int line_write(const struct retired_process *process, struct buffer *out);
