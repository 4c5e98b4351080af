/* SHA-256 against the examples of the standard. */
#include "base/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static void assert_digest(const char *data, size_t len, const char *expected)
{
    uint8_t digest[SHA256_BYTES];
    char text[2 * SHA256_BYTES + 1];
    sha256(data, len, digest);
    for (int i = 0; i < SHA256_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(text, expected);
}

static void examples_of_the_standard(void **state)
{
    assert_digest("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_digest("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    assert_digest(two_blocks, strlen(two_blocks),
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char *million = malloc(1000000);
    assert_non_null(million);
    memset(million, 'a', 1000000);
    assert_digest(million, 1000000,
                  "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}

static void every_length_around_a_block_is_padded(void **state)
{
    /* The digest of the concatenated digests of 0 to 129 zero bytes, as another implementation has it. */
    char zeros[130] = {0};
    char all[130 * SHA256_BYTES];
    for (size_t len = 0; len < sizeof(zeros); len++)
        sha256(zeros, len, (uint8_t *)all + len * SHA256_BYTES);
    assert_digest(all, sizeof(all),
                  "d26cf8eafa144521d64bdc66b8314175fd9e78310979a068c8b8b2ea18636450");
}

static void digests_are_compared_whole(void **state)
{
    uint8_t a[SHA256_BYTES] = {0}, b[SHA256_BYTES] = {0};
    assert_true(sha256_equal(a, b));
    for (int i = 0; i < SHA256_BYTES; i++) {
        b[i] = 0x80;
        assert_false(sha256_equal(a, b));
        b[i] = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_of_the_standard),
        cmocka_unit_test(every_length_around_a_block_is_padded),
        cmocka_unit_test(digests_are_compared_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
