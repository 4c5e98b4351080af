/* Signatures of nodes, by the vectors of RFC 8032 (7.1). */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "cluster/nkey.h"
#include "cluster/sign.h"

static const struct {
    const char *secret, *public, *message;
    size_t len;
    const char *signature; /* its first half */
} vectors[] = {
    {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "", 0,
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"},
    {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "\x72", 1,
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"},
};

static void signatures_are_those_of_the_standard(void **state)
{
    for (size_t i = 0; i < sizeof(vectors) / sizeof(*vectors); i++) {
        struct sign_key key;
        uint8_t signature[SIGN_BYTES];
        char text[SIGN_KEY_CHARS + 1];
        assert_true(sign_key_parse(vectors[i].secret, key.secret));
        sign_key_derive(&key);
        sign_key_text(key.public, text);
        assert_string_equal(text, vectors[i].public);
        sign(&key, vectors[i].message, vectors[i].len, signature);
        sign_key_text(signature, text);
        assert_string_equal(text, vectors[i].signature);
        assert_true(sign_check(key.public, vectors[i].message, vectors[i].len, signature));
    }
}

static void anything_else_is_refused(void **state)
{
    struct sign_key key, other;
    uint8_t signature[SIGN_BYTES];
    assert_int_equal(sign_key_make(&key), 0);
    assert_int_equal(sign_key_make(&other), 0);
    sign(&key, "turn it on", 10, signature);
    assert_true(sign_check(key.public, "turn it on", 10, signature));
    assert_false(sign_check(other.public, "turn it on", 10, signature));
    assert_false(sign_check(key.public, "turn it of", 10, signature));
    assert_false(sign_check(key.public, "turn it on", 9, signature));
    for (size_t i = 0; i < SIGN_BYTES; i++) {
        signature[i] ^= 1;
        assert_false(sign_check(key.public, "turn it on", 10, signature));
        signature[i] ^= 1;
    }
}

static void keys_are_whole_lines_of_hex_digits(void **state)
{
    uint8_t key[SIGN_KEY_BYTES];
    assert_false(sign_key_parse("", key));
    assert_false(sign_key_parse("9d61", key));
    assert_false(
        sign_key_parse("9D61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60", key));
    assert_false(
        sign_key_parse("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f6g", key));
    assert_false(
        sign_key_parse("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f600", key));
}

/* The first key of the standard as NATS writes it. */
static void the_public_key_of_a_seed(void **state)
{
    static const char seed[] = "SUAJ2YNRTXX72WTAXKCEV5ES5QWMIRCJYVUXWMTJDFYDXLADDSXH6YALCA",
                      account[] = "SAAJ2YNRTXX72WTAXKCEV5ES5QWMIRCJYVUXWMTJDFYDXLADDSXH6YHY3Q";
    char public[NKEY_PUBLIC_CHARS + 1], changed[sizeof(seed)];
    assert_int_equal(nkey_public(seed, public), 0);
    assert_string_equal(public, "UDLVVGABQKYQVN6VJP7NHSLEA45A5YLS6PNKMIZFV4BBU2HXA5IRUVAL");
    assert_int_equal(nkey_public(account, public), -EINVAL);
    assert_int_equal(nkey_public(public, public), -EINVAL);
    assert_int_equal(nkey_public("", public), -EINVAL);
    for (size_t i = 0; i < sizeof(seed) - 2; i++) {
        memcpy(changed, seed, sizeof(seed));
        changed[i] = changed[i] == 'B' ? 'C' : 'B';
        assert_int_equal(nkey_public(changed, public), -EINVAL);
        changed[i] = '1';
        assert_int_equal(nkey_public(changed, public), -EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signatures_are_those_of_the_standard),
        cmocka_unit_test(anything_else_is_refused),
        cmocka_unit_test(keys_are_whole_lines_of_hex_digits),
        cmocka_unit_test(the_public_key_of_a_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
