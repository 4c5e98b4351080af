/*
 * tt.h: inside libmemoir-tt.so, which watches tt-metal without its knowledge.
 *
 * Preloaded, it stands in front of some functions of libtt_metal.so (hooks.c, by their mangled names),
 * tells libmemoir's client what they were called with, and always goes on to the real one. tt-metal is
 * C++ and promises no ABI, so nothing is taken for granted: what is not exported is found by its
 * relation to what is (symbols.c), and checked; where that fails, the feature is off, one line says so
 * (MEMOIR_VERBOSE=1), and the program goes on as if we were not there.
 *
 * The rules of code in a stranger's process hold: no malloc, no stdio, no thread, no descriptor kept. An
 * exception may pass through every hook.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "site/unwind.h"

/* ---- symbols.c: what libtt_metal.so offers ---- */

/* The functions that we stand in front of. */
enum tt_hook {
    TT_TRACK_ALLOCATE,
    TT_TRACK_DEALLOCATE,
    TT_TRACK_ALLOCATE_CB,
    TT_TRACK_DEALLOCATE_CB,
    TT_ALLOCATE_CBS,   /* of one program */
    TT_DEALLOCATE_CBS, /* the same; may be inlined, and then is not seen */
    TT_COMPILE,
    TT_PROGRAM_DESTROYED,
    TT_HOOKS,
};

enum tt_feature {
    TT_BUFFERS = 1u << 0,
    TT_CBS = 1u << 1,
    TT_KERNELS = 1u << 2,
};

struct tt_core_grid {
    size_t x, y;
};

/* std::vector<T>, in libstdc++ and libc++ alike. Returned by value, C and C++ pass it the same way. */
struct tt_vector {
    char *begin, *end, *room;
};

struct tt_api {
    uintptr_t module_start, module_end; /* of the library that calls us */
    uint32_t features;                  /* enum tt_feature: what can be told */
    void *real[TT_HOOKS];

    const void *device_vtable, *mesh_vtable; /* what objects of these classes begin with */
    int (*device_id)(const void *device);    /* NULL: by the slot */
    unsigned id_slot;
    struct tt_vector (*mesh_devices)(const void *mesh);
    int (*mesh_id)(const void *mesh);
    void (*vector_free)(void *memory); /* operator delete */

    /* Exported in some versions; else read from where the checked layout has them. */
    uint64_t (*buffer_size)(const void *buffer);
    const void *(*buffer_device)(const void *buffer);
    int (*buffer_type)(const void *buffer);
    uint32_t (*buffer_address)(const void *buffer);
    uint64_t (*buffer_page_size)(const void *buffer);
    uint32_t (*buffer_num_pages)(const void *buffer);
    bool (*buffer_is_dram)(const void *buffer);
    bool (*buffer_is_l1)(const void *buffer);
    uint32_t layout; /* 0: not tried, 1: as expected, 2: another one */

    uint32_t (*num_cores)(const void *core_range_set);

    size_t (*num_kernels)(const void *program);
    struct tt_vector (*kernel_meta)(const void *program, void *device);

    int (*num_dram_channels)(const void *device);
    uint32_t (*dram_size_per_channel)(const void *device);
    uint32_t (*l1_size_per_core)(const void *device);
    struct tt_core_grid (*grid_size)(const void *device);
};

/* What the library around the code at `caller` has; looked up once for each. Never NULL: without any,
 * `real` is empty. Some ten nanoseconds. */
struct tt_api *tt_api_for(uintptr_t caller);

/* Is this code of this library? */
bool tt_is_own(uintptr_t pc);

/* Of the hook around this one, for functions that end in a call of another. */
extern __thread struct tt_api *tt_outer;

/* The function that the hook stands in front of; looked for again where it was not found. */
void *tt_real(const struct tt_api *api, enum tt_hook hook);

/* Set by hooks.c: our own functions, so that they are not taken for the real ones. */
extern void *const tt_own[TT_HOOKS];

struct tt_buffer {
    const void *device;
    uint64_t bytes;
    int space; /* enum memoir_space */
};

/* False if nothing can be told about it, or if it has no memory. */
bool tt_buffer_read(struct tt_api *api, const void *buffer, struct tt_buffer *ret_buffer);

/* One line on standard error, if MEMOIR_VERBOSE asks for it. */
void tt_say(const char *first, const char *second);

/* ---- state.c: what we remember ---- */

/* An IDevice is one device, or a mesh of them: everything on it is on each. */
enum { TT_FAN_MAX = 128, TT_FANS_MAX = 256 };
struct tt_fan {
    const void *device; /* NULL: it was another object's */
    int id;
    uint32_t n;
    int devices[TT_FAN_MAX]; /* numbers of memoir_device() */
};

/* False: switched off, or the lock stayed held. After fork a child finds nothing and starts anew. */
bool tt_lock(void);
void tt_unlock(void);

/* Index of the fan of a device, made if need be; -1 if it cannot be told. Not under the lock: it asks
 * tt-metal. Fans stay for ever. */
int tt_fan_find(struct tt_api *api, const void *device);
const struct tt_fan *tt_fan_at(int index);

/* Pairs of words and one that belongs to them. Under the lock. */
bool tt_table_put(uint64_t a, uint64_t b, uint64_t value); /* false: no memory, or known already */
bool tt_table_get(uint64_t a, uint64_t b, uint64_t *ret_value);
bool tt_table_take(uint64_t a, uint64_t b, uint64_t *ret_value);
int tt_fans(void); /* how many there are */

/* ---- reports ---- */

struct tt_site {
    uintptr_t pc;
    const struct unwind_state *state;
};

/* The first address on the stack outside of the library that called the hook. */
struct tt_site tt_site_find(const struct tt_api *api, const struct unwind_state *state);

/* On one device, and on all of a fan. */
void tt_alloc_on(int device, int space, uint64_t id, uint64_t bytes, const struct tt_site *site);
void tt_free_on(int device, int space, uint64_t id);
void tt_report_alloc(int fan, int space, uint64_t id, uint64_t bytes, const struct tt_site *site);
void tt_report_free(int fan, int space, uint64_t id);

/* ---- buffers.c, cbs.c, kernels.c ---- */

void tt_buffer_made(struct tt_api *api, const void *buffer, const struct unwind_state *state);
void tt_buffer_gone(const void *buffer);

void tt_cb_made(struct tt_api *api, const void *cores, uint64_t address, uint64_t bytes,
                const void *device, const struct unwind_state *state);
void tt_cbs_gone(struct tt_api *api, const void *device);
void tt_cbs_of_program_gone(const void *program);

/* Whose circular buffers this thread makes or gives back. An exception leaves it as it is: then the frame
 * it was set in is below the one that looks, and it does not count. */
struct tt_cbs_scope {
    const void *program; /* NULL: nobody's */
    uintptr_t frame;
    bool first; /* none of them was told yet: the next ones replace those of before */
};
extern __thread struct tt_cbs_scope tt_cbs_making, tt_cbs_ending;

/* Circular buffers of all devices, sorted: see cbs.c. Under the lock. */
struct tt_cb;
struct tt_cbs {
    struct tt_cb *list;
    size_t n, room;
};
struct tt_cbs *tt_cbs_list(void);

void tt_program_compiled(struct tt_api *api, const void *program, void *device,
                         const struct unwind_state *state);
void tt_program_gone(const void *program);
