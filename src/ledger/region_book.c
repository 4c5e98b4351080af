/* See region_book.h. */
#include "ledger/region_book.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "base/atomic.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "book/identity.h"
#include "book/layout.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"

enum {
    RECORDS_PER_DEVICE = 1 + REGION_SPACES,
    RECORDS_MAX = 1 + REGION_BOOK_DEVICES_MAX * RECORDS_PER_DEVICE,
};
#define REGISTRY_OFFSET ((uint64_t)65536) /* a page boundary on every machine */

struct device_at {
    uint64_t asic_id;
    uint32_t record; /* of the device; its accounts follow */
    bool seen;
};

struct region_book {
    int fd;
    uint8_t *base;
    size_t bytes;
    size_t n_devices;
    struct device_at devices[REGION_BOOK_DEVICES_MAX];
};

static struct book_header *header_of(struct region_book *book)
{
    return (struct book_header *)book->base;
}

static union book_record *record_at(struct region_book *book, uint32_t number)
{
    return (union book_record *)(book->base + REGISTRY_OFFSET) + number;
}

/* ---- making one ---- */

static void identity_write(struct book_header *h, const struct region_book_subject *subject)
{
    book_identity_self(h); /* boot and time are ours; the rest is the subject's */
    h->writer_pid = getpid();
    h->pid = subject->pid;
    h->pid_ns = subject->pid_ns;
    h->start_ticks = subject->start_ticks;
    h->exec_id = 0; /* not known: fits whatever image the process's own book tells of */
    h->exec_random = 0;
    h->parent_pid = 0;
    h->uid = subject->uid;
    h->time_ns = 0;
    memset(h->comm, 0, sizeof(h->comm));
    memset(h->exe, 0, sizeof(h->exe));
    memset(h->command, 0, sizeof(h->command));
    char comm[PROC_COMM_MAX];
    if (proc_comm_read(subject->pid, comm) == 0)
        snprintf(h->comm, sizeof(h->comm), "%.15s", comm);
    if (subject->command_read)
        subject->command_read(subject->command_context, subject->pid, h->command,
                              sizeof(h->command));
    else
        proc_command_read(subject->pid, h->command, sizeof(h->command));
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)subject->pid);
    if (readlink(path, h->exe, sizeof(h->exe) - 1) < 0)
        h->exe[0] = '\0';
}

static void header_write(struct region_book *book, const struct region_book_subject *subject)
{
    struct book_header *h = header_of(book);
    h->endian_mark = BOOK_ENDIAN_MARK;
    h->version = BOOK_VERSION;
    h->header_bytes = BOOK_HEADER_BYTES;
    h->compat = BOOK_COMPAT_ON_BEHALF;
    h->file_size = book->bytes;
    h->page_size = (uint32_t)sysconf(_SC_PAGESIZE);
    h->source = BOOK_SOURCE_REGION;
    h->state = BOOK_STATE_OPEN;
    identity_write(h, subject);
    h->sections[0] = (struct book_section){
        .kind = BOOK_SECTION_REGISTRY,
        .entry_size = BOOK_RECORD_BYTES,
        .offset = REGISTRY_OFFSET,
        .size = book->bytes - REGISTRY_OFFSET,
        .used = 1, /* record 0 stays empty */
    };
    memcpy(h->magic, BOOK_MAGIC, sizeof(h->magic));
}

/* Room for that many records. Pages are asked for before they are stored to: a full file system is then
 * an error and no signal. */
static int registry_open(struct region_book *book, uint32_t records)
{
    struct book_section *registry = &header_of(book)->sections[0];
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t open = ((uint64_t)records * BOOK_RECORD_BYTES + page - 1) / page * page;
    if (open <= registry->open)
        return 0;
    if (records > RECORDS_MAX || open > registry->size)
        return -ENOSPC;
    if (fallocate(book->fd, 0, (off_t)(REGISTRY_OFFSET + registry->open),
                  (off_t)(open - registry->open)) < 0)
        return -errno;
    store_release(&registry->open, open);
    return 0;
}

int region_book_new(const struct region_book_subject *subject, struct region_book **ret_book)
{
    struct region_book *book = calloc(1, sizeof(*book));
    if (!book)
        return -ENOMEM;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    book->bytes =
        (REGISTRY_OFFSET + (uint64_t)RECORDS_MAX * BOOK_RECORD_BYTES + page - 1) / page * page;
    book->base = MAP_FAILED;
    /* Not called .book, or whoever looks for books of containers would find it in our mappings. */
    book->fd = memfd_create("memoir-tt-region", MFD_CLOEXEC);
    int r = book->fd < 0 || ftruncate(book->fd, (off_t)book->bytes) < 0 ||
                    fallocate(book->fd, 0, 0, BOOK_HEADER_BYTES) < 0
                ? -errno
                : 0;
    if (r == 0) {
        book->base = mmap(NULL, book->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, book->fd, 0);
        r = book->base == MAP_FAILED ? -errno : 0;
    }
    if (r == 0) {
        header_write(book, subject);
        r = registry_open(book, 1);
    }
    if (r < 0) {
        region_book_free(book);
        return r;
    }
    *ret_book = book;
    return 0;
}

void region_book_free(struct region_book *book)
{
    if (!book)
        return;
    if (book->base != MAP_FAILED)
        munmap(book->base, book->bytes);
    if (book->fd >= 0)
        close(book->fd);
    free(book);
}

int region_book_fd(const struct region_book *book)
{
    return book->fd;
}

/* ---- figures ---- */

/* Live bytes move by what changed since the last look: what came and went in between nobody saw. */
static void account_set(struct book_account *account, uint64_t live)
{
    struct book_counters *c = &account->common;
    uint64_t before = c->alloc_bytes - c->freed_bytes;
    if (live == before)
        return;
    if (live > before) {
        store_release(&c->alloc_bytes, c->alloc_bytes + (live - before));
        if (before == 0)
            store_release(&c->alloc_blocks, c->alloc_blocks + 1);
    } else {
        store_release(&c->freed_bytes, c->freed_bytes + (before - live));
        if (live == 0)
            store_release(&c->freed_blocks, c->freed_blocks + 1);
    }
    if (live > account->peak_bytes)
        store_relaxed(&account->peak_bytes, live);
}

static int device_add(struct region_book *book, uint64_t asic_id, uint32_t device_id,
                      struct device_at **ret_device)
{
    struct book_section *registry = &header_of(book)->sections[0];
    uint32_t first = (uint32_t)registry->used;
    if (book->n_devices == REGION_BOOK_DEVICES_MAX)
        return -ENOSPC;
    int r = registry_open(book, first + RECORDS_PER_DEVICE);
    if (r < 0)
        return r;
    struct book_device *d = &record_at(book, first)->device;
    d->kind = MEMOIR_DEVICE_NPU;
    d->ordinal = (int32_t)device_id;
    snprintf(d->name, sizeof(d->name), "%s", REGION_DEVICE_NAME);
    snprintf(d->uid, sizeof(d->uid), "tt-%" PRIu64, asic_id);
    store_release(&d->type, (uint32_t)BOOK_RECORD_DEVICE);
    for (uint32_t i = 0; i < REGION_SPACES; i++) {
        struct book_account *a = &record_at(book, first + 1 + i)->account;
        a->space = region_spaces[i];
        a->device = first;
        a->flags = BOOK_ACCOUNT_PARTIAL;
        snprintf(a->name, sizeof(a->name), "%s", ledger_space_name(region_spaces[i]));
        store_release(&a->type, (uint32_t)BOOK_RECORD_ACCOUNT);
    }
    store_release(&registry->used, (uint64_t)first + RECORDS_PER_DEVICE);
    *ret_device = &book->devices[book->n_devices++];
    **ret_device = (struct device_at){.asic_id = asic_id, .record = first};
    return 0;
}

int region_book_set(struct region_book *book, uint64_t asic_id, uint32_t device_id,
                    const uint64_t bytes[REGION_SPACES])
{
    struct device_at *device = NULL;
    for (size_t i = 0; i < book->n_devices && !device; i++)
        if (book->devices[i].asic_id == asic_id)
            device = &book->devices[i];
    int r = device ? 0 : device_add(book, asic_id, device_id, &device);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < REGION_SPACES; i++)
        account_set(&record_at(book, device->record + 1 + i)->account, bytes[i]);
    device->seen = true;
    return 0;
}

void region_book_begin(struct region_book *book)
{
    for (size_t i = 0; i < book->n_devices; i++)
        book->devices[i].seen = false;
}

void region_book_end(struct region_book *book)
{
    for (size_t i = 0; i < book->n_devices; i++)
        for (uint32_t k = 0; k < REGION_SPACES && !book->devices[i].seen; k++)
            account_set(&record_at(book, book->devices[i].record + 1 + k)->account, 0);
}
