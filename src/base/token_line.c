/* Lines of the file of tokens. See token_line.h. */
#include "base/token_line.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/buffer.h"

static bool digest_parse(const char *text, uint8_t ret_digest[static SHA256_BYTES])
{
    for (size_t i = 0; i < 2 * SHA256_BYTES; i++) {
        const char *hex = "0123456789abcdef", *digit = text[i] ? strchr(hex, text[i] | 0x20) : NULL;
        if (!digit)
            return false;
        ret_digest[i / 2] = (uint8_t)(ret_digest[i / 2] << 4 | (digit - hex));
    }
    return text[2 * SHA256_BYTES] == '\0';
}

static bool number_parse(const char *text, uint64_t *ret_number)
{
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *ret_number = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

/* "user=5", "role=control", "expires=1800000000"; each once. */
static bool word_parse(const char *word, struct token_line *token, unsigned *seen)
{
    static const char *const names[] = {"user=", "role=", "expires="};
    unsigned i = 0;
    while (i < 3 && strncmp(word, names[i], strlen(names[i])) != 0)
        i++;
    if (i == 3 || *seen >> i & 1)
        return false;
    *seen |= 1u << i;
    const char *value = word + strlen(names[i]);
    uint64_t number;
    if (i == 1) {
        token->control = strcmp(value, "control") == 0;
        return token->control || strcmp(value, "read") == 0;
    }
    if (!number_parse(value, &number))
        return false;
    if (i == 2) {
        token->expires_s = number;
        return number > 0;
    }
    token->has_uid = true;
    token->uid = (uint32_t)number;
    return number < UINT32_MAX;
}

int token_line_parse(char *line, struct token_line *ret_token)
{
    static const char space[] = " \t\r";
    struct token_line token = {0};
    char *rest = NULL, *name = strtok_r(line, space, &rest), *word;
    unsigned seen = 0;
    if (!name || name[0] == '#')
        return 0;
    const char *digest = strtok_r(NULL, space, &rest);
    if (!digest || !token_name_is_good(name) || !digest_parse(digest, token.digest))
        return -EINVAL;
    while ((word = strtok_r(NULL, space, &rest)))
        if (!word_parse(word, &token, &seen))
            return -EINVAL;
    strcpy(token.name, name);
    *ret_token = token;
    return 1;
}

void token_line_write(const struct token_line *token, struct buffer *out)
{
    buffer_printf(out, "%s ", token->name);
    for (size_t i = 0; i < SHA256_BYTES; i++)
        buffer_printf(out, "%02x", token->digest[i]);
    if (token->has_uid)
        buffer_printf(out, " user=%" PRIu32, token->uid);
    buffer_printf(out, " role=%s", token->control ? "control" : "read");
    if (token->expires_s)
        buffer_printf(out, " expires=%" PRIu64, token->expires_s);
    buffer_append_char(out, '\n');
}

bool token_name_is_good(const char *name)
{
    size_t len = strlen(name);
    for (const char *at = name; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("._-@", *at))
            return false;
    return len > 0 && len <= TOKEN_NAME_MAX;
}

int token_make(char ret_token[static TOKEN_CHARS + 1])
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint8_t random[SHA256_BYTES + 1] = {0};
    if (getrandom(random, SHA256_BYTES, GRND_NONBLOCK) != SHA256_BYTES)
        return -EAGAIN;
    /* 6 bits a character, the last one has 4. */
    for (unsigned i = 0; i < TOKEN_CHARS; i++) {
        unsigned bit = i * 6;
        unsigned two = (unsigned)random[bit / 8] << 8 | random[bit / 8 + 1];
        ret_token[i] = digits[two >> (10 - bit % 8) & 63];
    }
    ret_token[TOKEN_CHARS] = '\0';
    explicit_bzero(random, sizeof(random));
    return 0;
}
