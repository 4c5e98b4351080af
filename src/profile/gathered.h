/* One process while rows of a table are made of its profile: what the tables `lines` and `stacks` share.
 *
 * Looking up a name may move the profile's texts. So a getter looks up all names that its row needs before it hands out any text
 * of the profile: further getters of the same row then move nothing. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "query/query.h"

struct gathered;
struct ledger_process;
struct profile;
struct profile_figures;

enum { GATHERED_LISTS = 5, GATHERED_LIST_BYTES = 16 << 20 };

struct gathered {
    const struct ledger_process *process;
    struct profile *profile;
    struct profile_world *world;            /* NULL: without names, as of now */
    const struct ledger_account **accounts; /* of the process, by account of the profile */
    bool named;                             /* all frames were looked up */
    struct buffer lists[GATHERED_LISTS];    /* cells of the row that is looked at */
};

/* What row->custom of these tables points to begins with this. */
struct gathered_row {
    struct gathered *of;
    const struct profile_figures *figures;
    bool estimate;
};

/* Calls `rows` with each process that can match, gathered. */
int gathered_scan(struct query_scan *scan,
                  int (*rows)(struct query_scan *scan, struct gathered *gathered));

/* Hand a row to the scan: `row` begins with a gathered_row, `account` is one of the profile. */
int gathered_each(struct query_scan *scan, struct gathered *gathered, const void *row,
                  uint32_t account);

/* Look up all frames, once. */
void gathered_name_all(struct gathered *gathered);
struct symbolizer *gathered_symbols(const struct gathered *gathered); /* NULL: none */

/* Columns. */
enum gathered_figure {
    GATHERED_BYTES,
    GATHERED_BLOCKS,
    GATHERED_ALLOCATED,
    GATHERED_FREED,
    GATHERED_ALLOCATED_BLOCKS,
    GATHERED_FREED_BLOCKS,
};
void gathered_get_figure(const struct query_world *world, const struct query_row *row,
                         const struct query_field *field, struct query_value *ret);
void gathered_get_estimated(const struct query_world *world, const struct query_row *row,
                            const struct query_field *field, struct query_value *ret);

#define GATHERED_FIGURE(name, kind, which)                                \
    {                                                                     \
        name, NULL, kind, .flags = QUERY_DETAIL, .arg = GATHERED_##which, \
                          .get = gathered_get_figure                      \
    }
#define GATHERED_FIGURES                                                                           \
    GATHERED_FIGURE("bytes", QUERY_BYTES, BYTES), GATHERED_FIGURE("blocks", QUERY_NUMBER, BLOCKS), \
        GATHERED_FIGURE("allocated", QUERY_BYTES, ALLOCATED),                                      \
        GATHERED_FIGURE("freed", QUERY_BYTES, FREED),                                              \
        GATHERED_FIGURE("allocated_blocks", QUERY_NUMBER, ALLOCATED_BLOCKS),                       \
        GATHERED_FIGURE("freed_blocks", QUERY_NUMBER, FREED_BLOCKS),                               \
    {                                                                                              \
        "estimated", NULL, QUERY_YES, .flags = QUERY_DETAIL, .get = gathered_get_estimated         \
    }
