/* state.h: the stand-in driver's state in one process: devices, contexts, blocks, counts.
 *
 * One lock guards everything that is not atomic. It is held across fork, so that a child finds it free; the child itself
 * gets CUDA_ERROR_NOT_INITIALIZED from every call, as with a real driver. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "standin/arena.h"
#include "standin/counts.h"
#include "standin/cuda.h"
#include "standin/shared.h"
#include "standin/tree.h"

#define STANDIN_VERSION 13000 /* what cuDriverGetVersion() tells: CUDA 13.0 */

/* Memory of graphs on one device (graph_memory.c). */
struct graph_pool {
    struct arena addresses; /* opened when first used */
    uint64_t used, used_high;
    uint64_t reserved, reserved_high; /* bytes of the device */
    uint64_t kept; /* of these, the bytes of graphs that are gone: the next launch takes them */
};

struct device {
    int number; /* the process's own number */
    int index;  /* the machine's number: differs with CUDA_VISIBLE_DEVICES */
    struct arena memory;
    struct arena low;        /* for the forms with pointers of 32 bits; opened when first used */
    uint64_t physical_bytes; /* of handles that cuMemCreate() made */
    unsigned contexts;
    struct context *primary;
    struct pool *default_pool, *current_pool;
    struct graph_pool graph;
};

/* Never freed, so that a stale handle is recognised. */
struct context {
    struct node node;
    struct device *device;
    bool primary;
    atomic_bool destroyed; /* the thread whose current one it is reads it without the lock */
    unsigned retained;     /* of the primary one */
    struct green *green;   /* that it stands for, or NULL */
    unsigned flags;
    uint64_t id;
};

/* What lies at an address that the driver knows. */
struct block {
    struct node node; /* key: the address */
    uint64_t size;    /* as requested, or what the kind says in counts.h */
    uint64_t id;
    enum standin_kind kind;
    struct device *device;
    struct context *context;           /* that it dies with, or NULL */
    struct arena *arena;               /* that its address goes back to, or NULL */
    struct pool *pool;                 /* of STANDIN_POOL */
    struct physical *physical;         /* of STANDIN_MAPPED */
    struct graph_memory *graph_memory; /* of STANDIN_GRAPH */
    uint64_t offset; /* of STANDIN_MAPPED: in `physical`; of STANDIN_IMPORTED: in the memory file */
    int import_pid;  /* of STANDIN_IMPORTED: the exporter */
    unsigned users;  /* of STANDIN_IMPORTED: how often it was opened */
    unsigned flags;  /* as the call gave them; of STANDIN_MAPPED: who may access it */
};

/* A handle that a program holds. The first member of each such structure. */
enum object_kind {
    OBJECT_STREAM = 1,
    OBJECT_EVENT,
    OBJECT_POOL,
    OBJECT_ARRAY,
    OBJECT_MIPMAP,
    OBJECT_PHYSICAL,
    OBJECT_GRAPH,
    OBJECT_NODE,
    OBJECT_EXEC,
    OBJECT_EXTERNAL,
    OBJECT_GRAPH_MEMORY,
    OBJECT_RESOURCES,
    OBJECT_GREEN,
};

struct object {
    struct node node; /* key: the address of the object */
    enum object_kind kind;
    struct context *context; /* that it dies with, or NULL */
};

struct state {
    pthread_mutex_t lock;
    atomic_bool initialized;
    atomic_bool forked; /* this is the child of a process that used the driver */
    atomic_bool ended;  /* the process runs its exit handlers */

    struct device devices[STANDIN_DEVICES_MAX];
    int device_count;
    uint64_t memory_bytes; /* per device */
    uint64_t delay_ns;     /* per copy */

    struct arena host;
    struct arena addresses; /* that cuMemAddressReserve() gives out; opened when first used */
    struct tree blocks; /* struct block by address: device memory, pinned and registered memory */
    struct tree reservations; /* struct block by address: cuMemAddressReserve() */
    struct tree contexts;
    struct tree objects;
    uint64_t next_id;

    struct standin_counts counts; /* but `calls`, `failed` and `injected` */
    atomic_ullong calls, failed, injected;
    struct shared shared;
};

extern struct state standin;

/* One exported function: how often it was called, and which call is to fail. */
struct call {
    const char *name;
    atomic_ullong count;
    atomic_int armed;       /* 0: not looked up, 1: never fails, 2: fails */
    unsigned long long nth; /* the call that fails */
    bool onwards;           /* and all that follow */
    CUresult error;
};

/* The definitions below must have these arguments, which test programs use. */
#define PROTOTYPE(symbol, params) CUresult symbol params;
#include "standin/prototypes.h"
#undef PROTOTYPE

/* What a function needs before it looks at its arguments. */
enum call_need {
    CALL_ALWAYS,  /* works before cuInit() */
    CALL_INIT,    /* cuInit() */
    CALL_CONTEXT, /* a context that is current in the thread */
};

CUresult call_enter(struct call *c, enum call_need need);
CUresult call_leave(CUresult r);

/* Define an exported function that runs `impl`. Each has code of its own, because a probe on a symbol must not see the calls
 * of another. Exported functions never call each other. */
#define API_AS(symbol, need, impl, params, args)                   \
    __attribute__((visibility("default"))) CUresult symbol params; \
    CUresult symbol params                                         \
    {                                                              \
        static struct call call = {.name = #symbol};               \
        CUresult r_ = call_enter(&call, need);                     \
        if (r_ == CUDA_SUCCESS)                                    \
            r_ = impl args;                                        \
        return call_leave(r_);                                     \
    }
#define API(symbol, impl, params, args)         API_AS(symbol, CALL_INIT, impl, params, args)
#define API_EARLY(symbol, impl, params, args)   API_AS(symbol, CALL_ALWAYS, impl, params, args)
#define API_CONTEXT(symbol, impl, params, args) API_AS(symbol, CALL_CONTEXT, impl, params, args)
/* With a twin for programs whose default stream is per thread. */
#define API_PTDS(symbol, impl, params, args) \
    API(symbol, impl, params, args) API(symbol##_ptds, impl, params, args)
#define API_PTSZ(symbol, impl, params, args) \
    API(symbol, impl, params, args) API(symbol##_ptsz, impl, params, args)

void state_lock(void);
void state_unlock(void);

/* The functions below need the lock. */

/* The context that is current in this thread. */
CUresult context_current(struct context **ret);
/* A context that the program names: NULL unless it is known and alive. */
struct context *context_of(CUcontext handle);
/* The context whose memory it allocates: that of a green context is the primary one's. */
struct context *context_memory(struct context *c);
/* One more and one less reference to the primary context of a device. */
CUresult context_primary_retain(struct device *d, struct context **ret);
void context_primary_release(struct device *d);
/* A context that stands for a green one, and its end. NULL: out of memory. */
struct context *context_green_new(struct device *d, struct green *g);
void context_green_end(struct context *c);

struct device *device_of(CUdevice device); /* NULL: there is none */

/* Make the handle `o` known; `context`: that it dies with, or NULL. */
void object_add(struct object *o, enum object_kind kind, struct context *context);
/* The object that a handle means, or NULL. */
void *object_of(const void *handle, enum object_kind kind);
void object_remove(struct object *o); /* does not free it */

/* Bytes that this process takes from a device, as its driver would tell. Also published for libnvidia-ml. */
uint64_t device_used(const struct device *d);
void device_publish(const struct device *d);
/* Whether the device has `size` bytes left. Slabs that became empty are given up if that helps. */
bool device_has_room(struct device *d, uint64_t size);
