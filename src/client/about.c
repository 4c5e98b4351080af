/* about.c: the calls of memoir.h that are not reports: devices, totals, status, control. */
#include <errno.h>
#include <string.h>

#include "book/lock.h"
#include "book/text.h"
#include "client/client.h"

/* A struct of the caller's size, as ours: what he does not know is zero. False for a bad size. */
bool client_options_take(void *to, size_t size, const void *from, size_t least)
{
    size_t given = 0;
    if (!from)
        return false;
    memcpy(&given, from, sizeof(given));
    if (given < least || given > CLIENT_STRUCT_MAX)
        return false;
    memset(to, 0, size);
    memcpy(to, from, given < size ? given : size);
    return true;
}

/* Give a struct of our size to a caller who may know a smaller one; struct_size stays his. */
static int give_struct(void *to, const void *from, size_t size)
{
    size_t wanted = 0;
    memcpy(&wanted, to, sizeof(wanted));
    if (wanted < sizeof(size_t) || wanted > CLIENT_STRUCT_MAX)
        return -EINVAL;
    size_t n = wanted < size ? wanted : size;
    memcpy((char *)to + sizeof(size_t), (const char *)from + sizeof(size_t), n - sizeof(size_t));
    return 0;
}

const char *client_space_name(int space)
{
    static const char *const names[CLIENT_SPACES] = {
        [MEMOIR_SPACE_HEAP] = "heap",     [MEMOIR_SPACE_MAPPED] = "mapped",
        [MEMOIR_SPACE_PINNED] = "pinned", [MEMOIR_SPACE_MANAGED] = "managed",
        [MEMOIR_SPACE_SHARED] = "shared", [MEMOIR_SPACE_CHAIN] = "chain",
        [MEMOIR_SPACE_DRAM] = "dram",     [MEMOIR_SPACE_L1] = "l1",
        [MEMOIR_SPACE_TRACE] = "trace",   [MEMOIR_SPACE_L1_SMALL] = "l1_small",
        [MEMOIR_SPACE_KERNEL] = "kernel", [MEMOIR_SPACE_CB] = "cb",
        [MEMOIR_SPACE_SYSTEM] = "system",
    };
    const char *name = space > 0 && space < CLIENT_SPACES ? names[space] : NULL;
    return name ? name : "other";
}

/* Enter, and while the book is private keep everybody else out. */
static struct client_thread *enter_alone(struct client **ret_client)
{
    struct client_thread *t = client_enter(ret_client, NULL);
    if (!t || load_acquire(&(*ret_client)->phase) == CLIENT_OPEN)
        return t;
    struct client *c = *ret_client;
    if (book_lock_take(&c->writer, &t->book, &c->early_lock)) {
        if (load_acquire(&c->phase) != CLIENT_OFF)
            return t;
        book_lock_drop(&t->book, &c->early_lock);
    }
    client_end(t);
    return NULL;
}

static void leave_alone(struct client *c, struct client_thread *t)
{
    book_lock_drop(&t->book, &c->early_lock); /* if it was taken */
    client_end(t);
}

/* ---- devices ---- */

static int declare(struct client *c, struct client_thread *t,
                   const struct memoir_device_options *options)
{
    struct book_device device = {
        .kind = (uint32_t)options->kind,
        .ordinal = options->ordinal,
    };
    text_copy(device.name, sizeof(device.name), options->name);
    text_copy(device.uid, sizeof(device.uid), options->uid);
    text_copy(device.bus, sizeof(device.bus), options->bus);
    int number = book_device_add(&c->writer, &t->book, &device);
    if (number < 0) {
        book_lose(&c->writer, BOOK_LOSS_ACCOUNTS_FULL);
        return number;
    }
    for (size_t i = 0; i < sizeof(options->capacity) / sizeof(options->capacity[0]); i++) {
        const struct memoir_capacity *capacity = &options->capacity[i];
        if (capacity->space <= 0)
            break;
        uint32_t account = client_account(c, t, number, capacity->space);
        if (account)
            book_account_capacity(&c->writer, account, capacity->bytes);
    }
    return number;
}

int memoir_device(const struct memoir_device_options *options)
{
    struct memoir_device_options o;
    struct client *c;
    int saved = errno, number = -EINVAL;
    if (client_options_take(&o, sizeof(o), options, offsetof(struct memoir_device_options, uid))) {
        struct client_thread *t = enter_alone(&c);
        number = c && c->error ? -c->error : -EBUSY;
        if (t) {
            number = declare(c, t, &o);
            leave_alone(c, t);
        }
    }
    errno = saved;
    return number;
}

/* ---- totals ---- */

static void totals_read(struct client *c, uint32_t account, struct memoir_totals *totals)
{
    struct book_counters sum;
    book_account_sum(&c->writer, account, &sum);
    totals->alloc_bytes = sum.alloc_bytes;
    totals->alloc_blocks = sum.alloc_blocks;
    totals->freed_bytes = sum.freed_bytes;
    totals->freed_blocks = sum.freed_blocks;
    totals->live_bytes = sum.alloc_bytes > sum.freed_bytes ? sum.alloc_bytes - sum.freed_bytes : 0;
    totals->live_blocks =
        sum.alloc_blocks > sum.freed_blocks ? sum.alloc_blocks - sum.freed_blocks : 0;
    uint64_t peak = load_relaxed(&book_account_at(&c->writer, account)->peak_bytes);
    totals->peak_bytes = peak > totals->live_bytes ? peak : totals->live_bytes;
}

int memoir_totals(int device, int space, struct memoir_totals *ret_totals)
{
    if (!ret_totals || device < 0 || device >= BOOK_RECORDS_MAX || space <= 0 ||
        space >= CLIENT_SPACES)
        return -EINVAL;
    struct client *c = load_acquire(&client_root_now()->client);
    if (!c)
        return -ENOENT;
    uint32_t account = load_relaxed(&c->account_of[device][space]);
    if (!account)
        return -ENOENT;
    struct memoir_totals totals;
    if (load_acquire(&c->phase) == CLIENT_OPEN) {
        totals_read(c, account, &totals);
    } else {
        int saved = errno;
        struct client_thread *t = enter_alone(&c);
        if (t) {
            totals_read(c, account, &totals);
            leave_alone(c, t);
        }
        errno = saved;
        if (!t)
            return -ENOENT;
    }
    return give_struct(ret_totals, &totals, sizeof(totals));
}

/* ---- status ---- */

static const struct reason {
    int error;
    const char *text;
} reasons[] = {
    {ECANCELED, "switched off by MEMOIR_OFF"},
    {EFBIG, "the limit on file size or address space (ulimit -f, -v) leaves no room for a book"},
    {EPERM, "the directory for books belongs to another user or is open to others"},
    {EMEDIUMTYPE, "the directory for books is not on a tmpfs"},
    {ENOENT, "there is no directory for books (MEMOIR_DIR if it is set; else /run/memoir, "
             "XDG_RUNTIME_DIR, /dev/shm)"},
    {ENOSPC, "the file system for books is full"},
    {EMFILE, "no file descriptor is left (ulimit -n)"},
    {EROFS, "the directory for books is read-only"},
    {EACCES, "the directory for books cannot be entered"},
    {ENOSYS, "the kernel is older than 5.14"},
    {ENOMEM, "no memory for a book"},
    {ESHUTDOWN, "the process is ending"},
};

static const char *reason_text(int error)
{
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (reasons[i].error == error)
            return reasons[i].text;
    return "the book could not be made";
}

/* `alone`: nobody can publish the private image meanwhile, and so take it away. */
static void status_read(struct client *c, bool alone, struct memoir_status *status)
{
    static const int states[] = {
        [CLIENT_EARLY] = MEMOIR_STATE_EARLY,
        [CLIENT_OPEN] = MEMOIR_STATE_OPEN,
        [CLIENT_OFF] = MEMOIR_STATE_OFF,
    };
    uint32_t phase = load_acquire(&c->phase);
    status->state = states[phase];
    status->lost = load_relaxed(&c->dropped) + load_relaxed(&client_dropped);
    if (phase == CLIENT_OFF) {
        status->error = c->error;
        text_copy(status->reason, sizeof(status->reason), reason_text(c->error));
    }
    if (!c->writer.header || (phase == CLIENT_EARLY && !alone))
        return;
    struct book_header *header = c->writer.header;
    for (size_t i = 0; i < BOOK_LOSSES_MAX; i++)
        status->lost += load_relaxed(&header->losses[i]);
    if (phase != CLIENT_OPEN)
        return;
    status->peak_error = load_relaxed(&header->peak_error);
    struct text path = text_begin(status->path, sizeof(status->path));
    text_add(&path, c->writer.directory);
    text_add(&path, "/");
    text_add(&path, c->writer.name);
}

int memoir_status(struct memoir_status *ret_status)
{
    if (!ret_status)
        return -EINVAL;
    struct memoir_status status = {.state = MEMOIR_STATE_IDLE};
    struct client *c = load_acquire(&client_root_now()->client);
    int saved = errno;
    struct client_thread *t = c && load_acquire(&c->phase) == CLIENT_EARLY ? enter_alone(&c) : NULL;
    if (c)
        status_read(c, t != NULL, &status);
    if (t)
        leave_alone(c, t);
    errno = saved;
    return give_struct(ret_status, &status, sizeof(status));
}

/* ---- control ---- */

int memoir_open(uint64_t blocks)
{
    int saved = errno;
    struct client *c = NULL;
    struct client_thread *t = enter_alone(&c);
    int r = c && c->error ? -c->error : -ENOMEM;
    if (t) {
        r = load_acquire(&c->phase) == CLIENT_OPEN ? 0 : client_publish(c);
        if (r == 0)
            book_writer_prepare(&c->writer, &t->book, (uintptr_t)__builtin_return_address(0));
        if (r == 0 && blocks > 0)
            r = table_reserve(&c->writer, &t->book, blocks);
        leave_alone(c, t);
    }
    errno = saved;
    return r;
}

void memoir_seal(void)
{
    int saved = errno;
    struct client *c;
    struct client_thread *t = enter_alone(&c);
    if (t) {
        if (load_acquire(&c->phase) == CLIENT_OPEN)
            book_module_prepare(&c->writer, &t->book, (uintptr_t)__builtin_return_address(0));
        client_sealed = true;
        c->writer.sealed = true;
        leave_alone(c, t);
    }
    errno = saved;
}
