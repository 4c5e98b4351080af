/* See region_set.h. A poll looks at every region once: it finds new ones when the directory has changed,
 * copies each, decides whose its slots are, and brings the books of these processes up to date. What a
 * region says of the dead goes into no total; it is shown as ghosts. */
#include "ledger/region_set.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/accountable.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/sum.h"
#include "ledger/proc.h"
#include "ledger/region_book.h"
#include "ledger/region_holder.h"
#include "ledger/rows.h"

_Static_assert(REGION_SPACES == (int)LEDGER_REGION_SPACES, "callers see the same spaces");

enum {
    HOLDERS_MAX = 4096,
    ABSENT_SLOTS = 256,
    ABSENT_AGE_MS = 10000, /* looking for a pid in all namespaces costs a walk through /proc */
    SETTLED_MS = 1000,     /* a directory's time of change has the grain of a clock tick */
};

/* A process of which some region tells. */
struct holder {
    struct region_owner owner;
    struct region_maps maps;
    struct region_book *book; /* NULL until the first slot is proved to be his */
    uint64_t dev, ino;        /* of the book */
    bool seen;                /* in this poll */
};

/* What became of a pid that nobody here has. */
struct absent {
    pid_t pid;
    uint64_t updated_ns, until_ns;
    enum region_verdict verdict;
};

struct region_set {
    char *dir;
    int dirfd; /* -1: not there yet */
    struct timespec changed;
    uint64_t scanned_ns; /* CLOCK_REALTIME; 0: never */
    struct ledger_region *regions;
    size_t n_regions;
    struct holder **holders;
    size_t n_holders;
    struct absent absent[ABSENT_SLOTS];
};

int region_set_new(const char *dir, struct region_set **ret_set)
{
    struct region_set *set = calloc(1, sizeof(*set));
    char *copy = strdup(dir);
    if (!set || !copy) {
        free(set);
        free(copy);
        return -ENOMEM;
    }
    set->dir = copy;
    set->dirfd = -1;
    *ret_set = set;
    return 0;
}

static void holder_free(struct holder *holder)
{
    region_book_free(holder->book);
    free(holder);
}

void region_set_free(struct region_set *set)
{
    if (!set)
        return;
    for (size_t i = 0; i < set->n_holders; i++)
        holder_free(set->holders[i]);
    if (set->dirfd >= 0)
        close(set->dirfd);
    free(set->holders);
    free(set->regions);
    free(set->dir);
    free(set);
}

/* ---- which regions there are ---- */

static struct ledger_region *region_find(struct region_set *set, uint64_t asic_id)
{
    for (size_t i = 0; i < set->n_regions; i++)
        if (set->regions[i].asic_id == asic_id)
            return &set->regions[i];
    return NULL;
}

/* Somebody who makes files of that name must not crowd out others' devices. */
static bool region_fits(struct ledger *ledger, int dirfd, const char *name)
{
    const struct region_set *set = ledger->regions;
    struct stat st;
    size_t of_user = 0;
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    for (size_t i = 0; i < set->n_regions; i++)
        of_user += accountable_uid(set->regions[i].uid) == accountable_uid(st.st_uid);
    if (set->n_regions < LEDGER_REGIONS_MAX &&
        (st.st_uid == 0 || of_user < LEDGER_REGIONS_PER_UID_MAX))
        return true;
    ledger_problem_add(ledger, LEDGER_PROBLEM_LIMIT, -EDQUOT, st.st_uid, set->dir, name,
                       "more tt-metal regions than the limit: not read");
    return false;
}

static int region_add(struct ledger *ledger, int dirfd, const char *name, uint64_t asic_id)
{
    struct region_set *set = ledger->regions;
    struct stat st;
    if (!region_fits(ledger, dirfd, name) || fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    struct ledger_region *regions = realloc(set->regions, (set->n_regions + 1) * sizeof(*regions));
    if (!regions)
        return -ENOMEM;
    set->regions = regions;
    struct ledger_region *region = &regions[set->n_regions++];
    *region = (struct ledger_region){.asic_id = asic_id, .uid = st.st_uid, .error = -EAGAIN};
    snprintf(region->path, sizeof(region->path), "%s/%s", set->dir, name);
    return 0;
}

/* New names appear when the directory changes, and its time says so; which costs one call a poll. */
static bool dir_changed(struct region_set *set)
{
    struct stat st;
    if (set->dirfd < 0)
        set->dirfd = open(set->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (set->dirfd < 0 || fstat(set->dirfd, &st) < 0)
        return false;
    uint64_t changed_ns = (uint64_t)st.st_mtim.tv_sec * NS_PER_S + (uint64_t)st.st_mtim.tv_nsec;
    bool same = set->scanned_ns && st.st_mtim.tv_sec == set->changed.tv_sec &&
                st.st_mtim.tv_nsec == set->changed.tv_nsec &&
                set->scanned_ns > changed_ns + SETTLED_MS * NS_PER_MS;
    set->changed = st.st_mtim;
    set->scanned_ns = clock_real_ns();
    return !same;
}

static int dir_scan(struct ledger *ledger)
{
    struct region_set *set = ledger->regions;
    int fd = openat(set->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return 0; /* the next poll tries again */
    }
    int r = 0;
    for (struct dirent *entry; r >= 0 && (entry = readdir(dir));) {
        uint64_t asic_id;
        if (region_name_parse(entry->d_name, &asic_id) && !region_find(set, asic_id))
            r = region_add(ledger, set->dirfd, entry->d_name, asic_id);
    }
    closedir(dir);
    return r;
}

/* ---- whose the slots are ---- */

static struct holder *holder_get(struct region_set *set, const struct region_owner *owner)
{
    for (size_t i = 0; i < set->n_holders; i++) {
        struct holder *h = set->holders[i];
        if (h->owner.pid == owner->pid && h->owner.start_ticks == owner->start_ticks &&
            h->owner.uid == owner->uid)
            return h;
    }
    if (set->n_holders == HOLDERS_MAX)
        return NULL;
    struct holder **holders = realloc(set->holders, (set->n_holders + 1) * sizeof(*holders));
    if (!holders)
        return NULL;
    set->holders = holders;
    struct holder *h = calloc(1, sizeof(*h));
    if (!h)
        return NULL;
    h->owner = *owner;
    return holders[set->n_holders++] = h;
}

static enum region_verdict absent_judge(struct ledger *ledger, const struct region_slot *slot)
{
    struct absent *a = &ledger->regions->absent[(uint32_t)slot->pid % ABSENT_SLOTS];
    uint64_t now = clock_monotonic_ns();
    if (a->pid == slot->pid && a->updated_ns == slot->updated_ns && now < a->until_ns)
        return a->verdict;
    *a = (struct absent){
        .pid = slot->pid,
        .updated_ns = slot->updated_ns,
        .until_ns = now + ABSENT_AGE_MS * NS_PER_MS,
        .verdict = region_absent(slot->pid, ledger->own_pid_ns, ledger->pidns),
    };
    return a->verdict;
}

static enum region_verdict slot_judge(struct ledger *ledger, const struct region_slot *slot,
                                      const struct region_file *file, struct holder **ret_holder)
{
    struct region_owner owner;
    bool absent;
    struct uid_row *user = ledger_uid(ledger, accountable_uid(file->uid));
    if (!user || (file->uid != 0 && user->region_slots >= LEDGER_REGION_SLOTS_PER_UID_MAX))
        return REGION_UNKNOWN;
    user->region_slots++;
    enum region_verdict verdict = region_owner_find(slot, file, &owner, &absent);
    if (absent)
        return absent_judge(ledger, slot);
    if (verdict != REGION_HOLDER)
        return verdict;
    struct holder *holder = holder_get(ledger->regions, &owner);
    if (!holder)
        return REGION_UNKNOWN;
    holder->seen = true;
    verdict = region_owner_proof(&owner, slot, file, &holder->maps, &user->maps_left, &absent);
    *ret_holder = holder;
    return absent ? absent_judge(ledger, slot) : verdict;
}

/* ---- the books ---- */

static int holder_publish(struct ledger *ledger, struct holder *holder,
                          struct ledger_book **ret_book)
{
    const struct region_owner *owner = &holder->owner;
    struct region_book_subject subject = {
        .pid = owner->pid,
        .uid = owner->uid,
        .start_ticks = owner->start_ticks,
        .pid_ns = ledger->own_pid_ns,
        .command_read = ledger->options.command_read,
        .command_context = ledger->options.command_context,
    };
    int r = region_book_new(&subject, &holder->book);
    if (r < 0)
        return r;
    struct ledger_where where = {
        .dirfd = -1,
        .fd = region_book_fd(holder->book),
        .hint_pid = owner->pid,
        .uid = geteuid(),
        .has_payer = true,
        .payer = owner->uid,
        .place = ledger->regions->dir,
    };
    r = ledger_book_add(ledger, &where, ret_book);
    if (r < 0) {
        region_book_free(holder->book);
        holder->book = NULL;
        return r;
    }
    holder->dev = (*ret_book)->identity->st_dev;
    holder->ino = (*ret_book)->identity->st_ino;
    return 0;
}

struct poll {
    struct ledger *ledger;
    void (*added)(struct ledger_book *book, void *context);
    void *context;
};

/* False if there is no room for the figures. */
static bool holder_set(struct poll *poll, struct holder *holder, const struct region_view *view,
                       const struct region_slot *slot)
{
    struct ledger_book *book = NULL;
    if (!holder->book && holder_publish(poll->ledger, holder, &book) < 0)
        return false;
    int r = region_book_set(holder->book, view->asic_id, view->device_id, slot->bytes);
    if (book && poll->added)
        poll->added(book, poll->context); /* may retire it at once */
    return r >= 0;
}

static void bytes_add(uint64_t sum[REGION_SPACES], const uint64_t bytes[REGION_SPACES])
{
    for (size_t i = 0; i < REGION_SPACES; i++)
        sum_add(&sum[i], bytes[i]);
}

static void view_take(struct poll *poll, struct ledger_region *region,
                      const struct region_view *view, const struct region_file *file)
{
    for (size_t i = 0; i < view->n; i++) {
        const struct region_slot *slot = &view->slots[i];
        struct holder *holder = NULL;
        enum region_verdict verdict = slot_judge(poll->ledger, slot, file, &holder);
        if (verdict == REGION_HOLDER && !holder_set(poll, holder, view, slot))
            verdict = REGION_UNKNOWN;
        struct ledger_region_part *part = verdict == REGION_HOLDER  ? &region->live
                                          : verdict == REGION_GHOST ? &region->ghosts
                                                                    : &region->unknown;
        part->processes++;
        bytes_add(part->bytes, slot->bytes);
    }
    region->nonsense = view->nonsense;
    region->version = view->version;
    region->device_id = view->device_id;
    memcpy(region->told, view->totals, sizeof(region->told));
}

static void error_note(struct ledger *ledger, const struct ledger_region *region, int error)
{
    static const struct {
        int error;
        enum ledger_problem_kind kind;
        const char *what;
    } table[] = {
        {-EBADMSG, LEDGER_PROBLEM_BAD, "a tt-metal region that is cut short or another device's"},
        {-EPROTONOSUPPORT, LEDGER_PROBLEM_BAD,
         "a tt-metal region of a version that this program does not know"},
        {-EPERM, LEDGER_PROBLEM_OWNER,
         "a tt-metal region that is a link, has two names, or that others can write: not read"},
    };
    /* Being made; gone; or another user's, which is as it should be. */
    if (error == -EAGAIN || error == -ENOENT || error == -EACCES)
        return;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
        if (table[i].error == error) {
            ledger_problem_add(ledger, table[i].kind, error, region->uid, region->path, "", "%s",
                               table[i].what);
            return;
        }
    ledger_problem_add(ledger, LEDGER_PROBLEM_UNREADABLE, error, region->uid, region->path, "",
                       "cannot be read: %s", strerror(-error));
}

static void region_poll(struct poll *poll, struct ledger_region *region)
{
    struct region_set *set = poll->ledger->regions;
    struct region_file file = {0};
    struct region_view view;
    char name[64];
    snprintf(name, sizeof(name), "tt_device_%" PRIu64 "_memory", region->asic_id);
    MEMOIR_CLEANUP(closep)
    int fd = region_open(set->dirfd, name, &file);
    int r = fd < 0 ? fd : region_read(fd, region->asic_id, &view);
    int before = region->error;
    region->error = r;
    if (fd >= 0)
        region->uid = file.uid;
    region->live = region->ghosts = region->unknown = (struct ledger_region_part){0};
    if (r >= 0)
        view_take(poll, region, &view, &file);
    else if (r != before)
        error_note(poll->ledger, region, r);
}

/* Of one that ends, the mappings go before it does, and its slot is then nobody's: its last figures stay for
 * whoever records its end. The kernel notes the end first, so it is seen here whatever was seen before. */
static bool lives(const struct region_owner *owner)
{
    struct proc_stat stat;
    return proc_stat_read(owner->pid, &stat) == 0 && !stat.dead && !stat.exiting &&
           proc_same_start(stat.start_ticks, owner->start_ticks);
}

/* Forget processes whose books the ledger has given back, and those no region tells of any more. */
static void holders_sweep(struct ledger *ledger)
{
    struct region_set *set = ledger->regions;
    size_t kept = 0;
    for (size_t i = 0; i < set->n_holders; i++) {
        struct holder *h = set->holders[i];
        bool in_use = h->book ? ledger_book_find(ledger, h->dev, h->ino) != NULL : h->seen;
        if (in_use) {
            if (h->book && lives(&h->owner))
                region_book_end(h->book);
            set->holders[kept++] = h;
        } else {
            holder_free(h);
        }
    }
    set->n_holders = kept;
}

static void regions_sweep(struct region_set *set)
{
    size_t kept = 0;
    for (size_t i = 0; i < set->n_regions; i++)
        if (set->regions[i].error != -ENOENT)
            set->regions[kept++] = set->regions[i];
    set->n_regions = kept;
}

int ledger_regions_poll(struct ledger *ledger,
                        void (*added)(struct ledger_book *book, void *context), void *context)
{
    struct region_set *set = ledger->regions;
    if (!set)
        return 0;
    int r = dir_changed(set) ? dir_scan(ledger) : 0;
    for (size_t i = 0; i < set->n_holders; i++) {
        set->holders[i]->seen = false;
        if (set->holders[i]->book)
            region_book_begin(set->holders[i]->book);
    }
    for (size_t i = 0; i < ledger->n_uids; i++) {
        ledger->uids[i].region_slots = 0;
        ledger->uids[i].maps_left = REGION_MAPS_BYTES_MAX;
    }
    struct poll poll = {.ledger = ledger, .added = added, .context = context};
    for (size_t i = 0; i < set->n_regions; i++)
        region_poll(&poll, &set->regions[i]);
    holders_sweep(ledger);
    regions_sweep(set);
    return r;
}

const struct ledger_region *ledger_regions(const struct ledger *ledger, size_t *ret_n)
{
    *ret_n = ledger->regions ? ledger->regions->n_regions : 0;
    return ledger->regions ? ledger->regions->regions : NULL;
}

const char *ledger_regions_dir(const char *dir)
{
    const char *set = secure_getenv("MEMOIR_TT_REGIONS");
    if (set && set[0])
        return set[0] == '/' ? set : NULL;
    return dir ? NULL : "/dev/shm";
}
