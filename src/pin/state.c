/* state.c: see state.h. */
#include "pin/state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "book/place.h"
#include "pin/book.h"
#include "pin/callsite.h"
#include "pin/manager.h"
#include "pin/text.h"

static struct pin_state *shown; /* NULL: none; under the manager's lock */
static bool failed;
static pid_t owner;

static void name_of(char name[32], pid_t pid)
{
    struct pin_text text = {.at = name, .left = 31};
    pin_text_string(&text, PIN_STATE_PREFIX);
    pin_text_number(&text, (uint64_t)pid);
    *text.at = '\0';
}

/* Beside the book. -1: no place. */
static int file_make(pid_t pid)
{
    char path[256], name[32];
    name_of(name, pid);
    for (unsigned which = 0; which < BOOK_PLACE_CANDIDATES; which++) {
        int directory = book_place_open(which, path, sizeof(path));
        if (directory < 0)
            continue;
        (void)unlinkat(directory, name, 0); /* of an earlier process with this number */
        int fd = openat(directory, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        close(directory);
        if (fd >= 0) {
            /* Held by the mapping, which outlives the descriptor: ends with exec or the process. */
            (void)flock(fd, LOCK_EX | LOCK_NB);
            return fd;
        }
    }
    return -1;
}

static void make(void)
{
    struct pin_state *made = MAP_FAILED;
    int saved = errno;
    owner = getpid();
    failed = true;
    int fd = file_make(owner);
    if (fd >= 0 && ftruncate(fd, sizeof(*made)) == 0)
        made = (struct pin_state *)syscall(SYS_mmap, NULL, sizeof(*made), PROT_READ | PROT_WRITE,
                                           MAP_SHARED, fd, 0L);
    if (fd >= 0)
        close(fd);
    errno = saved;
    if (made == MAP_FAILED)
        return;
    /* All pages at once: a tmpfs that is full later would end the program by SIGBUS. */
    if (madvise(made, sizeof(*made), MADV_DONTFORK) < 0 ||
        madvise(made, sizeof(*made), MADV_POPULATE_WRITE) < 0) {
        munmap(made, sizeof(*made));
        errno = saved;
        return;
    }
    failed = false;
    made->version = PIN_STATE_VERSION;
    made->bytes = sizeof(*made);
    made->pid = owner;
    made->started_ns = clock_real_ns();
    store_release(&made->magic, PIN_STATE_MAGIC);
    shown = made;
}

static void totals(struct pin_state *s)
{
    const struct pin_manager *m = &pin_manager;
    const struct pin_counts *c = &m->counts;
    s->mode = pin_settings.mode;
    s->updated_ns = clock_real_ns();
    s->budget_bytes = c->budget_bytes;
    s->headroom_bytes = c->headroom_bytes;
    s->price_ns_mib = m->policy.options.price_ns_mib;
    s->registered_bytes = c->registered_bytes;
    s->registered_peak = c->registered_bytes_peak;
    s->idle_bytes = m->region.idle_bytes;
    s->warm_bytes = m->region.warm_bytes;
    s->own_bytes = pin_book_own_bytes();
    s->live_bytes = m->region.live_bytes;
    s->live_blocks = m->region.live_blocks;
    s->live_peak = c->live_bytes_peak;
    s->served = c->served;
    s->served_bytes = c->served_bytes;
    memcpy(s->copies, c->copies, sizeof(s->copies));
    memcpy(s->copied_bytes, c->copied_bytes, sizeof(s->copied_bytes));
    s->pinned_copies = c->pinned_copies;
    s->pinned_bytes = c->pinned_copied_bytes;
    s->other_copies = c->other_copies;
    s->other_bytes = c->other_copied_bytes;
    s->missed_ns = m->policy.missed_ns;
    s->saved_ns = m->policy.saved_ns;
    s->cost_ns = c->pinning_ns;
    s->registers = c->registers;
    s->unregisters = c->unregisters;
    s->register_ns = c->register_ns;
    s->unregister_ns = c->unregister_ns;
    s->promotions = m->policy.promotions;
    s->evictions = m->policy.evictions;
    s->denied = m->policy.denied;
    s->failures = m->policy.failures;
    s->unregister_failed = c->unregister_failed;
    s->pool_hits = c->pool_hits;
    s->waits = c->waits;
    s->forks = c->forks;
    s->taken_over = c->taken_over;
    s->lock_lost = c->lock_lost;
    s->bad_frees = c->bad_frees;
    s->unwrapped = c->unwrapped;
    s->checked_copies = c->checked_copies;
    s->checked_bytes = c->checked_bytes;
    s->mismatches = c->mismatches;
    s->checksum = c->checksum;
    s->staged_copies = c->staged_copies;
    s->staged_bytes = c->staged_bytes;
    s->staged_saved_ns = m->policy.staged_saved_ns;
    s->stage_busy = c->stage_busy;
    s->stage_failed = c->stage_failed;
    s->touched_bytes = c->touched_bytes;
    s->touched_blocks = c->touched_blocks;
    s->touch_stopped = c->touch_stopped;
    s->observed_ns = m->policy.observed_ns;
    s->calibrated = m->calibrated;
}

static void modules(struct pin_state *s)
{
    uint32_t n = load_acquire(&callsites->n_modules);
    for (; s->n_modules < n && s->n_modules < PIN_STATE_MODULES; s->n_modules++) {
        const struct callsite_module *from = &callsites->module[s->n_modules];
        struct pin_state_module *to = &s->module[s->n_modules];
        memcpy(to->path, from->path, sizeof(to->path));
        memcpy(to->build_id, from->build_id, sizeof(to->build_id));
        to->build_id_len = from->build_id_len;
    }
}

static void site(struct pin_state *s, uint32_t number, const struct pin_site *of)
{
    if (number == 0 || number >= PIN_STATE_SITES)
        return;
    struct pin_state_site *to = &s->site[number];
    const struct callsite *from = &callsites->site[number];
    if (!to->key) {
        modules(s);
        to->n_frames = from->n;
        for (uint32_t i = 0; i < from->n; i++) {
            to->frame[i].offset = from->frame[i].offset;
            to->frame[i].module = from->frame[i].module;
        }
        static_assert(sizeof(to->script) == sizeof(from->script), "one label");
        memcpy(to->script, from->script, sizeof(to->script));
        s->n_sites = number + 1 > s->n_sites ? number + 1 : s->n_sites;
    }
    to->blocks = of->blocks;
    to->bytes = of->bytes;
    to->live_bytes = of->live_bytes;
    to->pinned_bytes = of->pinned_bytes;
    memcpy(to->copies, of->copies, sizeof(to->copies));
    memcpy(to->copied_bytes, of->copied_bytes, sizeof(to->copied_bytes));
    to->worth_ns_mib = pin_policy_predicted_ns(of, 1 << 20);
    to->missed_ns = of->missed_ns;
    to->saved_ns = of->saved_ns;
    to->cost_ns = of->cost_ns;
    to->promotions = of->promotions;
    to->wasted = of->promotions_wasted;
    to->credit_ns = of->credit_ns;
    to->key = from->key;
}

static struct pin_state_block *place(const struct extent *e)
{
    size_t number = (size_t)(e - pin_manager.region.extents);
    return number < PIN_STATE_BLOCKS ? &shown->block[number] : NULL;
}

void pin_state_block(const struct extent *e)
{
    const struct pin_account *a = &e->account;
    bool copied = a->copies[0] || a->copies[1];
    if (!shown && (failed || !copied))
        return;
    if (!shown) {
        make();
        if (!shown)
            return;
        for (uint32_t i = 1; i < pin_manager.region.n_extents; i++)
            if (pin_manager.region.extents[i].size)
                pin_state_block(&pin_manager.region.extents[i]);
    }
    struct pin_state_block *to = place(e);
    if (!to) {
        shown->not_shown++;
        return;
    }
    to->bytes = e->size;
    to->registered_bytes = e->registered_bytes;
    memcpy(to->copies, a->copies, sizeof(to->copies));
    to->worth_ns = a->worth_ns;
    to->missed_ns = a->missed_ns;
    to->saved_ns = a->saved_ns;
    to->cost_ns = a->cost_ns;
    to->site = e->site < PIN_STATE_SITES ? e->site : 0;
    to->reason = a->reason;
    to->pinned = a->pinned;
    store_release(&to->address, e->start);
    site(shown, e->site, a->site);
    totals(shown);
}

void pin_state_gone(const struct extent *e)
{
    struct pin_state_block *to = shown ? place(e) : NULL;
    if (!to)
        return;
    store_release(&to->address, 0);
    site(shown, e->site, e->account.site);
    totals(shown);
}

void pin_state_flush(bool end)
{
    char path[256], name[32];
    if (!shown || getpid() != owner)
        return;
    totals(shown);
    if (!end)
        return;
    name_of(name, owner);
    for (unsigned which = 0; which < BOOK_PLACE_CANDIDATES; which++) {
        int directory = book_place_open(which, path, sizeof(path));
        if (directory >= 0) {
            (void)unlinkat(directory, name, 0);
            close(directory);
        }
    }
}

void pin_state_forget(void)
{
    shown = NULL;
    failed = false;
}
