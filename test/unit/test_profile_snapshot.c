/* Profiles in files: they come back as they were, and damaged ones are refused. */
#include "profile/snapshot.h"

#include <errno.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/fs.h"
#include "base/varint.h"
#include "fault.h"
#include "profile_fixture.h"

static struct buffer encoded(int (*encode)(const struct profile *, struct buffer *))
{
    struct profile *p = fixture_program("build", 0);
    struct buffer out = BUFFER_INIT(1 << 20);
    assert_int_equal(encode(p, &out), 0);
    profile_free(p);
    return out;
}

static void a_profile_comes_back_as_it_was(void **state)
{
    struct buffer file = encoded(snapshot_encode);
    struct profile *p = NULL, *was = fixture_program("build", 0);
    assert_int_equal(snapshot_decode(file.data, file.len, &p), 0);
    assert_int_equal(p->pid, 4242);
    assert_int_equal(p->processes, 1);
    assert_string_equal(profile_text(p, p->program), "program");
    assert_string_equal(profile_text(p, p->command), "program --fast");
    assert_true(p->taken_real_ns == was->taken_real_ns);
    assert_int_equal(p->n_sites, was->n_sites);
    for (size_t i = 0; i < p->n_sites; i++) {
        const struct profile_site *a = &p->sites[i], *b = &was->sites[i];
        assert_memory_equal(&a->figures, &b->figures, sizeof(a->figures));
        assert_int_equal(a->n_frames, b->n_frames);
        assert_int_equal(a->first_seen_ns, b->first_seen_ns);
        assert_int_equal(p->accounts[a->account].space, was->accounts[b->account].space);
        for (size_t k = 0; k < a->n_frames; k++) {
            const struct profile_frame *f = &p->frames[profile_stack(p, a)[k]];
            const struct profile_frame *g = &was->frames[profile_stack(was, b)[k]];
            assert_int_equal(f->offset, g->offset);
            assert_int_equal(f->n_lines, g->n_lines);
            assert_string_equal(profile_text(p, p->lines[f->first_line].function),
                                profile_text(was, was->lines[g->first_line].function));
            assert_int_equal(p->lines[f->first_line].line, was->lines[g->first_line].line);
            assert_memory_equal(p->modules[f->module].build_id, was->modules[g->module].build_id,
                                PROFILE_BUILD_ID_MAX);
        }
    }
    /* And its bytes are the same again. */
    struct buffer again = BUFFER_INIT(1 << 20);
    assert_int_equal(snapshot_encode(p, &again), 0);
    assert_int_equal(again.len, file.len);
    assert_memory_equal(again.data, file.data, file.len);
    buffer_release(&again);
    buffer_release(&file);
    profile_free(p);
    profile_free(was);
}

static void no_part_of_a_file_is_a_file(void **state)
{
    struct buffer file = encoded(snapshot_encode), plain = encoded(snapshot_encode_plain);
    struct profile *p = NULL;
    for (size_t len = 0; len < file.len; len++)
        assert_int_equal(snapshot_decode(file.data, len, &p), -EBADMSG);
    for (size_t len = 0; len < plain.len; len++)
        assert_int_equal(snapshot_decode_plain(plain.data, len, &p), -EBADMSG);
    buffer_append_char(&plain, '\0');
    assert_int_equal(snapshot_decode_plain(plain.data, plain.len, &p), -EBADMSG);
    assert_null(p);
    buffer_release(&file);
    buffer_release(&plain);
}

/* Any byte may be anything: what decodes then is still within its bounds. */
static void changed_bytes_never_lead_out_of_the_arrays(void **state)
{
    struct buffer plain = encoded(snapshot_encode_plain);
    for (size_t i = 0; i < plain.len; i++)
        for (int value = 0; value < 256; value += 5) {
            struct profile *p = NULL;
            char was = plain.data[i];
            plain.data[i] = (char)value;
            if (snapshot_decode_plain(plain.data, plain.len, &p) == 0) {
                for (size_t s = 0; s < p->n_sites; s++) {
                    assert_true(p->sites[s].account < p->n_accounts);
                    for (size_t k = 0; k < p->sites[s].n_frames; k++)
                        assert_true(profile_stack(p, &p->sites[s])[k] < p->n_frames);
                }
                profile_free(p);
            }
            plain.data[i] = was;
        }
    buffer_release(&plain);
}

static void later_versions_and_empty_promises_are_told_apart(void **state)
{
    struct buffer file = encoded(snapshot_encode);
    struct profile *p = NULL;
    file.data[8]++;
    assert_int_equal(snapshot_decode(file.data, file.len, &p), -EPROTONOSUPPORT);
    file.data[8]--;
    file.data[21] = 1; /* 2^40 bytes from a few hundred */
    assert_int_equal(snapshot_decode(file.data, file.len, &p), -EBADMSG);
    file.data[21] = 0;
    file.data[0] = 'X';
    assert_int_equal(snapshot_decode(file.data, file.len, &p), -EBADMSG);
    buffer_release(&file);
}

static void a_list_longer_than_the_file_takes_no_memory(void **state)
{
    struct buffer out = BUFFER_INIT(64);
    struct profile *p = NULL;
    varint_put(&out, UINT64_C(1) << 40);
    assert_int_equal(snapshot_decode_plain(out.data, out.len, &p), -EBADMSG);
    buffer_release(&out);
}

static void integers_of_all_lengths_come_back(void **state)
{
    struct buffer out = BUFFER_INIT(4096);
    for (unsigned shift = 0; shift < 64; shift++)
        varint_put(&out, UINT64_MAX >> shift);
    struct varint_reader in = varint_reader(out.data, out.len);
    for (unsigned shift = 0; shift < 64; shift++)
        assert_true(varint_take(&in) == UINT64_MAX >> shift);
    assert_false(in.bad);
    assert_int_equal(varint_left(&in), 0);
    varint_take(&in);
    assert_true(in.bad);
    static const uint8_t too_long[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02};
    in = varint_reader(too_long, sizeof(too_long));
    varint_take(&in);
    assert_true(in.bad);
    buffer_release(&out);
}

static void files_are_written_whole_and_read_back(void **state)
{
    char path[] = "/tmp/memoir-snapshot-XXXXXX";
    struct profile *p = fixture_program("build", 0), *back = NULL;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(snapshot_save(p, path), 0);
    assert_int_equal(snapshot_load(path, &back), 0);
    assert_int_equal(back->n_sites, p->n_sites);
    profile_free(back);
    unlink(path);
    back = NULL;
    assert_int_equal(snapshot_load(path, &back), -ENOENT);
    assert_int_equal(snapshot_load("/proc/self/cmdline", &back), -EBADMSG);
    profile_free(p);
}

static void lack_of_memory_at_any_point_is_reported(void **state)
{
    struct buffer file = encoded(snapshot_encode);
    int runs = 0;
    for (int nth = 0; fault_arm(nth); nth++, runs++) {
        struct profile *p = NULL;
        int r = snapshot_decode(file.data, file.len, &p);
        fault_disarm();
        assert_true((r == 0) == (p != NULL));
        assert_true(r == 0 || (fault_fired() && r == -ENOMEM));
        profile_free(p);
    }
    assert_true(runs > 10);
    buffer_release(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_profile_comes_back_as_it_was),
        cmocka_unit_test(no_part_of_a_file_is_a_file),
        cmocka_unit_test(changed_bytes_never_lead_out_of_the_arrays),
        cmocka_unit_test(later_versions_and_empty_promises_are_told_apart),
        cmocka_unit_test(a_list_longer_than_the_file_takes_no_memory),
        cmocka_unit_test(integers_of_all_lengths_come_back),
        cmocka_unit_test(files_are_written_whole_and_read_back),
        cmocka_unit_test(lack_of_memory_at_any_point_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
