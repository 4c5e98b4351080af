/* The symbolizer's front: remembered answers, and the way to those that are new. */
#include "site/symbols.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/hash.h"
#include "site/perf_map.h"
#include "site/symbol_engine.h"
#include "site/symbol_worker.h"

enum {
    BUCKETS_MIN = 1024,
    UNSURE_SECONDS = 60, /* answers that may change: errors, and files without build-id */
    BROKEN_MAX = 256,    /* modules remembered as fatal to the worker */
    MADE_SECONDS = 5,    /* a map of code made at run time grows while the program runs */
};

struct entry {
    struct entry *next; /* in its bucket */
    struct entry *newer, *older;
    uint64_t module[2];
    uint64_t offset;
    time_t expires; /* 0: never */
    size_t bytes;
    int result;
    uint32_t count;
    bool is_return_address;
    struct symbol_frame frames[]; /* then their strings */
};

struct symbolizer {
    struct entry **buckets;
    size_t buckets_count; /* a power of two */
    size_t entries;
    struct entry *newest, *oldest;
    uint64_t seed[2];
    size_t bytes_max;
    struct symbolizer_stats stats;
    char *debug_dir;
    const struct symbol_host *host; /* or NULL */
    uint32_t owner;
    uint32_t worker_owner; /* whose files the worker has seen; SYMBOL_OWNER_NONE: nobody's */
    const struct symbol_query *asked; /* that the engine is looking at */
    struct symbol_engine *engine;     /* in-process */
    struct symbol_worker worker;      /* or not */
    uint64_t broken[BROKEN_MAX];      /* module hashes; a ring */
    unsigned broken_next;
    struct buffer record;
    struct perf_map *made; /* of the process below; NULL: it wrote none */
    pid_t made_pid;        /* 0: not looked yet */
    uint32_t made_owner;
    time_t made_expires;
};

static time_t now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return t.tv_sec;
}

/* The engine in this process wants debug files. */
static size_t engine_give(void *context, const struct symbol_want *want,
                          int ret_fds[static SYMBOL_GIVEN_MAX])
{
    const struct symbolizer *s = context;
    return symbol_files_give(s->asked, s->debug_dir, s->host, want, ret_fds);
}

int symbolizer_new(const struct symbolizer_options *options, struct symbolizer **ret_symbolizer)
{
    struct symbolizer_options o = options ? *options : (struct symbolizer_options){0};
    struct symbolizer *s = calloc(1, sizeof(*s));
    int r = -ENOMEM;
    if (!s)
        return r;
    s->bytes_max = o.results_bytes_max ? o.results_bytes_max : (size_t)64 << 20;
    s->buckets_count = BUCKETS_MIN;
    s->buckets = calloc(BUCKETS_MIN, sizeof(s->buckets[0]));
    s->host = o.host;
    s->owner = s->worker_owner = (uint32_t)SYMBOL_OWNER_NONE;
    s->worker.fd = -1;
    s->debug_dir = strdup(o.debug_dir ? o.debug_dir : "/usr/lib/debug");
    s->record = BUFFER_INIT(SYMBOL_RECORD_MAX);
    /* Paths and build-ids are chosen by strangers: with a known hash they could collide at will. */
    if (getrandom(s->seed, sizeof(s->seed), GRND_NONBLOCK) != sizeof(s->seed))
        s->seed[0] = s->seed[1] = (uint64_t)time(NULL) ^ (uintptr_t)s;
    if (s->buckets && s->debug_dir) {
        unsigned modules_max = o.modules_max ? o.modules_max : 64;
        s->worker = (struct symbol_worker){
            .fd = -1,
            .pidfd = -1,
            .debug_dir = s->debug_dir,
            .host = s->host,
            .setup = {.bytes_max = o.worker_bytes_max ? o.worker_bytes_max : (size_t)4 << 30,
                      .modules_max = modules_max,
                      .timeout_ms = o.timeout_ms ? o.timeout_ms : 20000},
        };
        r = o.in_process ? symbol_engine_new(modules_max, engine_give, s, &s->engine)
                         : symbol_worker_start(&s->worker);
    }
    if (r < 0) {
        symbolizer_free(s);
        return r;
    }
    s->stats.worker_starts = o.in_process ? 0 : 1;
    *ret_symbolizer = s;
    return 0;
}

void symbolizer_free(struct symbolizer *s)
{
    if (!s)
        return;
    for (struct entry *e = s->newest, *older; e; e = older) {
        older = e->older;
        free(e);
    }
    symbol_engine_free(s->engine);
    symbol_worker_end(&s->worker);
    buffer_release(&s->record);
    free(s->buckets);
    perf_map_free(s->made);
    free(s->debug_dir);
    free(s);
}

void symbolizer_act_as(struct symbolizer *s, uint32_t owner)
{
    s->owner = owner;
}

void symbolizer_stats(const struct symbolizer *s, struct symbolizer_stats *ret_stats)
{
    *ret_stats = s->stats;
}

/* ---- remembered answers ---- */

/* A module is its build-id; without one, a path in the eyes of a process. What one process has mapped is no answer for
 * another that only names it. */
static void module_hash(const struct symbolizer *s, const struct symbol_query *q,
                        uint64_t ret_hash[2])
{
    for (int i = 0; i < 2; i++) {
        if (q->build_id_len > 0)
            ret_hash[i] = hash_bytes(q->build_id, q->build_id_len, s->seed[i]);
        else
            ret_hash[i] =
                hash_combine(hash_string(q->path ? q->path : "", ~s->seed[i]),
                             (uint64_t)q->pid << 32 ^ q->map_start ^ (uint64_t)q->before_s << 16);
        if (s->host)
            ret_hash[i] = hash_combine(hash_combine(ret_hash[i], q->owner),
                                       (uint64_t)q->pid << 32 ^ q->map_start);
    }
}

static struct entry **bucket_of(const struct symbolizer *s, const uint64_t module[2],
                                uint64_t offset)
{
    return &s->buckets[hash_combine(module[0], offset) & (s->buckets_count - 1)];
}

static void lru_remove(struct symbolizer *s, struct entry *e)
{
    *(e->newer ? &e->newer->older : &s->newest) = e->older;
    *(e->older ? &e->older->newer : &s->oldest) = e->newer;
}

static void lru_add(struct symbolizer *s, struct entry *e)
{
    e->newer = NULL;
    e->older = s->newest;
    *(s->newest ? &s->newest->newer : &s->oldest) = e;
    s->newest = e;
}

static void entry_drop(struct symbolizer *s, struct entry *e)
{
    struct entry **at = bucket_of(s, e->module, e->offset);
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    lru_remove(s, e);
    s->entries--;
    s->stats.results_bytes -= e->bytes;
    free(e);
}

static struct entry *entry_find(struct symbolizer *s, const struct symbol_query *q,
                                const uint64_t module[2])
{
    struct entry *e = *bucket_of(s, module, q->offset);
    while (e && (e->offset != q->offset || e->module[0] != module[0] || e->module[1] != module[1] ||
                 e->is_return_address != q->is_return_address))
        e = e->next;
    if (!e)
        return NULL;
    if (e->expires != 0 && now_seconds() >= e->expires) {
        entry_drop(s, e);
        return NULL;
    }
    if (e != s->newest) {
        lru_remove(s, e);
        lru_add(s, e);
    }
    return e;
}

static void buckets_grow(struct symbolizer *s)
{
    size_t count = s->buckets_count * 2;
    struct entry **buckets = calloc(count, sizeof(buckets[0]));
    if (!buckets)
        return; /* longer chains, still right */
    free(s->buckets);
    s->buckets = buckets;
    s->buckets_count = count;
    for (struct entry *e = s->oldest; e; e = e->newer) {
        struct entry **bucket = bucket_of(s, e->module, e->offset);
        e->next = *bucket;
        *bucket = e;
    }
}

static void entry_keep(struct symbolizer *s, struct entry *e)
{
    if (s->entries >= s->buckets_count)
        buckets_grow(s);
    struct entry **bucket = bucket_of(s, e->module, e->offset);
    e->next = *bucket;
    *bucket = e;
    lru_add(s, e);
    s->entries++;
    s->stats.results_bytes += e->bytes;
    while (s->stats.results_bytes > s->bytes_max && s->oldest != e) {
        entry_drop(s, s->oldest);
        s->stats.evicted++;
    }
}

/* ---- records ---- */

/* Take one string out of a record: false if it does not end where it says. */
static bool take_string(const char **at, const char *end, uint32_t len, const char **ret_string)
{
    *ret_string = NULL;
    if (len == 0)
        return true;
    if (len > (size_t)(end - *at) || (*at)[len - 1] != '\0')
        return false;
    *ret_string = *at;
    *at += len;
    return true;
}

/* Turn a record, which comes from a process that parsed who knows what, into an entry. */
static struct entry *entry_make(const struct buffer *record)
{
    struct symbol_record header;
    const char *at = record->data, *end = at + record->len;
    if (record->len < sizeof(header))
        return NULL;
    memcpy(&header, at, sizeof(header));
    at += sizeof(header);
    if (header.frames > SYMBOL_FRAMES_MAX || header.result > 0 || header.result < -4095 ||
        (header.frames == 0) != (header.result != 0))
        return NULL;
    size_t frames_bytes = header.frames * sizeof(struct symbol_frame);
    size_t bytes = sizeof(struct entry) + frames_bytes + (size_t)(end - at);
    struct entry *e = calloc(1, bytes);
    if (!e)
        return NULL;
    e->bytes = bytes;
    e->result = header.result;
    e->count = header.frames;
    char *text = (char *)&e->frames[header.frames];
    memcpy(text, at, (size_t)(end - at));
    end = text + (end - at);
    const char *from = text;
    for (uint32_t i = 0; i < header.frames; i++) {
        struct symbol_record_frame f;
        struct symbol_frame *out = &e->frames[i];
        bool ok = (size_t)(end - from) >= sizeof(f);
        if (ok) {
            memcpy(&f, from, sizeof(f));
            from += sizeof(f);
            ok = take_string(&from, end, f.function_len, &out->function) &&
                 take_string(&from, end, f.file_len, &out->file);
        }
        if (!ok) {
            free(e);
            return NULL;
        }
        out->line = f.line;
        out->column = f.column;
        out->function_offset = f.function_offset;
        out->inlined = f.inlined != 0;
        out->function_bytes = f.function_bytes;
    }
    return e;
}

/* ---- new answers ---- */

static bool broken_has(const struct symbolizer *s, uint64_t module)
{
    for (unsigned i = 0; i < BROKEN_MAX; i++)
        if (s->broken[i] == module)
            return true;
    return false;
}

/* A worker for files of `owner`. A file may have taken over the worker that read it, so with a host no worker sees the
 * files of two users. */
static int worker_ready(struct symbolizer *s, uint32_t owner)
{
    if (s->host && s->worker_owner != owner && s->worker_owner != (uint32_t)SYMBOL_OWNER_NONE)
        symbol_worker_end(&s->worker);
    if (s->worker.fd < 0)
        s->stats.worker_starts++;
    s->worker_owner = owner;
    return symbol_worker_start(&s->worker);
}

/* Ask the engine, here or in the worker. */
static int ask(struct symbolizer *s, const struct symbol_query *q, uint64_t module)
{
    struct symbol_files files;
    if (broken_has(s, module))
        return -EBADMSG;
    symbol_files_open(q, s->debug_dir, s->host, &files);
    s->asked = q;
    buffer_reset(&s->record);
    int r = files.main_error;
    if (files.main_fd >= 0 || files.debug_fd >= 0) {
        if (s->engine) {
            symbol_engine_resolve(s->engine, q, &files, &s->record);
            r = s->record.error;
        } else {
            r = worker_ready(s, q->owner);
            bool started = r == 0;
            if (started)
                r = symbol_worker_resolve(&s->worker, q, &files, &s->record);
            if (started && s->worker.fd < 0 && (r == -EBADMSG || r == -ETIMEDOUT)) {
                s->stats.worker_deaths++;
                s->broken[s->broken_next++ % BROKEN_MAX] = module;
            }
        }
    }
    symbol_files_close(&files);
    return r;
}

/* Keep an answer: a record that came, or the error that did instead. NULL without memory, or when the record makes
 * no sense. */
static struct entry *answer_keep(struct symbolizer *s, const struct symbol_query *query,
                                 const uint64_t module[2], uint64_t offset, int result)
{
    struct entry *e = result == 0 ? entry_make(&s->record) : calloc(1, sizeof(*e));
    if (!e)
        return NULL;
    if (result < 0) {
        e->result = result;
        e->bytes = sizeof(*e);
    }
    e->module[0] = module[0];
    e->module[1] = module[1];
    e->offset = offset;
    e->is_return_address = query->is_return_address;
    bool sure = query->build_id_len > 0 && (e->result == 0 || e->result == -ENODATA);
    e->expires = sure ? 0 : now_seconds() + UNSURE_SECONDS;
    entry_keep(s, e);
    return e;
}

int symbolizer_resolve(struct symbolizer *s, const struct symbol_query *asked,
                       const struct symbol_frame **ret_frames, size_t *ret_n)
{
    uint64_t module[2];
    struct symbol_query owned = *asked, *query = &owned;
    owned.owner = s->owner;
    s->stats.queries++;
    module_hash(s, query, module);
    struct entry *e = entry_find(s, query, module);
    if (!e) {
        s->stats.misses++;
        int r = ask(s, query, module[0]);
        if (r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -EAGAIN || r == -EBUSY)
            return r; /* about us, not about the file */
        e = answer_keep(s, query, module, query->offset, r);
        if (!e)
            return r == 0 ? -EBADMSG : -ENOMEM;
    }
    if (e->result < 0)
        return e->result;
    *ret_frames = e->frames;
    *ret_n = e->count;
    return 0;
}

/* ---- many at once ---- */

struct fetch {
    struct symbolizer *symbolizer;
    const struct symbol_query *query;
    const uint64_t *module; /* its hash */
    const uint64_t *offsets;
};

static void fetched(size_t i, void *context)
{
    const struct fetch *f = context;
    answer_keep(f->symbolizer, f->query, f->module, f->offsets[i], 0);
}

/* Up to SYMBOL_WORKER_OFFSETS_MAX of them, none of which is known. */
static int fetch(struct fetch *f, size_t n)
{
    struct symbolizer *s = f->symbolizer;
    struct symbol_files files;
    int r = -ENOENT;
    symbol_files_open(f->query, s->debug_dir, s->host, &files);
    if (files.main_fd >= 0 || files.debug_fd >= 0)
        r = worker_ready(s, f->query->owner);
    if (r == 0)
        r = symbol_worker_resolve_many(&s->worker, f->query, &files, f->offsets, n, &s->record,
                                       fetched, f);
    symbol_files_close(&files);
    return r;
}

void symbolizer_prefetch(struct symbolizer *s, const struct symbol_query *query,
                         const uint64_t *offsets, size_t n)
{
    uint64_t module[2], wanted[SYMBOL_WORKER_OFFSETS_MAX];
    struct symbol_query q = *query;
    struct fetch f = {s, &q, module, wanted};
    size_t count = 0;
    q.owner = s->owner;
    module_hash(s, &q, module);
    for (size_t i = 0; i < n; i++) {
        /* What broke the worker is found out one by one. */
        if (s->engine || s->worker.fd < 0 || broken_has(s, module[0]))
            return;
        q.offset = offsets[i];
        if (!entry_find(s, &q, module))
            wanted[count++] = offsets[i];
        if (count == SYMBOL_WORKER_OFFSETS_MAX || (count && i + 1 == n)) {
            if (fetch(&f, count) < 0)
                return;
            count = 0;
        }
    }
}

const char *symbolizer_made_code(struct symbolizer *s, pid_t pid, uint64_t address)
{
    if (pid <= 0 || (s->host && s->owner == (uint32_t)SYMBOL_OWNER_NONE))
        return NULL;
    time_t now = now_seconds();
    if (s->made_pid != pid || s->made_owner != s->owner || now >= s->made_expires) {
        perf_map_free(s->made);
        s->made = NULL;
        if (perf_map_read(pid, s->host, s->owner, &s->made) < 0)
            s->made = NULL;
        s->made_pid = pid;
        s->made_owner = s->owner;
        s->made_expires = now + MADE_SECONDS;
    }
    return s->made ? perf_map_find(s->made, address) : NULL;
}
