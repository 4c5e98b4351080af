/* The dead, as the daemon remembers them. See ps.h and query/retired_lines.h. */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/sum.h"
#include "cli/ps.h"
#include "profile/site_names.h"
#include "query/retired_lines.h"

enum { SITE_TEXT_MAX = 4096 };

enum {
    EXITED_PID,
    EXITED_USER,
    EXITED_PROGRAM,
    EXITED_ENDED,
    EXITED_CAUSE,
    EXITED_DEVICE,
    EXITED_PEAK,
    EXITED_HEAP,
    EXITED_PINNED,
    EXITED_OTHER,
    EXITED_BLOCKS,
    EXITED_LIVED,
    EXITED_CODE,
    EXITED_SIGNAL,
    EXITED_UID,
    EXITED_COMMAND,
    EXITED_PARTIAL,
    EXITED_SAMPLED,
};

const struct column ps_exited_columns[] = {
    [EXITED_PID] = {"pid", "PID", "process id that it had", COLUMN_NUMBER},
    [EXITED_USER] = {"user", "USER", "whose it was", COLUMN_TEXT, 0, 20},
    [EXITED_PROGRAM] = {"program", "PROGRAM", "name of the program, or of the script it ran",
                        COLUMN_TEXT, COLUMN_STRETCH},
    [EXITED_ENDED] = {"ended", "ENDED", "when it ended", COLUMN_TIME, 0, 15},
    [EXITED_CAUSE] = {"cause", "CAUSE", "how it ended", COLUMN_TEXT},
    [EXITED_DEVICE] = {"device_bytes", "DEVICE", "device memory that it held at the end",
                       COLUMN_BYTES},
    [EXITED_PEAK] = {"device_peak_bytes", "PEAK", "the most that DEVICE can have been",
                     COLUMN_BYTES, 0, 30},
    [EXITED_HEAP] = {"heap_bytes", "HEAP", "heap that it held at the end", COLUMN_BYTES, 0, 25},
    [EXITED_PINNED] = {"pinned_bytes", "PINNED", "pinned memory that it held at the end",
                       COLUMN_BYTES, 0, 35},
    [EXITED_OTHER] = {"other_host_bytes", "OTHER", "other host memory that it held at the end",
                      COLUMN_BYTES, COLUMN_HIDE_EMPTY, 40},
    [EXITED_BLOCKS] = {"blocks_held", "BLOCKS", "blocks that it held at the end", COLUMN_NUMBER, 0,
                       10},
    [EXITED_LIVED] = {"lived_seconds", "LIVED", "how long it lived", COLUMN_AGE, 0, 28},
    [EXITED_CODE] = {"exit_code", NULL, "code with which it exited", COLUMN_NUMBER,
                     COLUMN_EXPORT_ONLY},
    [EXITED_SIGNAL] = {"signal", NULL, "number of the signal that killed it", COLUMN_NUMBER,
                       COLUMN_EXPORT_ONLY},
    [EXITED_UID] = {"uid", NULL, "owner as a number", COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    [EXITED_COMMAND] = {"command", NULL, "the command line", COLUMN_TEXT, COLUMN_EXPORT_ONLY},
    [EXITED_PARTIAL] =
        {"partial", NULL,
         "whether some figures begin at some moment of its life; on screen these end in +",
         COLUMN_YES, COLUMN_EXPORT_ONLY},
    [EXITED_SAMPLED] = {"sampled", NULL,
                        "whether some figures are estimates; on screen these begin with ~",
                        COLUMN_YES, COLUMN_EXPORT_ONLY},
    {0},
};

enum {
    BLOCK_PID,
    BLOCK_USER,
    BLOCK_PROGRAM,
    BLOCK_DEVICE,
    BLOCK_NUMBER,
    BLOCK_DEVICE_NAME,
    BLOCK_UID,
    BLOCK_SPACE,
    BLOCK_BYTES,
    BLOCK_AGE,
    BLOCK_TAG,
    BLOCK_SITE,
    BLOCK_ID,
    BLOCK_MOVES,
    BLOCK_FRAME,
    BLOCK_FUNCTION,
    BLOCK_FILE,
    BLOCK_LINE,
};
static_assert(BLOCK_DEVICE == (int)PS_OWN_COLUMNS, "JSON nests what follows");

const struct column ps_block_columns[] = {
    [BLOCK_PID] = {"pid", "PID", "process id", COLUMN_NUMBER},
    [BLOCK_USER] = {"user", "USER", "whose it was", COLUMN_TEXT, 0, 40},
    [BLOCK_PROGRAM] = {"program", "PROGRAM", "name of the program", COLUMN_TEXT, COLUMN_STRETCH},
    [BLOCK_DEVICE] = {"device_label", "DEVICE", "number and name of the device, or host",
                      COLUMN_TEXT, COLUMN_SCREEN_ONLY, 10},
    [BLOCK_NUMBER] = COLUMN_DEVICE,
    [BLOCK_DEVICE_NAME] = COLUMN_DEVICE_NAME,
    [BLOCK_UID] = COLUMN_DEVICE_UID,
    [BLOCK_SPACE] = {"space", "SPACE", "kind of memory", COLUMN_TEXT},
    [BLOCK_BYTES] = {"bytes", "SIZE", "size of the block", COLUMN_BYTES},
    [BLOCK_AGE] = {"age_seconds", "AGE", "how old it was when its process ended", COLUMN_AGE},
    [BLOCK_TAG] = {"tag", "TAG", "what the program called it", COLUMN_TEXT, COLUMN_STRETCH},
    [BLOCK_SITE] =
        {"site", "SITE",
         "the place in the code that asked for it: line and function where they are known "
         "and the program's file has not changed since, else module and offset",
         COLUMN_TEXT, COLUMN_STRETCH, 5},
    [BLOCK_ID] = {"id", NULL, "address or handle", COLUMN_TEXT, COLUMN_EXPORT_ONLY},
    [BLOCK_MOVES] = {"moves", NULL, "transfers that it was part of", COLUMN_NUMBER,
                     COLUMN_EXPORT_ONLY},
    [BLOCK_FRAME] = {"frame", NULL, "path of the module and offset in its file", COLUMN_TEXT,
                     COLUMN_EXPORT_ONLY},
    [BLOCK_FUNCTION] = {"function", NULL, "name of the function", COLUMN_TEXT, COLUMN_EXPORT_ONLY},
    [BLOCK_FILE] = {"file", NULL, "source file", COLUMN_TEXT, COLUMN_EXPORT_ONLY},
    [BLOCK_LINE] = {"line", NULL, "line in the source file", COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    {0},
};

void ps_state_default(char path[static PS_STATE_PATH_MAX])
{
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    path[0] = '\0';
    if (geteuid() == 0)
        snprintf(path, PS_STATE_PATH_MAX, "/var/lib/memoir");
    else if (state && state[0] == '/')
        snprintf(path, PS_STATE_PATH_MAX, "%s/memoir", state);
    else if (home && home[0] == '/')
        snprintf(path, PS_STATE_PATH_MAX, "%s/.local/state/memoir", home);
}

/* ---- one line ---- */

static void copy_number(struct table *t, size_t column, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value) && json_integer_value(value) >= 0)
        table_set_number(t, column, (uint64_t)json_integer_value(value));
}

static void copy_text(struct table *t, size_t column, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text)
        table_set_text(t, column, text);
}

static void set_user(struct table *t, size_t column, uint64_t uid)
{
    const struct passwd *pw = getpwuid((uid_t)uid);
    char text[24];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)uid);
    table_set_text(t, column, pw ? pw->pw_name : text);
}

static unsigned marks_of(const json_t *account)
{
    return (json_is_true(json_object_get(account, "sampled")) ? TABLE_MARK_ESTIMATE : 0u) |
           (json_is_true(json_object_get(account, "partial")) ? TABLE_MARK_AT_LEAST : 0u);
}

/* Live bytes of all accounts of a kind; the column stays empty when there is none. */
static void set_sums(struct table *t, const json_t *accounts)
{
    uint64_t sums[EXITED_BLOCKS + 1] = {0};
    bool present[EXITED_BLOCKS + 1] = {false};
    unsigned marks[EXITED_BLOCKS + 1] = {0};
    size_t i;
    json_t *a;
    json_array_foreach(accounts, i, a)
    {
        const char *space = json_string_value(json_object_get(a, "space"));
        if (!space)
            continue;
        bool device = json_object_get(a, "device") && strcmp(space, "system") != 0;
        size_t column = device                         ? EXITED_DEVICE
                        : strcmp(space, "heap") == 0   ? EXITED_HEAP
                        : strcmp(space, "pinned") == 0 ? EXITED_PINNED
                                                       : EXITED_OTHER;
        present[EXITED_BLOCKS] = true;
        marks[EXITED_BLOCKS] |= marks_of(a);
        sum_add(&sums[EXITED_BLOCKS], retired_line_number(a, "live_blocks"));
        if (strcmp(space, "chain") == 0)
            continue; /* its bytes lie in other memory */
        present[column] = true;
        marks[column] |= marks_of(a);
        sum_add(&sums[column], retired_line_number(a, "live_bytes"));
        if (device) {
            present[EXITED_PEAK] = true;
            sum_add(&sums[EXITED_PEAK], retired_line_number(a, "peak_bytes"));
        }
    }
    marks[EXITED_PEAK] = marks[EXITED_DEVICE];
    for (size_t column = EXITED_DEVICE; column <= EXITED_BLOCKS; column++) {
        if (present[column])
            table_set_number(t, column, sums[column]);
        table_set_marks(t, column, marks[column]);
    }
    table_set_number(t, EXITED_PARTIAL, (marks[EXITED_BLOCKS] & TABLE_MARK_AT_LEAST) != 0);
    table_set_number(t, EXITED_SAMPLED, (marks[EXITED_BLOCKS] & TABLE_MARK_ESTIMATE) != 0);
}

static void add_process(struct table *t, const json_t *line)
{
    table_row(t);
    copy_number(t, EXITED_PID, line, "pid");
    set_user(t, EXITED_USER, retired_line_number(line, "uid"));
    copy_text(t, EXITED_PROGRAM, line, "name");
    copy_text(t, EXITED_CAUSE, line, "cause");
    if (json_object_get(line, "signal"))
        table_set_style(t, EXITED_CAUSE, STYLE_BAD);
    uint64_t start_ns = retired_line_ns(line, "start"), end_ns = retired_line_ns(line, "end");
    if (end_ns)
        table_set_number(t, EXITED_ENDED, end_ns);
    if (start_ns && end_ns >= start_ns)
        table_set_number(t, EXITED_LIVED, end_ns - start_ns);
    set_sums(t, json_object_get(line, "accounts"));
    copy_number(t, EXITED_CODE, line, "exit_code");
    copy_number(t, EXITED_SIGNAL, line, "signal");
    copy_number(t, EXITED_UID, line, "uid");
    copy_text(t, EXITED_COMMAND, line, "command");
}

static void set_device(struct table *t, const json_t *line, const json_t *account)
{
    const json_t *index = json_object_get(account, "device");
    const json_t *device = json_array_get(json_object_get(line, "devices"),
                                          index ? (size_t)json_integer_value(index) : SIZE_MAX);
    char text[128];
    const char *name = json_string_value(json_object_get(device, "name"));
    const char *uid = json_string_value(json_object_get(device, "uid"));
    long long ordinal = json_integer_value(json_object_get(device, "ordinal"));
    snprintf(text, sizeof(text), "%lld %s", ordinal, name ? name : "device");
    table_set_text(t, BLOCK_DEVICE, device ? text : index ? "?" : "host");
    if (device)
        table_set_device(t, BLOCK_NUMBER, ordinal >= 0 && ordinal <= INT_MAX ? (int)ordinal : -1,
                         name ? name : "", uid ? uid : "");
}

/* What follows the last slash. */
static const char *base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The innermost line of a script, "FILE:LINE in FUNCTION", if there is one. */
static bool set_script(struct table *t, const json_t *frames)
{
    size_t i;
    json_t *frame;
    json_array_foreach(frames, i, frame)
    {
        struct site_script script;
        const char *text = json_string_value(frame);
        if (!text || !site_names_script(text, &script))
            continue;
        table_set_text(t, BLOCK_SITE, base(text));
        table_set_text(t, BLOCK_FRAME, script.frame);
        table_set_text(t, BLOCK_FUNCTION, script.function);
        table_set_text(t, BLOCK_FILE, script.file);
        if (script.line)
            table_set_number(t, BLOCK_LINE, script.line);
        return true;
    }
    return false;
}

static void set_site(struct table *t, const json_t *line, const json_t *block,
                     struct site_names *names)
{
    const json_t *index = json_object_get(block, "site");
    if (!json_is_integer(index))
        return;
    const json_t *site =
        json_array_get(json_object_get(line, "sites"), (size_t)json_integer_value(index));
    const json_t *frames = json_object_get(site, "frames");
    if (set_script(t, frames))
        return;
    const char *frame = json_string_value(json_array_get(frames, 0));
    if (!frame)
        return;
    struct site_name name = site_names_find(names, frame, retired_line_ns(line, "start"));
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(SITE_TEXT_MAX);
    if (name.file)
        buffer_printf(&text, "%s:%u ", base(name.file), name.line);
    buffer_append_str(&text, name.function ? name.function : base(frame));
    table_set_text(t, BLOCK_SITE, buffer_string(&text));
    table_set_text(t, BLOCK_FRAME, frame);
    if (name.function)
        table_set_text(t, BLOCK_FUNCTION, name.function);
    if (name.file)
        table_set_text(t, BLOCK_FILE, name.file);
    if (name.line)
        table_set_number(t, BLOCK_LINE, name.line);
}

static void add_blocks(struct ps_view *view, const json_t *line, struct site_names *names)
{
    struct table *t = &view->details;
    const json_t *accounts = json_object_get(line, "accounts");
    size_t i;
    json_t *b;
    json_array_foreach(json_object_get(line, "blocks"), i, b)
    {
        const json_t *account =
            json_array_get(accounts, (size_t)json_integer_value(json_object_get(b, "account")));
        ps_view_detail(view);
        copy_number(t, BLOCK_PID, line, "pid");
        set_user(t, BLOCK_USER, retired_line_number(line, "uid"));
        copy_text(t, BLOCK_PROGRAM, line, "name");
        for (size_t c = BLOCK_PID; i > 0 && c < BLOCK_DEVICE; c++)
            table_set_style(t, c, STYLE_DIM);
        set_device(t, line, account);
        copy_text(t, BLOCK_SPACE, account, "space");
        copy_number(t, BLOCK_BYTES, b, "bytes");
        table_set_number(t, BLOCK_AGE, retired_line_ns(b, "age_s"));
        copy_text(t, BLOCK_TAG, b, "tag");
        set_site(t, line, b, names);
        copy_text(t, BLOCK_ID, b, "id");
        copy_number(t, BLOCK_MOVES, b, "moves");
    }
}

/* ---- the file ---- */

struct lines {
    const struct ps_filter *filter;
    json_t **lines; /* in the order of the file; owned */
    size_t n, cap;
};

static void lines_release(struct lines *lines)
{
    for (size_t i = 0; i < lines->n; i++)
        json_decref(lines->lines[i]);
    free(lines->lines);
}

static bool wanted(const json_t *line, const struct ps_filter *filter)
{
    return (!filter->pid || retired_line_number(line, "pid") == filter->pid) &&
           (!filter->by_uid || retired_line_number(line, "uid") == filter->uid);
}

static int lines_add(json_t *line, void *context)
{
    struct lines *lines = context;
    if (!wanted(line, lines->filter))
        return 0;
    if (lines->n == lines->cap) {
        size_t cap = lines->cap ? lines->cap * 2 : 64;
        json_t **grown = reallocarray(lines->lines, cap, sizeof(json_t *));
        if (!grown)
            return -ENOMEM;
        lines->lines = grown;
        lines->cap = cap;
    }
    lines->lines[lines->n++] = json_incref(line);
    return 1;
}

int ps_view_exited(const char *state, const struct ps_filter *filter, struct site_names *names,
                   struct ps_view *ret_view, size_t *ret_skipped)
{
    MEMOIR_CLEANUP(lines_release)
    struct lines lines = {.filter = filter};
    size_t skipped = 0;
    int r = retired_lines_read(ps_state_find(state), lines_add, &lines, &skipped);
    if (r < 0)
        return r;
    MEMOIR_CLEANUP(ps_view_release)
    struct ps_view view = {.details_name = "blocks"};
    table_init(&view.processes, ps_exited_columns);
    table_init(&view.details, ps_block_columns);
    for (size_t i = lines.n; i > 0; i--) {
        add_process(&view.processes, lines.lines[i - 1]);
        add_blocks(&view, lines.lines[i - 1], names);
        if (view.processes.error || view.details.error)
            return -ENOMEM;
    }
    *ret_skipped = skipped;
    *ret_view = view;
    view = (struct ps_view){0};
    return 0;
}
