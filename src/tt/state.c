/* state.c: devices and everything alive on them, in pages that a child does not inherit. */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "base/atomic.h"
#include "base/hash.h"
#include "book/writer.h"
#include "client/client.h"
#include "tt/tt.h"

enum {
    SPINS = 100,
    YIELDS_MAX = 20000, /* about a second */
    TABLE_FIRST = 1024,
    SITE_FRAMES = 32,
};

struct entry {
    uint64_t a, b, value; /* a is 0 in an empty one */
};

struct state {
    uint32_t lock;
    uint32_t n_fans; /* stored (release) after the fan */
    struct entry *entries;
    size_t room, used; /* room: a power of two, or 0 */
    struct tt_cbs cbs;
    struct tt_fan fans[TT_FANS_MAX];
};

static struct state *state; /* what it points to is wiped by the kernel in a child */

static struct state *state_get(void)
{
    struct state *s = load_acquire(&state);
    if (s)
        return s;
    s = book_private_new(sizeof(*s));
    if (!s)
        return NULL;
    struct state *none = NULL;
    if (madvise(s, sizeof(*s), MADV_WIPEONFORK) == 0 && cas_acq_rel(&state, &none, s))
        return s;
    book_private_free(s, sizeof(*s));
    return none; /* another thread's, or NULL */
}

/* Its holder calls nobody but libmemoir, but may be torn away by cancellation: then we go without. */
bool tt_lock(void)
{
    struct state *s = state_get();
    for (unsigned yields = 0; s && yields < YIELDS_MAX; yields++) {
        for (unsigned i = 0; i < SPINS; i++) {
            uint32_t free_word = 0;
            if (load_relaxed(&s->lock) == 0 && cas_acquire(&s->lock, &free_word, 1))
                return true;
            cpu_relax();
        }
        sched_yield();
    }
    return false;
}

void tt_unlock(void)
{
    store_release(&state->lock, 0);
}

struct tt_cbs *tt_cbs_list(void)
{
    return &state->cbs;
}

/* ---- devices ---- */

int tt_fans(void)
{
    struct state *s = state_get();
    return s ? (int)load_acquire(&s->n_fans) : 0;
}

const struct tt_fan *tt_fan_at(int index)
{
    return &state->fans[index];
}

static int id_of(const struct tt_api *api, const void *device)
{
    if (api->device_id)
        return api->device_id(device);
    const void *const *vtable = *(const void *const *const *)device;
    int (*id)(const void *);
    memcpy(&id, &vtable[api->id_slot], sizeof(id));
    return id(device);
}

static int declare(const struct tt_api *api, const void *device, int id)
{
    struct memoir_device_options options = {
        .struct_size = sizeof(options),
        .kind = MEMOIR_DEVICE_NPU,
        .ordinal = id,
        .name = "Tenstorrent", /* as every source calls them: see doc/tt-metal.md */
    };
    size_t n = 0;
    if (api->num_dram_channels && api->dram_size_per_channel)
        options.capacity[n++] =
            (struct memoir_capacity){MEMOIR_SPACE_DRAM, (uint64_t)api->num_dram_channels(device) *
                                                            api->dram_size_per_channel(device)};
    if (api->l1_size_per_core && api->grid_size) {
        struct tt_core_grid grid = api->grid_size(device);
        if (grid.x > 0 && grid.x < 256 && grid.y > 0 && grid.y < 256)
            options.capacity[n++] = (struct memoir_capacity){
                MEMOIR_SPACE_L1, (uint64_t)grid.x * grid.y * api->l1_size_per_core(device)};
    }
    return memoir_device(&options);
}

/* A mesh has no memory of its own. Its devices may be of a class that we do not know. */
static uint32_t mesh_declare(const struct tt_api *api, const void *mesh, int devices[TT_FAN_MAX])
{
    struct tt_vector list = api->mesh_devices(mesh);
    uint32_t n = 0;
    for (char *at = list.begin; at < list.end && n < TT_FAN_MAX; at += sizeof(void *)) {
        const void *device;
        memcpy(&device, at, sizeof(device));
        if (device && *(const void *const *)device == api->device_vtable)
            devices[n++] = declare(api, device, id_of(api, device));
    }
    if (list.begin)
        api->vector_free(list.begin);
    return n;
}

static int fan_known(const struct state *s, const void *device, int id)
{
    for (uint32_t i = 0; i < load_acquire(&s->n_fans); i++)
        if (load_relaxed(&s->fans[i].device) == device && s->fans[i].id == id)
            return (int)i;
    return -1;
}

int tt_fan_find(struct tt_api *api, const void *device)
{
    struct state *s = state_get();
    if (!s || !device)
        return -1;
    const void *vtable = *(const void *const *)device;
    bool mesh = vtable == api->mesh_vtable && api->mesh_devices && api->vector_free;
    if (!mesh && vtable != api->device_vtable)
        return -1;
    /* Meshes are numbered as they are made, so another one in the same place is another one. */
    int id = mesh ? (api->mesh_id ? api->mesh_id(device) : 0) : id_of(api, device);
    int found = fan_known(s, device, id);
    if (found >= 0)
        return found;
    struct tt_fan fan = {.device = device, .id = id};
    if (mesh) {
        fan.n = mesh_declare(api, device, fan.devices);
    } else {
        fan.n = 1;
        fan.devices[0] = declare(api, device, id);
    }
    if (!tt_lock())
        return -1;
    found = fan_known(s, device, id);
    if (found < 0 && s->n_fans < TT_FANS_MAX) {
        found = (int)s->n_fans;
        s->fans[found] = fan;
        store_release(&s->n_fans, (uint32_t)found + 1);
    }
    tt_unlock();
    return found;
}

/* ---- the table ---- */

static size_t slot_of(uint64_t a, uint64_t b, size_t room)
{
    return hash_combine(hash_combine(0, a), b) & (room - 1);
}

static struct entry *entry_find(const struct state *s, uint64_t a, uint64_t b)
{
    for (size_t i = s->room ? slot_of(a, b, s->room) : 0; s->room; i = (i + 1) & (s->room - 1)) {
        if (s->entries[i].a == 0)
            return NULL;
        if (s->entries[i].a == a && s->entries[i].b == b)
            return &s->entries[i];
    }
    return NULL;
}

static void entry_enter(struct entry *entries, size_t room, const struct entry *entry)
{
    size_t i = slot_of(entry->a, entry->b, room);
    while (entries[i].a != 0)
        i = (i + 1) & (room - 1);
    entries[i] = *entry;
}

static bool table_grow(struct state *s)
{
    if (s->used < s->room / 4 * 3)
        return true;
    size_t room = s->room ? s->room * 2 : TABLE_FIRST;
    struct entry *entries = book_private_new(room * sizeof(*entries));
    if (!entries)
        return false;
    for (size_t i = 0; i < s->room; i++)
        if (s->entries[i].a != 0)
            entry_enter(entries, room, &s->entries[i]);
    book_private_free(s->entries, s->room * sizeof(*entries));
    s->entries = entries;
    s->room = room;
    return true;
}

bool tt_table_put(uint64_t a, uint64_t b, uint64_t value)
{
    struct state *s = state;
    if (a == 0 || entry_find(s, a, b) || !table_grow(s))
        return false;
    entry_enter(s->entries, s->room, &(struct entry){a, b, value});
    s->used++;
    return true;
}

bool tt_table_get(uint64_t a, uint64_t b, uint64_t *ret_value)
{
    const struct entry *entry = entry_find(state, a, b);
    if (!entry)
        return false;
    *ret_value = entry->value;
    return true;
}

/* Those behind it that were pushed on by it move up, so that no gap ends a search too early. */
bool tt_table_take(uint64_t a, uint64_t b, uint64_t *ret_value)
{
    struct state *s = state;
    struct entry *entry = entry_find(s, a, b);
    if (!entry)
        return false;
    *ret_value = entry->value;
    size_t mask = s->room - 1, gap = (size_t)(entry - s->entries);
    for (size_t i = (gap + 1) & mask; s->entries[i].a != 0; i = (i + 1) & mask) {
        size_t home = slot_of(s->entries[i].a, s->entries[i].b, s->room);
        if (((i - home) & mask) >= ((i - gap) & mask)) {
            s->entries[gap] = s->entries[i];
            gap = i;
        }
    }
    s->entries[gap].a = 0;
    s->used--;
    return true;
}

/* ---- reports ---- */

struct tt_site tt_site_find(const struct tt_api *api, const struct unwind_state *from)
{
    struct tt_site site = {.pc = unwind_state_caller(from), .state = from};
    struct client *c = client_get();
    if (!c || c->stacks != CLIENT_STACKS_CALLER || c->writer.sealed)
        return site;
    uintptr_t pcs[SITE_FRAMES];
    size_t n = unwind_stack_from(&c->unwind, from, pcs, SITE_FRAMES, NULL);
    for (size_t i = 0; i < n; i++) {
        bool theirs = pcs[i] >= api->module_start && pcs[i] < api->module_end;
        if (!theirs && !tt_is_own(pcs[i])) {
            site.pc = pcs[i];
            break;
        }
    }
    return site;
}

void tt_alloc_on(int device, int space, uint64_t id, uint64_t bytes, const struct tt_site *site)
{
    client_report(&(struct report){.kind = REPORT_ALLOC,
                                   .device = device,
                                   .space = space,
                                   .id = id,
                                   .bytes = bytes,
                                   .tag = -1,
                                   .caller = site->pc,
                                   .state = site->state});
}

void tt_free_on(int device, int space, uint64_t id)
{
    client_report(
        &(struct report){.kind = REPORT_FREE, .device = device, .space = space, .id = id});
}

void tt_report_alloc(int fan, int space, uint64_t id, uint64_t bytes, const struct tt_site *site)
{
    const struct tt_fan *f = tt_fan_at(fan);
    for (uint32_t i = 0; i < f->n; i++)
        tt_alloc_on(f->devices[i], space, id, bytes, site);
}

void tt_report_free(int fan, int space, uint64_t id)
{
    const struct tt_fan *f = tt_fan_at(fan);
    for (uint32_t i = 0; i < f->n; i++)
        tt_free_on(f->devices[i], space, id);
}
