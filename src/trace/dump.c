/* Binary dumps, and dumps in files. See dump.h. */
#include "trace/dump.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/varint.h"
#include "trace/dump_build.h"
#include "trace/dump_json.h"
#include "trace/schema.h"

enum {
    LEVEL = 3,           /* of zstd: a million blocks in a second */
    WINDOW_LOG_MAX = 24, /* memory that a file can make the unpacker use: 16 MiB */
    CHUNK = 1 << 20,
    FILE_MODE = 0600,
};

struct head {
    char magic[8];
    uint32_t version;
    uint32_t flags; /* 0 */
    uint64_t plain_bytes;
    uint64_t packed_hash; /* hash_bytes() of what follows the head */
    uint64_t packed_bytes;
};
static_assert(sizeof(struct head) == TRACE_DUMP_HEAD_BYTES, "stored in files");

/* ---- modules get numbers ---- */

/* From module to number, from 1. */
struct module_numbers {
    const struct trace_module **keys;
    uint32_t *numbers;
    uint32_t n, cap;
    struct buffer list; /* of the modules, in order */
};

static void module_numbers_release(struct module_numbers *m)
{
    free(m->keys);
    free(m->numbers);
    buffer_release(&m->list);
}

static bool module_numbers_grow(struct module_numbers *m)
{
    uint32_t cap = m->cap ? 2 * m->cap : 64;
    const struct trace_module **keys = calloc(cap, sizeof(*keys));
    uint32_t *numbers = calloc(cap, sizeof(*numbers));
    if (!keys || !numbers) {
        free(keys);
        free(numbers);
        return false;
    }
    for (uint32_t i = 0; i < m->cap; i++) {
        if (!m->keys[i])
            continue;
        uint32_t at = (uint32_t)hash_mix((uintptr_t)m->keys[i]) & (cap - 1);
        while (keys[at])
            at = (at + 1) & (cap - 1);
        keys[at] = m->keys[i];
        numbers[at] = m->numbers[i];
    }
    free(m->keys);
    free(m->numbers);
    m->keys = keys;
    m->numbers = numbers;
    m->cap = cap;
    return true;
}

/* 0: no module, or no memory, which `list` remembers. */
static uint32_t module_number(struct module_numbers *m, const struct trace_module *module)
{
    if (!module)
        return 0;
    if (2 * (m->n + 1) > m->cap && !module_numbers_grow(m)) {
        m->list.error = -ENOMEM;
        return 0;
    }
    uint32_t at = (uint32_t)hash_mix((uintptr_t)module) & (m->cap - 1);
    while (m->keys[at] && m->keys[at] != module)
        at = (at + 1) & (m->cap - 1);
    if (!m->keys[at]) {
        m->keys[at] = module;
        m->numbers[at] = ++m->n;
        size_t len = strlen(module->path);
        varint_put(&m->list, len);
        buffer_append(&m->list, module->path, len);
        varint_put(&m->list, module->build_id_len);
        buffer_append(&m->list, module->build_id, module->build_id_len);
    }
    return m->numbers[at];
}

/* ---- writing ---- */

static void put_text(struct buffer *out, const char *text)
{
    size_t len = strlen(text);
    varint_put(out, len);
    buffer_append(out, text, len);
}

static void put_site(const struct trace_site *site, struct module_numbers *modules,
                     struct buffer *out)
{
    varint_put(out, site->number);
    varint_put(out, site->key);
    varint_put(out, site->cut);
    varint_put(out, site->n_frames);
    for (unsigned i = 0; i < site->n_frames; i++) {
        const struct trace_line *lines;
        size_t n = trace_frame_lines(&site->frames[i], &lines);
        varint_put(out, module_number(modules, site->frames[i].module));
        varint_put(out, site->frames[i].offset);
        varint_put(out, n);
        for (size_t k = 0; k < n; k++) {
            put_text(out, lines[k].function);
            put_text(out, lines[k].file);
            varint_put(out, lines[k].line);
        }
    }
}

/* Modules come before the sites that name them, and are known after those were written. */
static void put_sites(const struct trace_sites *table, struct buffer *out)
{
    struct buffer sites = BUFFER_INIT(out->limit);
    struct module_numbers modules = {.list = BUFFER_INIT(out->limit)};
    uint64_t n = 0;
    for (uint32_t i = 1, last = trace_sites_last(table); i <= last; i++) {
        const struct trace_site *site = trace_sites_get(table, i);
        if (site) {
            put_site(site, &modules, &sites);
            n++;
        }
    }
    varint_put(out, modules.n);
    buffer_append(out, modules.list.data, modules.list.len);
    varint_put(out, n);
    buffer_append(out, sites.data, sites.len);
    int error = sites.error ? sites.error : modules.list.error;
    if (error && !out->error)
        out->error = error;
    buffer_release(&sites);
    module_numbers_release(&modules);
}

static void put_sums(const struct trace_history *h, struct buffer *out)
{
    varint_put(out, h->holders.holders.n - 1);
    for (uint32_t i = 1; i < h->holders.holders.n; i++)
        schema_put(&schema_holder, &holders_get(&h->holders, i)->sums, out);
    varint_put(out, h->holders.copiers.n - 1);
    for (uint32_t i = 1; i < h->holders.copiers.n; i++)
        schema_put(&schema_copier, copiers_get(&h->holders, i), out);
}

static void put_rows(const struct trace_history *h, struct buffer *out)
{
    uint64_t kept = h->totals.gaps < TRACE_GAPS_MAX ? h->totals.gaps : TRACE_GAPS_MAX;
    varint_put(out, kept);
    for (uint64_t i = h->totals.gaps - kept; i < h->totals.gaps; i++)
        schema_put(&schema_gap, &h->gaps[i % TRACE_GAPS_MAX], out);
    kept = h->n_failures < TRACE_FAILURES_MAX ? h->n_failures : TRACE_FAILURES_MAX;
    varint_put(out, kept);
    for (uint64_t i = h->n_failures - kept + 1; i <= h->n_failures; i++) {
        const struct trace_failure *f = h->failures[i % TRACE_FAILURES_MAX];
        schema_put(&schema_failure, f, out);
        varint_put(out, f->n_holders);
        for (uint32_t k = 0; k < f->n_holders; k++)
            schema_put(&schema_failure_holder, &f->holders[k], out);
        varint_put(out, f->n_others);
        for (uint32_t k = 0; k < f->n_others; k++)
            schema_put(&schema_failure_other, &f->others[k], out);
    }
}

static void put_line(const struct timeline_line *line, size_t n, struct buffer *out)
{
    for (size_t i = 0; i < n; i++) {
        varint_put(out, schema_zigzag((int64_t)(line->last[i] - (i ? line->last[i - 1] : 0))));
        varint_put(out, schema_zigzag((int64_t)(line->peak[i] - line->last[i])));
    }
}

static void put_timeline(struct timeline *t, struct buffer *out)
{
    size_t n = t->start_ns ? t->slot + 1u : 0;
    timeline_fill(t);
    varint_put(out, t->start_ns);
    varint_put(out, t->step_ns);
    varint_put(out, n);
    put_line(t->device, n, out);
    put_line(t->lines[0], n, out);
    varint_put(out, t->n_lines - 1);
    for (uint32_t i = 1; i < t->n_lines; i++) {
        varint_put(out, t->lines[i]->holder);
        put_line(t->lines[i], n, out);
    }
}

static void put_block(const struct trace_history *h, uint32_t slot, struct buffer *out)
{
    const struct trace_slot *s = pool_slot(&h->pool, slot);
    const struct trace_activity *a = s->activity;
    struct trace_block block;
    history_block_copy(h, slot, &block);
    varint_put(out, s->holder);
    schema_put(&schema_block, &block, out);
    varint_put(out, a != NULL);
    if (!a)
        return;
    schema_put(&schema_activity, &block, out);
    unsigned repeats = 0;
    while (repeats < TRACE_REPEATS && block.repeats[repeats].copies)
        repeats++;
    varint_put(out, repeats);
    for (unsigned i = 0; i < repeats; i++)
        schema_put(&schema_repeat, &block.repeats[i], out);
    uint64_t kept = a->in_ring < a->ring_cap ? a->in_ring : a->ring_cap;
    varint_put(out, a->moments);
    varint_put(out, kept);
    for (uint64_t i = a->in_ring - kept; i < a->in_ring; i++)
        schema_put(&schema_moment, &a->ring[i & (a->ring_cap - 1)], out);
}

int trace_dump_encode_plain(struct trace_history *h, struct buffer *out)
{
    struct trace_totals totals;
    history_enter(h);
    history_totals_fill(h, &totals);
    schema_put(&schema_identity, &h->identity, out);
    schema_put(&schema_totals, &totals, out);
    put_sites(h->sites, out);
    put_sums(h, out);
    put_rows(h, out);
    put_timeline(&h->timeline, out);
    varint_put(out, h->pool.in_use);
    for (uint32_t slot = 1; slot < h->pool.n_slots && !out->error; slot++)
        if (pool_slot(&h->pool, slot)->used)
            put_block(h, slot, out);
    history_leave(h);
    return out->error;
}

static int encode_binary(struct trace_history *h, struct buffer *out)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer plain = BUFFER_INIT(TRACE_DUMP_PLAIN_MAX);
    int r = trace_dump_encode_plain(h, &plain);
    if (r < 0)
        return r;
    size_t bound = ZSTD_compressBound(plain.len);
    char *to = buffer_reserve(out, sizeof(struct head) + bound);
    ZSTD_CCtx *packer = to ? ZSTD_createCCtx() : NULL;
    if (!packer)
        return out->error ? out->error : -ENOMEM;
    ZSTD_CCtx_setParameter(packer, ZSTD_c_compressionLevel, LEVEL);
    ZSTD_CCtx_setParameter(packer, ZSTD_c_checksumFlag, 1);
    size_t packed = ZSTD_compress2(packer, to + sizeof(struct head), bound, plain.data, plain.len);
    ZSTD_freeCCtx(packer);
    if (ZSTD_isError(packed))
        return -ENOMEM;
    struct head head = {
        .version = htole32(TRACE_DUMP_VERSION),
        .plain_bytes = htole64(plain.len),
        .packed_hash = htole64(hash_bytes(to + sizeof(struct head), packed, 0)),
        .packed_bytes = htole64(packed),
    };
    memcpy(head.magic, TRACE_DUMP_MAGIC, sizeof(head.magic));
    memcpy(to, &head, sizeof(head));
    buffer_commit(out, sizeof(head) + packed);
    return 0;
}

/* JSON takes longer than a feeder should queue events, so it is made from a copy. */
static int encode_json(struct trace_history *h, struct buffer *out)
{
    if (trace_history_frozen(h))
        return dump_json_encode(h, out);
    struct buffer plain = BUFFER_INIT(TRACE_DUMP_PLAIN_MAX);
    struct trace_history *copy = NULL;
    int r = trace_dump_encode_plain(h, &plain);
    if (r == 0)
        r = trace_dump_decode_plain(plain.data, plain.len, &copy);
    buffer_release(&plain);
    if (r == 0)
        r = dump_json_encode(copy, out);
    trace_history_free(copy);
    return r;
}

int trace_dump_encode(struct trace_history *h, enum trace_dump_format format, struct buffer *out)
{
    return format == TRACE_DUMP_JSON ? encode_json(h, out) : encode_binary(h, out);
}

/* ---- reading ---- */

/* A count of things that take at least one byte each. */
static uint64_t take_count(struct varint_reader *in, uint64_t max)
{
    uint64_t n = varint_take(in);
    if (n > varint_left(in) || n > max) {
        in->bad = true;
        return 0;
    }
    return n;
}

/* A string of the dump, NUL-terminated in `text`. */
static const char *take_text(struct varint_reader *in, char text[static TRACE_STRING_MAX + 1])
{
    uint64_t len = varint_take(in);
    const uint8_t *at = len <= TRACE_STRING_MAX ? varint_bytes(in, len) : NULL;
    text[0] = '\0';
    if (!at || memchr(at, '\0', len)) {
        in->bad = true;
        return text;
    }
    memcpy(text, at, len);
    text[len] = '\0';
    return text;
}

/* Modules of the dump, with their paths. */
struct modules {
    struct trace_module *list;
    char **paths;
    size_t n;
};

static void modules_release(struct modules *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->paths[i]);
    free(m->paths);
    free(m->list);
}

static int take_modules(struct varint_reader *in, struct modules *m)
{
    char text[TRACE_STRING_MAX + 1];
    uint64_t n = take_count(in, TRACE_MODULES_MAX);
    m->list = calloc(n + 1, sizeof(*m->list));
    m->paths = calloc(n + 1, sizeof(*m->paths));
    if (!m->list || !m->paths)
        return -ENOMEM;
    for (; m->n < n && !in->bad; m->n++) {
        struct trace_module *module = &m->list[m->n];
        m->paths[m->n] = strdup(take_text(in, text));
        if (!m->paths[m->n])
            return -ENOMEM;
        module->path = m->paths[m->n];
        uint64_t len = varint_take(in);
        const uint8_t *id = len <= TRACE_BUILD_ID_MAX ? varint_bytes(in, len) : NULL;
        if (!id) {
            in->bad = true;
            continue;
        }
        module->build_id_len = (uint8_t)len;
        memcpy(module->build_id, id, len);
    }
    return in->bad ? -EBADMSG : 0;
}

/* Room for one site while it is taken: its frames, their lines, and the texts of those. */
struct site_room {
    struct trace_frame frames[TRACE_FRAMES_MAX];
    struct trace_line lines[TRACE_FRAMES_MAX][TRACE_LINES_MAX];
    struct buffer texts;
};

static size_t take_text_into(struct varint_reader *in, struct buffer *texts)
{
    char text[TRACE_STRING_MAX + 1];
    size_t at = texts->len;
    take_text(in, text);
    buffer_append(texts, text, strlen(text) + 1);
    return at;
}

static int take_frame(struct varint_reader *in, const struct modules *modules,
                      struct site_room *room, unsigned i)
{
    uint64_t module = varint_take(in);
    struct trace_frame *f = &room->frames[i];
    *f = (struct trace_frame){.offset = varint_take(in), .lines = room->lines[i]};
    f->n_lines = (uint32_t)take_count(in, TRACE_LINES_MAX);
    if (in->bad || module > modules->n)
        return -EBADMSG;
    f->module = module ? &modules->list[module - 1] : NULL;
    for (unsigned k = 0; k < f->n_lines && !in->bad; k++) {
        /* Places for now: the buffer may move. */
        room->lines[i][k].function = (const char *)take_text_into(in, &room->texts);
        room->lines[i][k].file = (const char *)take_text_into(in, &room->texts);
        uint64_t line = varint_take(in);
        room->lines[i][k].line = (uint32_t)line;
        if (line > UINT32_MAX)
            return -EBADMSG;
    }
    return in->bad ? -EBADMSG : room->texts.error;
}

static int take_site(struct varint_reader *in, const struct modules *modules,
                     struct site_room *room, struct trace_sites *sites)
{
    uint64_t number = varint_take(in), key = varint_take(in), cut = varint_take(in);
    uint64_t n = take_count(in, TRACE_FRAMES_MAX);
    if (in->bad || number == 0 || number > TRACE_SITES_MAX || cut > UINT16_MAX ||
        trace_sites_get(sites, (uint32_t)number))
        return -EBADMSG;
    buffer_reset(&room->texts);
    for (unsigned i = 0; i < n; i++) {
        int r = take_frame(in, modules, room, i);
        if (r < 0)
            return r;
    }
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < room->frames[i].n_lines; k++) {
            struct trace_line *line = &room->lines[i][k];
            line->function = room->texts.data + (uintptr_t)line->function;
            line->file = room->texts.data + (uintptr_t)line->file;
        }
    struct trace_site site = {(uint32_t)number, (uint16_t)n, (uint16_t)cut, key, room->frames};
    int r = trace_sites_define(sites, &site);
    return r == -ENOSPC ? -E2BIG : r == -EINVAL ? -EBADMSG : r;
}

static int take_sites(struct varint_reader *in, struct trace_sites *sites)
{
    struct modules modules = {0};
    struct site_room *room = calloc(1, sizeof(*room));
    int r = room ? take_modules(in, &modules) : -ENOMEM;
    if (r == 0) {
        buffer_init(&room->texts, 2u * TRACE_FRAMES_MAX * TRACE_LINES_MAX * (TRACE_STRING_MAX + 1));
        for (uint64_t n = take_count(in, TRACE_SITES_MAX); n > 0 && r == 0; n--)
            r = take_site(in, &modules, room, sites);
        buffer_release(&room->texts);
    }
    modules_release(&modules);
    free(room);
    return r;
}

static int take_sums(struct varint_reader *in, struct dump_builder *b)
{
    int r = 0;
    for (uint64_t n = take_count(in, UINT32_MAX); n > 0 && r == 0; n--) {
        struct trace_holder holder = {0};
        schema_take(&schema_holder, in, &holder);
        r = in->bad ? -EBADMSG : dump_builder_holder(b, &holder);
    }
    for (uint64_t n = r ? 0 : take_count(in, UINT32_MAX); n > 0 && r == 0; n--) {
        struct trace_copier copier = {0};
        schema_take(&schema_copier, in, &copier);
        r = in->bad ? -EBADMSG : dump_builder_copier(b, &copier);
    }
    return r;
}

static int take_failure(struct varint_reader *in, struct dump_builder *b)
{
    struct trace_failure f = {0};
    schema_take(&schema_failure, in, &f);
    f.n_holders = (uint32_t)take_count(in, TRACE_FAILURE_HOLDERS);
    for (uint32_t k = 0; k < f.n_holders; k++)
        schema_take(&schema_failure_holder, in, &f.holders[k]);
    f.n_others = (uint32_t)take_count(in, TRACE_FAILURE_OTHERS);
    for (uint32_t k = 0; k < f.n_others; k++)
        schema_take(&schema_failure_other, in, &f.others[k]);
    return in->bad ? -EBADMSG : dump_builder_failure(b, &f);
}

static int take_rows(struct varint_reader *in, struct dump_builder *b)
{
    int r = 0;
    for (uint64_t n = take_count(in, TRACE_GAPS_MAX); n > 0 && r == 0; n--) {
        struct trace_gap gap;
        schema_take(&schema_gap, in, &gap);
        r = in->bad ? -EBADMSG : dump_builder_gap(b, &gap);
    }
    for (uint64_t n = r ? 0 : take_count(in, TRACE_FAILURES_MAX); n > 0 && r == 0; n--)
        r = take_failure(in, b);
    return r;
}

static int take_line(struct varint_reader *in, struct dump_builder *b, uint32_t holder, uint64_t n)
{
    uint64_t last[TRACE_TIMELINE_SLOTS], peak[TRACE_TIMELINE_SLOTS], value = 0;
    for (uint64_t i = 0; i < n; i++) {
        value += (uint64_t)schema_unzigzag(varint_take(in));
        last[i] = value;
        peak[i] = value + (uint64_t)schema_unzigzag(varint_take(in));
    }
    return in->bad ? -EBADMSG : dump_builder_line(b, holder, last, peak);
}

static int take_timeline(struct varint_reader *in, struct dump_builder *b)
{
    uint64_t start = varint_take(in), step = varint_take(in), n = varint_take(in);
    int r = in->bad ? -EBADMSG : dump_builder_timeline(b, start, step, n);
    if (r == 0)
        r = take_line(in, b, UINT32_MAX, n);
    if (r == 0)
        r = take_line(in, b, 0, n);
    for (uint64_t lines = r ? 0 : take_count(in, TRACE_TIMELINE_HOLDERS); lines > 0 && r == 0;
         lines--) {
        uint64_t holder = varint_take(in);
        r = holder == 0 || holder >= UINT32_MAX ? -EBADMSG : take_line(in, b, (uint32_t)holder, n);
    }
    return r;
}

static int take_block(struct varint_reader *in, struct dump_builder *b,
                      struct trace_moment *moments)
{
    struct trace_block block = {0};
    uint64_t holder = varint_take(in), all = 0, kept = 0;
    schema_take(&schema_block, in, &block);
    uint64_t has_activity = varint_take(in);
    if (in->bad || holder > UINT32_MAX || has_activity > 1)
        return -EBADMSG;
    if (has_activity) {
        schema_take(&schema_activity, in, &block);
        uint64_t repeats = take_count(in, TRACE_REPEATS);
        for (uint64_t i = 0; i < repeats; i++) {
            schema_take(&schema_repeat, in, &block.repeats[i]);
            /* As they are written: most copies first, and no single one. */
            if (block.repeats[i].copies < 2 ||
                (i && block.repeats[i].copies > block.repeats[i - 1].copies))
                return -EBADMSG;
        }
        all = varint_take(in);
        kept = take_count(in, DUMP_MOMENTS_MAX);
        for (uint64_t i = 0; i < kept && !in->bad; i++) {
            moments[i] = (struct trace_moment){0};
            schema_take(&schema_moment, in, &moments[i]);
        }
    }
    return in->bad
               ? -EBADMSG
               : dump_builder_block(b, &block, (uint32_t)holder, has_activity, all, moments, kept);
}

static int take_all(struct varint_reader *in, struct dump_builder *b)
{
    struct trace_history *h = b->history;
    schema_take(&schema_identity, in, &h->identity);
    schema_take(&schema_totals, in, &h->totals);
    int r = in->bad ? -EBADMSG : take_sites(in, h->sites);
    if (r == 0)
        r = take_sums(in, b);
    if (r == 0)
        r = take_rows(in, b);
    if (r == 0)
        r = take_timeline(in, b);
    struct trace_moment *moments = r == 0 ? malloc(DUMP_MOMENTS_MAX * sizeof(*moments)) : NULL;
    if (r == 0 && !moments)
        r = -ENOMEM;
    for (uint64_t n = r ? 0 : take_count(in, TRACE_DUMP_BLOCKS_MAX); n > 0 && r == 0; n--)
        r = take_block(in, b, moments);
    free(moments);
    return r ? r : in->bad || varint_left(in) ? -EBADMSG : 0;
}

int trace_dump_decode_plain(const void *data, size_t len, struct trace_history **ret_history)
{
    struct varint_reader in = varint_reader(data, len);
    struct dump_builder b;
    int r = dump_builder_init(&b);
    if (r == 0)
        r = take_all(&in, &b);
    if (r == 0)
        r = dump_builder_finish(&b, ret_history);
    dump_builder_release(&b);
    return r;
}

/* Piece by piece, so that a file that promises much and holds little costs little. */
static int unpack(const char *data, size_t len, uint64_t expected, struct buffer *plain)
{
    ZSTD_DCtx *unpacker = ZSTD_createDCtx();
    if (!unpacker)
        return -ENOMEM;
    ZSTD_DCtx_setParameter(unpacker, ZSTD_d_windowLogMax, WINDOW_LOG_MAX);
    ZSTD_inBuffer in = {data, len, 0};
    size_t left = 1;
    int r = 0;
    while (left > 0 && r == 0) {
        char *to = buffer_reserve(plain, CHUNK);
        if (!to) {
            r = plain->error == -ENOBUFS ? -E2BIG : plain->error;
            break;
        }
        ZSTD_outBuffer out = {to, CHUNK, 0};
        size_t before = in.pos;
        left = ZSTD_decompressStream(unpacker, &out, &in);
        if (ZSTD_isError(left) || (left > 0 && in.pos == before && out.pos == 0) ||
            plain->len + out.pos > expected)
            r = -EBADMSG;
        else
            buffer_commit(plain, out.pos);
    }
    ZSTD_freeDCtx(unpacker);
    return r ? r : in.pos == len && plain->len == expected ? 0 : -EBADMSG;
}

uint64_t trace_dump_plain_bytes(const void *data, size_t len)
{
    struct head head;
    if (len < sizeof(head) || memcmp(data, TRACE_DUMP_MAGIC, sizeof(head.magic)) != 0)
        return 0;
    memcpy(&head, data, sizeof(head));
    return le64toh(head.plain_bytes);
}

int trace_dump_decode(const void *data, size_t len, struct trace_history **ret_history)
{
    struct head head;
    if (len > 0 && (((const char *)data)[0] == '{' || ((const char *)data)[0] == '\n' ||
                    ((const char *)data)[0] == ' '))
        return dump_json_decode(data, len, ret_history);
    if (len < sizeof(head) || memcmp(data, TRACE_DUMP_MAGIC, sizeof(head.magic)) != 0)
        return -EBADMSG;
    memcpy(&head, data, sizeof(head));
    if (le32toh(head.version) != TRACE_DUMP_VERSION || head.flags != 0)
        return -EPROTONOSUPPORT;
    if (le64toh(head.plain_bytes) > TRACE_DUMP_PLAIN_MAX)
        return -E2BIG;
    const char *packed = (const char *)data + sizeof(head);
    if (le64toh(head.packed_bytes) != len - sizeof(head) ||
        le64toh(head.packed_hash) != hash_bytes(packed, len - sizeof(head), 0))
        return -EBADMSG;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer plain = BUFFER_INIT(TRACE_DUMP_PLAIN_MAX + CHUNK);
    int r = unpack(packed, len - sizeof(head), le64toh(head.plain_bytes), &plain);
    if (r < 0)
        return r;
    return trace_dump_decode_plain(plain.data, plain.len, ret_history);
}

/* ---- files ---- */

int trace_dump_write(struct trace_history *h, enum trace_dump_format format, int fd)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(TRACE_DUMP_PLAIN_MAX);
    int r = trace_dump_encode(h, format, &out);
    return r < 0 ? r : fs_write_all(fd, out.data, out.len);
}

int trace_dump_save(struct trace_history *h, enum trace_dump_format format, const char *path)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(TRACE_DUMP_PLAIN_MAX);
    int r = trace_dump_encode(h, format, &out);
    return r < 0 ? r : fs_write_file_atomic(path, out.data, out.len, FILE_MODE);
}

int trace_dump_load(const char *path, struct trace_history **ret_history)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer file = BUFFER_INIT(TRACE_DUMP_FILE_MAX);
    int r = fs_read_file(path, &file);
    if (r < 0)
        return r == -EFBIG ? -E2BIG : r;
    return trace_dump_decode(buffer_string(&file), file.len, ret_history);
}
