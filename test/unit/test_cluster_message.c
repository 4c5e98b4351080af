/* Messages between nodes: what is written is read, and what is malformed is not. */
#include <errno.h>
#include <string.h>

#include "base/buffer.h"
#include "check.h"
#include "cluster/message.h"
#include "cluster/subject.h"

static struct buffer out = {.limit = 1 << 20};
static struct message message;

static int read_back(void)
{
    return message_read(out.data, out.len, &message);
}

static void hello_survives(void **state)
{
    buffer_reset(&out);
    message_write_hello(&(struct message_hello){.name = "zoë",
                                                .version = "1.2.3",
                                                .started_ns = 11,
                                                .now_ns = 22,
                                                .interval_ms = 2000,
                                                .first = true},
                        &out);
    assert_int_equal(read_back(), 0);
    assert_int_equal(message.kind, MESSAGE_HELLO);
    assert_string_equal(message.hello.name, "zoë");
    assert_string_equal(message.hello.version, "1.2.3");
    assert_int_equal(message.hello.started_ns, 11);
    assert_int_equal(message.hello.now_ns, 22);
    assert_int_equal(message.hello.interval_ms, 2000);
    assert_true(message.hello.first);
}

static void later_versions_may_add_fields(void **state)
{
    hello_survives(state);
    buffer_append_str(&out, "something new");
    assert_int_equal(read_back(), 0);
    assert_string_equal(message.hello.name, "zoë");
}

static void the_first_versions_say_nothing_of_watching(void **state)
{
    buffer_reset(&out);
    message_write_hello(
        &(struct message_hello){.name = "b", .version = "1", .interval_ms = 1, .watch_ms = 2000},
        &out);
    assert_int_equal(read_back(), 0);
    assert_int_equal(message.hello.watch_ms, 2000);
    out.len -= 2; /* the field, as a varint */
    assert_int_equal(read_back(), 0);
    assert_int_equal(message.hello.watch_ms, 0);
}

static void a_report_names_a_node(void **state)
{
    buffer_reset(&out);
    message_write_lost("0123456789abcdef0123456789abcdef", &out);
    assert_int_equal(read_back(), 0);
    assert_int_equal(message.kind, MESSAGE_LOST);
    assert_string_equal(message.lost, "0123456789abcdef0123456789abcdef");
    buffer_reset(&out);
    message_write_lost("short", &out);
    assert_int_equal(read_back(), -EBADMSG);
}

static void names_of_terminals_are_refused(void **state)
{
    static const char *const names[] = {"",
                                        "a\x1b[2J",
                                        "a\nb",
                                        "\xff",
                                        "\x7f",
                                        "a\xc2\x9bm",
                                        "web\xe2\x80\xae"
                                        "cod", /* U+202E: from right to left */
                                        "we\xe2\x80\x8b"
                                        "b"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        buffer_reset(&out);
        message_write_hello(
            &(struct message_hello){.name = names[i], .version = "1", .interval_ms = 1}, &out);
        assert_int_equal(read_back(), -EBADMSG);
    }
}

static const uint8_t key[MESSAGE_KEY_BYTES] = "12345678";
static const uint8_t mac[MESSAGE_MAC_BYTES] = "0123456789abcdef0123456789abcde";

static struct message_ask an_ask(void)
{
    return (struct message_ask){
        .nonce = {1, 2},
        .deadline_ms = 2000,
        .what = MESSAGE_QUERY,
        .rights = {.user = "ann", .expires_ns = 99, .key = key, .mac = mac},
        .body = (const uint8_t *)"body",
        .body_len = 4,
    };
}

static void an_ask_survives(void **state)
{
    struct message_ask ask = an_ask();
    buffer_reset(&out);
    message_write_ask(&ask, &out);
    assert_int_equal(read_back(), 0);
    assert_true(message_nonce_equal(&message.ask.nonce, &ask.nonce));
    assert_string_equal(message.ask.rights.user, "ann");
    assert_memory_equal(message.ask.rights.key, key, sizeof(key));
    assert_memory_equal(message.ask.rights.mac, mac, sizeof(mac));
    assert_int_equal(message.ask.body_len, 4);
    assert_memory_equal(message.ask.body, "body", 4);
    ask.rights.key = ask.rights.mac = NULL;
    buffer_reset(&out);
    message_write_ask(&ask, &out);
    assert_int_equal(read_back(), 0);
    assert_null(message.ask.rights.key);
    assert_null(message.ask.rights.mac);
}

static void half_a_proof_is_none(void **state)
{
    struct message_ask ask = an_ask();
    ask.rights.mac = NULL;
    buffer_reset(&out);
    message_write_ask(&ask, &out);
    assert_int_equal(read_back(), -EBADMSG);
}

static void every_cut_is_noticed(void **state)
{
    static const uint8_t signature[MESSAGE_SIGNATURE_BYTES] = "signature";
    struct message_ask ask = an_ask();
    ask.rights.signature = signature;
    buffer_reset(&out);
    message_write_ask(&ask, &out);
    /* Without its last field it is a question of the first version. */
    size_t first_version = out.len - MESSAGE_SIGNATURE_BYTES - 1;
    for (size_t len = 0; len < out.len; len++)
        assert_int_equal(message_read(out.data, len, &message) == 0, len == first_version);
    assert_int_equal(read_back(), 0);
    assert_memory_equal(message.ask.rights.signature, signature, sizeof(signature));
    buffer_reset(&out);
    message_write_reply(
        &(struct message_reply){.part = 1, .parts = 3, .body = ask.body, .body_len = 4}, &out);
    for (size_t len = 0; len < out.len; len++)
        assert_true(message_read(out.data, len, &message) < 0);
    assert_int_equal(read_back(), 0);
    assert_int_equal(message.reply.part, 1);
}

static void parts_that_cannot_be_are_refused(void **state)
{
    static const uint32_t wrong[][2] = {{0, 0}, {3, 3}, {0, MESSAGE_PARTS_MAX + 1}};
    for (size_t i = 0; i < 3; i++) {
        buffer_reset(&out);
        message_write_reply(
            &(struct message_reply){.part = wrong[i][0], .parts = wrong[i][1], .body = key}, &out);
        assert_int_equal(read_back(), -EBADMSG);
    }
}

static void another_version_is_another_protocol(void **state)
{
    buffer_reset(&out);
    message_write_bye(&out);
    assert_int_equal(read_back(), 0);
    out.data[2] = 2;
    assert_int_equal(read_back(), -EPROTO);
}

static void a_proof_covers_all_that_matters(void **state)
{
    static const char a[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                      b[] = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    struct message_ask ask = an_ask();
    struct buffer first = BUFFER_INIT(4096), other = BUFFER_INIT(4096);
    message_ask_signed(&ask, a, b, &first);
    for (int change = 0; change < 7; change++) {
        struct message_ask changed = ask;
        const char *asker = a, *target = b;
        changed.nonce.low += change == 0;
        changed.rights.expires_ns += change == 1;
        changed.what = change == 2 ? MESSAGE_CALL : changed.what;
        changed.body_len -= change == 3;
        asker = change == 4 ? b : asker;
        target = change == 5 ? a : target;
        changed.rights.user = change == 6 ? "bob" : changed.rights.user;
        buffer_reset(&other);
        message_ask_signed(&changed, asker, target, &other);
        assert_false(first.len == other.len && memcmp(first.data, other.data, first.len) == 0);
    }
    buffer_release(&first);
    buffer_release(&other);
}

static void the_sender_is_the_last_token(void **state)
{
    char id[SUBJECT_ID_CHARS + 1];
    assert_true(subject_sender("memoir.1.re.bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb."
                               "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                               id));
    assert_string_equal(id, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    assert_false(subject_sender("memoir.1.beat.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", id));
    assert_false(subject_sender("memoir.1.beat.aaaa", id));
    assert_false(subject_sender("memoir", id));
    assert_true(subject_starts("memoir.1.to.x.y", "to"));
    assert_false(subject_starts("memoir.1.too.x.y", "to"));
}

static void ids_differ_by_machine_and_by_name(void **state)
{
    char a[SUBJECT_ID_CHARS + 1], b[SUBJECT_ID_CHARS + 1], c[SUBJECT_ID_CHARS + 1];
    subject_id("machine-1", "web", a);
    subject_id("machine-2", "web", b);
    subject_id("machine-1", "db", c);
    assert_true(subject_id_valid(a));
    assert_string_not_equal(a, b);
    assert_string_not_equal(a, c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello_survives),
        cmocka_unit_test(later_versions_may_add_fields),
        cmocka_unit_test(the_first_versions_say_nothing_of_watching),
        cmocka_unit_test(a_report_names_a_node),
        cmocka_unit_test(names_of_terminals_are_refused),
        cmocka_unit_test(an_ask_survives),
        cmocka_unit_test(half_a_proof_is_none),
        cmocka_unit_test(every_cut_is_noticed),
        cmocka_unit_test(parts_that_cannot_be_are_refused),
        cmocka_unit_test(another_version_is_another_protocol),
        cmocka_unit_test(a_proof_covers_all_that_matters),
        cmocka_unit_test(the_sender_is_the_last_token),
        cmocka_unit_test(ids_differ_by_machine_and_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
