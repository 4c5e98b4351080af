/* Lost blocks, by the line that asked for them. See lost.h. */
#include "cli/lost.h"
#include "cli/absent.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/apart.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/sum.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/process_word.h"
#include "cli/site_cells.h"
#include "cli/table.h"
#include "cli/term.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"
#include "profile/book_names.h"
#include "profile/site_names.h"
#include "query/document.h"
#include "scan/scan.h"

enum {
    SAMPLES = 3, /* blocks shown of each row: the oldest */
    PROGRESS_AFTER_MS = 300,
    PROGRESS_EACH_MS = 100,
    SILENT_MS_MAX = 15000, /* for a megabyte of the process, which may be swapped out */
};

enum {
    COL_STATE,
    COL_BYTES,
    COL_BLOCKS,
    COL_OLDEST,
    COL_SITE,
    COL_FRAME,
    COL_FUNCTION,
    COL_FILE,
    COL_LINE,
    COL_VIA,
};

const struct column lost_columns[] = {
    [COL_STATE] =
        {"state", "STATE",
         "lost (nothing points to it), indirectly lost (only lost blocks do) or reachable",
         COLUMN_TEXT},
    [COL_BYTES] = {"bytes", "SIZE", "bytes of these blocks, as asked for", COLUMN_BYTES},
    [COL_BLOCKS] = {"blocks", "BLOCKS", "how many they are", COLUMN_NUMBER},
    [COL_OLDEST] = {"oldest", "OLDEST", "age of the oldest", COLUMN_AGE, 0, 20},
    [COL_SITE] = {"site", "SITE", "the line that asked for them", COLUMN_TEXT,
                  COLUMN_STRETCH | COLUMN_WIDE},
    [COL_FRAME] = {"frame", NULL, "path of the module and offset in its file", COLUMN_TEXT,
                   COLUMN_EXPORT_ONLY},
    [COL_FUNCTION] = {"function", NULL, "name of the function", COLUMN_TEXT, COLUMN_EXPORT_ONLY},
    [COL_FILE] = {"source_file", NULL, "source file", COLUMN_TEXT, COLUMN_EXPORT_ONLY},
    [COL_LINE] = {"line", NULL, "line in the source file", COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    [COL_VIA] = {"via", NULL, "what the line calls to get its memory", COLUMN_TEXT,
                 COLUMN_EXPORT_ONLY},
    {0},
};

/* Blocks of one site that are in one state. */
struct lost_row {
    enum scan_state state;
    uint32_t site;
    uint64_t bytes, blocks;
    const struct scan_block *samples[SAMPLES]; /* the oldest first */
    size_t n_samples;
};

struct lost {
    struct ledger *ledger;
    struct ledger_process *process;
    struct ledger_book *book;
    struct book_names names;
    struct scan *scan;
    uint64_t stood_ns; /* how long the process stood still */
    size_t threads;
    struct lost_row *rows;
    size_t n;
    struct scan_sum inherited;     /* lost, but an ancestor's: not in the rows */
    uint64_t now_ns;               /* CLOCK_MONOTONIC, as books have it */
    struct scan_threads *borrowed; /* where another part has stopped it, */
    int memory_file;               /* and its memory then */
};

static void lost_release(struct lost *lost)
{
    free(lost->rows);
    scan_free(lost->scan);
    if (lost->names.book)
        book_names_release(&lost->names);
    ledger_free(lost->ledger);
}

/* ---- looking ---- */

static int find_book(const struct lost_request *q, struct lost *lost)
{
    int r = ledger_scan(q->dir, &lost->ledger);
    if (r < 0)
        return r;
    uint64_t pid;
    size_t found = process_word_find(lost->ledger, q->word, &lost->process);
    if (found > 1)
        return command_fail("there are %zu processes called '%s': name one by its PID", found,
                            q->word);
    /* What an earlier image kept says nothing of this one. */
    if (found == 0 || ledger_process_replaced(lost->process)) {
        const char *why = q->borrowed
                              ? "it could not be tracked. Perhaps it is linked statically, has a "
                                "malloc() of its own or a hardened heap, or MEMOIR_OFF is set"
                              : "start it by 'memoir run COMMAND'; memoir ps lists those that keep "
                                "one";
        if (q->quiet)
            return COMMAND_NOTHING;
        if (process_word_pid(q->word, &pid))
            return absent_process(pid, why);
        command_fail("no process '%s' keeps a book, so its blocks are not known: %s", q->word, why);
        return COMMAND_NOTHING;
    }
    bool other = false;
    for (size_t i = 0; i < lost->process->n_books; i++) {
        uint32_t format = lost->process->books[i]->identity->trailer_format;
        if (book_trailer_known(format))
            lost->book = lost->process->books[i];
        other = other || format != 0;
    }
    if (lost->book)
        return COMMAND_OK;
    if (other)
        return command_fail("%s (PID %d) is tracked by a libmemoir-track of another version, whose "
                            "blocks this memoir cannot find: use that version's, or start it anew",
                            lost->process->name, (int)lost->process->pid);
    if (!q->quiet)
        command_fail("%s (PID %d) is not tracked: its heap is not known block by block.%s",
                     lost->process->name, (int)lost->process->pid,
                     q->borrowed ? "" : " Start it by 'memoir run COMMAND'");
    return COMMAND_NOTHING;
}

static int cannot_look(pid_t process, bool ends, int r)
{
    int pid = (int)process;
    const char *then = ends ? "It ends all the same" : "It goes on as before";
    if (r == -EPERM || r == -EACCES)
        return command_fail("process %d may not be stopped: be its user or root, mind "
                            "/proc/sys/kernel/yama/ptrace_scope, and end other debuggers of it",
                            pid);
    if (r == -ETIMEDOUT)
        return command_fail("a thread of process %d hangs in the kernel and does not stop. %s", pid,
                            then);
    if (r == -ECANCELED)
        return command_fail(
            "the memory of process %d does not answer: some of it comes from a file system or a "
            "program that hangs. %s",
            pid, then);
    if (r == -ECHILD)
        return command_fail(
            "the child of memoir that looked at the memory of process %d was killed, so what is lost "
            "is not known: perhaps there is too little memory (dmesg tells). %s",
            pid, then);
    if (r == -ESRCH)
        return command_fail("process %d has ended", pid);
    return r;
}

struct progress {
    uint64_t begun_ns, told_ns;
};

static void tell_progress(const char *what, uint64_t done, uint64_t all, void *context)
{
    struct progress *p = context;
    uint64_t now_ns = clock_monotonic_ns();
    if (now_ns - p->begun_ns < PROGRESS_AFTER_MS * NS_PER_MS ||
        now_ns - p->told_ns < PROGRESS_EACH_MS * NS_PER_MS)
        return;
    char text[UNITS_TEXT_MAX];
    p->told_ns = now_ns;
    fprintf(stderr, "\r%s: %s ", what, units_format_bytes(text, done, UNITS_DECIMAL));
}

/* What a look gives, less the blocks. */
struct looked {
    struct scan scan;
    uint64_t stood_ns, threads;
};

static int scan_now(struct lost *lost, const struct scan_threads *threads, bool tell,
                    struct progress *progress, struct scan **ret_scan)
{
    const struct book_identity *id = lost->book->identity;
    struct book_names names;
    /* Sites that came until now are all that a trailer or a word can name. */
    int r = book_names_load(lost->book, &names);
    if (r < 0)
        return r;
    struct scan_options options = {
        .pid = lost->process->pid,
        .key = {.key = id->trailer_key, .generation = id->trailer_generation},
        .glibc = book_trailer_glibc(id->trailer_format),
        .beside = {id->beside_heap, id->beside_words, id->beside_span},
        .words = book_trailer_words(id->trailer_format),
        .sites = names.copy.n_sites,
        .time_max = scan_time_max(id->created_monotonic_ns, proc_monotonic_ns()),
        .memory_file = lost->memory_file,
        .gaps_are_roots = lost->process->losses[BOOK_LOSS_SUSPENDED] > 0,
        .progress = tell ? tell_progress : NULL,
        .context = progress,
    };
    book_names_release(&names);
    return scan_run(&options, threads, ret_scan);
}

/* The process stands still in here, so there is nothing in it that could be done before or after. */
static int stop_and_scan(struct lost *lost, struct scan **ret_scan)
{
    struct progress progress = {.begun_ns = clock_monotonic_ns()};
    bool tell = isatty(STDERR_FILENO) && !lost->borrowed;
    struct scan_threads *threads = lost->borrowed;
    int r = threads ? 0 : scan_threads_stop(lost->process->pid, &threads);
    if (r < 0)
        return r;
    lost->threads = scan_threads_count(threads);
    r = scan_now(lost, threads, tell, &progress, ret_scan);
    if (!lost->borrowed)
        scan_threads_release(threads);
    lost->stood_ns = clock_monotonic_ns() - progress.begun_ns;
    if (tell && progress.told_ns)
        fputs("\r\033[K", stderr);
    return r;
}

/* The blocks first, so that they are where they can stay. */
static int child_look(struct buffer *out, void *context)
{
    struct lost *lost = context;
    MEMOIR_CLEANUP(scan_freep)
    struct scan *scan = NULL;
    int r = stop_and_scan(lost, &scan);
    if (r < 0)
        return r;
    struct looked looked = {.scan = *scan, .stood_ns = lost->stood_ns, .threads = lost->threads};
    buffer_append(out, scan->blocks, scan->n * sizeof(*scan->blocks));
    return buffer_append(out, &looked, sizeof(looked));
}

/* Its memory may come from a file system or a program that hangs, or from one of the threads that stand still: so a child looks, and
 * with its end the process goes on. */
static int look_apart(struct lost *lost)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out =
        BUFFER_INIT(sizeof(struct looked) + SCAN_BLOCKS_MAX * sizeof(struct scan_block));
    struct looked looked;
    int r =
        apart_run(child_look, lost,
                  &(struct apart_options){.silent_ms = SILENT_MS_MAX, .keep_files = true}, &out);
    if (r < 0)
        return r == -ETIME ? -ECANCELED : r;
    if (out.len < sizeof(looked))
        return -EBADMSG;
    memcpy(&looked, out.data + out.len - sizeof(looked), sizeof(looked));
    lost->scan = malloc(sizeof(*lost->scan));
    if (!lost->scan)
        return -ENOMEM;
    *lost->scan = looked.scan;
    lost->scan->n = (out.len - sizeof(looked)) / sizeof(struct scan_block);
    lost->scan->blocks = (struct scan_block *)buffer_take(&out);
    lost->stood_ns = looked.stood_ns;
    lost->threads = looked.threads;
    return 0;
}

/* A thread that we trace: only we ourselves may ask for its registers, and perhaps for its memory. */
static int look_borrowed(struct lost *lost, pid_t tid)
{
    char path[64];
    int r = scan_threads_borrow(tid, &lost->borrowed);
    if (r < 0)
        return r;
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)lost->process->pid);
    MEMOIR_CLEANUP(closep)
    int first = open(path, O_RDONLY | O_CLOEXEC);
    MEMOIR_CLEANUP(closep) /* the child has others up to standard error */
    int file = fcntl(first, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    lost->memory_file = file > 0 ? file : 0;
    r = look_apart(lost);
    scan_threads_release(lost->borrowed);
    lost->borrowed = NULL;
    return r;
}

static int look(const struct lost_request *q, struct lost *lost)
{
    int r = q->borrowed ? look_borrowed(lost, q->borrowed) : look_apart(lost);
    if (r == -EPROTO)
        return command_fail("process %d has a libmemoir-malloc of another version, whose blocks "
                            "this memoir cannot find: use that version's, or start it anew",
                            (int)lost->process->pid);
    if (r < 0)
        return cannot_look(lost->process->pid, q->borrowed != 0, r);
    return book_names_load(lost->book, &lost->names);
}

/* ---- rows ---- */

static void row_sample(struct lost_row *row, const struct scan_block *block)
{
    size_t at = row->n_samples;
    while (at > 0 && row->samples[at - 1]->time > block->time)
        at--;
    if (at == SAMPLES)
        return;
    size_t keep = row->n_samples < SAMPLES ? row->n_samples : SAMPLES - 1;
    for (size_t i = keep; i > at; i--)
        row->samples[i] = row->samples[i - 1];
    row->samples[at] = block;
    row->n_samples = keep + 1;
}

static int by_state_and_size(const void *a, const void *b)
{
    const struct lost_row *x = a, *y = b;
    if (x->state != y->state)
        return (int)x->state - (int)y->state;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return (x->site > y->site) - (x->site < y->site);
}

static int make_rows(const struct lost_request *q, struct lost *lost)
{
    size_t sites = lost->names.copy.n_sites + 1, n = 0;
    struct lost_row *all = calloc(sites * SCAN_STATES, sizeof(*all));
    if (!all)
        return -ENOMEM;
    for (size_t i = 0; i < lost->scan->n; i++) {
        const struct scan_block *block = &lost->scan->blocks[i];
        if (block->inherited && !q->all) {
            lost->inherited.blocks += block->state != SCAN_REACHABLE;
            if (block->state != SCAN_REACHABLE)
                sum_add(&lost->inherited.bytes, block->bytes);
            continue;
        }
        if (block->state == SCAN_REACHABLE && !q->all)
            continue;
        uint32_t site = block->site < sites ? block->site : 0;
        struct lost_row *row = &all[site * (size_t)SCAN_STATES + block->state];
        row->state = block->state;
        row->site = site;
        row->blocks++;
        sum_add(&row->bytes, block->bytes);
        row_sample(row, block);
    }
    for (size_t i = 0; i < sites * SCAN_STATES; i++)
        if (all[i].blocks)
            all[n++] = all[i];
    qsort(all, n, sizeof(*all), by_state_and_size);
    lost->rows = all;
    lost->n = n;
    return 0;
}

static uint64_t age_ns(const struct lost *lost, const struct scan_block *block)
{
    uint64_t time_ns = lost->book->identity->created_monotonic_ns +
                       ((uint64_t)block->time << BOOK_TRAILER_TIME_SHIFT);
    return lost->now_ns > time_ns ? lost->now_ns - time_ns : 0;
}

static void fill(struct lost *lost, const struct lost_row *row, struct site_names *symbols,
                 struct table *t)
{
    table_row(t);
    table_set_text(t, COL_STATE, scan_state_name(row->state));
    table_set_style(t, COL_STATE, row->state == SCAN_REACHABLE ? STYLE_DIM : STYLE_BAD);
    table_set_number(t, COL_BYTES, row->bytes);
    table_set_number(t, COL_BLOCKS, row->blocks);
    table_set_number(t, COL_OLDEST, age_ns(lost, row->samples[0]));
    const struct book_site_name *site = book_names_site(&lost->names, row->site, symbols);
    if (site)
        book_site_cells(site, t, COL_SITE, COL_FRAME);
}

/* ---- printing ---- */

static void json_sum(struct json *json, const char *key, const struct scan_sum *sum)
{
    json_key(json, key);
    json_object_begin(json);
    json_field_u64(json, "blocks", sum->blocks);
    json_field_u64(json, "bytes", sum->bytes);
    json_object_end(json);
}

static int print_json(struct lost *lost, const struct table *t, struct buffer *out)
{
    const struct scan *scan = lost->scan;
    struct json json;
    command_json_begin(&json, out, "memoir.lost/2");
    json_field_i64(&json, "pid", lost->process->pid);
    json_field_string(&json, "program", lost->process->name);
    json_field_bool(&json, "proof", scan->whole);
    json_field_u64(&json, "unread", scan->unread_bytes);
    json_field_double(&json, "stood_still", (double)(lost->stood_ns / 1000) / 1e6);
    json_sum(&json, "lost", &scan->sums[SCAN_LOST]);
    json_sum(&json, "indirectly_lost", &scan->sums[SCAN_INDIRECT]);
    json_sum(&json, "reachable", &scan->sums[SCAN_REACHABLE]);
    json_sum(&json, "inherited_lost", &lost->inherited);
    json_key(&json, "sites");
    json_array_begin(&json);
    for (size_t i = 0; i < t->n_rows; i++) {
        json_object_begin(&json);
        table_json_row(t, i, 0, &json);
        json_key(&json, "samples");
        json_array_begin(&json);
        for (size_t k = 0; k < lost->rows[i].n_samples; k++) {
            const struct scan_block *block = lost->rows[i].samples[k];
            char address[24];
            snprintf(address, sizeof(address), "0x%" PRIx64, block->start);
            json_object_begin(&json);
            json_field_string(&json, "address", address);
            json_field_u64(&json, "bytes", block->bytes);
            json_field_u64(&json, "age", age_ns(lost, block) / NS_PER_S);
            json_object_end(&json);
        }
        json_array_end(&json);
        json_object_end(&json);
    }
    json_array_end(&json);
    query_document_end(&json);
    return json_finish(&json);
}

static void print_sum(struct buffer *out, const char *what, const struct scan_sum *sum)
{
    char count[UNITS_TEXT_MAX], bytes[UNITS_TEXT_MAX];
    buffer_printf(out, "%s%s in %s block%s", what,
                  units_format_bytes(bytes, sum->bytes, UNITS_DECIMAL),
                  units_format_count(count, sum->blocks), sum->blocks == 1 ? "" : "s");
}

static void print_samples(const struct lost *lost, const struct term *term, struct buffer *out)
{
    for (size_t i = 0; i < lost->n && i < 1; i++) {
        const struct lost_row *row = &lost->rows[i];
        if (row->state != SCAN_LOST)
            continue;
        buffer_printf(out, "%sThe oldest of the first row:", term_style(term, STYLE_DIM));
        for (size_t k = 0; k < row->n_samples; k++) {
            char bytes[UNITS_TEXT_MAX], age[UNITS_TEXT_MAX];
            buffer_printf(out, "%s 0x%" PRIx64 " (%s, %s ago)", k ? "," : "",
                          row->samples[k]->start,
                          units_format_bytes(bytes, row->samples[k]->bytes, UNITS_DECIMAL),
                          units_format_duration(age, age_ns(lost, row->samples[k])));
        }
        buffer_printf(out, "%s\n", term_plain(term, STYLE_DIM));
    }
}

/* Why what is lost is no proof. */
static void print_unknown(const struct scan *scan, struct buffer *out)
{
    char text[UNITS_TEXT_MAX];
    if (scan->unread_bytes)
        buffer_printf(
            out,
            "No proof: %s of its memory could not be read. Blocks there are not known, and a "
            "pointer there would make a lost block reachable.\n",
            units_format_bytes(text, scan->unread_bytes, UNITS_DECIMAL));
    if (scan->left_out)
        buffer_printf(out, "No proof: %s blocks beyond the limit were left out.\n",
                      units_format_count(text, scan->left_out));
    if (scan->damaged)
        buffer_append_str(out,
                          "No proof: the allocator's lists are damaged, so blocks are missing.\n");
}

static void print_summary(const struct lost *lost, size_t shown, const struct term *term,
                          struct buffer *out)
{
    const struct scan *scan = lost->scan;
    char time[UNITS_TEXT_MAX];
    buffer_append_str(out, shown ? "\n" : "");
    print_samples(lost, term, out);
    buffer_append_str(out, term_style(term, STYLE_TITLE));
    print_sum(out, "Lost: ", &scan->sums[SCAN_LOST]);
    print_sum(out, "; indirectly lost: ", &scan->sums[SCAN_INDIRECT]);
    print_sum(out, "; reachable: ", &scan->sums[SCAN_REACHABLE]);
    buffer_printf(out, ".%s\n", term_plain(term, STYLE_TITLE));
    if (lost->inherited.blocks) {
        print_sum(out, "Not shown: ", &lost->inherited);
        buffer_append_str(out, " that an ancestor made before fork; --all shows it.\n");
    }
    if (shown < lost->n)
        buffer_printf(out, "Shown: %zu of %zu rows. --top 0 shows all.\n", shown, lost->n);
    print_unknown(scan, out);
    if (lost->threads)
        buffer_printf(out, "%sThe process was paused for %s.%s\n", term_style(term, STYLE_DIM),
                      units_format_duration(time, lost->stood_ns), term_plain(term, STYLE_DIM));
}

static int print_text(const struct lost_request *q, const struct lost *lost, const struct table *t,
                      const struct table_layout *layout)
{
    struct term term;
    term_init(&term, q->terminal, (enum term_color)q->color);
    int r = t->n_rows ? table_print(t, layout, &term, q->text) : 0;
    print_summary(lost, t->n_rows, &term, q->text);
    return r < 0 ? r : q->text->error;
}

static int print(const struct lost_request *q, struct lost *lost, struct site_names *symbols)
{
    MEMOIR_CLEANUP(table_release)
    struct table table;
    table_init(&table, lost_columns);
    size_t shown = q->top && q->top < lost->n ? q->top : lost->n;
    for (size_t i = 0; i < shown; i++)
        fill(lost, &lost->rows[i], symbols, &table);
    struct table_layout layout = {.header = !q->no_header};
    int r = table.error;
    if (r == 0 && q->json)
        r = print_json(lost, &table, q->json);
    if (r == 0 && q->csv)
        r = table_print_csv(&table, &layout, q->csv);
    if (r == 0 && q->text)
        r = print_text(q, lost, &table, &layout);
    return r;
}

int lost_report(const struct lost_request *q)
{
    MEMOIR_CLEANUP(site_names_freep)
    struct site_names *symbols = q->no_sites ? NULL : site_names_new();
    MEMOIR_CLEANUP(lost_release)
    struct lost lost = {0};
    int r = find_book(q, &lost);
    if (r == COMMAND_OK)
        r = look(q, &lost);
    if (r != COMMAND_OK)
        return r;
    lost.now_ns = clock_monotonic_ns();
    r = make_rows(q, &lost);
    if (r == 0)
        r = print(q, &lost, symbols);
    if (r < 0)
        return r;
    bool any = lost.scan->sums[SCAN_LOST].blocks > 0;
    return q->check && any ? COMMAND_FAILED : COMMAND_OK;
}
