/* state.c: starting, ending, forking; failures on demand. See state.h. */
#include "standin/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin/memory.h"

struct state standin = {.lock = PTHREAD_MUTEX_INITIALIZER};

__attribute__((visibility("default"))) const int memoir_standin = 1;
__attribute__((visibility("default"))) void standin_counts(struct standin_counts *ret);

void state_lock(void)
{
    pthread_mutex_lock(&standin.lock);
}

void state_unlock(void)
{
    pthread_mutex_unlock(&standin.lock);
}

/* In a child the driver is dead. Its device memory is not inherited (MADV_DONTFORK). */
static void after_fork_in_child(void)
{
    if (atomic_load(&standin.initialized))
        atomic_store(&standin.forked, true);
    pthread_mutex_unlock(&standin.lock);
}

__attribute__((constructor)) static void start(void)
{
    pthread_atfork(state_lock, state_unlock, after_fork_in_child);
}

/* Calls from exit handlers that run later get CUDA_ERROR_DEINITIALIZED. */
__attribute__((destructor)) static void end(void)
{
    atomic_store(&standin.ended, true);
    shared_close(&standin.shared);
}

/* Look for "NAME:N", "NAME:N+" or "NAME:N:ERROR" in MEMOIR_STANDIN_FAIL, a list separated by commas. */
static void call_arm(struct call *c)
{
    const char *text = getenv("MEMOIR_STANDIN_FAIL");
    size_t length = strlen(c->name);
    int armed = 1;

    for (; text && *text; text = strchr(text, ',') ? strchr(text, ',') + 1 : NULL) {
        if (strncmp(text, c->name, length) != 0 || text[length] != ':')
            continue;
        char *rest;
        c->nth = strtoull(text + length + 1, &rest, 10);
        c->onwards = *rest == '+';
        rest += c->onwards;
        bool takes = strstr(c->name, "Alloc") || strstr(c->name, "Create");
        c->error = takes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_ILLEGAL_ADDRESS;
        if (*rest == ':')
            c->error = (CUresult)strtoul(rest + 1, NULL, 10);
        armed = 2;
        break;
    }
    atomic_store(&c->armed, armed);
}

CUresult call_enter(struct call *c, enum call_need need)
{
    unsigned long long count = atomic_fetch_add(&c->count, 1) + 1;

    atomic_fetch_add(&standin.calls, 1);
    if (atomic_load(&standin.ended))
        return CUDA_ERROR_DEINITIALIZED;
    bool ready = atomic_load(&standin.initialized) && !atomic_load(&standin.forked);
    if (need != CALL_ALWAYS && !ready)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (atomic_load(&c->armed) == 0) {
        state_lock();
        if (atomic_load(&c->armed) == 0)
            call_arm(c);
        state_unlock();
    }
    if (atomic_load(&c->armed) == 2 && (count == c->nth || (c->onwards && count > c->nth))) {
        atomic_fetch_add(&standin.injected, 1);
        return c->error;
    }
    struct context *current;
    return need == CALL_CONTEXT ? context_current(&current) : CUDA_SUCCESS;
}

CUresult call_leave(CUresult r)
{
    if (r != CUDA_SUCCESS)
        atomic_fetch_add(&standin.failed, 1);
    return r;
}

void standin_counts(struct standin_counts *ret)
{
    state_lock();
    *ret = standin.counts;
    state_unlock();
    ret->version = STANDIN_COUNTS_VERSION;
    ret->devices = (uint32_t)standin.device_count;
    ret->calls = atomic_load(&standin.calls);
    ret->failed = atomic_load(&standin.failed);
    ret->injected = atomic_load(&standin.injected);
}

uint64_t device_used(const struct device *d)
{
    return arena_used(&d->memory) + arena_used(&d->low) + d->physical_bytes + d->graph.reserved +
           d->contexts * SHARED_CONTEXT_BYTES;
}

bool device_has_room(struct device *d, uint64_t size)
{
    if (device_used(d) + size > standin.memory_bytes)
        arena_trim(&d->memory);
    uint64_t used = device_used(d);
    return used <= standin.memory_bytes && size <= standin.memory_bytes - used;
}

void device_publish(const struct device *d)
{
    if (standin.shared.file)
        __atomic_store_n(&standin.shared.file->used[d->index], device_used(d), __ATOMIC_RELAXED);
}

struct device *device_of(CUdevice device)
{
    return device >= 0 && device < standin.device_count ? &standin.devices[device] : NULL;
}

void object_add(struct object *o, enum object_kind kind, struct context *context)
{
    o->node.key = (uintptr_t)o;
    o->kind = kind;
    o->context = context;
    tree_insert(&standin.objects, &o->node);
}

void *object_of(const void *handle, enum object_kind kind)
{
    struct object *o = NODE_OF(tree_find(&standin.objects, (uintptr_t)handle), struct object, node);

    return o && o->kind == kind ? o : NULL;
}

void object_remove(struct object *o)
{
    tree_remove(&standin.objects, &o->node);
}
