/* Columns: what there are, how they compare, which fit. See top_columns.h. */
#include "cli/top_columns.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buffer.h"

enum {
    NONE = -1,        /* no figure */
    COMMAND_MIN = 12, /* narrower, and it tells nothing that the program does not */
    PROGRAM_MIN = 6,
    PROGRAM_MAX = 28,
    PROGRAM_MAX_TREE = 44,
};

const struct column top_fields[] = {
    {"pid", "PID", "number of the process", COLUMN_NUMBER},
    {"parent", "PPID", "number of its parent", COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    {"user", "USER", "name of its user, else the number", COLUMN_TEXT, 0, 3},
    {"program", "PROGRAM", "the program, for an interpreter its script", COLUMN_TEXT},
    {"state", "S", "R runs, S sleeps, D waits for a device, Z has ended, T is stopped", COLUMN_TEXT,
     COLUMN_EXPORT_ONLY},
    {"rss", "RSS", "resident memory, shared pages counted in full", COLUMN_BYTES},
    {"percent", "MEM%", "resident memory as a share of the machine's", COLUMN_PERCENT,
     COLUMN_EXPORT_ONLY},
    {"growth", "RATE", "growth of the resident memory in bytes a second, over 10 seconds",
     COLUMN_RATE_BYTES, 0, 2},
    {"growth_1m", "RATE1M", "the same over a minute", COLUMN_RATE_BYTES, COLUMN_HIDE_EMPTY, 8},
    {"growth_10m", "RATE10M", "the same over 10 minutes", COLUMN_RATE_BYTES, COLUMN_HIDE_EMPTY, 9},
    {"trend", "TREND", "the resident memory of the last looks, from its least to its most",
     COLUMN_TEXT, COLUMN_SCREEN_ONLY | COLUMN_HIDE_EMPTY, 9},
    {"tree", "TREE", "resident memory of the process and all its descendants; with --tree only",
     COLUMN_BYTES, COLUMN_HIDE_EMPTY, 1},
    {"pss", "PSS", "resident memory, each page divided by how many processes share it",
     COLUMN_BYTES, 0, 4},
    {"pss_age", "PSS AGE", "how old pss, uss and dirty are", COLUMN_AGE, COLUMN_EXPORT_ONLY},
    {"uss", "USS", "resident memory that is not shared: what its end would give back", COLUMN_BYTES,
     COLUMN_EXPORT_ONLY},
    {"dirty", "DIRTY", "resident memory that was written to", COLUMN_BYTES, COLUMN_EXPORT_ONLY},
    {"swap", "SWAP", "memory that lies in swap", COLUMN_BYTES, COLUMN_HIDE_EMPTY, 5},
    {"anon", "ANON", "resident memory that belongs to no file", COLUMN_BYTES, COLUMN_EXPORT_ONLY},
    {"file", "FILE", "resident pages of files", COLUMN_BYTES, COLUMN_EXPORT_ONLY},
    {"shmem", "SHMEM", "resident pages of shared memory", COLUMN_BYTES, COLUMN_EXPORT_ONLY},
    {"shared", "SHARED", "file and shmem together", COLUMN_BYTES, COLUMN_EXPORT_ONLY},
    {"vms", "VMS", "size of the address space", COLUMN_BYTES, COLUMN_EXPORT_ONLY},
    {"peak_rss", "PEAK", "the most that was ever resident", COLUMN_BYTES, COLUMN_EXPORT_ONLY},
    {"heap", "HEAP", "live bytes of the heap, as its books say", COLUMN_BYTES, COLUMN_HIDE_EMPTY,
     2},
    {"pinned", "PINNED", "pinned memory of the host, as its books say", COLUMN_BYTES,
     COLUMN_HIDE_EMPTY, 4},
    {"device", "DEVICE", "memory of devices, as its books say", COLUMN_BYTES, COLUMN_HIDE_EMPTY, 2},
    {"threads", "THR", "threads", COLUMN_NUMBER, 0, 6},
    {"major_faults", "MAJFLT", "page faults that had to wait for a disk", COLUMN_NUMBER,
     COLUMN_EXPORT_ONLY},
    {"oom_score", "OOM", "how likely the kernel ends it when memory runs out, up to 1,000 and more",
     COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    {"headroom", "ROOM", "how much its cgroup may still take; absent without a limit", COLUMN_BYTES,
     COLUMN_EXPORT_ONLY},
    {"age", "AGE", "time since it was started", COLUMN_AGE, COLUMN_EXPORT_ONLY},
    {"tracked", "TRACKED", "is every allocation of its heap accounted, and if not, why",
     COLUMN_TEXT, 0, 5},
    {"job", "JOB", "the batch job that it belongs to", COLUMN_TEXT, COLUMN_HIDE_EMPTY, 6},
    {"rank", "RANK", "its rank in the job", COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    {"container", "CONTAINER", "the container that it runs in", COLUMN_TEXT, COLUMN_EXPORT_ONLY},
    {"pod", "POD", "the Kubernetes pod that it belongs to", COLUMN_TEXT, COLUMN_EXPORT_ONLY},
    {"cgroup", "CGROUP", "path of its cgroup", COLUMN_TEXT, COLUMN_EXPORT_ONLY},
    {"command", "COMMAND", "the command line, cut", COLUMN_TEXT, COLUMN_STRETCH},
    {0},
};
_Static_assert(sizeof(top_fields) / sizeof(top_fields[0]) == TOP_COLUMNS + 1, "one for each");
_Static_assert(TOP_COLUMNS <= 64, "a set is 64 bits");

static const struct spec {
    unsigned char width; /* on the screen */
    signed char figure;  /* enum top_figure, or NONE */
    unsigned char rank;  /* where room is short, high ranks go first; 0 always stays */
    bool empty_too;      /* takes its room even if no row has something to say */
} specs[TOP_COLUMNS] = {
    [TOP_COLUMN_PID] = {7, NONE, 0, true},
    [TOP_COLUMN_PARENT] = {7, NONE, 20, true},
    [TOP_COLUMN_USER] = {8, NONE, 4, true},
    [TOP_COLUMN_PROGRAM] = {14, NONE, 0, true},
    [TOP_COLUMN_STATE] = {1, NONE, 21, true},
    [TOP_COLUMN_RSS] = {6, TOP_RSS, 0, true},
    [TOP_COLUMN_SHARE] = {5, TOP_RSS, 12, true},
    [TOP_COLUMN_RATE_10S] = {8, TOP_RATE_10S, 1, true},
    [TOP_COLUMN_RATE_1MIN] = {8, TOP_RATE_1MIN, 15, false},
    [TOP_COLUMN_RATE_10MIN] = {8, TOP_RATE_10MIN, 14, false},
    [TOP_COLUMN_TREND] = {12, NONE, 16, false},
    [TOP_COLUMN_TREE] = {6, TOP_RSS, 2, true},
    [TOP_COLUMN_PSS] = {10, TOP_PSS, 3, true},
    [TOP_COLUMN_PSS_AGE] = {7, NONE, 22, true},
    [TOP_COLUMN_USS] = {6, TOP_USS, 9, true},
    [TOP_COLUMN_DIRTY] = {6, TOP_DIRTY, 11, true},
    [TOP_COLUMN_SWAP] = {6, TOP_SWAP, 8, false},
    [TOP_COLUMN_ANON] = {6, TOP_ANON, 11, true},
    [TOP_COLUMN_FILE] = {6, TOP_FILE, 11, true},
    [TOP_COLUMN_SHMEM] = {6, TOP_SHMEM, 11, true},
    [TOP_COLUMN_SHARED] = {6, TOP_SHARED, 11, true},
    [TOP_COLUMN_VMS] = {6, TOP_VMS, 13, true},
    [TOP_COLUMN_PEAK] = {6, TOP_PEAK, 10, true},
    [TOP_COLUMN_HEAP] = {6, TOP_HEAP, 2, false},
    [TOP_COLUMN_PINNED] = {6, TOP_PINNED, 7, false},
    [TOP_COLUMN_DEVICE] = {6, TOP_DEVICE, 2, false},
    [TOP_COLUMN_THREADS] = {4, TOP_THREADS, 17, true},
    [TOP_COLUMN_MAJOR_FAULTS] = {7, TOP_MAJOR_FAULTS, 18, true},
    [TOP_COLUMN_OOM] = {4, NONE, 18, true},
    [TOP_COLUMN_HEADROOM] = {6, NONE, 6, true},
    [TOP_COLUMN_AGE] = {4, NONE, 18, true},
    [TOP_COLUMN_TRACKED] = {7, NONE, 5, true},
    [TOP_COLUMN_JOB] = {8, NONE, 13, false},
    [TOP_COLUMN_RANK] = {4, NONE, 13, false},
    [TOP_COLUMN_CONTAINER] = {12, NONE, 19, false},
    [TOP_COLUMN_POD] = {12, NONE, 19, false},
    [TOP_COLUMN_CGROUP] = {20, NONE, 23, true},
    [TOP_COLUMN_COMMAND] = {COMMAND_MIN, NONE, 6, true},
};

#define BIT TOP_COLUMN_BIT
const top_column_set top_columns_default =
    BIT(TOP_COLUMN_PID) | BIT(TOP_COLUMN_USER) | BIT(TOP_COLUMN_PROGRAM) | BIT(TOP_COLUMN_RSS) |
    BIT(TOP_COLUMN_RATE_10S) | BIT(TOP_COLUMN_RATE_1MIN) | BIT(TOP_COLUMN_TREND) |
    BIT(TOP_COLUMN_PSS) | BIT(TOP_COLUMN_SWAP) | BIT(TOP_COLUMN_HEAP) | BIT(TOP_COLUMN_PINNED) |
    BIT(TOP_COLUMN_DEVICE) | BIT(TOP_COLUMN_THREADS) | BIT(TOP_COLUMN_TRACKED) |
    BIT(TOP_COLUMN_JOB) | BIT(TOP_COLUMN_COMMAND);

/* ---- words ---- */

int top_columns_parse(const char *text, top_column_set *ret_set, char ret_word[static 32])
{
    top_column_set set = 0;
    while (*text) {
        size_t len = strcspn(text, ",");
        snprintf(ret_word, 32, "%.*s", (int)(len < 31 ? len : 31), text);
        int column = len ? table_column_find(top_fields, ret_word) : -EINVAL;
        if (column < 0)
            return -EINVAL;
        set |= BIT(column);
        text += len + (text[len] == ',');
    }
    if (!set)
        return -EINVAL;
    *ret_set = set | BIT(TOP_COLUMN_PID) | BIT(TOP_COLUMN_PROGRAM) | BIT(TOP_COLUMN_RSS);
    return 0;
}

void top_columns_format(top_column_set set, struct buffer *out)
{
    const char *comma = "";
    for (int c = 0; c < TOP_COLUMNS; c++) {
        if (!(set & BIT(c)))
            continue;
        buffer_printf(out, "%s%s", comma, top_fields[c].key);
        comma = ",";
    }
}

bool top_column_sorts(enum top_column column)
{
    return column != TOP_COLUMN_TREND;
}

bool top_column_ascends(enum top_column column)
{
    return top_fields[column].type == COLUMN_TEXT || column == TOP_COLUMN_PID ||
           column == TOP_COLUMN_PARENT || column == TOP_COLUMN_RANK;
}

int top_column_figure(enum top_column column)
{
    return specs[column].figure;
}

/* ---- values that are no figures ---- */

static const char *text_of(enum top_column column, const struct top_row *row)
{
    switch (column) {
    case TOP_COLUMN_USER:
        return row->user;
    case TOP_COLUMN_PROGRAM:
        return row->name;
    case TOP_COLUMN_TRACKED:
        return row->tracked;
    case TOP_COLUMN_COMMAND:
        return row->command;
    case TOP_COLUMN_JOB:
        return row->job;
    case TOP_COLUMN_CONTAINER:
        return row->container;
    case TOP_COLUMN_POD:
        return row->pod;
    case TOP_COLUMN_CGROUP:
        return row->cgroup;
    default:
        return NULL;
    }
}

const char *top_column_text(enum top_column column, const struct top_row *row)
{
    const char *text = text_of(column, row);
    return text ? text : "";
}

bool top_column_number(enum top_column column, const struct top_row *row, int64_t *ret)
{
    switch (column) {
    case TOP_COLUMN_PID:
        *ret = row->pid;
        return true;
    case TOP_COLUMN_PARENT:
        *ret = row->parent;
        return row->parent > 0;
    case TOP_COLUMN_STATE:
        *ret = row->state;
        return true;
    case TOP_COLUMN_PSS_AGE:
        return top_row_fact(row, TOP_FACT_PSS_AGE, ret);
    case TOP_COLUMN_OOM:
        return top_row_fact(row, TOP_FACT_OOM, ret);
    case TOP_COLUMN_HEADROOM:
        return top_row_fact(row, TOP_FACT_HEADROOM, ret);
    case TOP_COLUMN_AGE:
        return top_row_fact(row, TOP_FACT_AGE, ret);
    case TOP_COLUMN_RANK:
        return top_row_fact(row, TOP_FACT_RANK, ret);
    default:
        return false;
    }
}

static bool is_number(enum top_column column)
{
    return top_fields[column].type != COLUMN_TEXT || column == TOP_COLUMN_STATE;
}

static int compare_texts(const char *a, const char *b, bool ascending)
{
    if (!*a || !*b)
        return !*a - !*b;
    int order = strcasecmp(a, b);
    return ascending ? order : -order;
}

int top_column_compare(enum top_column column, bool ascending, bool sums, const struct top_row *a,
                       const struct top_row *b)
{
    int figure = specs[column].figure;
    bool has_a, has_b;
    int64_t x = 0, y = 0;
    if (figure >= 0) {
        const struct top_figures *f = sums ? &a->sum : &a->own, *g = sums ? &b->sum : &b->own;
        has_a = f->known >> figure & 1;
        has_b = g->known >> figure & 1;
        x = f->value[figure];
        y = g->value[figure];
    } else if (is_number(column)) {
        has_a = top_column_number(column, a, &x);
        has_b = top_column_number(column, b, &y);
    } else {
        return compare_texts(top_column_text(column, a), top_column_text(column, b), ascending);
    }
    if (!has_a || !has_b)
        return has_b - has_a;
    int order = (x > y) - (x < y);
    return ascending ? order : -order;
}

bool top_column_tells(enum top_column column, const struct top_row *row)
{
    int figure = specs[column].figure;
    int64_t number;
    if (column == TOP_COLUMN_TREND)
        return row->trace && row->trace->last > row->trace->first;
    if (figure >= 0)
        return row->own.known >> figure & 1 && row->own.value[figure];
    return is_number(column) ? top_column_number(column, row, &number)
                             : *top_column_text(column, row) != '\0';
}

/* ---- which fit ---- */

static top_column_set with_something(const struct top_rows *rows, top_column_set wanted)
{
    top_column_set open = wanted, kept = 0;
    for (int c = 0; c < TOP_COLUMNS; c++)
        if (wanted & BIT(c) && specs[c].empty_too)
            kept |= BIT(c);
    open &= ~kept;
    for (size_t i = 0; i < rows->n && open; i++)
        for (int c = 0; c < TOP_COLUMNS; c++)
            if (open & BIT(c) && !rows->rows[i].kernel &&
                (top_column_tells((enum top_column)c, &rows->rows[i]) ||
                 (specs[c].figure >= TOP_HEAP && specs[c].figure <= TOP_DEVICE &&
                  rows->rows[i].own.known >> specs[c].figure & 1))) {
                kept |= BIT(c);
                open &= ~BIT(c);
            }
    return kept;
}

static unsigned width_of(top_column_set set)
{
    unsigned width = 0;
    for (int c = 0; c < TOP_COLUMNS; c++)
        if (set & BIT(c))
            width += specs[c].width + (width ? 1 : 0);
    return width;
}

void top_layout_make(const struct top_rows *rows, top_column_set wanted, bool tree, unsigned width,
                     struct top_layout *ret_layout)
{
    wanted |= BIT(TOP_COLUMN_PID) | BIT(TOP_COLUMN_PROGRAM) | BIT(TOP_COLUMN_RSS);
    wanted = tree ? wanted | BIT(TOP_COLUMN_TREE) : wanted & ~BIT(TOP_COLUMN_TREE);
    top_column_set set = with_something(rows, wanted);
    while (width_of(set) > width) {
        int least = NONE;
        for (int c = 0; c < TOP_COLUMNS; c++)
            if (set & BIT(c) && specs[c].rank && (least < 0 || specs[c].rank > specs[least].rank))
                least = c;
        if (least < 0)
            break;
        set &= ~BIT(least);
    }
    /* What is left makes the program wider, up to a limit, and then the command. */
    unsigned used = width_of(set), spare = width > used ? width - used : 0;
    unsigned narrow = specs[TOP_COLUMN_PROGRAM].width, program = spare;
    if (set & BIT(TOP_COLUMN_COMMAND))
        program = tree ? spare / 2 : spare / 4;
    unsigned most = (tree ? PROGRAM_MAX_TREE : PROGRAM_MAX) - narrow;
    program = program < most ? program : most;
    unsigned lack =
        used > width ? used - width : 0; /* where nothing else can go, the name is cut */
    lack = lack < narrow - PROGRAM_MIN ? lack : narrow - PROGRAM_MIN;
    ret_layout->n = 0;
    unsigned at = 0;
    for (int c = 0; c < TOP_COLUMNS; c++) {
        if (!(set & BIT(c)))
            continue;
        unsigned w = specs[c].width;
        if (c == TOP_COLUMN_PROGRAM)
            w += program - lack;
        else if (c == TOP_COLUMN_COMMAND)
            w += spare - program;
        ret_layout->column[ret_layout->n] = (enum top_column)c;
        ret_layout->start[ret_layout->n] = at;
        ret_layout->width[ret_layout->n++] = w;
        at += w + 1;
    }
}
