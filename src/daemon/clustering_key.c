/* The key by which this node signs what it asks for its users, and the nodes that it trusts to do the same. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "cluster/sign.h"
#include "daemon/clustering_internal.h"

enum { KEY_FILE_MAX = 4096 };

/* ---- the own key ---- */

static int key_read(const char *path, struct sign_key *ret_key)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(KEY_FILE_MAX);
    struct stat st;
    if (lstat(path, &st) < 0)
        return -errno;
    if (st.st_uid != geteuid() || !S_ISREG(st.st_mode) || st.st_mode & 077)
        return -EACCES;
    int r = fs_read_file(path, &text);
    if (r < 0)
        return r;
    char *line = text.data ? text.data : (char *)"";
    line[strcspn(line, "\r\n")] = '\0';
    bool valid = sign_key_parse(line, ret_key->secret);
    explicit_bzero(line, strlen(line));
    if (valid)
        sign_key_derive(ret_key);
    return valid ? 0 : -EBADMSG;
}

static int key_make(const char *path, struct sign_key *ret_key)
{
    char text[SIGN_KEY_CHARS + 2];
    int r = sign_key_make(ret_key);
    if (r < 0)
        return r;
    sign_key_text(ret_key->secret, text);
    strcat(text, "\n");
    r = fs_write_file_atomic(path, text, strlen(text), 0600);
    explicit_bzero(text, sizeof(text));
    return r;
}

int clustering_key_load(const char *state, struct sign_key *ret_key)
{
    MEMOIR_CLEANUP(freep)
    char *path = NULL;
    if (asprintf(&path, "%s/cluster.key", state) < 0) {
        path = NULL;
        return -ENOMEM;
    }
    int r = key_read(path, ret_key);
    if (r == -ENOENT)
        r = key_make(path, ret_key);
    if (r == -EACCES)
        log_error(
            "'%s' is not used: it must belong to memoird's user, with mode 0600; other nodes cannot "
            "check who asks",
            path);
    else if (r < 0)
        log_error("cannot use '%s': %s; other nodes cannot check who asks", path,
                  r == -EBADMSG ? "it holds no key" : strerror(-r));
    return r;
}

/* ---- nodes that are trusted ---- */

/* The local user that `mapping` ("ann=bob:carl=carl") makes of `user`. NULL: none. */
static const char *mapped(char *mapping, const char *user)
{
    char *pair;
    while ((pair = strsep(&mapping, ":")) != NULL) {
        char *equal = strchr(pair, '=');
        if (!equal)
            continue;
        *equal = '\0';
        if (strcmp(pair, user) == 0)
            return equal + 1;
    }
    return NULL;
}

void clustering_trust(const char *list, const char *asker, const char *user,
                      struct clustering_trust *ret)
{
    MEMOIR_CLEANUP(freep)
    char *copy = strdup(list);
    char *rest = copy, *word;
    *ret = (struct clustering_trust){0};
    while (copy && !ret->found && (word = strsep(&rest, " ,\t")) != NULL) {
        char *mapping = strchr(word, ':');
        if (mapping)
            *mapping++ = '\0';
        char *key = strchr(word, '+');
        if (key)
            *key++ = '\0';
        if (strcmp(word, asker) != 0)
            continue;
        ret->found = true;
        ret->has_key = key && sign_key_parse(key, ret->key);
        if (key && !ret->has_key)
            continue; /* an invalid key trusts no one */
        const char *local = mapping ? mapped(mapping, user) : strcmp(user, "root") ? user : NULL;
        snprintf(ret->local, sizeof(ret->local), "%s", local ? local : "");
    }
}
