/* The book of a traced process. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "book/finder.h"
#include "book/place.h"
#include "book/reader.h"
#include "book/report.h"
#include "ledger/proc.h"
#include "ledger/subject.h"
#include "observe/observed_internal.h"

/* ---- life ---- */

struct predecessor {
    const struct book_header *header;
    size_t n;
};

/* A book that an observer before us wrote about the same process: ours takes its place. */
static int predecessor_remove(int dirfd, const char *name, void *context)
{
    struct predecessor *p = context;
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = NULL;
    int pid;
    if (sscanf(name, "%d-", &pid) != 1 || pid != p->header->pid ||
        book_reader_open(dirfd, name, &reader) < 0)
        return 0;
    const struct book_identity *id = book_reader_identity(reader);
    if (id->source == BOOK_SOURCE_OBSERVER && id->compat & BOOK_COMPAT_ON_BEHALF &&
        id->st_uid == geteuid() && id->pid == p->header->pid && id->pid_ns == p->header->pid_ns &&
        proc_same_start(id->start_ticks, p->header->start_ticks)) {
        unlinkat(dirfd, name, 0);
        p->n++;
    }
    return 0;
}

static void predecessors_remove(const struct book_header *header, const char *path, uint32_t uid)
{
    struct book_place place = {.uid = uid};
    struct predecessor p = {header, 0};
    snprintf(place.path, sizeof(place.path), "%s", path);
    book_place_scan(&place, SIZE_MAX, predecessor_remove, &p, NULL);
    if (p.n)
        log_debug("took the place of %zu older books of process %d", p.n, header->pid);
}

static int writer_make(struct observed *o)
{
    o->w = book_private_new(sizeof(*o->w));
    o->thread = book_private_new(sizeof(*o->thread));
    if (!o->w || !o->thread)
        return -ENOMEM;
    int r = book_writer_init(
        o->w, &(struct book_writer_options){.source = BOOK_SOURCE_OBSERVER, .on_behalf = true});
    if (r < 0)
        return r;
    struct book_header *header = o->w->header;
    r = subject_read(o->pid, 0, header);
    if (r < 0)
        return r;
    header->command[0] = '\0'; /* lies in memory of the process, which may never answer */
    header->parent_pid = 0;
    header->writer_pid = getpid();
    header->created_realtime_ns = clock_real_ns();
    header->created_monotonic_ns = proc_monotonic_ns();
    o->w->created_ns = clock_monotonic_coarse_ns();
    o->uid = header->uid;
    book_thread_init(o->w, o->thread);
    return 0;
}

int observed_book_open(struct observed *o)
{
    char path[256];
    int r = writer_make(o);
    if (r >= 0) {
        o->place = book_place_open_for(o->options.dir, o->uid, path, sizeof(path));
        r = o->place < 0 ? o->place : 0;
    }
    if (r >= 0) {
        predecessors_remove(o->w->header, path, o->uid);
        r = book_writer_publish_at(o->w, o->place);
    }
    if (r < 0)
        observed_book_close(o, OBSERVED_BOOK_STAYS);
    return r;
}

void observed_book_close(struct observed *o, enum observed_book_end end)
{
    if (o->w && o->w->header) {
        if (end == OBSERVED_BOOK_GOES && o->w->published)
            unlinkat(o->place, o->w->name, 0);
        if (end == OBSERVED_BOOK_CLOSED && o->w->published)
            book_writer_close(o->w, true);
        else
            book_writer_forget(o->w);
    }
    if (o->w)
        book_private_free(o->w, sizeof(*o->w));
    if (o->thread)
        book_private_free(o->thread, sizeof(*o->thread));
    o->w = NULL;
    o->thread = NULL;
    if (o->place >= 0)
        close(o->place);
    o->place = -1;
}

/* ---- devices and accounts ---- */

void observed_device_uuid(struct observed *o, int32_t ordinal, const uint8_t u[static 16])
{
    size_t i = 0;
    while (i < o->n_devices && o->devices[i].ordinal != ordinal)
        i++;
    if (i == OBSERVED_DEVICES_MAX)
        return;
    if (i == o->n_devices)
        o->n_devices++;
    o->devices[i].ordinal = ordinal;
    snprintf(o->devices[i].uid, sizeof(o->devices[i].uid),
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
             u[15]);
}

void observed_device_name(struct observed *o, int32_t ordinal, const char *uuid)
{
    for (size_t i = 0; i < o->n_devices; i++)
        if (o->devices[i].ordinal == ordinal)
            return;
    if (!*uuid || o->n_devices == OBSERVED_DEVICES_MAX)
        return;
    o->devices[o->n_devices].ordinal = ordinal;
    snprintf(o->devices[o->n_devices].uid, sizeof(o->devices[0].uid), "%s", uuid);
    o->n_devices++;
}

static int device_enter(struct observed *o, int32_t ordinal)
{
    struct book_device device = {.kind = MEMOIR_DEVICE_GPU, .ordinal = ordinal};
    for (size_t i = 0; i < o->n_devices; i++)
        if (o->devices[i].ordinal == ordinal)
            memcpy(device.uid, o->devices[i].uid, sizeof(device.uid));
    return book_device_add(o->w, o->thread, &device);
}

uint32_t observed_account(struct observed *o, uint8_t class, uint8_t space, uint8_t flags,
                          int32_t device)
{
    if (!o->w || class == WIRE_MAPPING || flags & WIRE_FUNCTION_SHARED)
        return 0;
    if (class == WIRE_REGISTERED)
        space = MEMOIR_SPACE_REGISTERED;
    if (space < MEMOIR_SPACE_DRAM)
        device = -1;
    else if (device < 0)
        device = 0; /* of a program whose contexts were made before: most have one device */
    for (size_t i = 0; i < o->n_accounts; i++)
        if (o->accounts[i].space == space && o->accounts[i].device == device)
            return o->accounts[i].account;
    if (o->n_accounts == OBSERVED_ACCOUNTS_MAX)
        return 0;
    int record = device < 0 ? BOOK_DEVICE_HOST : device_enter(o, device);
    int account =
        record < 0 ? record : book_account_add(o->w, o->thread, space, (uint32_t)record, "");
    if (account < 0)
        return 0;
    o->accounts[o->n_accounts++] = (struct observed_account){space, device, (uint32_t)account};
    return (uint32_t)account;
}

/* ---- reports ---- */

/* Handles and addresses may have the same value. */
static uint64_t block_id(const struct live_block *block)
{
    return block->address ^ (uint64_t)block->class << 60;
}

static uint64_t time_of(const struct observed *o, uint64_t time_ns)
{
    if (time_ns <= o->w->created_ns)
        return 0;
    uint64_t time = (time_ns - o->w->created_ns) >> BOOK_TIME_SHIFT;
    return time < UINT32_MAX ? time : UINT32_MAX;
}

void observed_book_alloc(struct observed *o, const struct live_block *block)
{
    if (!o->w || !block->account)
        return;
    uint64_t size = block->size <= BOOK_BLOCK_SIZE_MAX ? block->size : BOOK_BLOCK_SIZE_MAX;
    uint32_t site = observed_site_in_book(o, block->site, block->account);
    book_alloc(o->w, o->thread, block_id(block), size,
               block->account | (uint64_t)site << 12 | time_of(o, block->time_ns) << 32);
}

void observed_book_free(struct observed *o, const struct live_block *block)
{
    if (o->w && block->account)
        book_free(o->w, o->thread, block->account, block_id(block));
}

void observed_book_transfer(struct observed *o, const struct live_block *block, uint64_t bytes,
                            bool into, uint64_t time_ns)
{
    if (o->w && block->account)
        book_transfer(o->w, o->thread, block->account, block_id(block), bytes, into,
                      (uint32_t)time_of(o, time_ns));
}
