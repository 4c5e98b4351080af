/* Hashes: fixed values (they are stored and cross machines), and that inputs spread. */
#include "base/hash.h"

#include <inttypes.h>

#include "check.h"

static void values_never_change(void **unused)
{
    assert_true(hash_mix(1) == UINT64_C(0x5692161d100b05e5));
    assert_true(hash_string("", 0) == UINT64_C(0x28aed06b79bc90e0));
    assert_true(hash_string("memoir", 0) == UINT64_C(0xa5609475af0e8481));
    assert_true(hash_string("a string longer than sixteen bytes", 7) ==
                UINT64_C(0xea098402f2a08b73));
}

static void length_seed_and_order_take_part(void **unused)
{
    assert_true(hash_bytes("a", 1, 0) != hash_bytes("a\0", 2, 0));
    assert_true(hash_bytes("", 0, 0) != hash_bytes("\0\0\0\0\0\0\0\0", 8, 0));
    assert_true(hash_bytes("a", 1, 0) != hash_bytes("a", 1, 1));
    assert_true(hash_combine(hash_combine(0, 1), 2) != hash_combine(hash_combine(0, 2), 1));
    assert_true(hash_bytes(NULL, 0, 0) == hash_bytes("", 0, 0));
}

static void unaligned_bytes_hash_alike(void **unused)
{
    char bytes[80];
    for (int shift = 0; shift < 8; shift++) {
        memcpy(bytes + shift, "0123456789abcdefghijklmnopqrstuvwxyz", 37);
        assert_true(hash_string(bytes + shift, 3) ==
                    hash_string("0123456789abcdefghijklmnopqrstuvwxyz", 3));
    }
}

/* Addresses and counters are the usual keys; their low bits must fill a table evenly. */
static void consecutive_keys_spread_over_buckets(void **unused)
{
    enum { BUCKETS = 256, KEYS = BUCKETS * 64 };
    int by_mix[BUCKETS] = {0}, by_bytes[BUCKETS] = {0};
    for (uint64_t i = 0; i < KEYS; i++) {
        uint64_t key = UINT64_C(0x7f0000000000) + i * 4096;
        by_mix[hash_mix(key) % BUCKETS]++;
        by_bytes[hash_bytes(&key, sizeof(key), 0) % BUCKETS]++;
    }
    for (int b = 0; b < BUCKETS; b++) {
        assert_in_range(by_mix[b], 24, 112);
        assert_in_range(by_bytes[b], 24, 112);
    }
}

static void every_input_bit_matters(void **unused)
{
    unsigned char bytes[37] = {0};
    uint64_t zero = hash_bytes(bytes, sizeof(bytes), 0);
    for (size_t bit = 0; bit < sizeof(bytes) * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << (bit % 8));
        int changed = __builtin_popcountll(zero ^ hash_bytes(bytes, sizeof(bytes), 0));
        assert_in_range(changed, 12, 52);
        bytes[bit / 8] = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_never_change),
        cmocka_unit_test(length_seed_and_order_take_part),
        cmocka_unit_test(unaligned_bytes_hash_alike),
        cmocka_unit_test(consecutive_keys_spread_over_buckets),
        cmocka_unit_test(every_input_bit_matters),
    };
    return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
