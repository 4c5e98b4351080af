/* Lines of the native protocol become requests, or errors that say what is wrong. */
#include "daemon/native_request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"
#include "check.h"
#include "daemon/native_words.h"

static struct native_parser parser;
static struct native_error error;

static const struct native_request *take(const char *line)
{
    int r = native_parse(&parser, line, strlen(line), &error);
    if (r < 0)
        fail_msg("%s: %s", line, error.message);
    return &parser.request;
}

static const struct native_error *refuse(const char *line, const char *code)
{
    int r = native_parse(&parser, line, strlen(line), &error);
    if (r == 0)
        fail_msg("taken: %s", line);
    assert_string_equal(error.code, code);
    return &error;
}

static void batched_reports_are_read_whole(void **state)
{
    const struct native_request *q = take(
        "{\"report\":[[\"a\",0,\"dram\",1,65536,\"weights\"],[\"f\",3,16,\"0xFFFFFFFFFFFFFFFF\"],"
        "[\"r\",0,\"l1\",1,2,131072],[\"t\",null,\"pinned\",9,0,\"dram\",2,4096]],\"seq\":17,\"ack\":true,"
        "\"id\":\"x\"}");
    assert_int_equal(q->kind, NATIVE_REPORT);
    assert_int_equal(q->n_reports, 4);
    assert_true(q->ack && q->has_seq && q->seq == 17);
    assert_memory_equal(q->id, "\"x\"", q->id_len);
    const struct native_report *a = &q->reports[0], *f = a + 1, *r = a + 2, *t = a + 3;
    assert_true(a->op == NATIVE_ALLOC && a->at.device == 0 && a->at.space == MEMOIR_SPACE_DRAM);
    assert_true(a->at.id == 1 && a->bytes == 65536 && json_text_is(&a->tag, "weights"));
    assert_true(f->op == NATIVE_FREE && f->at.device == 3 && f->at.id == UINT64_MAX);
    assert_true(r->op == NATIVE_REALLOC && r->from.id == 1 && r->at.id == 2 && r->bytes == 131072);
    assert_true(r->at.space == MEMOIR_SPACE_L1 && r->from.space == MEMOIR_SPACE_L1);
    assert_true(t->op == NATIVE_TRANSFER && t->from.device == -1 && t->from.id == 9);
    assert_true(t->at.device == 0 && t->at.id == 2 && t->bytes == 4096);
}

static void reports_in_words_are_the_same(void **state)
{
    const struct native_request *q =
        take("{\"alloc\":{\"bytes\":5,\"id\":7,\"space\":\"heap\",\"tag\":\"t\"}}");
    assert_true(q->n_reports == 1 && q->reports[0].at.device == -1 && q->reports[0].bytes == 5);
    q = take("{\"free\":{\"device\":1,\"space\":\"cb\",\"id\":7},\"seq\":1}");
    assert_true(q->reports[0].op == NATIVE_FREE && q->reports[0].at.space == MEMOIR_SPACE_CB);
    q = take("{\"realloc\":{\"device\":1,\"space\":\"cb\",\"old\":7,\"id\":8,\"bytes\":1}}");
    assert_true(q->reports[0].from.id == 7 && q->reports[0].from.device == 1);
    q = take(
        "{\"transfer\":{\"from\":{\"space\":\"pinned\"},\"to\":{\"device\":2,\"space\":\"dram\",\"id\":3},"
        "\"bytes\":9}}");
    assert_true(q->reports[0].from.id == 0 && q->reports[0].at.device == 2);
}

static void one_bad_report_is_named_by_its_index(void **state)
{
    static const char *const bad[] = {
        "[\"a\",0,\"dram\",1]",
        "[\"a\",0,\"dram\",1,2,\"t\",3]",
        "[\"x\",0,\"dram\",1]",
        "[\"a\",0,\"drum\",1,2]",
        "[\"a\",256,\"dram\",1,2]",
        "[\"a\",null,\"dram\",1,2]",
        "[\"a\",0,\"dram\",-1,2]",
        "[\"a\",0,\"dram\",1.5,2]",
        "[\"a\",0,\"dram\",\"12\",2]",
        "[\"a\",0,\"dram\",\"0x\",2]",
        "[\"a\",0,99,1,2]",
        "[\"a\",0,8,1,2]",
        "[\"f\",0,\"dram\"]",
        "[]",
        "{}",
        "[\"a\",0,\"dram\",1,281474976710656]",
        "[\"a\",0,\"dram\",\"0x11112222333344445\",2]",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        char line[256];
        snprintf(line, sizeof(line), "{\"seq\":4,\"report\":[[\"f\",0,\"dram\",1],%s]}", bad[i]);
        assert_int_equal(refuse(line, "bad-report")->index, 1);
        assert_true(parser.request.has_seq && parser.request.seq == 4);
    }
}

static void hello_and_device_have_their_fields(void **state)
{
    const struct native_request *q = take(
        "{\"token\":\"abcdefghijklmnop\",\"hello\":1,\"session\":\"0123456789abcdef0123456789abcdef\",\"pid\":12,"
        "\"host\":\"h\",\"program\":\"p\",\"command\":\"c d\"}");
    assert_true(q->kind == NATIVE_HELLO && q->hello.version == 1 && q->pid == 12);
    assert_string_equal(q->hello.session, "0123456789abcdef0123456789abcdef");
    assert_string_equal(q->hello.token, "abcdefghijklmnop");
    q = take(
        "{\"device\":7,\"kind\":\"npu\",\"name\":\"B\\u00f6\",\"capacity\":{\"dram\":5,\"l1\":6}}");
    assert_true(q->device.number == 7 && q->device.kind == MEMOIR_DEVICE_NPU);
    assert_true(q->device.n_capacity == 2 && q->device.capacity[1].space == MEMOIR_SPACE_L1);
    assert_false(q->device.has_ordinal);
    assert_string_equal(q->device.name, "B\xc3\xb6");
    q = take("{\"hello\":1}"); /* nothing is left of the one before */
    assert_true(!q->hello.has_session && !q->hello.has_token && !q->has_pid &&
                q->device.number == 0);
}

static void queries_take_lists_and_texts(void **state)
{
    const struct native_request *q =
        take("{\"query\":{\"by\":[\"program\",\"user\"],\"show\":\"rss,count\","
             "\"where\":\"rss>1GB\",\"sort\":[],\"limit\":3,\"table\":\"devices\"}}");
    assert_string_equal(q->query.by, "program,user");
    assert_string_equal(q->query.show, "rss,count");
    assert_string_equal(q->query.where, "rss>1GB");
    assert_string_equal(q->query.sort, "");
    assert_string_equal(q->query.table, "devices");
    assert_int_equal(q->query.limit, 3);
    q = take("{\"query\":{}}");
    assert_string_equal(q->query.by, "");
    refuse("{\"query\":{\"order\":\"x\"}}", "bad-request");
}

static void subscriptions(void **state)
{
    const struct native_request *q =
        take("{\"subscribe\":[\"reports\",\"devices\"],\"interval_ms\":50,\"pid\":3}");
    assert_true(q->topics == (NATIVE_REPORTS | NATIVE_DEVICES) && q->interval_ms == 50 &&
                q->pid == 3);
    assert_int_equal(take("{\"subscribe\":[\"processes\"]}")->interval_ms, NATIVE_INTERVAL_MS);
    refuse("{\"subscribe\":[]}", "bad-request");
    refuse("{\"subscribe\":[\"alerts\"]}", "bad-request");
    refuse("{\"subscribe\":[\"devices\"],\"interval_ms\":1}", "bad-request");
    assert_int_equal(take("{\"unsubscribe\":true}")->kind, NATIVE_UNSUBSCRIBE);
    assert_int_equal(take("{\"reset\":true,\"seq\":5}")->kind, NATIVE_RESET);
    refuse("{\"reset\":false}", "bad-request");
}

static void what_is_no_request_is_refused(void **state)
{
    refuse("", "bad-json");
    refuse("[]", "bad-json");
    refuse("{\"ping\":1", "bad-json");
    refuse("{\"ping\":1} x", "bad-json");
    refuse("{}", "bad-request");
    refuse("{\"pong\":1}", "bad-request");
    refuse("{\"ping\":1,\"ping\":2}", "bad-request");
    refuse("{\"ping\":1,\"query\":{}}", "bad-request");
    refuse("{\"ping\":1,\"seq\":2}", "bad-request");
    refuse("{\"ping\":{}}", "bad-request");
    refuse("{\"hello\":1,\"session\":\"short\"}", "bad-request");
    refuse("{\"report\":[],\"seq\":0}", "bad-request");
    refuse("{\"report\":7}", "bad-request");
    refuse("{\"device\":null}", "bad-request");
    refuse("{\"device\":0,\"capacity\":{\"heap\":1}}", "bad-request");
    refuse("{\"device\":0,\"kind\":\"toaster\"}", "bad-request");
    assert_int_equal(take("{\"report\":[]}")->n_reports, 0);
}

static void long_names_are_cut_at_a_character(void **state)
{
    char line[512] = "{\"device\":0,\"name\":\"";
    for (int i = 0; i < 20; i++)
        strcat(line, i % 2 ? "\\u20ac" : "\xe2\x82\xac");
    strcat(line, "\\ud83d\\ude00x\"}");
    assert_int_equal(strlen(take(line)->device.name), 60); /* the smiley has no room */
    struct json_text text = {.data = "ab\\u0000c\\n\xc3\xa9", .len = 13, .escaped = true};
    char to[8];
    native_text_cut(&text, to, sizeof(to));
    assert_string_equal(to, "ab c\n\xc3\xa9");
    native_text_cut(&text, to, 7);
    assert_string_equal(to, "ab c\n");
}

static void errors_are_written_as_documented(void **state)
{
    struct buffer out = BUFFER_INIT(4096);
    struct json json;
    refuse("{\"id\":7,\"seq\":9,\"report\":[[\"a\",0,\"dram\",1]]}", "bad-report");
    json_init(&json, &out);
    native_error_write(&error, &parser.request, &json);
    assert_int_equal(json_finish(&json), 0);
    assert_string_equal(
        buffer_string(&out),
        "{\"error\":{\"code\":\"bad-report\",\"message\":\"report 0: the report lacks items (byte 42); "
        "none was applied\",\"at\":42,\"index\":0},\"seq\":9,\"id\":7}");
    buffer_release(&out);
}

static int teardown(void **state)
{
    native_parser_release(&parser);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batched_reports_are_read_whole),
        cmocka_unit_test(reports_in_words_are_the_same),
        cmocka_unit_test(one_bad_report_is_named_by_its_index),
        cmocka_unit_test(hello_and_device_have_their_fields),
        cmocka_unit_test(queries_take_lists_and_texts),
        cmocka_unit_test(subscriptions),
        cmocka_unit_test(what_is_no_request_is_refused),
        cmocka_unit_test(long_names_are_cut_at_a_character),
        cmocka_unit_test(errors_are_written_as_documented),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
