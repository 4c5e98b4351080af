/* Messages of four sizes that say nothing about their size. */
#include "daemon/tt_wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { PID = 4242 };

static bool pid_ok(void *context, int32_t pid)
{
    return pid == PID;
}

/* A request as a client of `size` sends it. */
static void put(uint8_t *bytes, size_t size, uint8_t type, int32_t device, int32_t pid)
{
    memset(bytes, 0, size);
    bytes[0] = type;
    memcpy(bytes + 4, &device, 4);
    uint64_t amount = 1000;
    memcpy(bytes + 8, &amount, 8);
    memcpy(bytes + 20, &pid, 4);
}

static void fields_are_where_clients_put_them(void **state)
{
    uint8_t bytes[TT_COMMON];
    for (int i = 0; i < TT_COMMON; i++)
        bytes[i] = (uint8_t)(i + 1);
    struct tt_message m = tt_decode(bytes);
    assert_int_equal(m.type, 1);
    assert_int_equal(m.device, 0x08070605);
    assert_int_equal(m.size, 0x100f0e0d0c0b0a09);
    assert_int_equal(m.buffer_type, 17);
    assert_int_equal(m.pid, 0x18171615);
    assert_int_equal(m.buffer_id, 0x201f1e1d1c1b1a19);
    assert_int_equal(m.timestamp, 0x2827262524232221);
}

static uint64_t u64_at(const uint8_t *bytes, size_t at)
{
    uint64_t value;
    memcpy(&value, bytes + at, 8);
    return value;
}

static uint32_t u32_at(const uint8_t *bytes, size_t at)
{
    uint32_t value;
    memcpy(&value, bytes + at, 4);
    return value;
}

static void answers_have_the_layout_of_their_size(void **state)
{
    struct tt_answer a = {
        .head = {.type = TT_RESPONSE, .device = 7},
        .dram = 1,
        .l1 = 2,
        .l1_small = 3,
        .trace = 4,
        .cb = 5,
        .kernel = 6,
        .total_dram = 11,
        .total_l1 = 12,
        .arch = 13,
        .dram_channels = 14,
        .dram_per_channel = 15,
        .l1_per_core = 16,
        .available = 17,
        .devices = 18,
        .ring_total = 21,
        .ring_used = 22,
        .programs = 23,
    };
    for (int i = 0; i < TT_SIZES; i++) {
        uint8_t bytes[TT_SIZE_MAX + 1];
        bytes[tt_sizes[i]] = 0xa5;
        tt_encode(&a, tt_sizes[i], bytes);
        assert_int_equal(bytes[tt_sizes[i]], 0xa5); /* not a byte more */
        assert_int_equal(bytes[0], TT_RESPONSE);
        assert_int_equal(u32_at(bytes, 4), 7);
        for (size_t k = 0; k < 4; k++)
            assert_int_equal(u64_at(bytes, 40 + 8 * k), k + 1);
        size_t info = tt_sizes[i] == 112 ? 72 : 88;
        if (tt_sizes[i] > 72) {
            assert_int_equal(u64_at(bytes, info), 11);
            assert_int_equal(u64_at(bytes, info + 8), 12);
            for (size_t k = 0; k < 6; k++)
                assert_int_equal(u32_at(bytes, info + 16 + 4 * k), 13 + k);
        }
        if (tt_sizes[i] >= 128) {
            assert_int_equal(u64_at(bytes, 72), 5);
            assert_int_equal(u64_at(bytes, 80), 6);
        }
        for (size_t k = 0; tt_sizes[i] == 144 && k < 3; k++)
            assert_int_equal(u32_at(bytes, 128 + 4 * k), 21 + k);
    }
}

/* However the stream is cut, no other size is ever taken for proved. */
static void streams_prove_their_size(void **state)
{
    static const uint8_t types[] = {TT_ALLOC, TT_QUERY, TT_FREE, TT_CB_ALLOC, TT_KERNEL_UNLOAD};
    for (int i = 0; i < TT_SIZES; i++)
        for (size_t first = 0; first < sizeof(types); first++)
            for (size_t second = 0; second < sizeof(types); second++) {
                uint8_t bytes[3 * TT_SIZE_MAX];
                size_t size = tt_sizes[i];
                put(bytes, size, types[first], 0, tt_is_question(types[first]) ? 0 : PID);
                put(bytes + size, size, types[second], 3, tt_is_question(types[second]) ? 0 : PID);
                put(bytes + 2 * size, size, TT_ALLOC, 3, PID);
                struct tt_framing f = {0};
                for (size_t n = 1; n <= 3 * size; n++) {
                    assert_int_equal(tt_framing_look(&f, bytes, n, pid_ok, NULL), 0);
                    if (f.proved)
                        assert_int_equal(f.size, size);
                    if (n >= size + TT_HEAD)
                        assert_true(f.proved);
                }
            }
}

static void the_largest_size_proves_itself_by_one_message(void **state)
{
    uint8_t bytes[TT_SIZE_MAX];
    put(bytes, TT_SIZE_MAX, TT_QUERY, 0, 0);
    struct tt_framing f = {0};
    assert_int_equal(tt_framing_look(&f, bytes, TT_SIZE_MAX, pid_ok, NULL), 0);
    assert_true(f.proved);
    assert_int_equal(f.size, 144);
}

static void one_small_message_is_a_guess(void **state)
{
    for (int i = 0; i + 1 < TT_SIZES; i++) {
        uint8_t bytes[TT_SIZE_MAX];
        put(bytes, tt_sizes[i], TT_QUERY, 0, 0);
        struct tt_framing f = {0};
        assert_int_equal(tt_framing_look(&f, bytes, tt_sizes[i], pid_ok, NULL), 0);
        assert_false(f.proved);
        assert_int_equal(tt_framing_guess(&f, tt_sizes[i]), tt_sizes[i]);
        assert_int_equal(tt_framing_guess(&f, (size_t)tt_sizes[i] - 1), 0);
    }
}

static void a_guess_is_changed_by_what_comes(void **state)
{
    /* 112 bytes came and were taken for a message, but 32 more zeros follow, and then the next one. */
    uint8_t rest[32 + TT_SIZE_MAX] = {0};
    put(rest + 32, TT_SIZE_MAX, TT_ALLOC, 0, PID);
    struct tt_framing f = {.size = 112, .base = 112, .out = 1, .pid = PID};
    for (size_t n = 1; n <= 32 + TT_HEAD; n++)
        assert_int_equal(tt_framing_look(&f, rest, n, pid_ok, NULL), 0);
    assert_true(f.proved);
    assert_int_equal(f.size, 144);
    /* Or it is confirmed. */
    f = (struct tt_framing){.size = 112, .base = 112, .out = 1, .pid = PID};
    put(rest, 112, TT_QUERY, 0, 0);
    assert_int_equal(tt_framing_look(&f, rest, TT_HEAD, pid_ok, NULL), 0);
    assert_true(f.proved);
    assert_int_equal(f.size, 112);
}

static void processes_that_are_not_his_do_not_confuse(void **state)
{
    /* Who speaks for others is refused later; the size must be right all the same. */
    for (int i = 0; i < TT_SIZES; i++) {
        uint8_t bytes[2 * TT_SIZE_MAX];
        size_t size = tt_sizes[i];
        put(bytes, size, TT_ALLOC, 0, 77);
        put(bytes + size, size, TT_ALLOC, 0, 77);
        struct tt_framing f = {0};
        assert_int_equal(tt_framing_look(&f, bytes, 2 * size, pid_ok, NULL), 0);
        assert_true(f.proved);
        assert_int_equal(f.size, size);
    }
}

static void figures_that_look_like_a_type_are_not_taken_for_one(void **state)
{
    /* A client that sends the bytes of its last answer back as a question. */
    struct tt_answer a = {.head = {.type = TT_QUERY}, .cb = 0x10203, .kernel = 9, .total_dram = 12};
    uint8_t bytes[TT_SIZE_MAX];
    tt_encode(&a, 144, bytes);
    struct tt_framing f = {0};
    assert_int_equal(tt_framing_look(&f, bytes, 144, pid_ok, NULL), 0);
    if (f.proved)
        assert_int_equal(f.size, 144);
}

static void garbage_has_no_size(void **state)
{
    uint8_t bytes[400];
    struct tt_framing f = {0};
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(tt_framing_look(&f, bytes, 1, pid_ok, NULL), -EBADMSG);
    memset(bytes, 0xff, sizeof(bytes));
    put(bytes, 72, TT_ALLOC, 0, PID);
    f = (struct tt_framing){0};
    assert_int_equal(tt_framing_look(&f, bytes, sizeof(bytes), pid_ok, NULL), -EBADMSG);
    put(bytes, 72, TT_ALLOC, TT_DEVICES_MAX, PID);
    f = (struct tt_framing){0};
    assert_int_equal(tt_framing_look(&f, bytes, 72, pid_ok, NULL), -EBADMSG);
    put(bytes, 72, TT_RESPONSE, 0, PID);
    f = (struct tt_framing){0};
    assert_int_equal(tt_framing_look(&f, bytes, 72, pid_ok, NULL), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_where_clients_put_them),
        cmocka_unit_test(answers_have_the_layout_of_their_size),
        cmocka_unit_test(streams_prove_their_size),
        cmocka_unit_test(the_largest_size_proves_itself_by_one_message),
        cmocka_unit_test(one_small_message_is_a_guess),
        cmocka_unit_test(a_guess_is_changed_by_what_comes),
        cmocka_unit_test(processes_that_are_not_his_do_not_confuse),
        cmocka_unit_test(figures_that_look_like_a_type_are_not_taken_for_one),
        cmocka_unit_test(garbage_has_no_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
