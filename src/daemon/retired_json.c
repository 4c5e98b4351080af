/* A retired process as one line of JSON. Fields that are not known are left out. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"
#include "daemon/retired.h"
#include "ledger/ledger.h"

static void text_field(struct json *j, const char *key, const char *text)
{
    if (text[0])
        json_field_string(j, key, text);
}

/* Too large for the doubles that many JSON readers turn numbers into. */
static void hex_field(struct json *j, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "0x%" PRIx64, value);
    json_field_string(j, key, text);
}

static void devices_json(struct json *j, const struct retired_process *p)
{
    json_key(j, "devices");
    json_array_begin(j);
    for (size_t i = 0; i < p->n_devices; i++) {
        const struct retired_device *d = &p->devices[i];
        json_object_begin(j);
        json_field_u64(j, "kind", d->kind);
        json_field_i64(j, "ordinal", d->ordinal);
        text_field(j, "name", d->name);
        text_field(j, "uid", d->uid);
        text_field(j, "bus", d->bus);
        json_object_end(j);
    }
    json_array_end(j);
}

static void accounts_json(struct json *j, const struct retired_process *p)
{
    json_key(j, "accounts");
    json_array_begin(j);
    for (size_t i = 0; i < p->n_accounts; i++) {
        const struct retired_account *a = &p->accounts[i];
        json_object_begin(j);
        json_field_string(j, "space", ledger_space_name(a->space));
        text_field(j, "name", a->name);
        json_field_string(j, "source", ledger_source_name(a->source));
        if (a->device >= 0)
            json_field_i64(j, "device", a->device);
        if (a->partial)
            json_field_bool(j, "partial", true);
        if (a->sampled)
            json_field_bool(j, "sampled", true);
        json_field_u64(j, "live_bytes", a->totals.live_bytes);
        json_field_u64(j, "live_blocks", a->totals.live_blocks);
        json_field_u64(j, "peak_bytes", a->totals.peak_bytes);
        json_field_u64(j, "alloc_bytes", a->totals.alloc_bytes);
        json_field_u64(j, "alloc_blocks", a->totals.alloc_blocks);
        json_field_u64(j, "freed_bytes", a->totals.freed_bytes);
        json_field_u64(j, "freed_blocks", a->totals.freed_blocks);
        json_object_end(j);
    }
    json_array_end(j);
}

static void blocks_json(struct json *j, const struct retired_process *p)
{
    json_key(j, "blocks");
    json_array_begin(j);
    for (size_t i = 0; i < p->n_blocks; i++) {
        const struct retired_block *b = &p->blocks[i];
        json_object_begin(j);
        hex_field(j, "id", b->id);
        json_field_u64(j, "bytes", b->bytes);
        json_field_u64(j, "account", b->account);
        json_field_double(j, "age_s", (double)(b->age_ns / 1000000) / 1000);
        if (b->tag >= 0)
            json_field_string(j, "tag", p->text + b->tag);
        if (b->site >= 0)
            json_field_i64(j, "site", b->site);
        if (b->moves > 0)
            json_field_u64(j, "moves", b->moves);
        json_object_end(j);
    }
    json_array_end(j);
}

static void sites_json(struct json *j, const struct retired_process *p)
{
    json_key(j, "sites");
    json_array_begin(j);
    for (size_t i = 0; i < p->n_sites; i++) {
        json_object_begin(j);
        hex_field(j, "key", p->sites[i].key);
        json_key(j, "frames");
        json_array_begin(j);
        for (const char *at = p->text + p->sites[i].frames; *at;) {
            size_t len = strcspn(at, "\n");
            json_string_n(j, at, len);
            at += len + (at[len] == '\n');
        }
        json_array_end(j);
        json_object_end(j);
    }
    json_array_end(j);
}

static void losses_json(struct json *j, const struct retired_process *p)
{
    uint64_t any = 0;
    for (size_t i = 0; i < BOOK_LOSSES_MAX; i++)
        any |= p->losses[i];
    if (!any)
        return;
    json_key(j, "losses"); /* by enum book_loss */
    json_array_begin(j);
    for (size_t i = 0; i < BOOK_LOSSES_MAX; i++)
        json_u64(j, p->losses[i]);
    json_array_end(j);
}

static void cause_json(struct json *j, struct cause cause)
{
    char text[CAUSE_TEXT_MAX];
    json_field_string(j, "cause", cause_text(cause, text));
    if (cause.kind == CAUSE_EXITED)
        json_field_i64(j, "exit_code", cause.value);
    else if (cause.kind == CAUSE_KILLED)
        json_field_i64(j, "signal", cause.value);
    if (cause.kind == CAUSE_KILLED && cause.core)
        json_field_bool(j, "core", true);
    if (cause.kind == CAUSE_KILLED && cause.oom)
        json_field_bool(j, "oom", true);
}

/* What the kernel told of its end. */
static void exit_json(struct json *j, const struct retired_process *p)
{
    if (!p->exit_seen)
        return;
    json_field_i64(j, "parent", p->parent);
    json_field_u64(j, "peak_rss_bytes", p->peak_rss_bytes);
    json_field_double(j, "cpu_s", (double)(p->cpu_ns / 1000) / 1000000);
    text_field(j, "cgroup", p->cgroup);
}

int retired_json(const struct retired_process *p, struct buffer *out)
{
    struct json j;
    json_init(&j, out);
    json_object_begin(&j);
    if (p->pid > 0)
        json_field_i64(&j, "pid", p->pid);
    if (p->book_pid != p->pid)
        json_field_i64(&j, "inner_pid", p->book_pid);
    json_field_u64(&j, "pid_ns", p->pid_ns);
    json_field_u64(&j, "uid", p->uid);
    json_field_string(&j, "name", p->name);
    text_field(&j, "comm", p->comm);
    text_field(&j, "exe", p->exe);
    text_field(&j, "command", p->command);
    text_field(&j, "host", p->host);
    cause_json(&j, p->cause);
    exit_json(&j, p);
    if (p->start_realtime_ns)
        json_field_double(&j, "start", (double)(p->start_realtime_ns / 1000000) / 1000);
    json_field_double(&j, "end", (double)(p->end_realtime_ns / 1000000) / 1000);
    json_field_bool(&j, "figures_complete", p->figures_complete);
    json_field_bool(&j, "blocks_complete", p->blocks_complete);
    losses_json(&j, p);
    devices_json(&j, p);
    accounts_json(&j, p);
    blocks_json(&j, p);
    sites_json(&j, p);
    json_object_end(&j);
    int r = json_finish(&j);
    return r < 0 ? r : buffer_append_char(out, '\n');
}
