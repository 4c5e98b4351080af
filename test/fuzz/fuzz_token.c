/* Lines of the file of tokens: whatever they say, a token that was taken can be written and means the same when it is read again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/token_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static void check_round_trip(const struct token_line *token)
{
    struct buffer out = BUFFER_INIT(1 << 12);
    struct token_line again;
    demand(token_name_is_good(token->name));
    token_line_write(token, &out);
    demand(out.len > 0 && !out.error);
    char *line = strndup(out.data, out.len);
    demand(line && line[out.len - 1] == '\n');
    line[out.len - 1] = '\0';
    demand(token_line_parse(line, &again) == 1);
    demand(strcmp(again.name, token->name) == 0 && again.has_uid == token->has_uid &&
           (!token->has_uid || again.uid == token->uid) && again.control == token->control &&
           again.expires_s == token->expires_s &&
           memcmp(again.digest, token->digest, sizeof(again.digest)) == 0);
    free(line);
    buffer_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *at = (const char *)data, *end = at + size;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t len = newline ? (size_t)(newline - at) : (size_t)(end - at);
        char *line = strndup(at, len); /* exact, so that a read past its end is seen */
        struct token_line token;
        demand(line != NULL);
        int r = token_line_parse(line, &token);
        demand(r == 1 || r == 0 || r < 0);
        if (r == 1)
            check_round_trip(&token);
        free(line);
        at += len + 1;
    }
    return 0;
}
