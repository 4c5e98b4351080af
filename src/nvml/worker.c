/* See worker.h. */
#include "nvml/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/fs.h"
#include "nvml/library.h"
#include "nvml/nvml.h"
#include "nvml/wire.h"

enum { CONNECTION = 0 };

bool nvml_worker_is_this(int argc, char *const *argv)
{
    return argc > 0 && strcmp(argv[0], NVML_WORKER) == 0;
}

/* A library that could not be opened is tried again with each question: a driver may be loaded meanwhile. */
static int answer(struct nvml_library **library, struct buffer *out)
{
    char why[NVML_WHY_MAX] = "";
    buffer_reset(out);
    int r = *library ? 0 : nvml_library_open(nvml_library_path(), library, why);
    if (r == 0)
        r = nvml_library_read(*library, out, why);
    if (r < 0) {
        struct nvml_wire_head head = {.magic = NVML_WIRE_MAGIC, .result = r};
        snprintf(head.why, sizeof(head.why), "%s", *why ? why : strerror(-r));
        buffer_reset(out);
        buffer_append(out, &head, sizeof(head));
    }
    return out->error ? out->error : fs_write_all(CONNECTION, out->data, out->len);
}

int nvml_worker_main(void)
{
    struct buffer out = BUFFER_INIT(NVML_WIRE_MAX);
    struct nvml_library *library = NULL;
    (void)prctl(PR_SET_NAME, NVML_WORKER);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        char question;
        ssize_t n = read(CONNECTION, &question, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != 1 || answer(&library, &out) < 0)
            break;
    }
    buffer_release(&out);
    _exit(0); /* without NVML's destructors, which may hang */
}
