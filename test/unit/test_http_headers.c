/* Headers: what a client accepts, has already, and says that we are. */
#include "http/headers.h"

#include <errno.h>
#include <string.h>

#include "base/buffer.h"
#include "check.h"
#include "http/gzip.h"

static void gzip_is_used_where_it_is_accepted(void **state)
{
    static const char *const yes[] = {
        "gzip",       "GZIP",   "deflate, gzip;q=0.5", "br, gzip",       "*",
        "gzip;q=1.0", "x-gzip", "identity;q=0, *",     "gzip ; q=0.001", " gzip",
        "br;q=0,gzip"};
    static const char *const no[] = {
        "",        "identity",    "deflate, br", "gzip;q=0",       "gzip;q=0.000", "*;q=0",
        "gzipped", "gzip;q=0, *", "gzi",         "gzip ;q=0 , br", "br;q=gzip",    "identity;x"};
    for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++)
        if (!accept_gzip(yes[i]))
            fail_msg("'%s' does not accept it", yes[i]);
    for (size_t i = 0; i < sizeof(no) / sizeof(*no); i++)
        if (accept_gzip(no[i]))
            fail_msg("'%s' accepts it", no[i]);
    assert_false(accept_gzip(NULL));
}

static void a_tag_that_the_client_has_is_found(void **state)
{
    static const char *const yes[] = {
        "\"abc\"", "W/\"abc\"", "*", "\"x\", \"abc\"", "\"x\",W/\"y\" , \"abc\"", " \"abc\""};
    static const char *const no[] = {"",      "abc",  "\"ab\"",   "\"abcd\"",
                                     "\"abc", "\"\"", "x\"abc\"", "\"a\" x, \"abc\""};
    for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++)
        if (!etag_matches(yes[i], "abc", 3))
            fail_msg("'%s' does not match", yes[i]);
    for (size_t i = 0; i < sizeof(no) / sizeof(*no); i++)
        if (etag_matches(no[i], "abc", 3))
            fail_msg("'%s' matches", no[i]);
}

static void a_cookie_is_found_unless_there_are_two(void **state)
{
    size_t len;
    const char *found = cookie_find("a=1; memoir-7=xyz; b=2", "memoir-7", &len);
    assert_true(found && len == 3 && memcmp(found, "xyz", 3) == 0);
    found = cookie_find("memoir-7=xyz ", "memoir-7", &len);
    assert_true(found && len == 3);
    found = cookie_find("memoir-7=", "memoir-7", &len);
    assert_true(found && len == 0);
    assert_null(cookie_find("memoir-70=xyz", "memoir-7", &len));
    assert_null(cookie_find("xmemoir-7=xyz", "memoir-7", &len));
    assert_null(cookie_find("memoir-7", "memoir-7", &len));
    assert_null(cookie_find("memoir-7=a; memoir-7=b", "memoir-7", &len));
    assert_null(cookie_find("", "memoir-7", &len));
    assert_null(cookie_find(NULL, "memoir-7", &len));
}

static void a_bearer_has_a_token(void **state)
{
    assert_string_equal(bearer_token("Bearer abc"), "abc");
    assert_string_equal(bearer_token("bearer  abc"), "abc");
    assert_null(bearer_token("Basic abc"));
    assert_null(bearer_token("Bearer"));
    assert_null(bearer_token("Bearer "));
    assert_null(bearer_token(NULL));
}

static void hosts_are_parsed_strictly(void **state)
{
    struct host host;
    static const struct {
        const char *text, *name;
        uint16_t port;
    } good[] = {
        {"localhost", "localhost", 0},     {"LocalHost:7070", "localhost", 7070},
        {"127.0.0.1:80", "127.0.0.1", 80}, {"[::1]:7070", "::1", 7070},
        {"[0:0:0:0:0:0:0:1]", "::1", 0},   {"a.example.", "a.example", 0},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        assert_int_equal(host_parse(good[i].text, &host), 0);
        assert_string_equal(host.name, good[i].name);
        assert_int_equal(host.port, good[i].port);
    }
    static const char *const bad[] = {
        "",       ":80",     "a:",
        "a:0",    "a:65536", "a:80x",
        "a b",    "a/b",     "[::1",
        "[::1]x", "[]",      "[localhost]",
        "a@b",    "a,b",     "a:80:80",
        "::1",    "a\r\nb",  "evil.com#localhost",
        "a:-1",   "[::1]:",  "user:pw@localhost",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        if (host_parse(bad[i], &host) != -EINVAL)
            fail_msg("'%s' was taken", bad[i]);
    char longer[HOST_MAX + 2];
    memset(longer, 'a', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    assert_int_equal(host_parse(longer, &host), -EINVAL);
}

static bool ours(const char *text, const char *hosts)
{
    struct host host;
    assert_int_equal(host_parse(text, &host), 0);
    return host_is_ours(&host, hosts);
}

static void only_names_of_ours_are_ours(void **state)
{
    assert_true(ours("localhost:1234", ""));
    assert_true(ours("memoir.localhost", ""));
    assert_true(ours("127.0.0.1", NULL));
    assert_true(ours("127.1.2.3", NULL));
    assert_true(ours("[::1]", ""));
    assert_true(ours("box.example", "other, BOX.example"));
    assert_false(ours("evil.example", "box.example"));
    assert_false(ours("localhost.evil.example", ""));
    assert_false(ours("127.0.0.1.evil.example", ""));
    assert_false(ours("10.0.0.1", ""));
    assert_false(ours("xlocalhost", ""));
    assert_false(ours("ample", "box.example"));
}

static bool same_origin(const char *origin, const char *text, bool tls)
{
    struct host host;
    assert_int_equal(host_parse(text, &host), 0);
    return origin_is_host(origin, &host, tls);
}

static void an_origin_is_ours_when_it_is_what_was_asked_for(void **state)
{
    assert_true(same_origin("http://localhost:7070", "localhost:7070", false));
    assert_true(same_origin("http://localhost", "localhost:80", false));
    assert_true(same_origin("https://box.example", "box.example", true));
    assert_true(same_origin("http://[::1]:7070", "[::1]:7070", false));
    assert_false(same_origin("http://localhost:7071", "localhost:7070", false));
    assert_false(same_origin("https://localhost:7070", "localhost:7070", false));
    assert_false(same_origin("http://localhost:7070", "localhost:7070", true));
    assert_false(same_origin("http://127.0.0.1:7070", "localhost:7070", false));
    assert_false(same_origin("http://evil.example", "localhost:7070", false));
    assert_false(same_origin("null", "localhost:7070", false));
    assert_false(same_origin("", "localhost:7070", false));
    assert_false(same_origin("http://localhost:7070/", "localhost:7070", false));
}

static void json_is_told_from_what_forms_send(void **state)
{
    assert_true(type_is_json("application/json"));
    assert_true(type_is_json("Application/JSON; charset=utf-8"));
    assert_false(type_is_json("text/plain"));
    assert_false(type_is_json("application/json-seq"));
    assert_false(type_is_json("application/x-www-form-urlencoded"));
    assert_false(type_is_json(NULL));
}

static void what_is_compressed_is_the_same_when_expanded(void **state)
{
    struct buffer text = BUFFER_INIT(1 << 20), packed = BUFFER_INIT(1 << 20),
                  again = BUFFER_INIT(1 << 20);
    for (int i = 0; i < 5000; i++)
        buffer_printf(&text, "{\"pid\":%d,\"rss\":%d},", i, i * 4096);
    assert_int_equal(gzip_compress(text.data, text.len, &packed), 0);
    assert_true(packed.len < text.len / 3);
    assert_int_equal(gzip_expand(packed.data, packed.len, &again), 0);
    assert_int_equal(again.len, text.len);
    assert_memory_equal(again.data, text.data, text.len);
    buffer_reset(&packed);
    assert_int_equal(gzip_compress("abc", 3, &packed), -ENOBUFS); /* it would grow */
    buffer_reset(&again);
    assert_int_equal(gzip_expand("no such thing", 13, &again), -EBADMSG);
    assert_int_equal(gzip_expand(text.data, text.len, &again), -EBADMSG);
    struct buffer small = BUFFER_INIT(1000); /* a bomb ends at the limit */
    buffer_reset(&packed);
    gzip_compress(text.data, text.len, &packed);
    assert_true(gzip_expand(packed.data, packed.len, &small) < 0);
    buffer_release(&small);
    buffer_release(&text);
    buffer_release(&packed);
    buffer_release(&again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gzip_is_used_where_it_is_accepted),
        cmocka_unit_test(a_tag_that_the_client_has_is_found),
        cmocka_unit_test(a_cookie_is_found_unless_there_are_two),
        cmocka_unit_test(a_bearer_has_a_token),
        cmocka_unit_test(hosts_are_parsed_strictly),
        cmocka_unit_test(only_names_of_ours_are_ours),
        cmocka_unit_test(an_origin_is_ours_when_it_is_what_was_asked_for),
        cmocka_unit_test(json_is_told_from_what_forms_send),
        cmocka_unit_test(what_is_compressed_is_the_same_when_expanded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
