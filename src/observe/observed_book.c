/* The book of a traced process. */
#include <stdio.h>
#include <string.h>

#include <memoir/memoir.h>

#include "book/report.h"
#include "observe/observed_internal.h"

/* ---- life ---- */

int observed_book_open(struct observed *o)
{
    int r = process_book_open(&o->book, BOOK_SOURCE_OBSERVER, o->pid, o->options.dir);
    if (r >= 0)
        o->uid = o->book.uid;
    return r;
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
    return book_device_add(o->book.w, o->book.thread, &device);
}

uint32_t observed_account(struct observed *o, uint8_t class, uint8_t space, uint8_t flags,
                          int32_t device)
{
    if (!o->book.w || class == WIRE_MAPPING || class == WIRE_GRAPH || flags & WIRE_FUNCTION_SHARED)
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
    int account = record < 0
                      ? record
                      : book_account_add(o->book.w, o->book.thread, space, (uint32_t)record, "");
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

void observed_book_alloc(struct observed *o, const struct live_block *block)
{
    if (!o->book.w || !block->account)
        return;
    uint64_t size = block->size <= BOOK_BLOCK_SIZE_MAX ? block->size : BOOK_BLOCK_SIZE_MAX;
    uint32_t site = observed_site_in_book(o, block->site, block->account);
    book_alloc(o->book.w, o->book.thread, block_id(block), size,
               block->account | (uint64_t)site << 12 |
                   process_book_time(&o->book, block->time_ns) << 32);
}

void observed_book_free(struct observed *o, const struct live_block *block)
{
    if (o->book.w && block->account)
        book_free(o->book.w, o->book.thread, block->account, block_id(block));
}

void observed_book_transfer(struct observed *o, const struct live_block *block, uint64_t bytes,
                            bool into, uint64_t time_ns)
{
    if (o->book.w && block->account)
        book_transfer(o->book.w, o->book.thread, block->account, block_id(block), bytes, into,
                      (uint32_t)process_book_time(&o->book, time_ns));
}
