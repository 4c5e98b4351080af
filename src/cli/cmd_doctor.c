/* memoir doctor: what works here, what does not, why, and what to do about it. */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/doctor.h"
#include "cli/table.h"
#include "ledger/ledger.h"

enum { TEXT_MAX = 1 << 20, FINDING_INDENT = 24, REMEDY_INDENT = 26 };

struct doctor_values {
    struct command_common common;
    const char *dir;
    bool json;
    int color;
};

static const struct doctor_values defaults = {0};

#define AT(field) offsetof(struct doctor_values, field)

static const struct option_spec options[] = {
    OPTION_HELP, OPTION_JSON, OPTION_COLOR, OPTION_DIR, {0},
};

static const struct command_example examples[] = {
    {"memoir doctor", "check everything as this user"},
    {"memoir doctor --json | jq '.findings[] | select(.status != \"ok\")'",
     "what is wrong, for programs"},
    {0},
};

enum { FINDING_STATUS, FINDING_CHECK, FINDING_TEXT, FINDING_REMEDY };

static const struct column columns[] = {
    [FINDING_STATUS] = {"status", "STATUS", "ok, warn or fail", COLUMN_TEXT},
    [FINDING_CHECK] = {"check", "CHECK", "what was looked at", COLUMN_TEXT},
    [FINDING_TEXT] = {"finding", "FINDING", "what was found", COLUMN_TEXT},
    [FINDING_REMEDY] = {"remedy", "REMEDY", "what to do about it; null where nothing needs doing",
                        COLUMN_TEXT},
    {0},
};

static const struct command_fields fields[] = {{"Fields of a finding", columns}, {0}};

static const char *const status_names[] = {"ok", "warn", "fail"};
static const enum term_style status_styles[] = {STYLE_GOOD, STYLE_WARN, STYLE_BAD};

void doctor_find(struct doctor *d, enum doctor_status status, const char *remedy, const char *fmt,
                 ...)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(TEXT_MAX);
    va_list args;
    va_start(args, fmt);
    buffer_vprintf(&text, fmt, args);
    va_end(args);
    table_row(d->findings);
    table_set_text(d->findings, FINDING_STATUS, status_names[status]);
    table_set_style(d->findings, FINDING_STATUS, status_styles[status]);
    table_set_text(d->findings, FINDING_CHECK, d->check);
    table_set_text(d->findings, FINDING_TEXT, buffer_string(&text));
    if (remedy)
        table_set_text(d->findings, FINDING_REMEDY, remedy);
    d->n[status]++;
}

/* Wrapped text whose first line continues a line that is `indent` columns long already. */
static void hang(struct buffer *out, const struct term *term, const char *text, unsigned indent)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer safe = BUFFER_INIT(TEXT_MAX);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer wrapped = BUFFER_INIT(TEXT_MAX);
    term_append(term, &safe, text, 0);
    unsigned width = term->width ? term->width : 100;
    term_wrap(&wrapped, buffer_string(&safe), indent, width > 60 ? width : 60);
    buffer_append_str(out, buffer_string(&wrapped) + (wrapped.len > indent ? indent : 0));
}

static void print_finding(const struct table *t, size_t row, const struct term *term,
                          struct buffer *out)
{
    const struct cell *status = table_cell(t, row, FINDING_STATUS);
    const struct cell *remedy = table_cell(t, row, FINDING_REMEDY);
    const struct cell *check = table_cell(t, row, FINDING_CHECK);
    bool again = row > 0 && strcmp(table_cell(t, row - 1, FINDING_CHECK)->text, check->text) == 0;
    enum term_style style = (enum term_style)status->style;
    buffer_printf(out, "%s%-4s%s  %-*s", term_style(term, style), status->text,
                  term_plain(term, style), FINDING_INDENT - 6, again ? "" : check->text);
    hang(out, term, table_cell(t, row, FINDING_TEXT)->text, FINDING_INDENT);
    if (remedy->present) {
        buffer_printf(out, "%*s%s ", FINDING_INDENT, "", term->utf8 ? "\xe2\x86\x92" : ">");
        hang(out, term, remedy->text, REMEDY_INDENT);
    }
}

static void print_text(const struct doctor *d, const struct term *term, struct buffer *out)
{
    for (size_t row = 0; row < d->findings->n_rows; row++)
        print_finding(d->findings, row, term, out);
    buffer_printf(out, "\n%u ok, %u warning%s, %u failure%s\n", d->n[DOCTOR_OK], d->n[DOCTOR_WARN],
                  d->n[DOCTOR_WARN] == 1 ? "" : "s", d->n[DOCTOR_FAIL],
                  d->n[DOCTOR_FAIL] == 1 ? "" : "s");
}

static void print_json(const struct doctor *d, struct buffer *out)
{
    struct json json;
    command_json_begin(&json, out, "memoir.doctor/1");
    json_field_u64(&json, "ok", d->n[DOCTOR_OK]);
    json_field_u64(&json, "warn", d->n[DOCTOR_WARN]);
    json_field_u64(&json, "fail", d->n[DOCTOR_FAIL]);
    table_json_rows(d->findings, "findings", &json);
    json_object_end(&json);
    json_finish(&json);
    buffer_append_char(out, '\n');
}

static void run_checks(struct doctor *d, const struct doctor_check *checks)
{
    for (; checks->name; checks++) {
        d->check = checks->name;
        checks->run(d);
    }
}

static int run(const void *values, const struct operands *operands)
{
    const struct doctor_values *v = values;
    MEMOIR_CLEANUP(table_release)
    struct table findings;
    table_init(&findings, columns);
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    char absolute[PATH_MAX]; /* MEMOIR_DIR is; it is for the trial book */
    if (v->dir && setenv("MEMOIR_DIR", realpath(v->dir, absolute) ? absolute : v->dir, 1) < 0)
        return -errno;
    struct doctor d = {.dir = v->dir, .findings = &findings, .check = "books"};
    int r = ledger_scan(v->dir, &ledger);
    if (r < 0)
        doctor_find(&d, DOCTOR_FAIL, "mount /proc, free some memory", "cannot look for books: %s",
                    strerror(-r));
    d.ledger = ledger;
    run_checks(&d, doctor_book_checks);
    run_checks(&d, doctor_daemon_checks);
    run_checks(&d, doctor_cluster_checks);
    run_checks(&d, doctor_pressure_checks);
    run_checks(&d, doctor_region_checks);
    run_checks(&d, doctor_driver_checks);
    run_checks(&d, doctor_trace_checks);
    run_checks(&d, doctor_pin_checks);
    run_checks(&d, doctor_kernel_checks);
    if (findings.error)
        return findings.error;
    struct term term;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(TEXT_MAX);
    if (v->json)
        print_json(&d, &out);
    else
        print_text(&d, &term, &out);
    r = command_output(&out);
    return d.n[DOCTOR_FAIL] && r == COMMAND_OK ? COMMAND_FAILED : r;
}

const struct command cmd_doctor = {
    .name = "doctor",
    .usage = "doctor [OPTION...]",
    .help = "what works here, what does not, and what to do about it",
    .description =
        "Checks where books may be kept, creates a test book, looks for the daemon and its socket, for books that "
        "cannot be read and for processes that lost reports, and tries the features of the kernel "
        "and the limits of this shell on which programs with a book depend. Each finding is ok, a "
        "warning, or a failure with a remedy.\n\n"
        "Exits with status 1 if a check failed; warnings do not count.",
    .options = options,
    .examples = examples,
    .fields = fields,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
