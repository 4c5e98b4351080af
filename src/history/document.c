/* The document of history. See document.h. */
#include "history/document.h"

#include <stdio.h>

#include "base/clock.h"
#include "history/read.h"
#include "history/table.h"
#include "query/query.h"

enum { NAME_MAX_BYTES = 96 };

const char history_document_show[] =
    "pid,start,user,uid,program,ordinal,device_name,device_id,space,capacity,points,peaks";
enum {
    SHOW_PID,
    SHOW_START,
    SHOW_USER,
    SHOW_UID,
    SHOW_PROGRAM,
    SHOW_ORDINAL,
    SHOW_DEVICE,
    SHOW_DEVICE_ID,
    SHOW_SPACE,
    SHOW_CAPACITY,
    SHOW_POINTS,
    SHOW_PEAKS
};

void history_document_init(struct history_document *document, size_t bytes_max)
{
    document->text = BUFFER_INIT(bytes_max);
    json_init(&document->json, &document->text);
    json_array_begin(&document->json);
}

void history_document_release(struct history_document *document)
{
    buffer_release(&document->text);
}

static bool known(const struct query_value *value)
{
    return value->state & QUERY_KNOWN;
}

/* A percentage is a number with two decimals, as in queries. */
static void points_json(struct json *json, const char *key, const struct query_value *points,
                        const struct history_world *time, bool percent)
{
    size_t at = 0, n = known(points) ? query_points(points) : 0;
    json_key(json, key);
    json_array_begin(json);
    for (uint64_t t = time->from_s; t < time->to_s; t += time->read_step_s) {
        if (at == n || query_point(points, at).time_ns != t * NS_PER_S) {
            json_null(json);
            continue;
        }
        uint64_t value = query_point(points, at++).value;
        if (percent)
            json_double(json, (double)value / 100);
        else
            json_u64(json, value);
    }
    json_array_end(json);
}

static void text_json(struct json *json, const char *key, const struct query_value *value)
{
    if (!known(value))
        return;
    json_key(json, key);
    json_string_n(json, value->text, value->len);
}

static void number_json(struct json *json, const char *key, const struct query_value *value)
{
    if (known(value))
        json_field_u64(json, key, value->number);
}

/* "rss", and of a device "device.0.dram". */
static void name_json(struct json *json, const struct query_value *values,
                      const struct read_line *line, bool blocks)
{
    char name[NAME_MAX_BYTES];
    const char *word = read_line_word(line, blocks);
    if (known(&values[SHOW_ORDINAL]))
        snprintf(name, sizeof(name), "device.%llu.%s",
                 (unsigned long long)values[SHOW_ORDINAL].number, word);
    else
        snprintf(name, sizeof(name), "%s", word);
    json_field_string(json, "name", name);
    json_field_string(json, "kind",
                      line->what == READ_PRESSURE ? "percent"
                      : blocks                    ? "number"
                                                  : "bytes");
}

static void process_json(struct json *json, const struct query_value *values,
                         const struct read_line *line)
{
    char start[QUERY_TIME_TEXT_MAX];
    number_json(json, "pid", &values[SHOW_PID]);
    if (known(&values[SHOW_START]))
        json_field_string(json, "start", query_time_text(start, values[SHOW_START].number));
    text_json(json, "user", &values[SHOW_USER]);
    number_json(json, "uid", &values[SHOW_UID]);
    text_json(json, "program", &values[SHOW_PROGRAM]);
    if (line->processes && !known(&values[SHOW_PID]))
        json_field_u64(json, "processes", line->processes);
    if (line->node[0]) /* of another machine */
        json_field_string(json, "node", line->node);
}

struct filling {
    struct history_document *document;
    const struct history_world *time;
};

static int each_series(const struct query_row *row, const struct query_value *values, void *context)
{
    const struct filling *filling = context;
    const struct history_world *time = filling->time;
    struct json *json = &filling->document->json;
    const struct read_line *line = history_row_line(row);
    bool percent = line->what == READ_PRESSURE;
    json_object_begin(json);
    name_json(json, values, line, history_row_blocks(row));
    process_json(json, values, line);
    number_json(json, "ordinal", &values[SHOW_ORDINAL]);
    if (known(&values[SHOW_DEVICE_ID])) {
        text_json(json, "device_name", &values[SHOW_DEVICE]);
        text_json(json, "device_id", &values[SHOW_DEVICE_ID]);
        text_json(json, "space", &values[SHOW_SPACE]);
    }
    number_json(json, "capacity", &values[SHOW_CAPACITY]);
    points_json(json, "last", &values[SHOW_POINTS], time, percent);
    points_json(json, "max", &values[SHOW_PEAKS], time, percent);
    json_object_end(json);
    return filling->document->text.error;
}

int history_document_fill(struct history_document *document, const struct query *query,
                          const struct query_world *world)
{
    struct filling filling = {.document = document, .time = world->history};
    int r = query_each(query, world, each_series, &filling);
    json_array_end(&document->json);
    return r < 0 ? r : json_finish(&document->json);
}

void history_document_json(const struct history_document *document, const struct query_world *world,
                           struct json *json)
{
    const struct history_world *time = world->history;
    json_field_u64(json, "from", time->from_s);
    json_field_u64(json, "to", time->to_s);
    json_field_u64(json, "step", time->read_step_s);
    json_key(json, "t");
    json_array_begin(json);
    for (uint64_t t = time->from_s; t < time->to_s; t += time->read_step_s)
        json_u64(json, t);
    json_array_end(json);
    json_key(json, "series");
    json_raw(json, document->text.data, document->text.len);
    json_key(json, "oldest");
    if (time->oldest_s)
        json_u64(json, time->oldest_s);
    else
        json_null(json);
    json_field_u64(json, "damaged", time->damaged);
}
