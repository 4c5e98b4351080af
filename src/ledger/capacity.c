/* How large is a memory of a device?
 *
 * Every process may claim a size for every device. The driver knows best, then root: what they say is confirmed. A claim
 * of another user holds for that user's own processes. It is the size for all only while no other user claims
 * another one. So nobody can change the figures of a device that others see, but all see that there is a dispute. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/accountable.h"
#include "base/buffer.h"
#include "base/fs.h"
#include "ledger/rows.h"

enum { SIZE_TEXT_MAX = 64 };

/* What a driver of the kernel tells in a file of its own: amdgpu does. 0: nothing. */
static uint64_t size_by_driver(const char *sys_dir, const struct ledger_device *d, uint32_t space)
{
    char path[512];
    size_t colons = 0;
    if (space != MEMOIR_SPACE_DRAM || !d->bus[0] || d->host[0])
        return 0;
    for (const char *at = d->bus; *at; at++) {
        if (!isxdigit((unsigned char)*at) && *at != ':' && *at != '.')
            return 0; /* no address: it must not lead elsewhere */
        colons += *at == ':';
    }
    snprintf(path, sizeof(path), "%s/bus/pci/devices/%s%s/mem_info_vram_total", sys_dir,
             colons == 1 ? "0000:" : "", d->bus);
    struct buffer text = BUFFER_INIT(SIZE_TEXT_MAX);
    uint64_t bytes = fs_read_file(path, &text) < 0 ? 0 : strtoull(buffer_string(&text), NULL, 10);
    buffer_release(&text);
    return bytes;
}

static uint64_t size_confirmed(const struct ledger *ledger, const struct ledger_device *d,
                               uint32_t space)
{
    const struct ledger_options *o = &ledger->options;
    if (space == MEMOIR_SPACE_DRAM && device_row(d)->driver_bytes)
        return device_row(d)->driver_bytes;
    uint64_t bytes = size_by_driver(o->sys_dir ? o->sys_dir : "/sys", d, space);
    if (bytes == 0 && o->device_size)
        bytes = o->device_size(o->device_size_context, d, space);
    return bytes;
}

static void claim_add(struct ledger_capacity *c, uint32_t user, uint64_t bytes)
{
    for (uint32_t i = 0; i < c->n_claims; i++)
        if (c->claims[i].user == user) {
            if (c->claims[i].bytes < bytes)
                c->claims[i].bytes = bytes;
            return;
        }
    if (c->n_claims < LEDGER_CLAIMS_MAX)
        c->claims[c->n_claims++] = (struct ledger_claim){.user = user, .bytes = bytes};
    else if (c->claims[0].bytes != bytes)
        c->disputed = true; /* no room to tell by whom */
}

static void claims_collect(struct ledger *ledger)
{
    for (size_t i = 0; i < ledger->n_processes; i++) {
        const struct process_row *row = process_row(ledger->processes[i]);
        uint32_t user = UINT32_MAX;
        for (size_t k = 0; k < row->n_parts; k++) {
            const struct part *part = &row->parts[k];
            if (!part->device || part->claimed == 0 || !device_row(part->device)->claims_changed)
                continue;
            if (user == UINT32_MAX)
                user = accountable_uid(row->p.uid);
            claim_add(&part->device->spaces[part->space], user, part->claimed);
        }
    }
}

static void claims_judge(const struct ledger *ledger, const struct ledger_device *d,
                         struct ledger_capacity *c)
{
    uint64_t confirmed = size_confirmed(ledger, d, c->space);
    for (uint32_t i = 0; i < c->n_claims; i++)
        if (confirmed == 0 && c->claims[i].user == 0)
            confirmed = c->claims[i].bytes;
    uint64_t agreed = confirmed ? confirmed : c->n_claims ? c->claims[0].bytes : 0;
    for (uint32_t i = 0; i < c->n_claims; i++)
        c->disputed |= c->claims[i].bytes != agreed;
    c->confirmed = confirmed != 0;
    c->capacity = confirmed ? confirmed : c->disputed ? 0 : agreed;
}

void ledger_capacities(struct ledger *ledger)
{
    bool any = false;
    for (size_t i = 0; i < ledger->n_devices; i++) {
        struct device_row *row = device_row(ledger->devices[i]);
        any = any || row->claims_changed;
        for (uint32_t told = row->claims_changed ? row->told : 0; told; told &= told - 1) {
            struct ledger_capacity *c = &row->d.spaces[__builtin_ctz(told)];
            c->n_claims = 0;
            c->disputed = false;
        }
    }
    if (!any)
        return;
    claims_collect(ledger);
    for (size_t i = 0; i < ledger->n_devices; i++) {
        struct device_row *row = device_row(ledger->devices[i]);
        for (uint32_t told = row->claims_changed ? row->told : 0; told; told &= told - 1)
            claims_judge(ledger, &row->d, &row->d.spaces[__builtin_ctz(told)]);
        row->claims_changed = false;
    }
}

uint64_t ledger_capacity_for(const struct ledger_capacity *c, uint32_t uid)
{
    uint32_t user = accountable_uid(uid);
    for (uint32_t i = 0; c->capacity == 0 && i < c->n_claims; i++)
        if (c->claims[i].user == user)
            return c->claims[i].bytes;
    return c->capacity;
}
