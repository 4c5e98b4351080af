/* How `memoir history` looks. See history.h. */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/bar.h"
#include "cli/command.h"
#include "cli/history.h"
#include "cli/spark.h"
#include "cli/table.h"
#include "history/document.h"
#include "history/read.h"
#include "history/table.h"
#include "query/query.h"

enum {
    CHART_COLUMNS = 64, /* where the terminal does not say: an hour in minutes */
    CHART_COLUMNS_MIN = 20,
    CHART_COLUMNS_MAX = 120,
    OTHER_COLUMNS = 64, /* what stands beside it, about */
    CHART_BYTES_MAX = 4096,
    NAME_MAX_BYTES = 128,
    NODE_MAX = 65,
    USERS_KNOWN = 256,
    DEVICE_RANK = 40,
};

enum {
    LINE_PID,
    LINE_USER,
    LINE_PROGRAM,
    LINE_PROCESSES,
    LINE_DEVICE,
    LINE_SPACE,
    LINE_CHART,
    LINE_MIN,
    LINE_MAX,
    LINE_LAST,
    LINE_COLUMNS,
};

const struct column history_line_columns[] = {
    [LINE_PID] = {"pid", "PID", "process id", COLUMN_NUMBER, COLUMN_HIDE_EMPTY},
    [LINE_USER] = {"user", "USER", "whose it is", COLUMN_TEXT, COLUMN_HIDE_EMPTY, 20},
    [LINE_PROGRAM] = {"program", "PROGRAM", "name of the program, or of the script it runs",
                      COLUMN_TEXT, COLUMN_STRETCH | COLUMN_HIDE_EMPTY},
    [LINE_PROCESSES] = {"processes", "PROCS", "how many processes were added up", COLUMN_NUMBER,
                        COLUMN_HIDE_EMPTY, 30},
    [LINE_DEVICE] = {"device_label", "DEVICE", "number and name of the device, or host",
                     COLUMN_TEXT, COLUMN_SCREEN_ONLY | COLUMN_STRETCH},
    [LINE_SPACE] = {"space", "SPACE",
                    "kind of memory; rss is what the process has in the host's memory",
                    COLUMN_TEXT},
    [LINE_CHART] = {"chart", "CHART", "the largest value of each step; a blank where none is known",
                    COLUMN_TEXT},
    [LINE_MIN] = {"min", "MIN", "the least value at the end of a step, in bytes or blocks",
                  COLUMN_BYTES, 0, 25},
    [LINE_MAX] = {"max", "MAX", "the largest value", COLUMN_BYTES},
    [LINE_LAST] = {"last", "LAST", "the latest value", COLUMN_BYTES},
    {0},
};

enum {
    POINT_TIME,
    POINT_PID,
    POINT_USER,
    POINT_PROGRAM,
    POINT_DEVICE,
    POINT_DEVICE_NAME,
    POINT_DEVICE_UID,
    POINT_SPACE,
    POINT_LAST,
    POINT_MAX,
};

const struct column history_point_columns[] = {
    [POINT_TIME] = {"time", "TIME", "start of the step", COLUMN_TIME},
    [POINT_PID] = {"pid", "PID", "process id", COLUMN_NUMBER},
    [POINT_USER] = {"user", "USER", "whose it is", COLUMN_TEXT},
    [POINT_PROGRAM] = {"program", "PROGRAM", "name of the program", COLUMN_TEXT},
    [POINT_DEVICE] = COLUMN_DEVICE,
    [POINT_DEVICE_NAME] = COLUMN_DEVICE_NAME,
    [POINT_DEVICE_UID] = COLUMN_DEVICE_UID,
    [POINT_SPACE] = {"space", "SPACE", "kind of memory", COLUMN_TEXT},
    [POINT_LAST] = {"last", "LAST", "value at the end of the step", COLUMN_NUMBER},
    [POINT_MAX] = {"max", "MAX", "largest value in the step", COLUMN_NUMBER},
    {0},
};

unsigned history_chart_columns(const struct term *term)
{
    if (!term->width)
        return CHART_COLUMNS;
    unsigned room = term->width > OTHER_COLUMNS ? term->width - OTHER_COLUMNS : 0;
    return room < CHART_COLUMNS_MIN   ? CHART_COLUMNS_MIN
           : room > CHART_COLUMNS_MAX ? CHART_COLUMNS_MAX
                                      : room;
}

/* ---- words ---- */

static const char *device_name(const struct read_line *line, char text[static NAME_MAX_BYTES])
{
    if (!line->on_device)
        return "host";
    snprintf(text, NAME_MAX_BYTES, "%d%s%s", line->ordinal, line->device[0] ? " " : "",
             line->device);
    return text;
}

/* Looking up a name may ask another machine, and there are thousands of lines. */
static const char *user_name(uint32_t uid)
{
    static struct {
        uint32_t uid;
        char name[64];
    } known[USERS_KNOWN];
    char *name = known[uid % USERS_KNOWN].name;
    if (name[0] && known[uid % USERS_KNOWN].uid == uid)
        return name;
    const struct passwd *pw = getpwuid(uid);
    snprintf(name, sizeof(known->name), "%u", uid);
    if (pw && pw->pw_name[0])
        snprintf(name, sizeof(known->name), "%s", pw->pw_name);
    known[uid % USERS_KNOWN].uid = uid;
    return name;
}

static bool has_user(const struct read_result *result)
{
    return result->by == READ_BY_PROCESS || result->by == READ_BY_USER;
}

/* ---- text ---- */

static void add_chart(struct table *t, const struct read_result *result,
                      const struct read_line *line, bool utf8)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer chart = BUFFER_INIT(CHART_BYTES_MAX);
    MEMOIR_CLEANUP(freep)
    struct spark_point *points = calloc(result->n_steps, sizeof(*points));
    if (!points) {
        t->error = -ENOMEM;
        return;
    }
    for (size_t i = 0; i < result->n_steps; i++)
        points[i] = (struct spark_point){line->points[i].present, line->points[i].max};
    spark_append(&chart, utf8, points, result->n_steps, line->max);
    table_set_text(t, LINE_CHART, buffer_string(&chart));
    table_set_style(t, LINE_CHART,
                    line->has_capacity && line->capacity ? bar_style(line->max, line->capacity)
                                                         : STYLE_GOOD);
}

static void percent_text(uint64_t hundredths, const char *unit, char text[static 32])
{
    snprintf(text, 32, "%llu.%02llu%s", (unsigned long long)hundredths / 100,
             (unsigned long long)hundredths % 100, unit);
}

static void set_value(struct table *t, size_t column, const struct read_line *line, uint64_t value)
{
    char text[32];
    if (line->what != READ_PRESSURE) {
        table_set_number(t, column, value);
        return;
    }
    percent_text(value, " %", text);
    table_set_text(t, column, text);
}

static void add_line(struct table *t, const struct read_result *result,
                     const struct read_line *line, const struct history_style *style, bool utf8)
{
    char text[NAME_MAX_BYTES];
    table_row(t);
    if (line->pid)
        table_set_number(t, LINE_PID, (uint64_t)line->pid);
    if (has_user(result))
        table_set_text(t, LINE_USER, user_name(line->uid));
    if (line->program[0])
        table_set_text(t, LINE_PROGRAM, line->program);
    if (result->by != READ_BY_PROCESS && result->by != READ_BY_DEVICE)
        table_set_number(t, LINE_PROCESSES, line->processes);
    table_set_text(t, LINE_DEVICE, device_name(line, text));
    table_set_text(t, LINE_SPACE, read_line_word(line, style->blocks));
    add_chart(t, result, line, utf8);
    set_value(t, LINE_MIN, line, line->min);
    set_value(t, LINE_MAX, line, line->max);
    set_value(t, LINE_LAST, line, line->last);
}

static void clock_text(uint64_t time_s, uint64_t range_s, char text[static 32])
{
    time_t t = (time_t)time_s;
    struct tm tm;
    if (!localtime_r(&t, &tm) || !strftime(text, 32, range_s > 20 * 3600 ? "%F %H:%M" : "%T", &tm))
        strcpy(text, "?");
}

static void headline(const struct read_result *result, struct buffer *out)
{
    char from[32], to[32], step[UNITS_TEXT_MAX];
    uint64_t range_s = result->until_s - result->since_s;
    clock_text(result->since_s, range_s, from);
    clock_text(result->until_s, range_s, to);
    if (result->step_s < 60)
        snprintf(step, sizeof(step), "%us", (unsigned)result->step_s);
    else
        units_format_duration(step, result->step_s * NS_PER_S);
    buffer_printf(out, "%s to %s, a character is %s\n\n", from, to, step);
}

static int compare_largest(const void *a, const void *b, void *context)
{
    const struct read_line *lines = context;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    if (lines[x].max != lines[y].max)
        return lines[x].max > lines[y].max ? -1 : 1;
    return (x > y) - (x < y);
}

int history_print_text(const struct read_result *result, const struct history_style *style,
                       const struct term *term, struct buffer *out)
{
    MEMOIR_CLEANUP(freep)
    size_t *order = calloc(result->n_lines + 1, sizeof(*order));
    if (!order)
        return -ENOMEM;
    for (size_t i = 0; i < result->n_lines; i++)
        order[i] = i;
    /* Devices are few and have an order of their own; of others the largest come first. */
    if (result->by != READ_BY_DEVICE)
        qsort_r(order, result->n_lines, sizeof(*order), compare_largest, result->lines);
    size_t shown = style->limit && style->limit < result->n_lines ? style->limit : result->n_lines;
    struct column columns[LINE_COLUMNS + 1];
    memcpy(columns, history_line_columns, sizeof(columns));
    for (int i = LINE_MIN; style->blocks && i <= LINE_LAST; i++)
        columns[i].type = COLUMN_NUMBER;
    bool devices = false;
    for (size_t i = 0; i < result->n_lines; i++)
        devices |= result->lines[i].on_device;
    if (!devices)
        columns[LINE_DEVICE].rank = DEVICE_RANK; /* "host" in every line */
    struct table table;
    table_init(&table, columns);
    for (size_t i = 0; i < shown; i++)
        add_line(&table, result, &result->lines[order[i]], style, term->utf8);
    if (style->header)
        headline(result, out);
    struct table_layout layout = {.header = style->header};
    int r = table_print(&table, &layout, term, out);
    table_release(&table);
    if (r == 0 && shown < result->n_lines)
        buffer_printf(out, "\n%zu more; --limit 0 shows all\n", result->n_lines - shown);
    return r < 0 ? r : out->error;
}

/* ---- for programs ---- */

static void set_point(struct table *t, size_t column, const struct read_line *line, uint64_t value)
{
    char text[32];
    if (line->what != READ_PRESSURE) {
        table_set_number(t, column, value);
        return;
    }
    percent_text(value, "", text);
    table_set_text(t, column, text);
}

int history_print_csv(const struct read_result *result, const struct history_style *style,
                      struct buffer *out)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < result->n_lines; i++) {
        const struct read_line *line = &result->lines[i];
        struct table table;
        table_init(&table, history_point_columns);
        for (size_t k = 0; k < result->n_steps; k++) {
            if (!line->points[k].present)
                continue;
            table_row(&table);
            table_set_number(&table, POINT_TIME, (result->since_s + k * result->step_s) * NS_PER_S);
            if (line->pid)
                table_set_number(&table, POINT_PID, (uint64_t)line->pid);
            if (has_user(result))
                table_set_text(&table, POINT_USER, user_name(line->uid));
            if (line->program[0])
                table_set_text(&table, POINT_PROGRAM, line->program);
            if (line->on_device)
                table_set_device(&table, POINT_DEVICE, line->ordinal, line->device,
                                 line->device_uid);
            table_set_text(&table, POINT_SPACE, read_line_word(line, style->blocks));
            set_point(&table, POINT_LAST, line, line->points[k].last);
            set_point(&table, POINT_MAX, line, line->points[k].max);
        }
        struct table_layout layout = {.header = style->header && i == 0};
        r = table_print_csv(&table, &layout, out);
        table_release(&table);
    }
    return r;
}

static const char *world_user_name(uint32_t uid, void *context)
{
    return user_name(uid);
}

int history_print_json(const struct read_result *result, const struct history_style *style,
                       struct buffer *out)
{
    char node[NODE_MAX] = "";
    struct json json;
    struct query_error error;
    (void)gethostname(node, sizeof(node) - 1);
    struct history_world history = history_of_reading(result, style->blocks);
    struct query_world world = {
        .history = &history, .sees_all = true, .node = node, .user_name = world_user_name};
    struct query_spec spec = {.table = history_table.name, .show = history_document_show};
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    MEMOIR_CLEANUP(history_document_release)
    struct history_document document;
    history_document_init(&document, out->limit);
    int r = query_new(&spec, &query, &error);
    if (r == 0)
        r = history_document_fill(&document, query, &world);
    if (r < 0)
        return r;
    command_json_begin(&json, out, HISTORY_DOCUMENT);
    history_document_json(&document, &world, &json);
    json_object_end(&json);
    buffer_append_char(out, '\n');
    return json_finish(&json);
}
