/* The file of tokens. */
#include "daemon/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/sha256.h"

struct entry {
    struct token token;
    uint8_t digest[SHA256_BYTES];
};

struct tokens {
    char *path;
    struct stat seen; /* of the file as it was read, or tried, last */
    struct entry *entries;
    size_t n;
};

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

static bool uid_parse(const char *text, struct token *token)
{
    char *end;
    if (strncmp(text, "user=", 5) != 0 || text[5] < '0' || text[5] > '9')
        return false;
    errno = 0;
    unsigned long uid = strtoul(text + 5, &end, 10);
    if (errno || *end || uid >= UINT32_MAX)
        return false;
    token->uid = (uint32_t)uid;
    token->has_uid = true;
    return true;
}

/* 1 and the entry, 0 for an empty line or a comment, -EINVAL. */
static int line_parse(char *line, struct entry *ret_entry)
{
    static const char space[] = " \t\r";
    char *rest = NULL, *name = strtok_r(line, space, &rest);
    if (!name || name[0] == '#')
        return 0;
    char *digest = strtok_r(NULL, space, &rest);
    char *user = digest ? strtok_r(NULL, space, &rest) : NULL;
    *ret_entry = (struct entry){0};
    if (!digest || strlen(name) > TOKEN_NAME_MAX || !digest_parse(digest, ret_entry->digest) ||
        (user && !uid_parse(user, &ret_entry->token)) || (user && strtok_r(NULL, space, &rest)))
        return -EINVAL;
    strcpy(ret_entry->token.name, name);
    return 1;
}

static int entries_read(struct tokens *tokens, char *text)
{
    char *rest = text;
    for (size_t number = 1; rest && *rest; number++) {
        struct entry entry;
        int r = line_parse(strsep(&rest, "\n"), &entry);
        if (r < 0 || (r > 0 && tokens->n == TOKENS_MAX)) {
            log_warn("%s:%zu: %s, the line is left out", tokens->path, number,
                     r < 0 ? "expected NAME SHA256-IN-HEX [user=UID]" : "more than 4096 tokens");
            continue;
        }
        if (r == 0)
            continue;
        void *more = realloc(tokens->entries, (tokens->n + 1) * sizeof(entry));
        if (!more)
            return -ENOMEM;
        tokens->entries = more;
        tokens->entries[tokens->n++] = entry;
    }
    return 0;
}

/* Why the file may not be trusted, or NULL. */
static const char *distrust(const struct stat *st)
{
    if (!S_ISREG(st->st_mode))
        return "it is not a regular file";
    if (st->st_uid != geteuid())
        return "it belongs to another user: chown it to the user that memoird runs as";
    if (st->st_mode & 077)
        return "others may read or change it: chmod 600";
    return NULL;
}

static int tokens_load(struct tokens *tokens)
{
    tokens->n = 0;
    MEMOIR_CLEANUP(closep)
    int fd = open(tokens->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &tokens->seen) < 0) {
        int r = -errno;
        tokens->seen = (struct stat){0};
        log_error("cannot open token file '%s': %s", tokens->path, strerror(-r));
        return r;
    }
    const char *why = distrust(&tokens->seen);
    if (why) {
        log_error("token file '%s' is not used: %s", tokens->path, why);
        return -EACCES;
    }
    struct buffer text = BUFFER_INIT(TOKEN_FILE_MAX);
    int r = fs_read_fd(fd, &text);
    if (r >= 0 && text.len > 0)
        r = entries_read(tokens, text.data);
    buffer_release(&text);
    if (r < 0) {
        tokens->n = 0;
        tokens->seen = (struct stat){0}; /* try again next time */
        log_error("cannot read token file '%s': %s", tokens->path, strerror(-r));
    }
    return r;
}

int tokens_new(const char *path, struct tokens **ret_tokens)
{
    struct tokens *tokens = calloc(1, sizeof(*tokens));
    int r = tokens ? 0 : -ENOMEM;
    if (tokens && !(tokens->path = strdup(path)))
        r = -ENOMEM;
    if (r >= 0)
        r = tokens_load(tokens);
    if (r < 0) {
        tokens_free(tokens);
        return r;
    }
    *ret_tokens = tokens;
    return 0;
}

void tokens_free(struct tokens *tokens)
{
    if (!tokens)
        return;
    free(tokens->entries);
    free(tokens->path);
    free(tokens);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mode == b->st_mode && a->st_uid == b->st_uid &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

int tokens_check(struct tokens *tokens, const char *token, struct token *ret_token)
{
    struct stat now;
    uint8_t digest[SHA256_BYTES];
    const struct entry *found = NULL;
    if (lstat(tokens->path, &now) < 0) {
        tokens->n = 0;
        tokens->seen = (struct stat){0};
    } else if (!same_file(&now, &tokens->seen)) {
        (void)tokens_load(tokens); /* says what is wrong, and leaves nobody in */
    }
    size_t len = strlen(token);
    sha256(token, len, digest);
    for (size_t i = 0; i < tokens->n; i++)
        if (sha256_equal(digest, tokens->entries[i].digest))
            found = &tokens->entries[i];
    if (!found || len < TOKEN_LENGTH_MIN)
        return -EACCES;
    *ret_token = found->token;
    return 0;
}
