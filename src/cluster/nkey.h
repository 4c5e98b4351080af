/* NATS's keys as text: base32 of a prefix, 32 bytes and a checksum. libnats 3.4 wants the public key beside the seed; it follows
 * from the seed. */
#pragma once

enum { NKEY_PUBLIC_CHARS = 56, NKEY_SEED_CHARS = 58 };

/* The public key (U...) of a user's seed (SU...). -EINVAL: it is none. */
int nkey_public(const char *seed, char ret_public[static NKEY_PUBLIC_CHARS + 1]);
