/* The table of call sites that may leak, as profile/suspects.h has them: the one shape of `memoir leaks`, of the route
 * /leaks and of questions to memoird. Who watched brings the rows (query_world.suspects); functions, lines and stacks
 * are known where the books were read for them (suspects_name()). */
#include "profile/tables.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "profile/suspects.h"
#include "query/query.h"

enum { TEXT_MAX = 4096, LINES_MAX = 32 << 10, SHARE_PER = 10000 };

static const struct suspect *suspect_of(const struct query_row *row)
{
    return row->custom;
}

/* ---- texts ---- */

enum text {
    TEXT_PROGRAM,
    TEXT_USER,
    TEXT_DEVICE,
    TEXT_DEVICE_NAME,
    TEXT_DEVICE_UID,
    TEXT_SPACE,
    TEXT_REASON,
    TEXT_WHY,
    TEXT_LIMIT_KIND,
    TEXT_FRAME,
    TEXT_FUNCTION,
    TEXT_SOURCE_FILE,
    TEXT_VIA,
};

static void get_text(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    const struct suspect *s = suspect_of(row);
    const char *const texts[] = {
        [TEXT_PROGRAM] = s->program,
        [TEXT_USER] = s->user,
        [TEXT_DEVICE] = s->device,
        [TEXT_DEVICE_NAME] = s->device_name,
        [TEXT_DEVICE_UID] = s->device_uid,
        [TEXT_SPACE] = s->space,
        [TEXT_REASON] = s->reason,
        [TEXT_WHY] = s->why,
        [TEXT_LIMIT_KIND] = s->limit,
        [TEXT_FRAME] = s->frame,
        [TEXT_FUNCTION] = s->function,
        [TEXT_SOURCE_FILE] = s->file,
        [TEXT_VIA] = s->via,
    };
    const char *text = texts[field->column->arg];
    if (text)
        query_set_text(ret, text);
    else if (field->column->arg >= TEXT_FRAME && field->column->arg < TEXT_VIA)
        ret->state = QUERY_UNKNOWN;
}

static void get_node(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    if (world->node)
        query_set_text(ret, world->node);
}

static void get_verdict(const struct query_world *world, const struct query_row *row,
                        const struct query_field *field, struct query_value *ret)
{
    query_set_text(ret, detect_verdict_word(suspect_of(row)->verdict));
}

static void get_watcher(const struct query_world *world, const struct query_row *row,
                        const struct query_field *field, struct query_value *ret)
{
    query_set_text(ret, world->suspects && world->suspects->daemon ? "memoird" : "memoir");
}

/* Line and function where they are known, else the module and the offset in it. */
static void get_site(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    const struct suspect *s = suspect_of(row);
    const char *slash = s->frame ? strrchr(s->frame, '/') : NULL;
    const char *text = s->site ? s->site : slash ? slash + 1 : s->frame;
    if (text)
        query_set_text(ret, text);
    else if (!s->resident)
        ret->state = QUERY_UNKNOWN;
}

static void get_key(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char text[24];
    snprintf(text, sizeof(text), "%016" PRIx64, suspect_of(row)->key);
    if (suspect_of(row)->key)
        query_set_text(ret, text);
}

/* ---- figures ---- */

enum figure {
    FIGURE_PID,
    FIGURE_UID,
    FIGURE_ORDINAL,
    FIGURE_LEVEL,
    FIGURE_BYTES,
    FIGURE_BLOCKS,
    FIGURE_SITE,
    FIGURE_BOOK,
    FIGURE_WATCHED,
    FIGURE_GROWING,
    FIGURE_LIMIT_IN,
    FIGURE_LIMIT,
    FIGURE_LINE,
    FIGURE_STACK_SAMPLES,
    FIGURE_SAMPLES,
    FIGURES,
};

static void get_figure(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    const struct suspect *s = suspect_of(row);
    const struct {
        bool known;
        uint64_t value;
    } figures[FIGURES] = {
        [FIGURE_PID] = {s->pid != 0, s->pid},
        [FIGURE_UID] = {s->uid != UINT32_MAX, s->uid},
        [FIGURE_ORDINAL] = {s->ordinal >= 0, (uint64_t)s->ordinal},
        [FIGURE_LEVEL] = {true, s->verdict},
        [FIGURE_BYTES] = {true, s->live_bytes},
        [FIGURE_BLOCKS] = {!s->resident, s->live_blocks},
        [FIGURE_SITE] = {!s->resident, s->site_number},
        [FIGURE_BOOK] = {!s->resident, s->book_ino},
        [FIGURE_WATCHED] = {true, s->span_ns},
        [FIGURE_GROWING] = {s->verdict >= DETECT_GROWING, s->growing_ns},
        [FIGURE_LIMIT_IN] = {s->left_ns != UINT64_MAX, s->left_ns},
        [FIGURE_LIMIT] = {s->limit != NULL, s->limit_bytes},
        [FIGURE_LINE] = {s->line != 0, s->line},
        [FIGURE_STACK_SAMPLES] = {s->samples != 0, s->stack_samples},
        [FIGURE_SAMPLES] = {s->samples != 0, s->samples},
    };
    if (figures[field->column->arg].known)
        query_set_number(ret, figures[field->column->arg].value);
}

/* `arg`: of blocks. Slopes of what is steady are noise. */
static void get_growth(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    const struct suspect *s = suspect_of(row);
    double per_s = field->column->arg ? s->blocks_per_s : s->bytes_per_s;
    if (s->verdict == DETECT_UNKNOWN)
        ret->state = QUERY_UNKNOWN;
    else if (!s->resident || !field->column->arg)
        query_set_rate(ret, s->verdict == DETECT_STEADY ? 0 : per_s);
}

/* `arg`: the part that was freed. */
static void get_share(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    const struct suspect *s = suspect_of(row);
    double part = field->column->arg ? s->ever_freed : s->confidence;
    if (!(part >= 0) || (!field->column->arg && s->verdict == DETECT_UNKNOWN)) {
        ret->state = QUERY_UNKNOWN;
        return;
    }
    query_set_number(ret, (uint64_t)llround(part * SHARE_PER));
    ret->per = SHARE_PER;
}

/* ---- lists ---- */

/* The series where it was kept, else the small chart, whose points are spread over the time watched. */
static void get_trend(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    static _Thread_local struct query_point points[SUSPECT_POINTS_MAX];
    const struct suspect *s = suspect_of(row);
    size_t n = s->n_points < SUSPECT_POINTS_MAX ? s->n_points : SUSPECT_POINTS_MAX;
    uint64_t now_ns = world->now_real_ns ? world->now_real_ns : clock_real_ns();
    for (size_t i = 0; i < n; i++)
        points[i] = (struct query_point){s->points[i].time_ns, s->points[i].bytes};
    for (unsigned i = 0; n == 0 && i < s->n_spark; i++) {
        uint64_t before_ns = s->span_ns / s->n_spark * (s->n_spark - 1 - i);
        points[i] = (struct query_point){now_ns > before_ns ? now_ns - before_ns : 0, s->spark[i]};
    }
    if (n || s->n_spark)
        query_set_points(ret, points, n ? n : s->n_spark);
}

/* The outermost frame first, as the kind has it. */
static void get_stack(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char text[LINES_MAX];
    const struct suspect *s = suspect_of(row);
    size_t len = 0;
    for (unsigned i = s->n_stack; i-- > 0 && len < sizeof(text);)
        len +=
            (size_t)snprintf(text + len, sizeof(text) - len, "%s%s", len ? "\n" : "", s->stack[i]);
    if (len)
        query_set_frames(ret, text);
}

/* "0x7f0012 4096 12.5": address, bytes, age in seconds. */
static void get_examples(const struct query_world *world, const struct query_row *row,
                         const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char text[SUSPECT_BLOCKS * 80];
    const struct suspect *s = suspect_of(row);
    size_t len = 0;
    for (unsigned i = 0; i < s->n_blocks; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s0x%" PRIx64 " %" PRIu64 " %.3f",
                                len ? "\n" : "", s->blocks[i].id, s->blocks[i].bytes,
                                (double)s->blocks[i].age_ns / (double)NS_PER_S);
    if (len)
        query_set_frames(ret, text);
}

/* ---- the table ---- */

#define TEXT(name, which, help)                                      \
    {                                                                \
        name, help, QUERY_TEXT, .arg = TEXT_##which, .get = get_text \
    }
#define PRIVATE(name, which, help)                                                    \
    {                                                                                 \
        name, help, QUERY_TEXT, .flags = QUERY_PRIVATE, .needs = QUERY_NEEDS_SYMBOLS, \
                                .arg = TEXT_##which, .get = get_text                  \
    }
#define FIGURE(name, kind, aggregate, which, help)                            \
    {                                                                         \
        name, help, kind, aggregate, .arg = FIGURE_##which, .get = get_figure \
    }

static const struct query_column columns[] = {
    FIGURE("pid", QUERY_NUMBER, QUERY_SAME, PID, NULL),
    TEXT("program", PROGRAM, NULL),
    TEXT("user", USER, NULL),
    FIGURE("uid", QUERY_NUMBER, QUERY_SAME, UID, NULL),
    {"node", NULL, QUERY_TEXT, .get = get_node},
    QUERY_COLUMN_NODES,
    TEXT("device", DEVICE, "number and name of the device, or host"),
    FIGURE("ordinal", QUERY_NUMBER, QUERY_SAME, ORDINAL,
           "the number that programs use for the device"),
    TEXT("device_name", DEVICE_NAME, NULL),
    TEXT("device_uid", DEVICE_UID, NULL),
    TEXT("space", SPACE, NULL),
    {"verdict", NULL, QUERY_TEXT, .get = get_verdict},
    FIGURE("level", QUERY_NUMBER, QUERY_MAX, LEVEL, NULL),
    {"confidence", NULL, QUERY_SHARE, QUERY_MAX, .get = get_share},
    TEXT("reason", REASON, NULL),
    {"growth", "how fast it grows, by the median slope; 0 when it is steady", QUERY_RATE,
     .get = get_growth},
    {"growth_blocks", NULL, QUERY_RATE, .unit = "blocks/s", .arg = 1, .get = get_growth},
    FIGURE("bytes", QUERY_BYTES, QUERY_DEFAULT, BYTES, NULL),
    FIGURE("blocks", QUERY_NUMBER, QUERY_DEFAULT, BLOCKS, NULL),
    {"freed_share", NULL, QUERY_SHARE, QUERY_MAX, .arg = 1, .get = get_share},
    FIGURE("watched", QUERY_AGE, QUERY_DEFAULT, WATCHED, NULL),
    {"watcher", NULL, QUERY_TEXT, .get = get_watcher},
    FIGURE("growing", QUERY_AGE, QUERY_DEFAULT, GROWING, NULL),
    FIGURE("limit_in", QUERY_AGE, QUERY_MIN, LIMIT_IN, NULL),
    TEXT("limit_kind", LIMIT_KIND, NULL),
    FIGURE("limit", QUERY_BYTES, QUERY_SAME, LIMIT, NULL),
    {"site", NULL, QUERY_TEXT, .flags = QUERY_PRIVATE, .needs = QUERY_NEEDS_SYMBOLS,
     .get = get_site},
    PRIVATE("via", VIA, NULL),
    PRIVATE("function", FUNCTION, NULL),
    PRIVATE("source_file", SOURCE_FILE, NULL),
    {"line", NULL, QUERY_NUMBER, QUERY_SAME, QUERY_PRIVATE, QUERY_NEEDS_SYMBOLS, .arg = FIGURE_LINE,
     .get = get_figure},
    PRIVATE("frame", FRAME, NULL),
    {"key", "the place's number, the same in every run of the same program", QUERY_TEXT,
     .flags = QUERY_PRIVATE, .get = get_key},
    FIGURE("site_number", QUERY_NUMBER, QUERY_SAME, SITE, NULL),
    FIGURE("book_inode", QUERY_NUMBER, QUERY_SAME, BOOK, NULL),
    {"stack", NULL, QUERY_FRAMES, .flags = QUERY_PRIVATE, .needs = QUERY_NEEDS_SYMBOLS,
     .get = get_stack},
    FIGURE("stack_samples", QUERY_NUMBER, QUERY_DEFAULT, STACK_SAMPLES, NULL),
    FIGURE("samples", QUERY_NUMBER, QUERY_DEFAULT, SAMPLES, NULL),
    {"trend", NULL, QUERY_POINTS, .get = get_trend},
    {"examples", NULL, QUERY_FRAMES, .flags = QUERY_PRIVATE, .get = get_examples},
    TEXT("why", WHY, NULL),
    {0},
};

static int scan_leaks(struct query_scan *scan)
{
    const struct suspects *suspects = scan->world->suspects;
    int r = 0;
    for (size_t i = 0; suspects && i < suspects->n && r == 0; i++)
        r = scan->each(scan, &(struct query_row){.custom = &suspects->rows[i]});
    scan->incomplete |= suspects && suspects->incomplete;
    return r;
}

static bool owner(const struct query_row *row, uint32_t *ret_uid)
{
    *ret_uid = suspect_of(row)->uid;
    return true;
}

static bool is_suspect(const struct query_row *row)
{
    return suspect_of(row)->verdict >= DETECT_GROWING || suspect_of(row)->resident;
}

const struct query_table profile_table_leaks = {
    .name = "leaks",
    .help = "one row for each place in the code that grows or leaks, as it was watched",
    .columns = columns,
    .show = "pid,program,space,verdict,confidence,growth,bytes,blocks,freed_share,limit_in,site",
    .show_by = "count,growth,bytes,blocks",
    .sort = "-level,-growth,-bytes,+pid",
    .needs = QUERY_NEEDS_BOOKS | QUERY_NEEDS_LEAKS,
    .costly = true,
    .private_rows = true,
    .scan = scan_leaks,
    .owner = owner,
    .usual = is_suspect,
    .unusual_by = "level",
};
