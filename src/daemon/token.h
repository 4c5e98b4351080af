/* Tokens of remote clients: a file with a line for each, read again when it changes.
 *
 *     NAME SHA256-IN-HEX [user=UID]
 *
 * Only digests are kept, so who reads the file (its owner alone may) learns no token. Tokens are random and
 * long, not passwords, so one round of SHA-256 is enough. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokens;

enum {
    TOKEN_NAME_MAX = 63,
    TOKEN_LENGTH_MIN =
        16, /* shorter ones could be guessed: they are refused, whatever the file says */
    TOKENS_MAX = 4096,
    TOKEN_FILE_MAX = 1 << 20,
};

struct token {
    char name[TOKEN_NAME_MAX + 1];
    bool has_uid; /* it sees what this user sees; else what nobody sees */
    uint32_t uid;
};

/* -errno when the file cannot be used, and says so in the log: it must be a regular file of ours with mode
 * 0600. Lines that make no sense are told of and left out. */
int tokens_new(const char *path, struct tokens **ret_tokens);
void tokens_free(struct tokens *tokens); /* NULL is fine */

/* 0 and whose it is, or -EACCES. Compares with every digest in full, so that time tells nothing. After a
 * change the file is read first; one that cannot be used any more lets nobody in. */
int tokens_check(struct tokens *tokens, const char *token, struct token *ret_token);
