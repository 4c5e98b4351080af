/* Memory of another process. See remote_memory.h. */
#include "observe/remote_memory.h"

#include <sys/uio.h>

enum { PIECES_MAX = 64 }; /* of one system call */

/* How many pieces one call read; the kernel stops at the first that it cannot read. */
static size_t read_some(pid_t pid, struct remote_piece *pieces, size_t n)
{
    struct iovec to[PIECES_MAX], from[PIECES_MAX];
    for (size_t i = 0; i < n; i++) {
        to[i] = (struct iovec){pieces[i].to, pieces[i].bytes};
        from[i] = (struct iovec){(void *)(uintptr_t)pieces[i].address, pieces[i].bytes};
    }
    ssize_t got = process_vm_readv(pid, to, n, from, n, 0);
    size_t done = 0;
    for (; got > 0 && done < n && (size_t)got >= pieces[done].bytes; done++) {
        got -= (ssize_t)pieces[done].bytes;
        pieces[done].done = true;
    }
    return done;
}

void remote_memory_read(void *context, struct remote_piece *pieces, size_t n)
{
    pid_t pid = *(const pid_t *)context;
    for (size_t i = 0; i < n; i++)
        pieces[i].done = pieces[i].bytes == 0;
    while (n > 0) {
        size_t batch = n < PIECES_MAX ? n : PIECES_MAX;
        size_t done = read_some(pid, pieces, batch);
        done += done < batch; /* one that cannot be read is left out */
        pieces += done;
        n -= done;
    }
}
