/* The tables of the query core over a ledger of books that were composed by hand. */
#include <inttypes.h>

#include "ledger_world.h"

#include "base/buffer.h"
#include "base/json.h"
#include "query/query.h"
#include "query/vocabulary.h"

/* The rows of `spec` as JSON, for free(). */
static char *ask(const struct query_world *world, struct query_spec spec)
{
    struct query *query = NULL;
    struct query_error error;
    if (query_new(&spec, &query, &error) < 0)
        fail_msg("%s", error.text);
    struct query_result *result = NULL;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_int_equal(query_run(query, world, result), 0);
    assert_false(query_result_incomplete(result));
    assert_int_equal(query_result_finish(result), 0);
    struct buffer out = BUFFER_INIT(1 << 20);
    struct json json;
    json_init(&json, &out);
    json_object_begin(&json);
    query_result_json(result, &json);
    json_object_end(&json);
    assert_int_equal(json_finish(&json), 0);
    char *begin = strstr(out.data, "\"rows\":") + strlen("\"rows\":");
    *strstr(begin, ",\"matched\"") = '\0';
    char *rows = strdup(begin);
    buffer_release(&out);
    query_result_free(result);
    query_free(query);
    return rows;
}

static void check_ask(const struct query_world *world, struct query_spec spec, const char *expected)
{
    char *rows = ask(world, spec);
    assert_string_equal(rows, expected);
    free(rows);
}

/* This process with the builder's sample book: see book_builder.c. */
static struct query_world sample(struct world *w)
{
    struct book_builder b;
    book_begin(w, &b, "1.book", BOOK_SOURCE_CLIENT);
    builder_sample(&b, b.fd);
    b.h.pid = getpid();
    b.h.pid_ns = w->pid_ns;
    b.h.start_ticks = w->self.start_ticks;
    b.h.uid = geteuid();
    builder_publish(&b);
    struct ledger_book *book = add(w, "1.book");
    ledger_update_state(w->ledger, book->process);
    ledger_refresh(w->ledger);
    return (struct query_world){.ledger = w->ledger, .sees_all = true, .node = "here"};
}

static void processes_have_the_figures_of_their_accounts(void **state)
{
    struct query_world world = sample(*state);
    char *all =
        ask(&world, (struct query_spec){.show = "device,device.dram,device.0,device.0.dram,"
                                                "device.7.dram,device.l1,heap,blocks,node"});
    const struct ledger_process *p = ledger_processes(world.ledger, &(size_t){0})[0];
    uint64_t dram = 0, heap = 0, blocks = 0;
    int32_t ordinal = -1;
    for (size_t i = 0; i < p->n_accounts; i++) {
        blocks += p->accounts[i].totals.live_blocks;
        if (p->accounts[i].space == MEMOIR_SPACE_HEAP)
            heap += p->accounts[i].totals.live_bytes;
        if (p->accounts[i].space == MEMOIR_SPACE_DRAM) {
            dram += p->accounts[i].totals.live_bytes;
            ordinal = p->accounts[i].device->ordinal;
        }
    }
    assert_true(dram > 0 && heap > 0 && blocks > 0);
    assert_int_equal(ordinal, 0);
    char expected[512];
    snprintf(expected, sizeof(expected), "\"device.dram\":%" PRIu64 ",", dram);
    assert_non_null(strstr(all, expected));
    snprintf(expected, sizeof(expected), "\"device.0.dram\":%" PRIu64 ",\"device.7.dram\":null",
             dram);
    assert_non_null(strstr(all, expected));
    snprintf(expected, sizeof(expected),
             "\"heap\":%" PRIu64 ",\"blocks\":%" PRIu64 ",\"node\":\"here\"", heap, blocks);
    assert_non_null(strstr(all, expected));
    free(all);
}

static void buffers_and_sites_come_from_the_book(void **state)
{
    struct query_world world = sample(*state);
    check_ask(
        &world,
        (struct query_spec){.table = "buffers", .show = "id,device,space,bytes,tag,site,moves"},
        "[{\"id\":\"0x2000\",\"device\":\"0 NVIDIA H200\",\"space\":\"dram\",\"bytes\":4000,"
        "\"tag\":null,\"site\":\"libtorch.so+0x1234\",\"moves\":6},"
        "{\"id\":\"0x1000\",\"device\":\"0 NVIDIA H200\",\"space\":\"dram\",\"bytes\":1000,"
        "\"tag\":\"weights\",\"site\":\"libtorch.so+0x1234\",\"moves\":0},"
        "{\"id\":\"0x1000\",\"device\":\"host\",\"space\":\"heap\",\"bytes\":77,"
        "\"tag\":null,\"site\":\"[JIT]\",\"moves\":0}]");
    check_ask(&world,
              (struct query_spec){.table = "buffers",
                                  .by = "space",
                                  .show = "count,bytes",
                                  .where = "tag=none and age>0"},
              "[{\"space\":\"dram\",\"count\":1,\"bytes\":4000},"
              "{\"space\":\"heap\",\"count\":1,\"bytes\":77}]");
    check_ask(&world,
              (struct query_spec){.table = "sites",
                                  .show = "site,key,space,bytes,blocks,allocated,freed"},
              "[{\"site\":\"libtorch.so+0x1234\",\"key\":\"00000000feedface\",\"space\":\"dram\","
              "\"bytes\":5000,\"blocks\":3,\"allocated\":5300,\"freed\":300},"
              "{\"site\":\"[JIT]\",\"key\":\"000000000000cafe\",\"space\":\"heap\","
              "\"bytes\":77,\"blocks\":1,\"allocated\":77,\"freed\":0}]");
}

static void blocks_and_sites_of_others_are_not_shown(void **state)
{
    struct query_world world = sample(*state);
    world.sees_all = false;
    world.viewer_uid = geteuid() + 1;
    check_ask(&world, (struct query_spec){.table = "buffers"}, "[]");
    check_ask(&world, (struct query_spec){.table = "sites"}, "[]");
    check_ask(&world, (struct query_spec){.show = "command,exe"},
              "[{\"command\":null,\"exe\":null}]");
    check_ask(&world, (struct query_spec){.where = "exe!=none"}, "[]");
    world.viewer_uid = geteuid();
    char *mine = ask(&world, (struct query_spec){.table = "buffers"});
    assert_string_not_equal(mine, "[]");
    free(mine);
}

static bool find_source(const struct query_code *code, struct query_source *ret_source,
                        void *context)
{
    *ret_source = (struct query_source){.function = "load", .file = "/src/main.c", .line = 42};
    return true;
}

static void sites_are_named_by_the_caller(void **state)
{
    struct query_world world = sample(*state);
    static const char *const tables[] = {"sites", "buffers"};
    for (size_t i = 0; i < 2; i++) {
        struct query_spec spec = {.table = tables[i],
                                  .where = "frame!=none",
                                  .show = "site,function,source_file,line,frame",
                                  .limit = 1};
        world.source_of = find_source;
        char *rows = ask(&world, spec);
        assert_non_null(strstr(rows, "{\"site\":\"main.c:42 load\",\"function\":\"load\","
                                     "\"source_file\":\"/src/main.c\",\"line\":42,\"frame\":\"/"));
        free(rows);
        world.source_of = NULL; /* not known is not the same as none */
        rows = ask(&world, spec);
        assert_non_null(strstr(rows, "\"function\":null,\"source_file\":null,\"line\":null"));
        assert_non_null(strstr(rows, "+0x"));
        free(rows);
    }
}

static void processes_that_cannot_match_are_not_opened(void **state)
{
    struct world *w = *state;
    struct query_world world = sample(w);
    /* Without its file the blocks cannot be read, which would make an answer incomplete. */
    assert_int_equal(unlinkat(w->dirfd, "1.book", 0), 0);
    check_ask(&world, (struct query_spec){.table = "buffers", .where = "pid=1 and bytes>0"}, "[]");
}

static void devices_tell_how_full_they_are(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "1.book", BOOK_SOURCE_CLIENT);
    device_put(&b, 3, "Card", "U3", "", 1000, 250);
    builder_publish(&b);
    struct ledger_book *book = add(w, "1.book");
    ledger_update_state(w->ledger, book->process);
    ledger_refresh(w->ledger);
    struct query_world world = {.ledger = w->ledger, .sees_all = true, .node = "here"};
    check_ask(&world,
              (struct query_spec){.table = "devices",
                                  .show = "device,space,used,free,capacity,percent,processes",
                                  .where = "percent>=25% and percent<25.1"},
              "[{\"device\":\"3 Card\",\"space\":\"dram\",\"used\":250,\"free\":750,\"capacity\":"
              "1000,\"percent\":25,\"processes\":1}]");
    check_ask(&world, (struct query_spec){.show = "device.3,device.3.dram,device.2.dram"},
              "[{\"device.3\":250,\"device.3.dram\":250,\"device.2.dram\":null}]");
    check_ask(&world,
              (struct query_spec){.table = "accounts", .show = "ordinal,space,bytes,percent"},
              "[{\"ordinal\":3,\"space\":\"dram\",\"bytes\":250,\"percent\":25}]");
}

static void names_of_devices_and_spaces_are_checked(void **unused)
{
    static const char *const bad[] = {"device.",   "device.x",      "device.0.", "device.0.heap",
                                      "device.1x", "device.0.drom", "devise.0",  "device.12345678"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct query *query = NULL;
        struct query_error error;
        if (query_new(&(struct query_spec){.show = bad[i]}, &query, &error) != -EINVAL)
            fail_msg("%s was taken", bad[i]);
    }
}

static void every_default_of_every_table_parses(void **unused)
{
    for (const struct query_table *const *t = query_tables(); *t; t++) {
        struct query *query = NULL;
        struct query_error error;
        assert_int_equal(query_new(&(struct query_spec){.table = (*t)->name}, &query, &error), 0);
        query_free(query);
        for (const struct query_column *c = (*t)->columns; c->name; c++) {
            struct query_spec spec = {.table = (*t)->name, .by = c->name};
            assert_int_equal(query_new(&spec, &query, &error), 0);
            assert_true(*query_column_help(c));
            query_free(query);
            for (const struct query_column *d = (*t)->columns; d != c; d++)
                assert_string_not_equal(c->name, d->name);
        }
    }
}

/* ---- the dead ---- */

static void the_dead_are_read_from_the_daemons_list(void **state)
{
    struct world *w = *state;
    static const char lines[] =
        "{\"pid\":7,\"uid\":0,\"name\":\"train\",\"cause\":\"killed by SIGKILL\",\"signal\":9,"
        "\"start\":100.5,\"end\":160.5,\"figures_complete\":true,\"accounts\":[{\"space\":\"dram\","
        "\"device\":0,\"live_bytes\":500,\"live_blocks\":5,\"peak_bytes\":900},{\"space\":\"heap\","
        "\"sampled\":true,\"live_bytes\":40,\"live_blocks\":1}]}\n"
        "rubbish\n"
        "{\"pid\":8,\"uid\":0,\"name\":\"infer\",\"cause\":\"exited with 0\",\"exit_code\":0,"
        "\"end\":200,\"figures_complete\":false,\"losses\":[0,3],\"accounts\":[]}\n"
        "{\"pid\":9,\"half a li";
    int fd = openat(w->dirfd, "retired.jsonl", O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, lines, strlen(lines)), strlen(lines));
    close(fd);
    struct query_exited_list list;
    assert_int_equal(query_exited_read(w->place, &list), 0);
    assert_int_equal(list.n, 2);
    assert_int_equal(list.skipped, 1);
    struct query_world world = {.exited = list.rows, .n_exited = list.n, .sees_all = true};
    check_ask(&world,
              (struct query_spec){
                  .table = "exited",
                  .show = "pid,program,cause,signal,exit_code,device,device.dram,heap,peak,blocks,"
                          "lived,losses,ended"},
              "[{\"pid\":8,\"program\":\"infer\",\"cause\":\"exited with 0\",\"signal\":null,"
              "\"exit_code\":0,\"device\":null,\"device.dram\":null,\"heap\":null,\"peak\":null,"
              "\"blocks\":null,\"lived\":null,\"losses\":3,\"ended\":\"1970-01-01T00:03:20.000Z\"},"
              "{\"pid\":7,\"program\":\"train\",\"cause\":\"killed by SIGKILL\",\"signal\":9,"
              "\"exit_code\":null,\"device\":500,\"device.dram\":500,\"heap\":40,\"peak\":900,"
              "\"blocks\":6,\"lived\":60,\"losses\":0,\"ended\":\"1970-01-01T00:02:40.500Z\","
              "\"estimate\":[\"heap\",\"blocks\"]}]");
    query_exited_release(&list);
    assert_int_equal(query_exited_read("/nowhere", &list), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(processes_have_the_figures_of_their_accounts),
        WORLD_TEST(buffers_and_sites_come_from_the_book),
        WORLD_TEST(blocks_and_sites_of_others_are_not_shown),
        WORLD_TEST(sites_are_named_by_the_caller),
        WORLD_TEST(processes_that_cannot_match_are_not_opened),
        WORLD_TEST(devices_tell_how_full_they_are),
        cmocka_unit_test(names_of_devices_and_spaces_are_checked),
        cmocka_unit_test(every_default_of_every_table_parses),
        WORLD_TEST(the_dead_are_read_from_the_daemons_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
