/* Profiles in files. See snapshot.h. */
#include "profile/snapshot.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/varint.h"
#include "profile/profile.h"

enum {
    LEVEL = 6,        /* of zlib */
    RATIO_MAX = 1032, /* what deflate can do at best */
    FRAME_BYTES = 3,  /* a frame in the file takes at least so much; a site: */
    SITE_BYTES = 8,
    FILE_MODE = 0600,
};

/* ---- writing ---- */

static void put_figures(struct buffer *out, const struct profile_figures *f)
{
    varint_put(out, f->live_bytes);
    varint_put(out, f->live_blocks);
    varint_put(out, f->alloc_bytes);
    varint_put(out, f->alloc_blocks);
}

/* Strings get numbers in the order in which they lie in the pool; `numbers` gives them by place. */
static uint32_t *put_strings(const struct profile *p, struct buffer *out)
{
    uint32_t *numbers = calloc(p->n_strings + 1, sizeof(*numbers));
    uint32_t n = 0;
    if (!numbers)
        return NULL;
    for (size_t at = 0; at < p->n_strings; at += strlen(p->strings + at) + 1)
        numbers[at] = n++;
    varint_put(out, n);
    for (size_t at = 0; at < p->n_strings; at += strlen(p->strings + at) + 1) {
        size_t len = strlen(p->strings + at);
        varint_put(out, len);
        buffer_append(out, p->strings + at, len);
    }
    return numbers;
}

static void put_modules(const struct profile *p, const uint32_t *numbers, struct buffer *out)
{
    varint_put(out, p->n_modules);
    for (size_t i = 0; i < p->n_modules; i++) {
        const struct profile_module *m = &p->modules[i];
        varint_put(out, m->kind);
        varint_put(out, numbers[m->path]);
        varint_put(out, m->build_id_len);
        buffer_append(out, m->build_id, m->build_id_len);
        varint_put(out, m->bias);
        varint_put(out, m->map_start);
        varint_put(out, m->map_end);
    }
}

static void put_frames(const struct profile *p, const uint32_t *numbers, struct buffer *out)
{
    varint_put(out, p->n_frames);
    for (size_t i = 0; i < p->n_frames; i++) {
        const struct profile_frame *f = &p->frames[i];
        varint_put(out, f->module);
        varint_put(out, f->offset);
        varint_put(out, f->n_lines);
        for (size_t k = 0; k < f->n_lines; k++) {
            const struct profile_line *line = &p->lines[f->first_line + k];
            varint_put(out, numbers[line->function]);
            varint_put(out, numbers[line->file]);
            varint_put(out, line->line);
        }
    }
}

static void put_accounts(const struct profile *p, const uint32_t *numbers, struct buffer *out)
{
    varint_put(out, p->n_accounts);
    for (size_t i = 0; i < p->n_accounts; i++) {
        const struct profile_account *a = &p->accounts[i];
        varint_put(out, a->space);
        varint_put(out, numbers[a->name]);
        varint_put(out, a->has_device);
        if (!a->has_device)
            continue;
        varint_put(out, (uint32_t)a->ordinal);
        varint_put(out, numbers[a->device_name]);
        varint_put(out, numbers[a->device_uid]);
    }
}

static void put_sites(const struct profile *p, struct buffer *out)
{
    varint_put(out, p->n_sites);
    for (size_t i = 0; i < p->n_sites; i++) {
        const struct profile_site *s = &p->sites[i];
        varint_put(out, s->account);
        varint_put(out, s->flags);
        varint_put(out, s->first_seen_ns);
        put_figures(out, &s->figures);
        varint_put(out, s->n_frames);
        for (size_t k = 0; k < s->n_frames; k++)
            varint_put(out, profile_stack(p, s)[k]);
    }
}

int snapshot_encode_plain(const struct profile *p, struct buffer *out)
{
    if (p->error)
        return p->error;
    MEMOIR_CLEANUP(freep)
    uint32_t *numbers = put_strings(p, out);
    if (!numbers)
        return -ENOMEM;
    varint_put(out, (uint64_t)p->pid);
    varint_put(out, p->processes);
    varint_put(out, numbers[p->program]);
    varint_put(out, numbers[p->command]);
    varint_put(out, numbers[p->host]);
    varint_put(out, p->taken_real_ns);
    put_figures(out, &p->accounted);
    put_modules(p, numbers, out);
    put_frames(p, numbers, out);
    put_accounts(p, numbers, out);
    put_sites(p, out);
    return out->error;
}

int snapshot_encode(const struct profile *p, struct buffer *out)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer plain = BUFFER_INIT(SNAPSHOT_UNPACKED_MAX);
    int r = snapshot_encode_plain(p, &plain);
    if (r < 0)
        return r;
    uint32_t version = htole32(SNAPSHOT_VERSION), spare = 0;
    uint64_t len = htole64(plain.len);
    buffer_append(out, SNAPSHOT_MAGIC, 8);
    buffer_append(out, &version, sizeof(version));
    buffer_append(out, &spare, sizeof(spare));
    buffer_append(out, &len, sizeof(len));
    uLongf packed = compressBound(plain.len);
    char *to = buffer_reserve(out, packed);
    if (!to)
        return out->error;
    if (compress2((Bytef *)to, &packed, (const Bytef *)plain.data, plain.len, LEVEL) != Z_OK)
        return -ENOMEM;
    buffer_commit(out, packed);
    return out->error;
}

int snapshot_save(const struct profile *p, const char *path)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer file = BUFFER_INIT(SNAPSHOT_FILE_MAX);
    int r = snapshot_encode(p, &file);
    return r < 0 ? r : fs_write_file_atomic(path, file.data, file.len, FILE_MODE);
}

/* ---- reading: every number is checked before it is used ---- */

struct decode {
    struct varint_reader in;
    struct profile *to;
    uint32_t *strings, *modules, *frames, *accounts; /* numbers in `to`, by number in the file */
    size_t n_strings, n_modules, n_frames, n_accounts;
    uint32_t *stack;
};

static void decode_release(struct decode *d)
{
    free(d->strings);
    free(d->modules);
    free(d->frames);
    free(d->accounts);
    free(d->stack);
    profile_free(d->to);
}

/* The length of a list whose entries take at least `item` bytes each, and room for its numbers. */
static int take_list(struct decode *d, size_t item, uint64_t max, uint32_t **ret_numbers,
                     size_t *ret_n)
{
    uint64_t n = varint_take(&d->in);
    if (d->in.bad || n > varint_left(&d->in) / item)
        return -EBADMSG;
    if (n > max)
        return -E2BIG;
    *ret_numbers = calloc((size_t)n + 1, sizeof(uint32_t));
    *ret_n = (size_t)n;
    return *ret_numbers ? 0 : -ENOMEM;
}

/* A number from the file, as the profile's own. */
static uint32_t take_reference(struct decode *d, const uint32_t *numbers, size_t n)
{
    uint64_t number = varint_take(&d->in);
    if (number < n)
        return numbers[number];
    d->in.bad = true;
    return 0;
}

static uint64_t take_within(struct decode *d, uint64_t max)
{
    uint64_t value = varint_take(&d->in);
    if (value > max)
        d->in.bad = true;
    return value > max ? 0 : value;
}

static profile_string take_string(struct decode *d)
{
    return take_reference(d, d->strings, d->n_strings);
}

static struct profile_figures take_figures(struct decode *d)
{
    struct profile_figures f;
    f.live_bytes = varint_take(&d->in);
    f.live_blocks = varint_take(&d->in);
    f.alloc_bytes = varint_take(&d->in);
    f.alloc_blocks = varint_take(&d->in);
    return f;
}

static int take_strings(struct decode *d)
{
    int r = take_list(d, 1, UINT32_MAX, &d->strings, &d->n_strings);
    for (size_t i = 0; r == 0 && i < d->n_strings && !d->in.bad; i++) {
        uint64_t len = take_within(d, PROFILE_STRING_MAX);
        const uint8_t *bytes = varint_bytes(&d->in, (size_t)len);
        if (bytes)
            d->strings[i] = profile_add_string_n(d->to, (const char *)bytes, (size_t)len);
    }
    return r;
}

static void take_about(struct decode *d)
{
    d->to->pid = (int64_t)take_within(d, INT32_MAX);
    d->to->processes = (uint32_t)take_within(d, UINT32_MAX);
    d->to->program = take_string(d);
    d->to->command = take_string(d);
    d->to->host = take_string(d);
    d->to->taken_real_ns = varint_take(&d->in);
    d->to->accounted = take_figures(d);
}

static int take_modules(struct decode *d)
{
    int r = take_list(d, 6, PROFILE_MODULES_MAX, &d->modules, &d->n_modules);
    for (size_t i = 0; r == 0 && i < d->n_modules && !d->in.bad; i++) {
        struct profile_module m = {0};
        m.kind = (enum profile_module_kind)take_within(d, PROFILE_MODULE_SCRIPT);
        m.path = take_string(d);
        m.build_id_len = (uint8_t)take_within(d, PROFILE_BUILD_ID_MAX);
        const uint8_t *id = varint_bytes(&d->in, m.build_id_len);
        if (id)
            memcpy(m.build_id, id, m.build_id_len);
        m.bias = varint_take(&d->in);
        m.map_start = varint_take(&d->in);
        m.map_end = varint_take(&d->in);
        d->modules[i] = profile_add_module(d->to, &m);
    }
    return r;
}

static int take_frames(struct decode *d)
{
    int r = take_list(d, FRAME_BYTES, PROFILE_FRAMES_MAX, &d->frames, &d->n_frames);
    for (size_t i = 0; r == 0 && i < d->n_frames && !d->in.bad; i++) {
        struct profile_line lines[PROFILE_LINES_MAX];
        uint32_t module = take_reference(d, d->modules, d->n_modules);
        uint64_t offset = varint_take(&d->in);
        size_t n = (size_t)take_within(d, PROFILE_LINES_MAX);
        for (size_t k = 0; k < n; k++) {
            lines[k].function = take_string(d);
            lines[k].file = take_string(d);
            lines[k].line = (uint32_t)take_within(d, UINT32_MAX);
        }
        if (d->in.bad)
            break;
        d->frames[i] = profile_add_frame(d->to, module, offset);
        if (!profile_error(d->to) && !d->to->frames[d->frames[i]].looked_up)
            profile_set_lines(d->to, d->frames[i], lines, n);
    }
    return r;
}

static int take_accounts(struct decode *d)
{
    int r = take_list(d, 3, PROFILE_ACCOUNTS_MAX, &d->accounts, &d->n_accounts);
    for (size_t i = 0; r == 0 && i < d->n_accounts && !d->in.bad; i++) {
        struct profile_account a = {.ordinal = -1};
        a.space = (uint32_t)take_within(d, UINT32_MAX);
        a.name = take_string(d);
        a.has_device = take_within(d, 1);
        if (a.has_device) {
            a.ordinal = (int32_t)take_within(d, UINT32_MAX);
            a.device_name = take_string(d);
            a.device_uid = take_string(d);
        }
        d->accounts[i] = profile_add_account(d->to, &a);
    }
    return r;
}

static int take_sites(struct decode *d)
{
    const unsigned known = PROFILE_SITE_CALLER_ONLY | PROFILE_SITE_CUT | PROFILE_SITE_SAMPLED;
    uint64_t n = varint_take(&d->in);
    if (d->in.bad || n > varint_left(&d->in) / SITE_BYTES)
        return -EBADMSG;
    if (n > PROFILE_SITES_MAX)
        return -E2BIG;
    d->stack = malloc(PROFILE_STACK_MAX * sizeof(*d->stack));
    if (!d->stack)
        return -ENOMEM;
    for (uint64_t i = 0; i < n && !profile_error(d->to); i++) {
        struct profile_site site = {0};
        site.account = take_reference(d, d->accounts, d->n_accounts);
        site.flags = (uint16_t)take_within(d, known);
        site.first_seen_ns = varint_take(&d->in);
        site.figures = take_figures(d);
        size_t frames = (size_t)take_within(d, PROFILE_STACK_MAX);
        for (size_t k = 0; k < frames; k++)
            d->stack[k] = take_reference(d, d->frames, d->n_frames);
        if (d->in.bad)
            return -EBADMSG;
        profile_add_site(d->to, &site, d->stack, frames);
    }
    return 0;
}

int snapshot_decode_plain(const void *data, size_t len, struct profile **ret_profile)
{
    static int (*const parts[])(struct decode *) = {take_modules, take_frames, take_accounts,
                                                    take_sites};
    MEMOIR_CLEANUP(decode_release)
    struct decode d = {.in = varint_reader(data, len), .to = profile_new()};
    if (!d.to)
        return -ENOMEM;
    int r = take_strings(&d);
    if (r == 0)
        take_about(&d);
    for (size_t i = 0; r == 0 && i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (d.in.bad)
            return -EBADMSG;
        r = parts[i](&d);
        if (r == 0)
            r = profile_error(d.to);
    }
    if (r == 0 && (d.in.bad || varint_left(&d.in)))
        r = -EBADMSG;
    if (r < 0)
        return r;
    *ret_profile = MEMOIR_TAKE(d.to);
    return 0;
}

int snapshot_decode(const void *data, size_t len, struct profile **ret_profile)
{
    const uint8_t *bytes = data;
    uint32_t version;
    uint64_t unpacked;
    if (len < SNAPSHOT_HEAD_BYTES || memcmp(bytes, SNAPSHOT_MAGIC, 8) != 0)
        return -EBADMSG;
    memcpy(&version, bytes + 8, sizeof(version));
    memcpy(&unpacked, bytes + 16, sizeof(unpacked));
    unpacked = le64toh(unpacked);
    if (le32toh(version) != SNAPSHOT_VERSION)
        return le32toh(version) > SNAPSHOT_VERSION ? -EPROTONOSUPPORT : -EBADMSG;
    /* Who promises more than can be in it makes us take memory for nothing. */
    if (unpacked > (uint64_t)len * RATIO_MAX)
        return -EBADMSG;
    if (unpacked > SNAPSHOT_UNPACKED_MAX)
        return -E2BIG;
    MEMOIR_CLEANUP(freep)
    uint8_t *plain = malloc((size_t)unpacked + 1);
    uLongf room = (uLongf)unpacked;
    if (!plain)
        return -ENOMEM;
    int r = uncompress(plain, &room, bytes + SNAPSHOT_HEAD_BYTES, len - SNAPSHOT_HEAD_BYTES);
    if (r == Z_MEM_ERROR)
        return -ENOMEM;
    if (r != Z_OK || room != unpacked)
        return -EBADMSG;
    return snapshot_decode_plain(plain, (size_t)unpacked, ret_profile);
}

int snapshot_load(const char *path, struct profile **ret_profile)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer file = BUFFER_INIT(SNAPSHOT_FILE_MAX);
    int r = fs_read_file(path, &file);
    return r < 0 ? r : snapshot_decode(buffer_string(&file), file.len, ret_profile);
}
