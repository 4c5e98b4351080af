/* shared.h: what the stand-in driver tells the stand-in libnvidia-ml about a process.
 *
 * Each process that has a context keeps one file, named by its PID, in MEMOIR_STANDIN_DIR. A file counts only while its
 * process has it open: its figures vanish when the process exits or executes another program, however it ends. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "standin/counts.h"

/* The name of every device: nobody takes it for hardware. */
#define STANDIN_NAME           "Stand-in GPU (no hardware)"

#define SHARED_MAGIC           0x4e495453u
#define SHARED_VERSION         1
#define SHARED_CONTEXT_BYTES   (64ull << 20) /* what a context takes from its device */
#define SHARED_DEVICES_DEFAULT 2
#define SHARED_MEMORY_DEFAULT  (8ull << 30)

struct shared_file {
    uint32_t magic, version;
    int32_t pid;
    int32_t fd; /* of this file in the process */
    uint64_t used
        [STANDIN_DEVICES_MAX]; /* bytes, by the machine's number of the device; 0: no context there */
};
static_assert(sizeof(struct shared_file) == 16 + 8 * STANDIN_DEVICES_MAX, "read by others");

struct shared {
    struct shared_file *file; /* mapped; NULL: none */
    char path[200];
};

/* Make the file of this process. Without one, libnvidia-ml shows nothing of it. */
void shared_open(struct shared *s);
void shared_close(struct shared *s);

/* Call `each` for every live process, with its figures. Removes files of processes that ended. */
void shared_walk(void (*each)(const struct shared_file *file, void *arg), void *arg);

/* Settings that both libraries read. */
int shared_devices(void);
uint64_t shared_memory(void);

#define SHARED_UUID_SIZE 41
/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" of the machine's device `index`, and its 16 bytes. */
void shared_uuid(int index, char ret[SHARED_UUID_SIZE]);
void shared_uuid_bytes(int index, unsigned char ret[16]);
/* "00000000:01:00.0" */
void shared_bus(int index, bool domain_long, char *ret, size_t size);
