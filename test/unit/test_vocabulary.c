/* One name means one thing in every table, and the page about the names is the vocabulary. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/json.h"
#include "check.h"
#include "daemon/api.h"
#include "daemon/tables.h"
#include "query/document.h"
#include "query/query.h"
#include "query/vocabulary.h"

static void every_column_is_called_as_the_vocabulary_says(void **state)
{
    size_t tables = 0, bad = 0;
    for (const struct query_table *const *t = query_tables(); *t; t++, tables++)
        for (const struct query_column *c = (*t)->columns; c->name; c++) {
            if (!query_word_fits(c))
                print_error(
                    "column '%s' of table '%s' (%s, '%s') is not in src/query/vocabulary.c, "
                    "or is of another kind or unit there\n",
                    c->name, (*t)->name, query_kind_name(c->kind), query_column_unit(c));
            bad += !query_word_fits(c);
            assert_true(*query_column_help(c));
            assert_null(strpbrk(c->name, " -ABCDEFGHIJKLMNOPQRSTUVWXYZ"));
        }
    assert_int_equal(bad, 0);
    assert_true(tables >= 14);
}

static void words_are_sorted_and_used(void **state)
{
    size_t n;
    const struct query_word *words = query_words(&n);
    for (size_t i = 0; i < n; i++) {
        assert_true(i == 0 || strcmp(words[i - 1].name, words[i].name) < 0);
        assert_ptr_equal(query_word_find(words[i].name), &words[i]);
        bool used = words[i].document;
        for (const struct query_table *const *t = query_tables(); *t && !used; t++)
            for (const struct query_column *c = (*t)->columns; c->name && !used; c++)
                used = strcmp(c->name, words[i].name) == 0;
        if (!used)
            print_error("no table has a column '%s'\n", words[i].name);
        assert_true(used);
    }
    assert_null(query_word_find("nothing"));
    assert_null(query_word_find(""));
}

static void another_kind_or_unit_is_another_word(void **state)
{
    struct query_column column = {.name = "rss", .kind = QUERY_BYTES};
    assert_true(query_word_fits(&column));
    assert_string_equal(query_column_help(&column), query_word_find("rss")->help);
    column.kind = QUERY_NUMBER;
    assert_false(query_word_fits(&column));
    column = (struct query_column){.name = "growth", .kind = QUERY_RATE, .unit = "blocks/s"};
    assert_false(query_word_fits(&column));
    column.unit = NULL;
    assert_true(query_word_fits(&column));
    column = (struct query_column){.name = "device", .kind = QUERY_TEXT};
    assert_true(query_word_fits(&column));
    column.kind = QUERY_NUMBER;
    assert_false(query_word_fits(&column));
    column =
        (struct query_column){.name = "rss", .kind = QUERY_TEXT}; /* the kind of no exception */
    assert_false(query_word_fits(&column));
    column = (struct query_column){.name = "rss_bytes", .kind = QUERY_BYTES};
    assert_false(query_word_fits(&column));
}

/* ---- documents ---- */

static void a_document_ends_with_the_units_of_its_figures(void **state)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(1 << 16);
    struct json json;
    buffer_append_str(&out, "\"rss\": an earlier line\n");
    size_t start = out.len;
    json_init(&json, &out);
    json_object_begin(&json);
    json_field_u64(&json, "used", 1);
    json_field_null(&json, "live"); /* not known: a figure all the same */
    json_field_double(&json, "age", 1.5);
    json_field_string(&json, "program", "rss");
    json_field_string(&json, "peak", "a text is no figure");
    json_field_string(&json, "started", "no word");
    json_field_double(&json, "start", 1.5);
    json_field_u64(&json, "no_word_of_any_document", 3);
    json_key(&json, "site");
    json_u64(&json, 7);
    json_key(&json, "kinds");
    json_object_begin(&json);
    json_field_u64(&json, "stack", 3); /* a name of the map's own, not the word */
    json_object_end(&json);
    json_key(&json, "parts");
    json_array_begin(&json);
    json_object_begin(&json);
    json_key(&json, "sizes");
    json_array_begin(&json);
    json_u64(&json, 1);
    json_array_end(&json);
    json_field_bool(&json, "estimated", true);
    json_field_u64(&json, "used", 2);
    json_object_end(&json);
    json_array_end(&json);
    query_document_end(&json);
    assert_int_equal(json_finish(&json), 0);
    const char *columns = strstr(buffer_string(&out) + start, "\"columns\"");
    assert_non_null(columns);
    assert_string_equal(columns,
                        "\"columns\":[{\"name\":\"age\",\"kind\":\"age\",\"unit\":\"seconds\"},"
                        "{\"name\":\"kinds\",\"kind\":\"bytes\",\"unit\":\"bytes\"},"
                        "{\"name\":\"live\",\"kind\":\"bytes\",\"unit\":\"bytes\"},"
                        "{\"name\":\"site\",\"kind\":\"number\",\"unit\":\"\"},"
                        "{\"name\":\"sizes\",\"kind\":\"bytes\",\"unit\":\"bytes\"},"
                        "{\"name\":\"start\",\"kind\":\"time\",\"unit\":\"seconds since 1970\"},"
                        "{\"name\":\"used\",\"kind\":\"bytes\",\"unit\":\"bytes\"}]}");
}

/* Keys that a document of a program or of the API may not have: a unit in the name. */
static bool has_unit(const char *key, size_t len)
{
    static const char *const ends[] = {"_s",          "_ms",         "_us",       "_ns",
                                       "_seconds",    "_bytes",      "_permille", "_percent",
                                       "_per_minute", "_per_second", "_per_s"};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        if (len > strlen(ends[i]) &&
            memcmp(key + len - strlen(ends[i]), ends[i], strlen(ends[i])) == 0)
            return true;
    return false;
}

/* Words in quotes that have a unit in their name, of `text`; each is told with `where`. */
static size_t count_units(const char *text, const char *where)
{
    size_t bad = 0;
    for (const char *at = text; (at = strchr(at, '"')); at++) {
        size_t len = strspn(at + 1, "abcdefghijklmnopqrstuvwxyz0123456789_.");
        if (at[1 + len] != '"' || !has_unit(at + 1, len))
            continue;
        print_error(
            "'%.*s' in %s: sizes are bytes, durations seconds and rates a second, without a unit in the name\n",
            (int)len, at + 1, where);
        bad++;
    }
    return bad;
}

static void api_has_no_units_in_its_names(void **state)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(16 << 20);
    api_description(&text);
    assert_int_equal(text.error, 0);
    assert_int_equal(count_units(buffer_string(&text), "the description of the API"), 0);
    assert_int_equal(
        count_units("{\"took_ms\": 1, \"took\": 2, \"pid_ns\": 3, \"live_bytes\": 4, \"bytes\": 5}",
                    "a test"),
        3);
}

/* Files whose texts are formats of their own: records of processes that ended, and the native protocol. */
static bool is_format(const char *name)
{
    static const char *const names[] = {"retired_json.c", "exited_read.c", "table_exited_blocks.c",
                                        "native"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* Words of documents are in use as long as a source file has them as a text. */
static void words_strike(const char *text, bool *seen)
{
    size_t n;
    const struct query_word *words = query_words(&n);
    for (size_t i = 0; i < n; i++) {
        char quoted[QUERY_NAME_MAX + 2];
        snprintf(quoted, sizeof(quoted), "\"%s\"", words[i].name);
        seen[i] = seen[i] || (words[i].document && strstr(text, quoted));
    }
}

static void documents_have_no_units_in_their_names(void **state)
{
    static const char *const folders[] = {"cli",     "daemon", "profile", "explain", "cluster",
                                          "history", "query",  "observe", "pin"};
    const char *root = getenv("MEMOIR_SOURCE_ROOT");
    size_t files = 0, bad = 0, n;
    const struct query_word *words = query_words(&n);
    bool seen[512] = {0};
    if (!root)
        skip();
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        char folder[512], path[1024];
        snprintf(folder, sizeof(folder), "%s/src/%s", root, folders[i]);
        DIR *list = opendir(folder);
        assert_non_null(list);
        for (const struct dirent *entry; (entry = readdir(list));) {
            size_t len = strlen(entry->d_name);
            if (len < 3 || strcmp(entry->d_name + len - 2, ".c") != 0 || is_format(entry->d_name))
                continue;
            MEMOIR_CLEANUP(buffer_release)
            struct buffer text = BUFFER_INIT(4 << 20);
            snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
            assert_int_equal(fs_read_file(path, &text), 0);
            bad += count_units(buffer_string(&text), path);
            if (strcmp(entry->d_name, "vocabulary.c") != 0)
                words_strike(buffer_string(&text), seen);
            files++;
        }
        closedir(list);
    }
    for (size_t i = 0; i < n; i++)
        if (words[i].document && !seen[i]) {
            print_error("no document has '%s' of src/query/vocabulary.c\n", words[i].name);
            bad++;
        }
    assert_int_equal(bad, 0);
    assert_true(files > 200);
}

/* GENERATE=1 writes the page. */
static void page_in_doc_is_the_vocabulary(void **state)
{
    const char *root = getenv("MEMOIR_SOURCE_ROOT");
    if (!root)
        skip();
    char path[512];
    snprintf(path, sizeof(path), "%s/doc/vocabulary.md", root);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer page = BUFFER_INIT(1 << 20);
    buffer_append_str(&page,
                      "# Names\n\n"
                      "What columns are called in every table, answer and document. Written from "
                      "`src/query/vocabulary.c` (`GENERATE=1` with the unit test `vocabulary`). "
                      "Durations are seconds, times ISO 8601 in UTC, rates a second, shares "
                      "fractions from 0 to 1; `columns` of an answer has the units.\n\n"
                      "| name | kind | unit | what it is |\n|---|---|---|---|\n");
    size_t n;
    const struct query_word *words = query_words(&n);
    for (size_t i = 0; i < n; i++) {
        struct query_column column = {.kind = words[i].kind, .unit = words[i].unit};
        buffer_printf(&page, "| `%s` | %s%s%s | %s | %s |\n", words[i].name,
                      query_kind_name(words[i].kind), words[i].also ? ", " : "",
                      words[i].also ? query_kind_name(words[i].also_kind) : "",
                      query_column_unit(&column), words[i].help);
    }
    if (getenv("GENERATE")) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(buffer_string(&page), file);
        fclose(file);
    }
    MEMOIR_CLEANUP(buffer_release)
    struct buffer there = BUFFER_INIT(1 << 20);
    assert_int_equal(fs_read_file(path, &there), 0);
    assert_string_equal(buffer_string(&there), buffer_string(&page));
}

int main(void)
{
    assert_int_equal(tables_register(), 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_column_is_called_as_the_vocabulary_says),
        cmocka_unit_test(words_are_sorted_and_used),
        cmocka_unit_test(another_kind_or_unit_is_another_word),
        cmocka_unit_test(a_document_ends_with_the_units_of_its_figures),
        cmocka_unit_test(api_has_no_units_in_its_names),
        cmocka_unit_test(documents_have_no_units_in_their_names),
        cmocka_unit_test(page_in_doc_is_the_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
