/* Live blocks as rows of a table. See buffers.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/buffers.h"
#include "cli/devices.h"
#include "cli/site_cells.h"
#include "ledger/ledger.h"

enum {
    COL_PID,
    COL_USER,
    COL_PROGRAM,
    COL_DEVICE,
    COL_DEVICE_NUMBER,
    COL_DEVICE_NAME,
    COL_DEVICE_UID,
    COL_SPACE,
    COL_BYTES,
    COL_AGE,
    COL_TAG,
    COL_MOVES,
    COL_ID,
    COL_SITE,
    COL_MADE,
    COL_FRAME,
    COL_FUNCTION,
    COL_FILE,
    COL_LINE,
};

const struct column buffers_columns[] = {
    [COL_PID] = {"pid", "PID", "process id as seen from here", COLUMN_NUMBER},
    [COL_USER] = {"user", "USER", "who owns the process", COLUMN_TEXT, 0, 60},
    [COL_PROGRAM] = {"program", "PROGRAM", "name of the program", COLUMN_TEXT, COLUMN_STRETCH},
    [COL_DEVICE] = {"device_label", "DEVICE", "number and name of the device, or host", COLUMN_TEXT,
                    COLUMN_STRETCH | COLUMN_SCREEN_ONLY, 30},
    [COL_DEVICE_NUMBER] = COLUMN_DEVICE,
    [COL_DEVICE_NAME] = COLUMN_DEVICE_NAME,
    [COL_DEVICE_UID] = COLUMN_DEVICE_UID,
    [COL_SPACE] = {"space", "SPACE", "kind of memory", COLUMN_TEXT},
    [COL_BYTES] = {"bytes", "SIZE", "size of the block", COLUMN_BYTES},
    [COL_AGE] = {"age_seconds", "AGE", "since it was allocated", COLUMN_AGE},
    [COL_TAG] = {"tag", "TAG", "what the program called it", COLUMN_TEXT,
                 COLUMN_STRETCH | COLUMN_HIDE_EMPTY, 5},
    [COL_MOVES] = {"moves", "MOVES", "transfers that it was part of", COLUMN_NUMBER,
                   COLUMN_HIDE_EMPTY, 50},
    [COL_ID] = {"id", "ID", "address or handle", COLUMN_TEXT, 0, 40},
    [COL_SITE] =
        {"site", "SITE",
         "the place in the code that asked for it: line and function where they are known, else "
         "module and offset",
         COLUMN_TEXT, COLUMN_STRETCH | COLUMN_HIDE_EMPTY, 10},
    [COL_MADE] = {"allocated", NULL, "when it was allocated", COLUMN_TIME, COLUMN_EXPORT_ONLY},
    [COL_FRAME] = {"frame", NULL, "path of the module and offset in its file", COLUMN_TEXT,
                   COLUMN_EXPORT_ONLY},
    [COL_FUNCTION] = {"function", NULL, "name of the function", COLUMN_TEXT, COLUMN_EXPORT_ONLY},
    [COL_FILE] = {"file", NULL, "source file", COLUMN_TEXT, COLUMN_EXPORT_ONLY},
    [COL_LINE] = {"line", NULL, "line in the source file", COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    {0},
};

static void set_process(struct table *t, const struct ledger_process *p)
{
    char number[16];
    snprintf(number, sizeof(number), "%u", p->uid);
    if (p->valid & LEDGER_HAS_PID)
        table_set_number(t, COL_PID, (uint64_t)p->pid);
    table_set_text(t, COL_USER, p->valid & LEDGER_HAS_USER ? p->user : number);
    table_set_text(t, COL_PROGRAM, p->name);
}

static void set_account(struct table *t, const struct ledger_account *a)
{
    char label[DEVICES_LABEL_MAX];
    table_set_text(t, COL_SPACE, *a->name ? a->name : ledger_space_name(a->space));
    if (!a->device) {
        table_set_text(t, COL_DEVICE, "host");
        return;
    }
    table_set_text(t, COL_DEVICE, devices_label(label, a->device));
    table_set_device(t, COL_DEVICE_NUMBER, a->device->ordinal, a->device->name, a->device->uid);
}

static void set_words(struct table *t, struct book_names *names, const struct buffers_row *row,
                      struct site_names *symbols)
{
    if (!names->book)
        return;
    const char *tag = book_names_tag(names, row->tag);
    const struct book_site_name *site = book_names_site(names, row->site, symbols);
    if (tag)
        table_set_text(t, COL_TAG, tag);
    if (site)
        book_site_cells(site, t, COL_SITE, COL_FRAME);
}

void buffers_rows(struct buffers *b, size_t first, size_t n, struct site_names *symbols,
                  struct table *table)
{
    uint64_t now_real_ns = clock_real_ns();
    for (size_t i = first; i < first + n && i < b->n && !table->error; i++) {
        const struct buffers_row *row = &b->rows[i];
        const struct ledger_process *p = b->owners[row->book]->process;
        char id[24];
        table_row(table);
        set_process(table, p);
        set_account(table, &p->accounts[row->account]);
        table_set_number(table, COL_BYTES, row->bytes);
        uint64_t age_ns = b->now_ns > row->time_ns ? b->now_ns - row->time_ns : 0;
        table_set_number(table, COL_AGE, age_ns);
        table_set_number(table, COL_MADE, now_real_ns - age_ns);
        table_set_number(table, COL_MOVES, row->moves);
        snprintf(id, sizeof(id), "0x%" PRIx64, row->id);
        table_set_text(table, COL_ID, id);
        set_words(table, &b->books[row->book], row, symbols);
    }
}
