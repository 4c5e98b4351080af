/* Tokens of remote clients: a file with a line for each (base/token_line.h), read again when it changes. One
 * thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/token_line.h"

struct tokens;

struct token {
    char name[TOKEN_NAME_MAX + 1];
    bool has_uid; /* it sees what this user sees; else totals only */
    uint32_t uid;
    bool control; /* may act, too */
};

/* -errno when the file cannot be used, and says so in the log: it must be a regular file of ours with mode
 * 0600. Invalid lines are logged and left out. */
int tokens_new(const char *path, struct tokens **ret_tokens);
/* The same for a file that may come yet: without one all logins fail. */
int tokens_watch(const char *path, struct tokens **ret_tokens);
void tokens_free(struct tokens *tokens); /* NULL is fine */

/* 0 and whose it is, or -EACCES. Compares with every digest in full, so that time tells nothing. After a
 * change the file is read first; a file that has become unusable makes all logins fail. */
int tokens_check(struct tokens *tokens, const char *token, struct token *ret_token);

/* The token whose digest `proves` something, the same way: for proofs that do not show the token itself. It is
 * called for every one. 0, or -EACCES. */
int tokens_prove(struct tokens *tokens,
                 bool (*proves)(const uint8_t digest[static SHA256_BYTES], void *context),
                 void *context, struct token *ret_token);
