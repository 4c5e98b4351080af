/* The table of blocks that processes still held when they ended: the largest of each, as memoird wrote them to its list. */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "query/arena.h"
#include "query/code.h"
#include "query/retired_lines.h"
#include "query/table_process.h"

typedef struct query_value value;

/* One line of the list while its blocks are looked at. */
struct ended {
    struct query_scan *scan;
    const json_t *line;
    uint64_t uid, started_ns, ended_ns;
    struct code_name *names; /* by site, made when asked for */
    size_t n_sites;
    struct arena texts;
};

/* A row: `block` and the rest are NULL while it is only asked whether any row of the process can match. */
struct held {
    struct ended *ended;
    const json_t *block, *account, *device;
};

static const struct held *held_of(const struct query_row *row)
{
    return row->custom;
}

static void set_json_text(value *ret, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text && *text)
        query_set_text(ret, text);
}

static void set_json_number(value *ret, const json_t *object, const char *key)
{
    const json_t *number = json_object_get(object, key);
    if (json_is_integer(number) && json_integer_value(number) >= 0)
        query_set_number(ret, (uint64_t)json_integer_value(number));
}

/* ---- of the process ---- */

static void get_pid(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, value *ret)
{
    set_json_number(ret, held_of(row)->ended->line, "pid");
}

static void get_uid(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, value *ret)
{
    set_json_number(ret, held_of(row)->ended->line, "uid");
}

static void get_user(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, value *ret)
{
    query_set_user(ret, world, (uint32_t)held_of(row)->ended->uid);
}

enum { PROCESS_NAME, PROCESS_CAUSE };

static void get_process_text(const struct query_world *world, const struct query_row *row,
                             const struct query_field *field, value *ret)
{
    set_json_text(ret, held_of(row)->ended->line,
                  field->column->arg == PROCESS_NAME ? "name" : "cause");
}

static void get_ended(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, value *ret)
{
    if (held_of(row)->ended->ended_ns)
        query_set_number(ret, held_of(row)->ended->ended_ns);
}

/* ---- of the block ---- */

static long long ordinal_of(const struct held *held)
{
    const json_t *ordinal = json_object_get(held->device, "ordinal");
    long long number = json_is_integer(ordinal) ? json_integer_value(ordinal) : -1;
    return number >= 0 && number <= INT_MAX ? number : -1;
}

static void get_device(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, value *ret)
{
    static _Thread_local char text[128];
    const struct held *held = held_of(row);
    const char *name = json_string_value(json_object_get(held->device, "name"));
    if (!json_object_get(held->account, "device"))
        query_set_text(ret, "host");
    else if (!held->device)
        ret->state = QUERY_UNKNOWN;
    else {
        snprintf(text, sizeof(text), "%lld %s", ordinal_of(held), name ? name : "device");
        query_set_text(ret, text);
    }
}

static void get_ordinal(const struct query_world *world, const struct query_row *row,
                        const struct query_field *field, value *ret)
{
    if (ordinal_of(held_of(row)) >= 0)
        query_set_number(ret, (uint64_t)ordinal_of(held_of(row)));
}

static void get_device_text(const struct query_world *world, const struct query_row *row,
                            const struct query_field *field, value *ret)
{
    set_json_text(ret, held_of(row)->device, field->column->arg == PLACE_NAME ? "name" : "uid");
}

static void get_space(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, value *ret)
{
    set_json_text(ret, held_of(row)->account, "space");
}

enum { BLOCK_BYTES, BLOCK_MOVES };

static void get_number(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, value *ret)
{
    set_json_number(ret, held_of(row)->block,
                    field->column->arg == BLOCK_BYTES ? "bytes" : "moves");
}

enum { BLOCK_ID, BLOCK_TAG };

static void get_text(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, value *ret)
{
    set_json_text(ret, held_of(row)->block, field->column->arg == BLOCK_ID ? "id" : "tag");
}

static void get_age(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, value *ret)
{
    if (json_is_number(json_object_get(held_of(row)->block, "age_s")))
        query_set_number(ret, retired_line_ns(held_of(row)->block, "age_s"));
}

/* ---- the place in the code ---- */

/* "FILE:LINE in FUNCTION", a line of a script. */
static bool script_parse(const char *frame, char *file, size_t size, uint32_t *ret_line,
                         const char **ret_function)
{
    for (const char *colon = strchr(frame, ':'); colon; colon = strchr(colon + 1, ':')) {
        size_t digits = strspn(colon + 1, "0123456789");
        const char *word = colon + 1 + digits;
        if (digits == 0 || strncmp(word, " in ", 4) != 0)
            continue;
        snprintf(file, size, "%.*s", (int)(colon - frame), frame);
        *ret_line = (uint32_t)strtoul(colon + 1, NULL, 10);
        *ret_function = word + 4;
        return true;
    }
    return false;
}

/* The innermost line of a script, or else the innermost frame, "PATH+0xOFFSET". */
static int name_frames(struct ended *ended, const json_t *frames, struct code_name *ret_name)
{
    char path[4096];
    const char *function;
    uint32_t line;
    size_t i;
    json_t *frame;
    json_array_foreach(frames, i, frame)
    {
        const char *text = json_string_value(frame);
        if (text && script_parse(text, path, sizeof(path), &line, &function))
            return code_name_script(path, line, function, &ended->texts, ret_name);
    }
    const char *text = json_string_value(json_array_get(frames, 0));
    const char *plus = text ? strrchr(text, '+') : NULL;
    if (!plus || (size_t)(plus - text) >= sizeof(path))
        return -ENOENT;
    snprintf(path, sizeof(path), "%.*s", (int)(plus - text), text);
    struct query_code code = {
        .path = path, .offset = strtoull(plus + 1, NULL, 16), .started_ns = ended->started_ns};
    return code_name_make(ended->scan->world, &code, &ended->texts, ret_name);
}

static void get_code(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, value *ret)
{
    const struct held *held = held_of(row);
    struct ended *ended = held->ended;
    const json_t *index = json_object_get(held->block, "site");
    if (!json_is_integer(index))
        return;
    const json_t *sites = json_object_get(ended->line, "sites");
    if (!ended->names) {
        ended->n_sites = json_array_size(sites);
        ended->names = calloc(ended->n_sites + 1, sizeof(*ended->names));
    }
    size_t number = (size_t)json_integer_value(index);
    struct code_name *name = ended->names && number < ended->n_sites ? &ended->names[number] : NULL;
    const json_t *frames = json_object_get(json_array_get(sites, number), "frames");
    if (name && !name->site && name_frames(ended, frames, name) < 0)
        name = NULL;
    code_name_get(name, field->column->arg, ret);
}

/* ---- the table ---- */

#define OWN QUERY_DETAIL | QUERY_PRIVATE

static const struct query_column columns[] = {
    {"pid", NULL, QUERY_NUMBER, QUERY_SAME, .get = get_pid},
    {"program", NULL, QUERY_TEXT, .arg = PROCESS_NAME, .get = get_process_text},
    {"user", NULL, QUERY_TEXT, .get = get_user},
    {"uid", NULL, QUERY_NUMBER, QUERY_SAME, .get = get_uid},
    {"node", NULL, QUERY_TEXT, .get = query_get_node},
    QUERY_COLUMN_NODES,
    {"ended", "when the process ended", QUERY_TIME, QUERY_MAX, .get = get_ended},
    {"cause", "how it ended", QUERY_TEXT, .arg = PROCESS_CAUSE, .get = get_process_text},
    {"device", "number and name of the device, or host", QUERY_TEXT, .flags = QUERY_DETAIL,
     .get = get_device},
    {"ordinal", NULL, QUERY_NUMBER, QUERY_SAME, .flags = QUERY_DETAIL, .get = get_ordinal},
    {"device_name", NULL, QUERY_TEXT, .flags = QUERY_DETAIL, .arg = PLACE_NAME,
     .get = get_device_text},
    {"device_uid", NULL, QUERY_TEXT, .flags = QUERY_DETAIL, .arg = PLACE_UID,
     .get = get_device_text},
    {"space", NULL, QUERY_TEXT, .flags = QUERY_DETAIL, .get = get_space},
    {"bytes", "size of the block", QUERY_BYTES, .flags = QUERY_DETAIL, .arg = BLOCK_BYTES,
     .get = get_number},
    {"age", "how old it was when its process ended", QUERY_AGE, .flags = QUERY_DETAIL,
     .get = get_age},
    {"tag", NULL, QUERY_TEXT, .flags = OWN, .arg = BLOCK_TAG, .get = get_text},
    {"moves", NULL, QUERY_NUMBER, .flags = QUERY_DETAIL, .arg = BLOCK_MOVES, .get = get_number},
    {"id", NULL, QUERY_TEXT, .flags = QUERY_DETAIL, .arg = BLOCK_ID, .get = get_text},
    CODE_COLUMNS("the place in the code that asked for it", get_code),
    {0},
};

static int each_block(struct ended *ended, const json_t *block)
{
    const json_t *index = json_object_get(block, "account");
    struct held held = {.ended = ended, .block = block};
    if (json_is_integer(index))
        held.account = json_array_get(json_object_get(ended->line, "accounts"),
                                      (size_t)json_integer_value(index));
    index = json_object_get(held.account, "device");
    if (json_is_integer(index))
        held.device = json_array_get(json_object_get(ended->line, "devices"),
                                     (size_t)json_integer_value(index));
    return ended->scan->each(ended->scan, &(struct query_row){.custom = &held});
}

static int each_line(json_t *line, void *context)
{
    struct query_scan *scan = context;
    struct ended ended = {.scan = scan,
                          .line = line,
                          .uid = retired_line_number(line, "uid"),
                          .started_ns = retired_line_ns(line, "start"),
                          .ended_ns = retired_line_ns(line, "end")};
    struct held any = {.ended = &ended};
    if (scan->deadline_ns && clock_monotonic_ns() > scan->deadline_ns)
        return -ETIME;
    if (!scan->may_match(scan, &(struct query_row){.custom = &any}))
        return 0;
    int r = 0;
    size_t i;
    json_t *block;
    json_array_foreach(json_object_get(line, "blocks"), i, block)
    {
        r = each_block(&ended, block);
        if (r)
            break;
    }
    free(ended.names);
    arena_release(&ended.texts);
    return r;
}

static int scan(struct query_scan *scan)
{
    size_t skipped = 0;
    const struct retired_source *retired = scan->world->retired;
    if (!retired)
        return 0;
    int r = retired->read(retired, each_line, scan, &skipped);
    scan->incomplete |= skipped > 0;
    return r == -ENOENT ? 0 : r;
}

static bool owner(const struct query_row *row, uint32_t *ret_uid)
{
    *ret_uid = (uint32_t)held_of(row)->ended->uid;
    return true;
}

const struct query_table query_table_exited_blocks = {
    .name = "exited_blocks",
    .help = "one row for each of the largest blocks that a process still held when it ended",
    .columns = columns,
    .needs = QUERY_NEEDS_RETIRED,
    .costly = true,
    .show = "pid,user,program,device,space,bytes,age,tag,site",
    .show_by = "count,bytes,age",
    .sort = "-ended,+pid,-bytes,+id",
    .private_rows = true,
    .scan = scan,
    .owner = owner,
};
