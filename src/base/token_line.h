/* A line of the file of tokens, which memoird reads and `memoir token` writes:
 *
 *     NAME SHA256-IN-HEX [user=UID] [role=read|control] [expires=SECONDS-SINCE-1970]
 *
 * Only digests are kept, so who reads the file (its owner alone may) learns no token. Tokens are random and
 * long, not passwords, so one round of SHA-256 is enough. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"

struct buffer;

enum {
    TOKEN_NAME_MAX = 63,
    TOKEN_LENGTH_MIN =
        16, /* shorter ones could be guessed: they are refused, whatever the file says */
    TOKENS_MAX = 4096,
    TOKEN_FILE_MAX = 1 << 20,
    TOKEN_CHARS = 43, /* of those that we make: 256 bits as base64url */
};

struct token_line {
    char name[TOKEN_NAME_MAX + 1];
    uint8_t digest[SHA256_BYTES];
    bool has_uid; /* it sees what this user sees; else what nobody sees */
    uint32_t uid;
    bool control;       /* may act, too */
    uint64_t expires_s; /* since 1970; 0: never */
};

/* Take `line` apart, which is changed. 1 and the token, 0 for an empty line or a comment, -EINVAL. */
int token_line_parse(char *line, struct token_line *ret_token);

/* With its newline. */
void token_line_write(const struct token_line *token, struct buffer *out);

/* Letters, digits, dot, dash, underscore and @, at most TOKEN_NAME_MAX. */
bool token_name_is_good(const char *name);

/* A new secret. -errno when there are no random numbers yet. */
int token_make(char ret_token[static TOKEN_CHARS + 1]);
