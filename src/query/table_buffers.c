/* The tables of live blocks (buffers) and of call sites, read from the books themselves.
 *
 * Blocks are many and cost a read of the book, so processes that cannot match are not opened, and tags
 * and sites are read only when a column wants them. What could not be read makes the answer incomplete. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"
#include "query/arena.h"
#include "query/code.h"
#include "query/table_process.h"

enum { SITES_BYTES_MAX = 32 << 20 }; /* of one book; about 10 ms */

/* One book while its rows are looked at. */
struct query_book {
    struct query_scan *scan;
    const struct ledger_process *process;
    const struct ledger_book *book;
    uint32_t accounts[BOOK_RECORDS_MAX]; /* of the process, by registry record */
    uint64_t now_ns;                     /* CLOCK_MONOTONIC */
    bool tried;                          /* to read what follows */
    struct book_sites sites;             /* empty where it could not be read */
    struct code_name *names;             /* of sites, made when asked for */
    struct arena texts;
};

static void book_release(struct query_book *book)
{
    book_sites_release(&book->sites);
    arena_release(&book->texts);
    free(book->names);
}

static void book_load_sites(struct query_book *book)
{
    if (book->tried)
        return;
    book->tried = true;
    MEMOIR_CLEANUP(closep)
    int fd = ledger_book_open(book->book);
    uint64_t bytes;
    /* They are read at once, so a run that has to end in time takes no more than it can. */
    bool small = fd >= 0 && book_reader_sites_bytes(book->book->reader, fd, &bytes) == 0 &&
                 (!book->scan->deadline_ns || bytes <= SITES_BYTES_MAX);
    if (!small || book_reader_sites(book->book->reader, fd, &book->sites) < 0) {
        book->sites = (struct book_sites){0};
        book->scan->incomplete = true;
        return;
    }
    book->names = calloc(book->sites.n_sites + 1, sizeof(*book->names));
}

/* ---- names of sites ---- */

/* A line of a script, or the innermost frame, which is the caller of the reporting function. */
static int name_frame(struct query_book *book, uint64_t frame, struct code_name *ret_name)
{
    const struct book_script *script = book_sites_script(&book->sites, frame);
    if (script)
        return code_name_script(script->file, BOOK_FRAME_LINE(frame), script->function,
                                &book->texts, ret_name);
    const struct book_module *module = book_sites_module(&book->sites, frame);
    const struct query_world *world = book->scan->world;
    uint64_t offset = BOOK_FRAME_OFFSET(frame);
    if (!module && BOOK_FRAME_MODULE(frame) != BOOK_MODULE_NONE)
        return -ENOENT;
    if (!module) {
        char text[24];
        snprintf(text, sizeof(text), "0x%" PRIx64, offset);
        ret_name->site = "[JIT]";
        ret_name->frame = arena_text(&book->texts, text, strlen(text));
        return ret_name->frame ? 0 : -ENOMEM;
    }
    const struct ledger_process *p = book->process;
    struct query_code code = {
        .path = *module->path ? module->path : p->exe,
        .build_id = module->build_id,
        .build_id_len = module->build_id_len,
        .offset = offset,
        .pid = ledger_process_reachable(p) ? p->pid : 0,
        .started_ns = p->valid & LEDGER_HAS_START ? p->start_realtime_ns : 0,
    };
    return code_name_make(world, &code, &book->texts, ret_name);
}

static const char *text_copy(struct query_book *book, const char *text)
{
    return text ? arena_text(&book->texts, text, strlen(text)) : NULL;
}

/* By the line of the program's own code, where the world knows it. */
static bool name_line(struct query_book *book, uint32_t number, struct code_name *ret_name)
{
    const struct query_world *world = book->scan->world;
    struct query_site site;
    if (!world->site_of || !world->site_of(book->book, number, &site, world->context))
        return false;
    *ret_name = (struct code_name){.site = text_copy(book, site.text),
                                   .frame = text_copy(book, site.frame),
                                   .function = text_copy(book, site.function),
                                   .file = text_copy(book, site.file),
                                   .line = site.line};
    return ret_name->site != NULL;
}

/* NULL where it is unknown. */
static const struct code_name *site_name(struct query_book *book, uint32_t number)
{
    book_load_sites(book);
    if (number == BOOK_SITE_NONE || number >= book->sites.n_sites || !book->names)
        return NULL;
    struct code_name *name = &book->names[number];
    const struct book_site *site = &book->sites.sites[number];
    if (!name->site && !name_line(book, number, name) &&
        (!site->frames || name_frame(book, book_sites_frame(&book->sites, site), name) < 0))
        return NULL;
    return name;
}

static void get_code(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    uint32_t number = row->block ? row->block->site : row->site;
    if (number != BOOK_SITE_NONE)
        code_name_get(site_name(row->book, number), field->column->arg, ret);
}

/* ---- blocks ---- */

static void get_id(const struct query_world *world, const struct query_row *row,
                   const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char text[24];
    snprintf(text, sizeof(text), "0x%" PRIx64, row->block->id);
    query_set_text(ret, text);
}

static void get_bytes(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, row->block->bytes);
}

static void get_age(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    uint64_t now_ns = row->book->now_ns;
    if (*row->process->host)
        ret->state = QUERY_UNKNOWN; /* another machine's clock */
    else
        query_set_number(ret, now_ns > row->block->time_ns ? now_ns - row->block->time_ns : 0);
}

static void get_tag(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    uint32_t tag = row->block->tag;
    if (tag == 0)
        return;
    book_load_sites(row->book);
    if (tag < row->book->sites.n_tags)
        query_set_text(ret, row->book->sites.tags[tag].name);
    else
        ret->state = QUERY_UNKNOWN;
}

static void get_moves(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, row->block->moves);
}

static const struct query_column buffer_columns[] = {
    PROCESS_COLUMNS,
    DEVICE_COLUMNS(QUERY_DETAIL),
    {"id", "address or handle, as the program calls it", QUERY_TEXT, .flags = QUERY_DETAIL,
     .get = get_id},
    {"bytes", "size of the block", QUERY_BYTES, .flags = QUERY_DETAIL, .get = get_bytes},
    {"age", "time since it was allocated", QUERY_AGE, .flags = QUERY_DETAIL, .get = get_age},
    {"tag", "what the program was doing", QUERY_TEXT, .flags = QUERY_DETAIL | QUERY_PRIVATE,
     .get = get_tag},
    CODE_COLUMNS("the place in the code that asked for it", get_code),
    {"moves", "transfers that it was part of", QUERY_NUMBER, .flags = QUERY_DETAIL,
     .get = get_moves},
    {0},
};

/* The account of a process that a registry record of this book takes part in, or NULL: another source
 * counts there. */
static const struct ledger_account *account_of(const struct query_book *book, uint32_t record)
{
    uint32_t index = record < BOOK_RECORDS_MAX ? book->accounts[record] : UINT32_MAX;
    return index < book->process->n_accounts ? &book->process->accounts[index] : NULL;
}

static int each_block(const struct book_block_view *block, void *context)
{
    struct query_book *book = context;
    const struct ledger_account *account = account_of(book, block->account);
    if (!account)
        return 0;
    struct query_row row = {.process = book->process,
                            .account = account,
                            .device = account->device,
                            .block = block,
                            .book = book};
    return book->scan->each(book->scan, &row);
}

/* Errors that end the query; others leave out a book. */
static int note_error(struct query_scan *scan, int r)
{
    if (r == -ENOMEM || r == -ETIME)
        return r;
    scan->incomplete |= r < 0;
    return 0;
}

static int scan_book_blocks(struct query_book *book)
{
    struct query_scan *scan = book->scan;
    struct book_scan_limits limits = {.deadline_ns = scan->deadline_ns};
    bool exact = true;
    MEMOIR_CLEANUP(closep)
    int fd = ledger_book_open(book->book);
    int r = fd < 0 ? fd
                   : book_reader_blocks_within(book->book->reader, fd, &limits, each_block, book,
                                               &exact);
    scan->incomplete |= !exact;
    return note_error(scan, r);
}

/* Call `work` for every book of every process that can match. */
static int scan_books(struct query_scan *scan, int (*work)(struct query_book *book))
{
    size_t n = 0;
    struct ledger_process *const *processes =
        scan->world->ledger ? ledger_processes(scan->world->ledger, &n) : NULL;
    int r = 0;
    for (size_t i = 0; i < n && r == 0; i++) {
        const struct ledger_process *p = processes[i];
        if (!scan->may_match(scan, &(struct query_row){.process = p}))
            continue;
        for (size_t b = 0; b < p->n_books && r == 0; b++) {
            MEMOIR_CLEANUP(book_release)
            struct query_book book = {
                .scan = scan, .process = p, .book = p->books[b], .now_ns = proc_monotonic_ns()};
            ledger_book_accounts(p->books[b], book.accounts);
            r = work(&book);
        }
        if (r == 0 && scan->deadline_ns && clock_monotonic_ns() > scan->deadline_ns && i + 1 < n)
            r = -ETIME;
    }
    return r;
}

static int scan_buffers(struct query_scan *scan)
{
    return scan_books(scan, scan_book_blocks);
}

const struct query_table query_table_buffers = {
    .name = "buffers",
    .help = "one row for each block that is allocated and not freed",
    .columns = buffer_columns,
    .needs = QUERY_NEEDS_BOOKS | QUERY_NEEDS_BLOCKS,
    .costly = true,
    .show = "pid,program,device,space,bytes,age,tag,site,id",
    .show_by = "count,bytes,age",
    .sort = "-bytes,-age,+pid,+id",
    .private_rows = true,
    .scan = scan_buffers,
    .owner = process_owner,
    .usual = process_lives,
    .unusual_by = "state",
};

/* ---- sites ---- */

enum site_figure {
    SITE_BYTES,
    SITE_BLOCKS,
    SITE_ALLOCATED,
    SITE_FREED,
    SITE_ALLOCATED_BLOCKS,
    SITE_FREED_BLOCKS,
    SITE_AT_PEAK,
    SITE_AT_PEAK_BLOCKS,
};

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static void get_site_figure(const struct query_world *world, const struct query_row *row,
                            const struct query_field *field, struct query_value *ret)
{
    const struct book_site_counters *c = &row->book->sites.counters[row->site];
    const struct book_site_held *peak = &row->book->sites.at_peak[row->site];
    const uint64_t figures[] = {
        [SITE_BYTES] = less(c->alloc_bytes, c->freed_bytes),
        [SITE_BLOCKS] = less(c->alloc_blocks, c->freed_blocks),
        [SITE_ALLOCATED] = c->alloc_bytes,
        [SITE_FREED] = c->freed_bytes,
        [SITE_ALLOCATED_BLOCKS] = c->alloc_blocks,
        [SITE_FREED_BLOCKS] = c->freed_blocks,
        [SITE_AT_PEAK] = peak->bytes,
        [SITE_AT_PEAK_BLOCKS] = peak->blocks,
    };
    if (field->column->arg >= SITE_AT_PEAK && peak->bytes == BOOK_SITES_AT_PEAK_UNKNOWN) {
        ret->state = QUERY_UNKNOWN;
        return;
    }
    query_set_number(ret, figures[field->column->arg]);
    ret->marks = account_marks(row->account);
}

static void get_key(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char text[24];
    snprintf(text, sizeof(text), "%016" PRIx64, row->book->sites.sites[row->site].key);
    query_set_text(ret, text);
}

#define SITE_FIGURE(name, kind, figure, help)                                          \
    {                                                                                  \
        name, help, kind, .flags = QUERY_DETAIL, .arg = figure, .get = get_site_figure \
    }

static const struct query_column site_columns[] = {
    PROCESS_COLUMNS,
    DEVICE_COLUMNS(QUERY_DETAIL),
    CODE_COLUMNS("the place in the code", get_code),
    {"key", "its number, the same in every run of the same program", QUERY_TEXT,
     .flags = QUERY_DETAIL | QUERY_PRIVATE, .get = get_key},
    SITE_FIGURE("bytes", QUERY_BYTES, SITE_BYTES, "allocated there and not freed"),
    SITE_FIGURE("blocks", QUERY_NUMBER, SITE_BLOCKS, "blocks allocated there and not freed"),
    SITE_FIGURE("allocated", QUERY_BYTES, SITE_ALLOCATED, "bytes allocated since the start"),
    SITE_FIGURE("freed", QUERY_BYTES, SITE_FREED, "of them, freed"),
    SITE_FIGURE("allocated_blocks", QUERY_NUMBER, SITE_ALLOCATED_BLOCKS,
                "blocks allocated since the start"),
    SITE_FIGURE("freed_blocks", QUERY_NUMBER, SITE_FREED_BLOCKS, "of them, freed"),
    SITE_FIGURE("at_peak", QUERY_BYTES, SITE_AT_PEAK,
                "bytes allocated there and not freed when the account was at its peak"),
    SITE_FIGURE("at_peak_blocks", QUERY_NUMBER, SITE_AT_PEAK_BLOCKS,
                "blocks allocated there and not freed at the peak"),
    {0},
};

static int scan_book_sites(struct query_book *book)
{
    int r = 0;
    book_load_sites(book);
    for (uint32_t i = 1; i < book->sites.n_sites && r == 0; i++) {
        const struct ledger_account *account = account_of(book, book->sites.sites[i].account);
        /* Sampled ones estimate what others count: no sum may have both. */
        if (!account || book->sites.sites[i].flags & BOOK_SITE_SAMPLED)
            continue;
        struct query_row row = {.process = book->process,
                                .account = account,
                                .device = account->device,
                                .book = book,
                                .site = i};
        r = book->scan->each(book->scan, &row);
    }
    return r;
}

static int scan_sites(struct query_scan *scan)
{
    return scan_books(scan, scan_book_sites);
}

const struct query_table query_table_sites = {
    .name = "sites",
    .help = "one row for each place in the code of each process that allocates",
    .columns = site_columns,
    .needs = QUERY_NEEDS_BOOKS | QUERY_NEEDS_BLOCKS,
    .costly = true,
    .show = "pid,program,device,space,site,bytes,blocks,allocated",
    .show_by = "bytes,blocks,allocated",
    .sort = "-bytes,-allocated,+pid,+site",
    .private_rows = true,
    .scan = scan_sites,
    .owner = process_owner,
    .usual = process_lives,
    .unusual_by = "state",
};
