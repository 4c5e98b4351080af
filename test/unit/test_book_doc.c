/* doc/book.md and layout.h describe the same bytes: every field of every structure stands in the page's
 * tables with its offset and size, and the tables hold nothing else. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "book/layout.h"
#include "check.h"

struct field {
    const char *name;
    size_t offset, bytes;
};

#define FIELD(s, f)                                           \
    {                                                         \
#f, offsetof(struct s, f), sizeof(((struct s *)0)->f) \
    }

static const struct field header[] = {
    FIELD(book_header, magic),
    FIELD(book_header, endian_mark),
    FIELD(book_header, version),
    FIELD(book_header, header_bytes),
    FIELD(book_header, incompat),
    FIELD(book_header, compat),
    FIELD(book_header, file_size),
    FIELD(book_header, page_size),
    FIELD(book_header, source),
    FIELD(book_header, boot_id),
    FIELD(book_header, pid_ns),
    FIELD(book_header, time_ns),
    FIELD(book_header, start_ticks),
    FIELD(book_header, exec_id),
    FIELD(book_header, pid),
    FIELD(book_header, parent_pid),
    FIELD(book_header, uid),
    FIELD(book_header, exec_count),
    FIELD(book_header, writer_pid),
    FIELD(book_header, time_shift),
    FIELD(book_header, created_realtime_ns),
    FIELD(book_header, created_monotonic_ns),
    FIELD(book_header, state),
    FIELD(book_header, stop_reason),
    FIELD(book_header, peak_error),
    FIELD(book_header, blocks_seq),
    FIELD(book_header, losses),
    FIELD(book_header, hash_seed),
    FIELD(book_header, block_shards),
    FIELD(book_header, block_index_format),
    FIELD(book_header, block_pages),
    FIELD(book_header, comm),
    FIELD(book_header, host),
    FIELD(book_header, exe),
    FIELD(book_header, command),
    FIELD(book_header, sections),
    FIELD(book_header, sessions),
    FIELD(book_header, exec_random),
    FIELD(book_header, trailer_key),
    FIELD(book_header, trailer_generation),
    FIELD(book_header, trailer_format),
    FIELD(book_header, beside_heap),
    FIELD(book_header, beside_words),
    FIELD(book_header, beside_span),
    FIELD(book_header, spare),
};
static const struct field section[] = {
    FIELD(book_section, kind),  FIELD(book_section, entry_size), FIELD(book_section, offset),
    FIELD(book_section, size),  FIELD(book_section, open),       FIELD(book_section, used),
    FIELD(book_section, spare),
};
static const struct field control[] = {
    FIELD(book_control, flags),
    FIELD(book_control, flags_more),
    FIELD(book_control, watchers),
    FIELD(book_control, close_sites),
};
static const struct field watcher[] = {
    FIELD(book_watcher, pid),
    FIELD(book_watcher, flags),
    FIELD(book_watcher, start_ticks),
    FIELD(book_watcher, pid_ns),
};
static const struct field device[] = {
    FIELD(book_device, type),  FIELD(book_device, kind),  FIELD(book_device, ordinal),
    FIELD(book_device, flags), FIELD(book_device, name),  FIELD(book_device, uid),
    FIELD(book_device, bus),   FIELD(book_device, spare),
};
static const struct field account[] = {
    FIELD(book_account, type),          FIELD(book_account, space),
    FIELD(book_account, device),        FIELD(book_account, flags),
    FIELD(book_account, capacity),      FIELD(book_account, inherited_bytes),
    FIELD(book_account, live_folded),   FIELD(book_account, peak_bytes),
    FIELD(book_account, name),          FIELD(book_account, inherited_blocks),
    FIELD(book_account, at_peak_bytes), FIELD(book_account, at_peak_of),
    FIELD(book_account, at_peak_seq),   FIELD(book_account, at_peak_time),
    FIELD(book_account, spare),         FIELD(book_account, common),
};
static const struct field counters[] = {
    FIELD(book_counters, freed_bytes),     FIELD(book_counters, freed_blocks),
    FIELD(book_counters, alloc_bytes),     FIELD(book_counters, alloc_blocks),
    FIELD(book_counters, freed_served),    FIELD(book_counters, alloc_served),
    FIELD(book_counters, fold_delta),      FIELD(book_counters, reallocs),
    FIELD(book_counters, moved_in_bytes),  FIELD(book_counters, moved_in),
    FIELD(book_counters, moved_out_bytes), FIELD(book_counters, moved_out),
    FIELD(book_counters, fold_more),       FIELD(book_counters, spare),
};
static const struct field counter_page[] = {
    FIELD(book_counter_page, what),
    FIELD(book_counter_page, first),
    FIELD(book_counter_page, shard),
    FIELD(book_counter_page, spare),
};
static const struct field site_counters[] = {
    FIELD(book_site_counters, freed_bytes),
    FIELD(book_site_counters, freed_blocks),
    FIELD(book_site_counters, alloc_bytes),
    FIELD(book_site_counters, alloc_blocks),
};
static const struct field site_peak[] = {
    FIELD(book_site_peak, set),
};
static const struct field module[] = {
    FIELD(book_module, bias),       FIELD(book_module, map_start), FIELD(book_module, map_end),
    FIELD(book_module, generation), FIELD(book_module, flags),     FIELD(book_module, build_id_len),
    FIELD(book_module, build_id),   FIELD(book_module, spare),     FIELD(book_module, path),
};
static const struct field script[] = {
    FIELD(book_script, function), FIELD(book_script, first_line), FIELD(book_script, flags),
    FIELD(book_script, spare),    FIELD(book_script, file),
};
static const struct field site[] = {
    FIELD(book_site, key),   FIELD(book_site, first_frame), FIELD(book_site, frames),
    FIELD(book_site, flags), FIELD(book_site, time),        FIELD(book_site, account),
    FIELD(book_site, spare),
};
static const struct field tag[] = {FIELD(book_tag, name)};
static const struct field block_page[] = {
    FIELD(book_block_page, slots),
    FIELD(book_block_page, spare),
};
static const struct field block[] = {
    FIELD(book_block, id),
    FIELD(book_block, size_tag),
    FIELD(book_block, place),
};
static const struct field moves[] = {FIELD(book_moves, count), FIELD(book_moves, time)};

#define STRUCT(s, fields)                                                  \
    {                                                                      \
#s, sizeof(struct s), fields, sizeof(fields) / sizeof((fields)[0]) \
    }
static const struct {
    const char *name;
    size_t bytes;
    const struct field *fields;
    size_t n;
} structs[] = {
    STRUCT(book_header, header),
    STRUCT(book_section, section),
    STRUCT(book_control, control),
    STRUCT(book_watcher, watcher),
    STRUCT(book_device, device),
    STRUCT(book_account, account),
    STRUCT(book_counters, counters),
    STRUCT(book_counter_page, counter_page),
    STRUCT(book_site_counters, site_counters),
    STRUCT(book_site_peak, site_peak),
    STRUCT(book_module, module),
    STRUCT(book_script, script),
    STRUCT(book_site, site),
    STRUCT(book_tag, tag),
    STRUCT(book_block_page, block_page),
    STRUCT(book_block, block),
    STRUCT(book_moves, moves),
};

/* No field is missing in the lists above: they cover their structures without a gap. */
static void every_field_is_listed(void **unused)
{
    for (size_t s = 0; s < sizeof(structs) / sizeof(structs[0]); s++) {
        size_t at = 0;
        for (size_t i = 0; i < structs[s].n; i++) {
            if (structs[s].fields[i].offset != at)
                fail_msg("%s: a field before %s is missing", structs[s].name,
                         structs[s].fields[i].name);
            at += structs[s].fields[i].bytes;
        }
        if (at != structs[s].bytes)
            fail_msg("%s: a field at the end is missing", structs[s].name);
    }
}

/* The rows "| offset | bytes | `field` |" between a structure's heading and the next. */
static void check_table(const char *page, const char *name, const struct field *fields, size_t n)
{
    char heading[64];
    snprintf(heading, sizeof(heading), "\n### `%s`\n", name);
    const char *at = strstr(page, heading);
    if (!at)
        fail_msg("doc/book.md has no heading for %s", name);
    at += strlen(heading);
    const char *end = strstr(at, "\n##");
    size_t i = 0;
    for (; at < end; at = strchr(at, '\n') + 1) {
        size_t offset, bytes;
        char field[64];
        if (sscanf(at, "| %zu | %zu | `%63[a-z_]` |", &offset, &bytes, field) != 3)
            continue;
        if (i == n)
            fail_msg("%s has no field %s", name, field);
        if (strcmp(field, fields[i].name) != 0 || offset != fields[i].offset ||
            bytes != fields[i].bytes)
            fail_msg("%s: the page says %s at %zu with %zu bytes, layout.h %s at %zu with %zu",
                     name, field, offset, bytes, fields[i].name, fields[i].offset, fields[i].bytes);
        i++;
    }
    if (i != n)
        fail_msg("%s.%s is not in doc/book.md", name, fields[i].name);
}

static void tables_of_the_page_equal_the_layout(void **unused)
{
    const char *root = getenv("MEMOIR_SOURCE_ROOT");
    char path[4096];
    snprintf(path, sizeof(path), "%s/doc/book.md", root ? root : ".");
    struct buffer b = BUFFER_INIT(1 << 20);
    assert_int_equal(fs_read_file(path, &b), 0);
    for (size_t s = 0; s < sizeof(structs) / sizeof(structs[0]); s++)
        check_table(buffer_string(&b), structs[s].name, structs[s].fields, structs[s].n);
    buffer_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_is_listed),
        cmocka_unit_test(tables_of_the_page_equal_the_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
