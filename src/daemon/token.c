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
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/sha256.h"

struct tokens {
    char *path;
    struct stat seen; /* of the file as it was read, or tried, last */
    struct token_line *entries;
    size_t n;
};

static int entries_read(struct tokens *tokens, char *text)
{
    char *rest = text;
    for (size_t number = 1; rest && *rest; number++) {
        struct token_line entry;
        int r = token_line_parse(strsep(&rest, "\n"), &entry);
        if (r < 0 || (r > 0 && tokens->n == TOKENS_MAX)) {
            log_warn("%s:%zu: %s, the line is left out", tokens->path, number,
                     r < 0 ? "expected NAME SHA256-IN-HEX [user=UID] [role=ROLE] [expires=TIME]"
                           : "more than 4096 tokens");
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

static int tokens_open(const char *path, bool may_miss, struct tokens **ret_tokens)
{
    struct tokens *tokens = calloc(1, sizeof(*tokens));
    int r = tokens ? 0 : -ENOMEM;
    if (tokens && !(tokens->path = strdup(path)))
        r = -ENOMEM;
    if (r >= 0 && !(may_miss && access(path, F_OK) < 0 && errno == ENOENT))
        r = tokens_load(tokens);
    if (r < 0 && !(may_miss && r != -ENOMEM)) { /* it said what is wrong with the file */
        tokens_free(tokens);
        return r;
    }
    *ret_tokens = tokens;
    return 0;
}

int tokens_new(const char *path, struct tokens **ret_tokens)
{
    return tokens_open(path, false, ret_tokens);
}

int tokens_watch(const char *path, struct tokens **ret_tokens)
{
    return tokens_open(path, true, ret_tokens);
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

static void tokens_refresh(struct tokens *tokens)
{
    struct stat now;
    if (lstat(tokens->path, &now) < 0) {
        tokens->n = 0;
        tokens->seen = (struct stat){0};
    } else if (!same_file(&now, &tokens->seen)) {
        (void)tokens_load(tokens); /* logs what is wrong; no token is valid then */
    }
}

int tokens_prove(struct tokens *tokens,
                 bool (*proves)(const uint8_t digest[static SHA256_BYTES], void *context),
                 void *context, struct token *ret_token)
{
    const struct token_line *found = NULL;
    tokens_refresh(tokens);
    for (size_t i = 0; i < tokens->n; i++)
        if (proves(tokens->entries[i].digest, context))
            found = &tokens->entries[i];
    if (!found || (found->expires_s && found->expires_s <= clock_real_ns() / NS_PER_S))
        return -EACCES;
    *ret_token =
        (struct token){.has_uid = found->has_uid, .uid = found->uid, .control = found->control};
    memcpy(ret_token->name, found->name, sizeof(ret_token->name));
    return 0;
}

static bool is_digest(const uint8_t digest[static SHA256_BYTES], void *context)
{
    return sha256_equal(digest, context);
}

int tokens_check(struct tokens *tokens, const char *token, struct token *ret_token)
{
    uint8_t digest[SHA256_BYTES];
    size_t len = strlen(token);
    sha256(token, len, digest);
    struct token found;
    int r = tokens_prove(tokens, is_digest, digest, &found);
    if (r < 0 || len < TOKEN_LENGTH_MIN)
        return -EACCES;
    *ret_token = found;
    return 0;
}
