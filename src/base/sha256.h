/* SHA-256 (FIPS 180-4), for what is kept as a digest, such as tokens.
 *
 * Our own, since one block function is all that is needed: libcrypto would add megabytes to a daemon that
 * hashes a line per remote client, AF_ALG is missing in containers and under seccomp, and a second crypto
 * library would be a dependency for 100 lines that the standard's own examples check. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32 };

void sha256(const void *data, size_t len, uint8_t ret_digest[static SHA256_BYTES]);

/* Are they equal? Takes the same time wherever they differ. */
bool sha256_equal(const uint8_t a[static SHA256_BYTES], const uint8_t b[static SHA256_BYTES]);
