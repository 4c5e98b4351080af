/* client.c: the client and its threads: made at the first report, found fast afterwards. */
#include "client/client.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "book/lock.h"
#include "book/making.h"
#include "book/thread_key.h"
#include "site/module.h"

enum {
    MAKING_SECONDS_MAX = 2,
    REUSE_TRIES = 8, /* structs looked at for one whose thread is gone */
    STACK_MAX = 256, /* frames looked at to tell whether a report is under way */
};

static struct client_root no_root; /* until there is a page of its own */
struct client_root *client_root = &no_root;
__thread struct client_thread *client_self;
uint64_t client_dropped;
bool client_sealed;

/* Set while this thread makes the client or enters itself, which must not be torn. Where signals
 * cannot be made to wait (sealed) a handler finds it set and its report is dropped. */
#ifndef CLIENT_SOURCE /* libmemoir-cuda has a book of its own */
#define CLIENT_SOURCE BOOK_SOURCE_CLIENT
#endif

static __thread bool registering;

static bool exiting; /* destructors run: too late for a book */
static struct thread_key thread_key;

/* ---- the client ---- */

static struct client_root *root_get(void)
{
    struct client_root *root = load_acquire(&client_root);
    if (root != &no_root)
        return root;
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    root = book_private_new(bytes);
    if (!root)
        return NULL;
    if (madvise(root, bytes, MADV_WIPEONFORK) < 0) {
        book_private_free(root, bytes);
        return NULL;
    }
    struct client_root *first = &no_root;
    if (cas_acq_rel(&client_root, &first, root))
        return root;
    book_private_free(root, bytes);
    return first;
}

static uint32_t stacks_asked(void)
{
    const char *value = secure_getenv("MEMOIR_STACKS");
    if (value && strcmp(value, "all") == 0)
        return CLIENT_STACKS_ALL;
    if (value && strcmp(value, "off") == 0)
        return CLIENT_STACKS_OFF;
    return CLIENT_STACKS_CALLER;
}

static bool switched_off(void)
{
    const char *value = secure_getenv("MEMOIR_OFF");
    return value && value[0] && strcmp(value, "0") != 0;
}

static struct client *client_new(void)
{
    struct client *c = book_private_new(sizeof(*c));
    if (!c)
        return NULL;
    c->stacks = stacks_asked();
    const char *reserve = secure_getenv("MEMOIR_RESERVE");
    struct book_writer_options options = {
        .source = CLIENT_SOURCE,
        .large = reserve && strcmp(reserve, "large") == 0,
    };
    int r = switched_off() ? -ECANCELED : book_writer_init(&c->writer, &options);
    if (r < 0) {
        c->phase = CLIENT_OFF;
        c->error = -r;
    } else {
        client_inherit(c);
    }
    return c;
}

/* The maker may be kept from its processor for long; but not for ever. */
static bool making_take(struct client_root *root)
{
    time_t start = 0;
    for (;;) {
        uint32_t free_word = 0;
        if (cas_acquire(&root->making, &free_word, 1))
            return true;
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
        start = start ? start : now.tv_sec;
        if (now.tv_sec > start + MAKING_SECONDS_MAX || load_acquire(&root->client))
            return false;
        sched_yield();
    }
}

/* One thread makes the client, the others wait: only one may take over what a parent left. The lock
 * is in the page that fork wipes. */
static struct client *client_make(struct client_root *root)
{
    struct book_calm calm;
    book_calm_begin(&calm);
    registering = true;
    bool mine = making_take(root);
    struct client *c = load_acquire(&root->client);
    if (mine && !c && (c = client_new()) != NULL) {
        client_watch_forks(c);
        store_release(&root->client, c);
    }
    if (mine)
        store_release(&root->making, 0);
    registering = false;
    book_calm_end(&calm);
    return c;
}

struct client *client_get(void)
{
    struct client_root *root = client_sealed ? client_root_now() : root_get();
    if (!root)
        return NULL;
    struct client *c = load_acquire(&root->client);
    if (c || registering || client_sealed)
        return c;
    return client_make(root);
}

/* ---- threads ---- */

static void give_back_locks(struct client_thread *t)
{
    struct book_thread *book = &t->book;
    if (book->growing) {
        /* Entries were being moved: some are not where they are looked for. */
        t->client->writer.table.broken = true;
        t->client->writer.table.plain = false;
        store_release(&t->client->writer.header->blocks_seq,
                      t->client->writer.header->blocks_seq + 1);
        book->growing = false;
    }
    book_locks_give_back(&t->client->writer, book);
    book_lose(&t->client->writer, BOOK_LOSS_TORN);
    t->inside = 0;
}

/* Runs in a thread that ends. After fork the value may be of the parent's memory: believe only
 * what this thread itself points to. */
static void thread_end(void *value)
{
    struct client_thread *t = client_self;
    client_self = NULL;
    struct client *c = load_acquire(&client_root_now()->client);
    if (!t || t != value || !c || t->client != c)
        return;
    if (t->inside)
        give_back_locks(t); /* cancelled in the middle */
    t->n_tags = 0;
    t->tag = 0;
    t->n_pending = 0;
    uint32_t free_word = 0;
    if (cas_acquire(&c->threads_lock, &free_word, 1) ||
        book_lock_wait(&c->writer, &c->threads_lock, 1)) {
        t->next_free = c->free_threads;
        c->free_threads = t;
        store_release(&c->threads_lock, 0);
    }
}

/* A struct whose thread is gone; a few are asked for each time, in turn. Hold threads_lock. */
static struct client_thread *thread_reuse(struct client *c)
{
    struct client_thread *t = c->reuse_from ? c->reuse_from : c->threads;
    for (unsigned i = 0; t && i < REUSE_TRIES; i++, t = t->next) {
        if (t->tid == 0 || syscall(SYS_tgkill, getpid(), t->tid, 0) == 0 || errno != ESRCH)
            continue;
        c->reuse_from = t->next;
        if (t->inside)
            give_back_locks(t);
        t->n_tags = t->tag = t->n_pending = 0;
        return t;
    }
    c->reuse_from = t;
    return NULL;
}

static struct client_thread *thread_new(struct client *c, bool has_key)
{
    uint32_t free_word = 0;
    if (!cas_acquire(&c->threads_lock, &free_word, 1) &&
        !book_lock_wait(&c->writer, &c->threads_lock, 1))
        return NULL;
    struct client_thread *t = c->free_threads;
    if (t) {
        c->free_threads = t->next_free;
    } else if (!has_key && !c->writer.sealed && (t = thread_reuse(c)) != NULL) {
        t->control = load_relaxed(&c->writer.control);
    } else if (!c->writer.sealed && (t = book_private_new(sizeof(*t))) != NULL) {
        t->client = c;
        t->control = load_relaxed(&c->writer.control);
        t->next = c->threads;
        c->threads = t;
        book_thread_init(&c->writer, &t->book);
    }
    store_release(&c->threads_lock, 0);
    return t;
}

struct client_thread *client_thread_get(struct client *c)
{
    struct client_thread *t = client_self;
    if (t && t->client == c)
        return t;
    if (registering)
        return NULL;
    struct book_calm calm;
    bool calmly = !c->writer.sealed;
    if (calmly)
        book_calm_begin(&calm);
    registering = true;
    fence_signal();
    bool has_key = thread_key_get(&thread_key, thread_end);
    t = thread_new(c, has_key);
    if (t)
        t->tid = has_key || c->writer.sealed ? 0 : (int32_t)syscall(SYS_gettid);
    client_self = t;
    if (t && has_key)
        pthread_setspecific(thread_key.key, t);
    fence_signal();
    registering = false;
    if (calmly)
        book_calm_end(&calm);
    return t;
}

/* ---- one report at a time in one thread ---- */

/* From where to where this library is mapped. */
static struct module_object our_code(void)
{
    struct module_object object = {0};
    module_object_find((uintptr_t)our_code, &object);
    return object;
}

int client_under_way(struct client *c)
{
    uintptr_t pcs[STACK_MAX];
    struct unwind_trace trace = {0};
    struct unwind_state state = UNWIND_STATE_CALLER();
    size_t n = unwind_stack_from(&c->unwind, &state, pcs, STACK_MAX, &trace);
    struct module_object our = our_code();
    bool outside = false;
    for (size_t i = 0; i < n; i++) {
        bool ours = pcs[i] > our.map_start && pcs[i] <= our.map_end;
        if (ours && outside)
            return 1;
        outside = outside || !ours;
    }
    return trace.flags & UNWIND_COMPLETE ? 0 : -EAGAIN;
}

/* If `inside` is set, either we are in a signal handler that interrupted the report, or the report
 * was left by longjmp() and will never end. Only the stack can tell: addresses say nothing where
 * handlers have stacks of their own. */
bool client_begin(struct client_thread *t)
{
    if (t->inside) {
        if (t->client->writer.sealed || client_under_way(t->client) != 0)
            return false;
        give_back_locks(t);
    }
    t->inside = 1;
    fence_signal();
    return true;
}

/* The control page has moved into the file. A thread that enters itself right now either is in the
 * list already or finds the new one: hence the lock. */
static void point_threads(struct client *c)
{
    uint32_t free_word = 0;
    bool locked = cas_acquire(&c->threads_lock, &free_word, 1) ||
                  book_lock_wait(&c->writer, &c->threads_lock, 1);
    for (struct client_thread *t = c->threads; t; t = t->next)
        t->control = c->writer.control;
    if (locked)
        store_release(&c->threads_lock, 0);
}

/* Cancellation may strike when calm ends: not before all is in its place. */
int client_publish(struct client *c)
{
    if (client_sealed) {
        c->error = EPERM;
        store_release(&c->phase, CLIENT_OFF);
        return -EPERM;
    }
    struct book_calm calm;
    book_calm_begin(&calm);
    book_making_begin();
    int r = exiting ? -ESHUTDOWN : book_writer_publish(&c->writer);
    book_making_end();
    if (r < 0) {
        c->error = -r;
        store_release(&c->phase, CLIENT_OFF);
    } else {
        point_threads(c);
        store_release(&c->phase, CLIENT_OPEN);
        if (c->stacks == CLIENT_STACKS_CALLER)
            store_release(&client_root_now()->fast, c);
    }
    book_calm_end(&calm);
    return r;
}

/* At exit a watched book stays for the daemon, others go. Threads that report later still write
 * into the mapping, which nobody reads any more; a book begun now would stay for ever. */
__attribute__((destructor)) static void client_exit(void)
{
    exiting = true;
    struct client *c = load_acquire(&client_root_now()->client);
    if (!c || load_acquire(&c->phase) != CLIENT_OPEN)
        return;
    int saved = errno;
    struct book_control *control = c->writer.control;
    book_writer_close(&c->writer,
                      control && (load_relaxed(&control->flags) & BOOK_CONTROL_WATCHED));
    errno = saved;
}
