/* The table of call sites that may leak, as ledger/leaks.h judges them. Whoever watches brings the rows: memoird, which
 * has watched all along. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "ledger/leaks.h"
#include "ledger/ledger.h"
#include "query/table_process.h"

enum { TEXT_MAX = 1024, PERCENT_PER = 10000 };

/* Of one text, until the row is done; each column has its own. */
static const char *keep(char text[static TEXT_MAX], const struct buffer *from)
{
    snprintf(text, TEXT_MAX, "%s", buffer_string(from));
    return text;
}

/* ---- texts ---- */

static void get_verdict(const struct query_world *world, const struct query_row *row,
                        const struct query_field *field, struct query_value *ret)
{
    query_set_text(ret, detect_verdict_word(row->leak->result.verdict));
}

static void get_reason(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    query_set_text(ret, detect_reason_word(row->leak->result.reason));
}

static void get_why(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char text[TEXT_MAX];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer words = BUFFER_INIT(TEXT_MAX);
    detect_explain(&row->leak->result, &words);
    query_set_text(ret, keep(text, &words));
}

static void get_trend(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char text[TEXT_MAX];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer words = BUFFER_INIT(TEXT_MAX);
    for (unsigned i = 0; i < row->leak->n_spark; i++)
        buffer_printf(&words, "%s%" PRIu64, i ? " " : "", row->leak->spark[i]);
    query_set_text(ret, keep(text, &words));
}

static void get_frame(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    if (row->leak->frame)
        query_set_text(ret, row->leak->frame);
    else
        ret->state = QUERY_UNKNOWN;
}

static void get_site(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    const char *slash = row->leak->frame ? strrchr(row->leak->frame, '/') : NULL;
    if (slash)
        query_set_text(ret, slash + 1);
    else
        get_frame(world, row, field, ret);
}

static void get_key(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char text[24];
    snprintf(text, sizeof(text), "%016" PRIx64, row->leak->key);
    query_set_text(ret, text);
}

static void get_limit(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    const char *word = headroom_word(row->leak->headroom.kind);
    if (word)
        query_set_text(ret, word);
}

/* ---- figures ---- */

enum figure {
    FIGURE_LEVEL,
    FIGURE_BYTES,
    FIGURE_BLOCKS,
    FIGURE_SITE,
    FIGURE_BOOK,
    FIGURE_WATCHED,
    FIGURE_GROWING,
};

static void get_figure(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    const struct leak *leak = row->leak;
    const uint64_t figures[] = {
        [FIGURE_LEVEL] = leak->result.verdict,        [FIGURE_BYTES] = leak->live_bytes,
        [FIGURE_BLOCKS] = leak->live_blocks,          [FIGURE_SITE] = leak->site,
        [FIGURE_BOOK] = leak->book->identity->st_ino, [FIGURE_WATCHED] = leak->result.span_ns,
        [FIGURE_GROWING] = leak->growing_ns,
    };
    if (field->column->arg != FIGURE_GROWING || leak->result.verdict >= DETECT_GROWING)
        query_set_number(ret, figures[field->column->arg]);
}

/* Rates below 0 have no unit here: what shrinks does not grow. `arg`: of blocks. */
static void get_rate(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    const struct detect_result *r = &row->leak->result;
    double per_s = field->column->arg ? r->blocks_per_s : r->bytes_per_s;
    if (r->verdict == DETECT_UNKNOWN)
        ret->state = QUERY_UNKNOWN;
    else
        query_set_number(ret,
                         r->verdict == DETECT_STEADY
                             ? 0
                             : detect_per_minute(per_s)); /* slopes of what is steady are noise */
}

/* `arg`: the part that was freed. */
static void get_part(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    const struct detect_result *r = &row->leak->result;
    double part = field->column->arg ? r->ever_freed : r->confidence;
    if (!(part >= 0) || (!field->column->arg && r->verdict == DETECT_UNKNOWN)) {
        ret->state = QUERY_UNKNOWN;
        return;
    }
    query_set_number(ret, (uint64_t)llround(part * PERCENT_PER));
    ret->per = PERCENT_PER;
}

static void get_left(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    if (row->leak->left_ns != UINT64_MAX)
        query_set_number(ret, row->leak->left_ns);
}

static void get_limit_bytes(const struct query_world *world, const struct query_row *row,
                            const struct query_field *field, struct query_value *ret)
{
    if (row->leak->headroom.kind != HEADROOM_UNKNOWN)
        query_set_number(ret, row->leak->headroom.limit_bytes);
}

/* ---- the table ---- */

static const struct query_column columns[] = {
    PROCESS_COLUMNS,
    DEVICE_COLUMNS(0),
    {"verdict", "leak, growing, warming up, steady or unknown yet", QUERY_TEXT, .get = get_verdict},
    {"level", "the verdict as a number: 4 leak, 3 growing, 2 warming up, 1 steady, 0 unknown yet",
     QUERY_NUMBER, QUERY_MAX, .arg = FIGURE_LEVEL, .get = get_figure},
    {"confidence", "how sure the verdict is", QUERY_PERCENT, QUERY_MAX, .get = get_part},
    {"reason", "what it rests on: sustained, stopped, slowing, teeth, load, ...", QUERY_TEXT,
     .get = get_reason},
    {"rate", "bytes by which it grows in a minute", QUERY_BYTES, .get = get_rate},
    {"blocks_rate", "blocks by which it grows in a minute", QUERY_NUMBER, .arg = 1,
     .get = get_rate},
    {"bytes", "allocated there and not freed", QUERY_BYTES, .arg = FIGURE_BYTES, .get = get_figure},
    {"blocks", "blocks allocated there and not freed", QUERY_NUMBER, .arg = FIGURE_BLOCKS,
     .get = get_figure},
    {"freed", "of all bytes ever allocated there, freed", QUERY_PERCENT, QUERY_MAX, .arg = 1,
     .get = get_part},
    {"watched", "the time that the verdict is about", QUERY_AGE, .arg = FIGURE_WATCHED,
     .get = get_figure},
    {"growing", "how long it has grown without falling, as far as it was watched", QUERY_AGE,
     .arg = FIGURE_GROWING, .get = get_figure},
    {"limit_in", "until a limit is reached at this rate", QUERY_AGE, QUERY_MIN, .get = get_left},
    {"limit", "which limit: cgroup, machine or device", QUERY_TEXT, .get = get_limit},
    {"limit_bytes", "its size", QUERY_BYTES, QUERY_SAME, .get = get_limit_bytes},
    {"site", "the place in the code", QUERY_TEXT, .flags = QUERY_PRIVATE, .get = get_site},
    {"frame", "path of the module and offset in its file", QUERY_TEXT, .flags = QUERY_PRIVATE,
     .get = get_frame},
    {"key", "the place's number, the same in every run of the same program", QUERY_TEXT,
     .flags = QUERY_PRIVATE, .get = get_key},
    {"site_number", "the place's number in the book", QUERY_NUMBER, QUERY_SAME, .arg = FIGURE_SITE,
     .get = get_figure},
    {"book", "inode of the book", QUERY_NUMBER, QUERY_SAME, .arg = FIGURE_BOOK, .get = get_figure},
    {"trend", "bytes held over the time watched, oldest first", QUERY_TEXT, .get = get_trend},
    {"why", "a sentence that explains the verdict", QUERY_TEXT, .get = get_why},
    {0},
};

static int scan_leaks(struct query_scan *scan)
{
    const struct leaks *leaks = scan->world->leaks;
    int r = 0;
    for (size_t i = 0; leaks && i < leaks->n && r == 0; i++) {
        const struct leak *leak = &leaks->rows[i];
        struct query_row row = {
            .process = leak->process,
            .account = leak->account,
            .device = leak->account->device,
            .leak = leak,
        };
        r = scan->each(scan, &row);
    }
    scan->incomplete |= leaks && leaks->incomplete;
    return r;
}

static bool is_suspect(const struct query_row *row)
{
    return row->leak->result.verdict >= DETECT_GROWING;
}

const struct query_table query_table_leaks = {
    .name = "leaks",
    .help = "one row for each place in the code that grows or leaks, as memoird has watched them",
    .columns = columns,
    .needs = QUERY_NEEDS_BOOKS | QUERY_NEEDS_LEAKS,
    .costly = true,
    .show = "pid,program,space,verdict,confidence,rate,bytes,blocks,freed,limit_in,site",
    .show_by = "count,rate,bytes,blocks",
    .sort = "-level,-rate,-bytes,+pid",
    .private_rows = true,
    .scan = scan_leaks,
    .owner = process_owner,
    .usual = is_suspect,
    .unusual_by = "level",
};
