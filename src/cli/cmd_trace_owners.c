/* memoir trace owners: the driver's figure of a process, split by library and line. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/units.h"
#include "cli/table.h"
#include "cli/trace.h"
#include "ledger/proc.h"
#include "nvml/facts.h"
#include "nvml/nvml.h"
#include "nvml/owners.h"
#include "nvml/visible.h"

enum { ENVIRON_MAX = 4 << 20, BATCH = 256, LIST_MAX = 8 << 20 };

enum {
    OWNER_HELD,
    OWNER_BYTES,
    OWNER_SHARE,
    OWNER_BLOCKS,
    OWNER_LIBRARY,
    OWNER_SITE,
    OWNER_MEMORY,
    OWNER_KIND,
    OWNER_DEVICE,
    OWNER_ESTIMATE
};

static const struct column columns[] = {
    [OWNER_HELD] = {"held", "BYTES", "the same, where it is not negative", COLUMN_BYTES,
                    COLUMN_SCREEN_ONLY},
    [OWNER_BYTES] =
        {"bytes", NULL,
         "device memory; the rows of a device sum to the driver's figure of the process",
         COLUMN_CHANGE_BYTES, COLUMN_EXPORT_ONLY},
    [OWNER_SHARE] = {"percent", "SHARE", "of the driver's figure", COLUMN_PERCENT},
    [OWNER_BLOCKS] = {"allocations", "ALLOCATIONS", "live allocations", COLUMN_NUMBER},
    [OWNER_LIBRARY] = {"library", "LIBRARY", "who asked for it: torch, cuBLAS, NCCL, the program",
                       COLUMN_TEXT},
    [OWNER_SITE] =
        {"site", "LINE",
         "the line that allocated it; or rounding, CUDA context, before attach, CUDA graphs, unknown",
         COLUMN_TEXT, COLUMN_STRETCH},
    [OWNER_MEMORY] = {"memory", NULL, "device, pool, virtual or managed", COLUMN_TEXT,
                      COLUMN_EXPORT_ONLY},
    [OWNER_KIND] = {"kind", NULL, "allocated, or what the row is instead", COLUMN_TEXT,
                    COLUMN_EXPORT_ONLY},
    [OWNER_DEVICE] = {"ordinal", "DEVICE", "number of the device, as the process counts them",
                      COLUMN_NUMBER},
    [OWNER_ESTIMATE] = {"estimated", NULL, "is it an estimate?", COLUMN_YES, COLUMN_EXPORT_ONLY},
    {0},
};

static const struct command_fields fields[] = {{"Fields of an owner", columns}, {0}};

static const struct option_spec options[] = {
    OPTION_HELP,
    {"device", 0, OPTION_NUMBER, TRACE_AT(device), "N",
     "only this device, as the process counts them"},
    {"context", 0, OPTION_STRING, TRACE_AT(context), "BYTES",
     "what the driver counts for a CUDA context of this program (default: as the observer "
     "measured it)"},
    TRACE_OPTION_FOR,
    TRACE_OPTION_SOCKET,
    TRACE_OPTION_DIR,
    TRACE_OPTION_TABLE,
    {0},
};

/* ---- what the history knows ---- */

struct owned {
    struct owners_block *blocks; /* one for each live block; `site` is ours */
    int32_t *devices;
    size_t n, cap;
    struct trace_history *history; /* borrowed */
};

static void owned_release(struct owned *o)
{
    for (size_t i = 0; i < o->n; i++)
        free((char *)o->blocks[i].site);
    free(o->blocks);
    free(o->devices);
}

static enum owners_memory memory_of(const struct trace_block *b)
{
    if (b->space == MEMOIR_SPACE_MANAGED)
        return OWNERS_MANAGED;
    if (b->class == TRACE_CLASS_GRAPH)
        return OWNERS_RECORDED;
    if (b->flags & TRACE_FLAG_POOL)
        return OWNERS_POOL;
    return b->flags & TRACE_FLAG_HANDLE ? OWNERS_VIRTUAL : OWNERS_DEVICE;
}

static int owned_add(struct trace_source *source, struct owned *o, const struct trace_block *b)
{
    char label[TRACE_LABEL_MAX];
    const struct trace_site *site = trace_sites_get(trace_history_sites(source->history), b->site);
    if (o->n == o->cap) {
        size_t cap = o->cap ? o->cap * 2 : 256;
        struct owners_block *blocks = reallocarray(o->blocks, cap, sizeof(*blocks));
        if (blocks)
            o->blocks = blocks;
        int32_t *devices = reallocarray(o->devices, cap, sizeof(*devices));
        if (devices)
            o->devices = devices;
        if (!blocks || !devices)
            return -ENOMEM;
        o->cap = cap;
    }
    char *text = strdup(b->site ? trace_names_label(source->names, b->site, label) : "");
    if (!text)
        return -ENOMEM;
    o->blocks[o->n] = (struct owners_block){.module = site ? trace_site_module(site) : "",
                                            .site = text,
                                            .memory = memory_of(b),
                                            .size = b->size,
                                            .count = 1};
    o->devices[o->n++] = b->device;
    return 0;
}

static int owned_read(struct trace_source *source, struct owned *o)
{
    struct trace_filter filter = {
        .active = true, .device = -1, .classes = 1u << TRACE_CLASS_OWN | 1u << TRACE_CLASS_GRAPH};
    uint64_t cursor = 0;
    size_t n;
    MEMOIR_CLEANUP(freep)
    struct trace_block *batch = calloc(BATCH, sizeof(*batch));
    if (!batch)
        return -ENOMEM;
    o->history = source->history;
    while ((n = trace_history_blocks(source->history, &filter, &cursor, batch, BATCH)) > 0)
        for (size_t i = 0; i < n; i++) {
            bool device =
                batch[i].space == MEMOIR_SPACE_DRAM || batch[i].space == MEMOIR_SPACE_MANAGED;
            int r = device ? owned_add(source, o, &batch[i]) : 0;
            if (r < 0)
                return r;
        }
    return 0;
}

/* ---- what the driver knows ---- */

static void visible_of(pid_t pid, const struct nvml_facts *facts, struct visible *ret_visible)
{
    MEMOIR_CLEANUP(freep)
    char *environment = malloc(ENVIRON_MAX);
    ssize_t n = environment ? proc_file_read("/proc", pid, "environ", environment, ENVIRON_MAX) : 0;
    const char *bytes = n > 0 ? environment : "";
    size_t len = n > 0 ? (size_t)n : 0;
    visible_devices(visible_environ(bytes, len, "CUDA_VISIBLE_DEVICES"),
                    visible_environ(bytes, len, "CUDA_DEVICE_ORDER"), facts->devices,
                    facts->n_devices, ret_visible);
}

static const struct nvml_process *driver_find(const struct nvml_facts *facts, uint32_t device,
                                              pid_t pid)
{
    for (size_t i = 0; i < facts->n_processes; i++)
        if (facts->processes[i].device == device && facts->processes[i].pid == (uint32_t)pid &&
            facts->processes[i].has_used)
            return &facts->processes[i];
    return NULL;
}

/* ---- rows ---- */

static void owner_row(struct table *t, const struct owners_row *row, uint64_t all, size_t device)
{
    static const char *const memories[] = {"device", "pool", "virtual", "managed"};
    table_row(t);
    table_set_change(t, OWNER_BYTES, row->bytes);
    if (row->bytes >= 0)
        table_set_number(t, OWNER_HELD, (uint64_t)row->bytes);
    if (row->estimate)
        table_set_marks(t, OWNER_HELD, TABLE_MARK_ESTIMATE);
    if (all && row->bytes >= 0)
        table_set_number(t, OWNER_SHARE, (uint64_t)((__uint128_t)row->bytes * 10000 / all));
    if (row->kind == OWNERS_LINE) {
        table_set_number(t, OWNER_BLOCKS, row->blocks);
        table_set_text(t, OWNER_LIBRARY, row->library);
        table_set_text(t, OWNER_SITE, *row->site ? row->site : "unknown line");
        table_set_text(t, OWNER_MEMORY, memories[row->memory]);
    } else {
        char text[128], bytes[UNITS_TEXT_MAX];
        snprintf(text, sizeof(text), row->bytes < 0 ? "%s: -%s" : "%s", owners_kind_name(row->kind),
                 trace_bytes(bytes, (uint64_t)-row->bytes));
        table_set_text(t, OWNER_SITE, text);
        table_set_style(t, OWNER_SITE, row->kind == OWNERS_UNKNOWN ? STYLE_WARN : STYLE_DIM);
    }
    table_set_text(t, OWNER_KIND, owners_kind_name(row->kind));
    table_set_number(t, OWNER_DEVICE, device);
    table_set_number(t, OWNER_ESTIMATE, row->estimate);
}

/* What the observer knows of the driver's figure beyond blocks. */
struct beyond {
    bool has_context, has_before, estimate;
    uint64_t context_bytes, before_bytes;
};

static void beyond_device(struct json_read *read, uint64_t wanted, struct beyond *ret_beyond)
{
    struct beyond told = {0};
    struct json_text key;
    uint64_t device = UINT64_MAX;
    json_read_object(read);
    while (json_read_key(read, &key))
        if (json_text_is(&key, "ordinal"))
            json_read_u64(read, &device);
        else if (json_text_is(&key, "context"))
            told.has_context = json_read_u64(read, &told.context_bytes);
        else if (json_text_is(&key, "before"))
            told.has_before = json_read_u64(read, &told.before_bytes);
        else if (json_text_is(&key, "estimated"))
            json_read_bool(read, &told.estimate);
        else
            json_read_skip(read);
    if (!read->error && device == wanted)
        *ret_beyond = told;
}

static void beyond_process(struct json_read *read, pid_t wanted, uint64_t device,
                           struct beyond *ret_beyond)
{
    struct beyond told = {0};
    struct json_text key;
    uint64_t pid = 0;
    json_read_object(read);
    while (json_read_key(read, &key)) {
        if (json_text_is(&key, "pid")) {
            json_read_u64(read, &pid);
        } else if (json_text_is(&key, "devices")) {
            json_read_array(read);
            while (json_read_item(read))
                beyond_device(read, device, &told);
        } else {
            json_read_skip(read);
        }
    }
    if (!read->error && pid == (uint64_t)wanted)
        *ret_beyond = told;
}

/* From the observer's answer to "list". */
static struct beyond beyond_of(const struct buffer *list, pid_t pid, size_t device)
{
    struct beyond told = {0};
    struct json_read read;
    struct json_text key;
    json_read_init(&read, list->data ? list->data : "", list->len);
    json_read_object(&read);
    while (json_read_key(&read, &key)) {
        if (!json_text_is(&key, "processes")) {
            json_read_skip(&read);
            continue;
        }
        json_read_array(&read);
        while (json_read_item(&read))
            beyond_process(&read, pid, device, &told);
    }
    return json_read_finish(&read) < 0 ? (struct beyond){0} : told;
}

static int device_rows(const struct owned *owned, size_t device, uint64_t driver_bytes,
                       const char *program, const struct beyond *beyond, struct table *t)
{
    struct owners_row *rows = NULL;
    size_t n = 0, n_rows = 0;
    MEMOIR_CLEANUP(freep)
    struct owners_block *blocks = calloc(owned->n + 1, sizeof(*blocks));
    if (!blocks)
        return -ENOMEM;
    for (size_t i = 0; i < owned->n;
         i++) /* a block whose device is not known is of the first one */
        if (owned->devices[i] == (int32_t)device || (owned->devices[i] < 0 && device == 0))
            blocks[n++] = owned->blocks[i];
    struct owners_process process = {.driver_bytes = driver_bytes,
                                     .program = program,
                                     .has_context = beyond->has_context,
                                     .has_before = beyond->has_before,
                                     .context_estimate = beyond->estimate,
                                     .context_bytes = beyond->context_bytes,
                                     .before_bytes = beyond->before_bytes,
                                     .graph_peak_bytes =
                                         trace_history_graph_peak(owned->history, (int32_t)device)};
    int r = owners_compute(&process, blocks, n, &rows, &n_rows);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n_rows; i++)
        owner_row(t, &rows[i], driver_bytes, device);
    free(rows);
    return 0;
}

struct told {
    uint64_t bytes[NVML_DEVICES_MAX];
    bool has[NVML_DEVICES_MAX];
    size_t n;
};

static void owners_extra(void *context, struct json *json)
{
    const struct told *told = context;
    json_key(json, "driver");
    json_array_begin(json);
    for (size_t i = 0; i < told->n; i++) {
        if (!told->has[i])
            continue;
        json_object_begin(json);
        json_field_u64(json, "ordinal", i);
        json_field_u64(json, "used", told->bytes[i]);
        json_object_end(json);
    }
    json_array_end(json);
}

static int owners_show(struct trace_source *source, const struct nvml_facts *facts,
                       struct owned *owned, const struct buffer *list, uint64_t context_bytes)
{
    const struct trace_values *v = source->values;
    pid_t pid = source->identity.pid;
    char path[64], program[PATH_MAX] = "";
    struct visible visible;
    MEMOIR_CLEANUP(freep)
    struct told *told = calloc(1, sizeof(*told));
    MEMOIR_CLEANUP(table_release)
    struct table table;
    table_init(&table, columns);
    if (!told)
        return -ENOMEM;
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    ssize_t n = readlink(path, program, sizeof(program) - 1);
    program[n > 0 ? n : 0] = '\0';
    visible_of(pid, facts, &visible);
    told->n = visible.n < NVML_DEVICES_MAX ? visible.n : NVML_DEVICES_MAX;
    for (size_t i = 0; i < told->n; i++) {
        const struct nvml_process *p = driver_find(facts, visible.devices[i], pid);
        if (!p || (v->device != UINT64_MAX && v->device != i))
            continue;
        told->has[i] = true;
        told->bytes[i] = p->used_bytes;
        struct beyond beyond = beyond_of(list, pid, i);
        if (context_bytes)
            beyond = (struct beyond){
                .has_context = true, .estimate = true, .context_bytes = context_bytes};
        int r = device_rows(owned, i, p->used_bytes, program, &beyond, &table);
        if (r < 0)
            return r;
    }
    if (!visible.certain)
        fprintf(
            stderr,
            "The order of unequal devices is a guess: CUDA_DEVICE_ORDER=PCI_BUS_ID makes it certain.\n");
    struct trace_print print = {.schema = "memoir.trace.owners/2",
                                .rows = "owners",
                                .empty = "The driver counts no device memory for this process.",
                                .extra = owners_extra,
                                .context = told};
    return trace_print_table(source, &table, &print);
}

static int owners_run(const void *values, const struct operands *operands)
{
    MEMOIR_CLEANUP(trace_source_release)
    struct trace_source source = {0};
    struct nvml_facts facts = {0};
    struct nvml *nvml = NULL;
    struct owned owned = {0};
    uint64_t context_bytes = 0;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer list = BUFFER_INIT(LIST_MAX);
    const struct trace_values *v = values;
    if (v->context && units_parse_bytes(v->context, &context_bytes) < 0)
        return command_misuse(&cmd_trace_owners, "invalid size '%s' for --context: expected 500MiB",
                              v->context);
    source.list = &list;
    int r = trace_source_operand(&source, &cmd_trace_owners, values, operands);
    if (r != COMMAND_OK)
        return r;
    if (source.loaded)
        return command_misuse(
            &cmd_trace_owners,
            "a dump has no figure of the driver: name the PID of a running process");
    r = nvml_new(&nvml);
    if (r == 0)
        r = nvml_ask(nvml, NVML_WAIT_MS, &facts);
    if (r < 0) {
        r = command_fail("the driver does not tell what it counts: %s",
                         nvml && *nvml_why(nvml) ? nvml_why(nvml) : strerror(-r));
    } else {
        r = owned_read(&source, &owned);
        if (r == 0)
            r = owners_show(&source, &facts, &owned, &list, context_bytes);
    }
    owned_release(&owned);
    nvml_facts_release(&facts);
    nvml_free(nvml);
    return r;
}

static const struct command_example examples[] = {
    {"sudo memoir trace owners 4242", "who owns the memory that nvidia-smi shows for process 4242"},
    {0},
};

static const struct command_section sections[] = {
    {"ROWS THAT ARE NO LINE",
     "rounding: the driver gives memory in pieces of 2 MiB, pools grow by 32 MiB. CUDA context: code "
     "and buffers of the driver itself; the observer asks NVML when a program makes its context. "
     "before attach: what the driver counted when tracing began; the context is part of it unless the "
     "observer has seen another program make one on that device. unknown: all that remains. A process "
     "that is traced from its start has nothing from before."},
    {0},
};

const struct command cmd_trace_owners = {
    .name = "trace owners",
    .usage = "trace owners [OPTION...] PID",
    .help = "who owns the device memory that the driver counts for a process",
    .description =
        "Splits the figure that the NVIDIA driver (NVML, nvidia-smi) has for a process by library and line. Rounding, the CUDA context, what was allocated "
        "before tracing began and what is unknown have rows of their own: the rows of a device sum to the driver's figure exactly.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .fields = fields,
    .operands_max = 1,
    .takes_processes = true,
    .values_size = sizeof(trace_defaults),
    .defaults = &trace_defaults,
    .run = owners_run,
};
