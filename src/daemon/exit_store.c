/* Slots and sums of exits. See exit_store.h.
 *
 * The file has only records; their order by age, which slots a user has and where a pid is found is kept
 * beside it and made anew when the file is opened. */
#include "daemon/exit_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/accountable.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/sum.h"
#include "ledger/proc.h"

enum {
    NONE = UINT16_MAX,
    USERS = 256,      /* chains of slots; users who share one share its quarter */
    PIDS = 8192,      /* chains */
    SUM_INDEX = 4096, /* twice the sums, so that looking stays short */
    CLASSES = 2,      /* exited by itself, killed */
};
static_assert((int)EXIT_FILE_SLOTS < (int)NONE && (int)EXIT_FILE_SUMS < (int)NONE, "indices fit");

struct link {
    uint16_t older, newer;           /* of its class */
    uint16_t user_older, user_newer; /* of its class and user chain */
    uint16_t pid_next;
    uint16_t user; /* whose chain it is in: who answers for a uid may change meanwhile */
};

struct list {
    uint16_t oldest, newest;
    uint32_t n;
};

struct class
{
    uint32_t first, slots;
    struct list all;
    struct list users[USERS];
};

struct exit_store {
    struct exit_file *file; /* mapped */
    uint64_t sequence;
    struct class classes[CLASSES];
    struct link links[EXIT_FILE_SLOTS];
    uint16_t pids[PIDS];
    uint16_t sum_index[SUM_INDEX]; /* open addressing */
    uint32_t sums;
};

/* ---- lists ---- */

static void list_append(struct exit_store *store, struct list *list, uint16_t slot, bool by_user)
{
    struct link *link = &store->links[slot];
    struct link *last = list->newest == NONE ? NULL : &store->links[list->newest];
    if (by_user) {
        link->user_older = list->newest;
        link->user_newer = NONE;
        if (last)
            last->user_newer = slot;
    } else {
        link->older = list->newest;
        link->newer = NONE;
        if (last)
            last->newer = slot;
    }
    if (!last)
        list->oldest = slot;
    list->newest = slot;
    list->n++;
}

static void list_remove(struct exit_store *store, struct list *list, uint16_t slot, bool by_user)
{
    struct link *links = store->links;
    uint16_t older = by_user ? links[slot].user_older : links[slot].older;
    uint16_t newer = by_user ? links[slot].user_newer : links[slot].newer;
    if (older == NONE)
        list->oldest = newer;
    else if (by_user)
        links[older].user_newer = newer;
    else
        links[older].newer = newer;
    if (newer == NONE)
        list->newest = older;
    else if (by_user)
        links[newer].user_older = older;
    else
        links[newer].older = older;
    list->n--;
}

static uint32_t pid_chain(int32_t pid)
{
    return (uint32_t)hash_mix((uint32_t)pid) % PIDS;
}

static uint16_t user_of(uint32_t uid)
{
    return (uint16_t)(hash_mix(accountable_uid(uid) + UINT64_C(1)) % USERS);
}

static void slot_link(struct exit_store *store, struct class *class, uint16_t slot)
{
    const struct exit_record *r = &store->file->records[slot];
    list_append(store, &class->all, slot, false);
    store->links[slot].user = user_of(r->uid);
    list_append(store, &class->users[store->links[slot].user], slot, true);
    store->links[slot].pid_next = store->pids[pid_chain(r->pid)];
    store->pids[pid_chain(r->pid)] = slot;
}

static void slot_unlink(struct exit_store *store, struct class *class, uint16_t slot)
{
    const struct exit_record *r = &store->file->records[slot];
    list_remove(store, &class->all, slot, false);
    list_remove(store, &class->users[store->links[slot].user], slot, true);
    uint16_t *at = &store->pids[pid_chain(r->pid)];
    while (*at != slot)
        at = &store->links[*at].pid_next;
    *at = store->links[slot].pid_next;
}

/* ---- sums ---- */

static void sums_index(struct exit_store *store)
{
    store->sums = 0;
    memset(store->sum_index, 0xff, sizeof(store->sum_index));
    for (uint16_t i = 0; i < EXIT_FILE_SUMS; i++) {
        if (store->file->sums[i].count == 0)
            continue;
        uint64_t at = exit_sum_kind(&store->file->sums[i]) % SUM_INDEX;
        while (store->sum_index[at] != NONE)
            at = (at + 1) % SUM_INDEX;
        store->sum_index[at] = i;
        store->sums++;
    }
}

/* Take one out of the index, and move up who stands behind it for want of a place: making the index anew for each of
 * thousands of names that a user can think of would take the loop's time. */
static void sum_unindex(struct exit_store *store, uint16_t slot)
{
    const struct exit_sum *sums = store->file->sums;
    uint64_t hole = exit_sum_kind(&sums[slot]) % SUM_INDEX;
    while (store->sum_index[hole] != slot)
        hole = (hole + 1) % SUM_INDEX;
    for (uint64_t at = (hole + 1) % SUM_INDEX; store->sum_index[at] != NONE;
         at = (at + 1) % SUM_INDEX) {
        uint64_t home = exit_sum_kind(&sums[store->sum_index[at]]) % SUM_INDEX;
        if ((at - home) % SUM_INDEX < (at - hole) % SUM_INDEX)
            continue; /* it would stand before its place */
        store->sum_index[hole] = store->sum_index[at];
        hole = at;
    }
    store->sum_index[hole] = NONE;
    store->sums--;
}

/* Room for a new one: a user beyond its share loses its own oldest; else the oldest of all goes. */
static uint16_t sums_make_room(struct exit_store *store, uint32_t uid)
{
    struct exit_sum *sums = store->file->sums;
    uint32_t own = 0, oldest = 0, own_oldest = 0, user = accountable_uid(uid);
    for (uint32_t i = 0; i < EXIT_FILE_SUMS; i++) {
        if (sums[i].end_ns < sums[oldest].end_ns)
            oldest = i;
        if (accountable_uid(sums[i].uid) != user)
            continue;
        if (own++ == 0 || sums[i].end_ns < sums[own_oldest].end_ns)
            own_oldest = i;
    }
    uint32_t gone = uid != 0 && own >= EXIT_FILE_SUMS / EXIT_STORE_SHARE ? own_oldest : oldest;
    sum_add(&store->file->header.forgotten, sums[gone].count);
    sum_unindex(store, (uint16_t)gone);
    memset(&sums[gone], 0, sizeof(sums[gone]));
    return (uint16_t)gone;
}

static uint16_t sum_new(struct exit_store *store)
{
    for (uint16_t i = 0; i < EXIT_FILE_SUMS; i++)
        if (store->file->sums[i].count == 0)
            return i;
    return NONE;
}

static void sum_put(struct exit_store *store, const struct exit_record *r)
{
    uint64_t at = exit_record_kind(r) % SUM_INDEX;
    for (; store->sum_index[at] != NONE; at = (at + 1) % SUM_INDEX)
        if (exit_sum_is(&store->file->sums[store->sum_index[at]], r))
            break;
    if (store->sum_index[at] == NONE) {
        uint16_t slot = store->sums < EXIT_FILE_SUMS ? sum_new(store) : NONE;
        if (slot == NONE)
            slot = sums_make_room(store, r->uid);
        at = exit_record_kind(r) % SUM_INDEX; /* places may have moved */
        while (store->sum_index[at] != NONE)
            at = (at + 1) % SUM_INDEX;
        struct exit_sum *fresh = &store->file->sums[slot];
        *fresh = (struct exit_sum){.hour = exit_hour(r->end_ns),
                                   .uid = r->uid,
                                   .status = r->status,
                                   .flags = r->flags,
                                   .start_ns = r->start_ns};
        memcpy(fresh->program, r->program, sizeof(fresh->program));
        store->sum_index[at] = slot;
        store->sums++;
    }
    struct exit_sum *s = &store->file->sums[store->sum_index[at]];
    uint64_t lived = r->end_ns > r->start_ns ? r->end_ns - r->start_ns : 0;
    s->count++;
    s->folded_to = r->sequence;
    s->flags |= r->flags;
    s->start_ns = r->start_ns < s->start_ns ? r->start_ns : s->start_ns;
    s->end_ns = r->end_ns > s->end_ns ? r->end_ns : s->end_ns;
    sum_add(&s->cpu_ns, r->cpu_ns);
    s->peak_bytes = r->peak_bytes > s->peak_bytes ? r->peak_bytes : s->peak_bytes;
    s->lived_ns = lived > s->lived_ns ? lived : s->lived_ns;
    s->check = exit_sum_check(s);
}

/* ---- slots ---- */

static struct class *class_of(struct exit_store *store, const struct exit_record *record)
{
    return &store->classes[WIFSIGNALED(record->status)];
}

/* A slot to write to: an empty one, or that of the oldest, which goes into the sums. */
static uint16_t slot_take(struct exit_store *store, struct class *class, uint32_t uid)
{
    if (class->all.n < class->slots) {
        /* Slots are given out in order and never taken back, so the first empty one is found at once. */
        for (uint32_t i = class->all.n; i < class->slots; i++)
            if (store->file->records[class->first + i].sequence == 0)
                return (uint16_t)(class->first + i);
        for (uint32_t i = 0; i < class->all.n; i++)
            if (store->file->records[class->first + i].sequence == 0)
                return (uint16_t)(class->first + i);
    }
    const struct list *own = &class->users[user_of(uid)];
    uint16_t slot =
        uid != 0 && own->n >= class->slots / EXIT_STORE_SHARE ? own->oldest : class->all.oldest;
    slot_unlink(store, class, slot);
    sum_put(store, &store->file->records[slot]);
    return slot;
}

static struct exit_record *find(const struct exit_store *store, pid_t pid, uint64_t start_ticks)
{
    for (uint16_t slot = store->pids[pid_chain(pid)]; slot != NONE;
         slot = store->links[slot].pid_next) {
        struct exit_record *r = &store->file->records[slot];
        if (r->pid == pid && proc_same_start(r->start_ticks, start_ticks))
            return r;
    }
    return NULL;
}

const struct exit_record *exit_store_find(const struct exit_store *store, pid_t pid,
                                          uint64_t start_ticks)
{
    return find(store, pid, start_ticks);
}

bool exit_store_add(struct exit_store *store, const struct exit_record *record)
{
    struct exit_record *same = find(store, record->pid, record->start_ticks);
    if (same) {
        same->peak_bytes =
            record->peak_bytes > same->peak_bytes ? record->peak_bytes : same->peak_bytes;
        same->cpu_ns = record->cpu_ns > same->cpu_ns ? record->cpu_ns : same->cpu_ns;
        same->check = exit_record_check(same);
        return false;
    }
    struct class *class = class_of(store, record);
    uint16_t slot = slot_take(store, class, record->uid);
    struct exit_record *r = &store->file->records[slot];
    *r = *record;
    r->sequence = ++store->sequence;
    r->check = exit_record_check(r);
    slot_link(store, class, slot);
    store->file->header.seen++;
    return true;
}

const struct exit_file *exit_store_file(const struct exit_store *store)
{
    return store->file;
}

struct exit_file_header *exit_store_header(struct exit_store *store)
{
    return &store->file->header;
}

/* ---- begin and end ---- */

static int by_age(const void *a, const void *b, void *context)
{
    const struct exit_record *records = context;
    uint64_t x = records[*(const uint16_t *)a].sequence, y = records[*(const uint16_t *)b].sequence;
    return (x > y) - (x < y);
}

static void slots_index(struct exit_store *store)
{
    static const uint32_t slots[CLASSES] = {EXIT_FILE_ORDINARY, EXIT_FILE_KILLED};
    uint16_t order[EXIT_FILE_SLOTS];
    size_t n = 0;
    uint32_t first = 0;
    memset(store->pids, 0xff, sizeof(store->pids));
    for (size_t c = 0; c < CLASSES; c++) {
        struct class *class = &store->classes[c];
        memset(class, 0xff, sizeof(*class)); /* indices: NONE */
        class->first = first;
        class->slots = slots[c];
        class->all.n = 0;
        for (size_t u = 0; u < USERS; u++)
            class->users[u].n = 0;
        first += slots[c];
    }
    for (uint16_t i = 0; i < EXIT_FILE_SLOTS; i++) {
        const struct exit_record *r = &store->file->records[i];
        bool killed = i >= EXIT_FILE_ORDINARY;
        if (exit_record_valid(r) && (WIFSIGNALED(r->status) != 0) == killed)
            order[n++] = i;
        else
            store->file->records[i].sequence = 0;
    }
    qsort_r(order, n, sizeof(*order), by_age, store->file->records);
    for (size_t i = 0; i < n; i++)
        slot_link(store, class_of(store, &store->file->records[order[i]]), order[i]);
    store->sequence = n ? store->file->records[order[n - 1]].sequence : 0;
    for (size_t i = 0; i < EXIT_FILE_SUMS; i++)
        if (!exit_sum_valid(&store->file->sums[i]))
            memset(&store->file->sums[i], 0, sizeof(store->file->sums[i]));
    sums_index(store);
}

/* All of it is on the disk before it is mapped: writing to a hole of a full disk would be SIGBUS. */
static int map_file(int state_fd, struct exit_file **ret_file)
{
    MEMOIR_CLEANUP(closep)
    int fd = openat(state_fd, EXIT_FILE_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    if (st.st_size > (off_t)sizeof(struct exit_file) && ftruncate(fd, 0) < 0)
        return -errno;
    int r = posix_fallocate(fd, 0, sizeof(struct exit_file));
    if (r != 0)
        return -r;
    struct exit_file *file = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
        return -errno;
    *ret_file = file;
    return 0;
}

int exit_store_new(int state_fd, struct exit_store **ret_store, int *ret_error)
{
    struct exit_store *store = calloc(1, sizeof(*store));
    if (!store)
        return -ENOMEM;
    int error = state_fd < 0 ? 0 : map_file(state_fd, &store->file);
    if (!store->file) {
        void *memory = mmap(NULL, sizeof(struct exit_file), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            free(store);
            return -ENOMEM;
        }
        store->file = memory;
    }
    if (!exit_header_valid(&store->file->header)) {
        memset(store->file, 0, sizeof(*store->file));
        store->file->header = (struct exit_file_header){
            .magic = EXIT_FILE_MAGIC,
            .version = EXIT_FILE_VERSION,
            .slots = EXIT_FILE_SLOTS,
            .sums = EXIT_FILE_SUMS,
        };
    }
    slots_index(store);
    *ret_store = store;
    *ret_error = error;
    return 0;
}

void exit_store_free(struct exit_store *store)
{
    if (!store)
        return;
    munmap(store->file, sizeof(*store->file));
    free(store);
}
