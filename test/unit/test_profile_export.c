/* Profiles for other tools. The integration test decodes them independently; here are the awkward names. */
#include "profile/export.h"

#include <zlib.h>

#include "base/buffer.h"
#include "profile/protobuf.h"
#include "profile_fixture.h"

static struct buffer out = {.limit = EXPORT_MAX};

static const char *export(struct profile *p, struct export_options o,
                          int (*writer)(struct profile *, const struct export_options *,
                                        struct buffer *))
{
    buffer_reset(&out);
    assert_int_equal(writer(p, &o, &out), 0);
    return buffer_string(&out);
}

static void folded_stacks_have_a_line_each(void **state)
{
    struct profile *p = fixture_program("build", 0);
    assert_string_equal(export(p, (struct export_options){0}, export_folded),
                        "__libc_start_main;main;left;ask 1000\n"
                        "__libc_start_main;main;right;ask 500\n"
                        "__libc_start_main;main;right 4096\n");
    assert_string_equal(
        export(p, (struct export_options){.measure = ROWS_ALLOCATED, .space = MEMOIR_SPACE_HEAP},
               export_folded),
        "__libc_start_main;main;left;ask 3000\n"
        "__libc_start_main;main;right;ask 500\n"
        "__libc_start_main;main 700\n");
    profile_free(p);
}

static void names_cannot_break_the_format(void **state)
{
    struct profile *p = profile_new();
    uint32_t m = fixture_module(p, "/bin/x", "id");
    uint32_t frame = fixture_frame(p, m, 1, "a;b\nc \"\xff\xc3\xa9", "f", 1);
    fixture_site(p, (struct fixture_site){fixture_heap(p), 0, 7, 1, 7, 1, 1, {frame}, 1});
    fixture_site(p, (struct fixture_site){fixture_heap(p), 0, 8, 1, 8, 1, 1, {0}, 0});
    assert_string_equal(export(p, (struct export_options){0}, export_folded),
                        "a:b?c \"\xff\xc3\xa9 7\n[unknown] 8\n");
    const char *text = export(p, (struct export_options){0}, export_speedscope);
    assert_non_null(strstr(
        text, "\"frames\":[{\"name\":\"a;b\\nc \\\"\xef\xbf\xbd\xc3\xa9\",\"file\":\"f\"}]"));
    assert_non_null(
        strstr(text, "\"samples\":[[0],[]],\"weights\":[7,8],\"startValue\":0,\"endValue\":15"));
    profile_free(p);
}

static struct buffer unpacked(void)
{
    struct buffer plain = BUFFER_INIT(1 << 20);
    z_stream z = {.next_in = (Bytef *)out.data, .avail_in = (uInt)out.len};
    assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
    z.next_out = (Bytef *)buffer_reserve(&plain, 1 << 19);
    z.avail_out = 1 << 19;
    assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
    buffer_commit(&plain, (1 << 19) - z.avail_out);
    inflateEnd(&z);
    return plain;
}

static void pprof_is_a_gzipped_message_that_ends_where_it_should(void **state)
{
    struct profile *p = fixture_program("build", 0);
    uint32_t m = fixture_module(p, "/usr/bin/program", "build");
    fixture_frame(p, m, 0x7777, "no\xffutf", NULL, 0);
    export(p, (struct export_options){0}, export_pprof);
    struct buffer plain = unpacked();
    struct varint_reader in = varint_reader(plain.data, plain.len);
    unsigned counts[16] = {0};
    bool replaced = false;
    while (varint_left(&in)) {
        uint64_t tag = varint_take(&in);
        assert_true(tag >> 3 > 0 && tag >> 3 < 16);
        uint64_t value = varint_take(&in);
        if ((tag & 7) == PROTOBUF_BYTES) {
            const uint8_t *bytes = varint_bytes(&in, (size_t)value);
            assert_non_null(bytes);
            if (tag >> 3 == 6 && counts[6] == 0)
                assert_int_equal(value, 0); /* string 0 is empty */
            replaced |= value == 6 && memcmp(bytes, "no?utf", 6) == 0;
        }
        counts[tag >> 3]++;
        assert_false(in.bad);
    }
    assert_true(replaced);
    assert_int_equal(counts[1], 4);  /* sample types */
    assert_int_equal(counts[2], 4);  /* samples */
    assert_int_equal(counts[3], 2);  /* mappings */
    assert_int_equal(counts[4], 6);  /* locations */
    assert_int_equal(counts[5], 6);  /* functions */
    assert_int_equal(counts[14], 1); /* default sample type */
    buffer_release(&plain);
    profile_free(p);
}

static int release(void **state)
{
    buffer_release(&out);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folded_stacks_have_a_line_each),
        cmocka_unit_test(names_cannot_break_the_format),
        cmocka_unit_test(pprof_is_a_gzipped_message_that_ends_where_it_should),
    };
    return cmocka_run_group_tests(tests, NULL, release);
}
