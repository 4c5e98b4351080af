/* Where the cluster is. See clustering_settings.h. */
#include "daemon/clustering_settings.h"

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
#include "base/sha256.h"
#include "base/utf8.h"
#include "cluster/message.h"
#include "daemon/config_words.h"
#include "daemon/daemon.h"

enum {
    SETTINGS_MAX = 64 << 10,
    LOGIN_FILE_MAX = 1 << 20,
    SECRET_MAX = 4096,
    HOST_NAME_BYTES = 256
};

/* ---- the file ---- */

static const struct {
    const char *key;
    size_t offset;
} file_keys[] = {
    {"cluster", offsetof(struct clustering_settings, urls)},
    {"cluster-name", offsetof(struct clustering_settings, name)},
    {"cluster-user", offsetof(struct clustering_settings, user)},
    {"cluster-password", offsetof(struct clustering_settings, password)},
    {"cluster-tls-ca", offsetof(struct clustering_settings, tls_ca)},
    {"cluster-trust", offsetof(struct clustering_settings, trust)},
    {"cluster-server", offsetof(struct clustering_settings, server)},
};

static int text_set(char **text, const char *value)
{
    char *copy = strdup(value);
    if (!copy)
        return -ENOMEM;
    free(*text);
    *text = copy;
    return 0;
}

static int line_take(struct clustering_settings *s, char *line, const char *path, size_t number)
{
    char *name, *value;
    int r = config_split_line(line, &name, &value);
    if (r == 0)
        return 0;
    for (size_t i = 0; r > 0 && i < sizeof(file_keys) / sizeof(*file_keys); i++)
        if (strcmp(name, file_keys[i].key) == 0)
            return text_set((char **)((char *)s + file_keys[i].offset), value);
    if (r > 0 && strcmp(name, "cluster-id") == 0 && subject_id_valid(value)) {
        memcpy(s->id, value, sizeof(s->id));
        return 0;
    }
    log_error("%s:%zu: invalid line; make the file anew by memoir cluster join", path, number);
    return -EINVAL;
}

/* The file has a password. */
static bool is_safe(const char *path, struct stat *st)
{
    if (st->st_uid == geteuid() && S_ISREG(st->st_mode) && !(st->st_mode & 077))
        return true;
    log_error("'%s' is not used: it must belong to memoird's user, with mode 0600", path);
    return false;
}

static int file_read(struct clustering_settings *s, const char *path)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(SETTINGS_MAX);
    struct stat st;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!is_safe(path, &st))
        return -EACCES;
    int r = fs_read_file(path, &text);
    char *rest = text.data ? text.data : (char *)"";
    for (size_t number = 1; rest && *rest && r >= 0; number++)
        r = line_take(s, strsep(&rest, "\n"), path, number);
    if (text.data)
        explicit_bzero(text.data, text.len);
    return r;
}

/* ---- the configuration ---- */

static int password_read(struct clustering_settings *s, const char *path)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(SECRET_MAX);
    struct stat st;
    int r = stat(path, &st) < 0 ? -errno : 0;
    if (r >= 0 && st.st_mode & 077) {
        log_error("cluster-password-file '%s' can be read by other users: chmod 600", path);
        return -EACCES;
    }
    if (r >= 0)
        r = fs_read_file(path, &text);
    if (r < 0) {
        log_error("cannot read cluster-password-file '%s': %s", path, strerror(-r));
        return r;
    }
    if (text.data)
        text.data[strcspn(text.data, "\r\n")] = '\0';
    r = text_set(&s->password, text.data ? text.data : "");
    if (text.data)
        explicit_bzero(text.data, text.len);
    return r;
}

static int config_take(struct clustering_settings *s, const struct config *config)
{
    const struct {
        char **to;
        const char *from;
    } texts[] = {
        {&s->urls, config->cluster},
        {&s->name, config->cluster_name},
        {&s->user, config->cluster_user},
        {&s->nkey, config->cluster_nkey},
        {&s->creds, config->cluster_creds},
        {&s->tls_ca, config->cluster_tls_ca},
        {&s->tls_cert, config->cluster_tls_cert},
        {&s->tls_key, config->cluster_tls_key},
        {&s->trust, config->cluster_trust},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (texts[i].from[0] && text_set(texts[i].to, texts[i].from) < 0)
            return -ENOMEM;
    return config->cluster_password_file[0] ? password_read(s, config->cluster_password_file) : 0;
}

/* ---- the identity of this node ---- */

static int machine_id(const char *state, char *ret_text, size_t size)
{
    static const char *const places[] = {"/etc/machine-id", "/var/lib/dbus/machine-id"};
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        MEMOIR_CLEANUP(buffer_release)
        struct buffer text = BUFFER_INIT(256);
        if (fs_read_file(places[i], &text) < 0 || text.len < 32)
            continue;
        snprintf(ret_text, size, "%.32s", text.data);
        return 0;
    }
    /* A container without one: its state directory stands for it. */
    struct stat st;
    if (stat(state, &st) < 0)
        return -errno;
    snprintf(ret_text, size, "%llx-%llx", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    return 0;
}

static int identity_make(struct clustering_settings *s, const char *state)
{
    char machine[64], host[HOST_NAME_BYTES] = "";
    if (!s->name[0]) {
        if (gethostname(host, sizeof(host) - 1) < 0 || !host[0])
            snprintf(host, sizeof(host), "localhost");
        host[MESSAGE_NAME_MAX] = '\0';
        int r = text_set(&s->name, host);
        if (r < 0)
            return r;
    }
    if (strlen(s->name) > MESSAGE_NAME_MAX || strpbrk(s->name, " \t,:=~*>") ||
        !utf8_is_plain(s->name, strlen(s->name))) {
        log_error(
            "cluster-name '%s' is invalid: at most %d bytes, without spaces, invisible characters and , : = ~ * >",
            s->name, MESSAGE_NAME_MAX);
        return -EINVAL;
    }
    if (s->id[0])
        return 0;
    int r = machine_id(state, machine, sizeof(machine));
    if (r >= 0)
        subject_id(machine, s->name, s->id);
    return r;
}

/* Paths stay the same when certificates and keys are renewed. A file that cannot be read is one that is empty: the connection
 * says what is wrong with it. */
static int files_digest(struct clustering_settings *s)
{
    const char *const paths[] = {s->nkey, s->creds, s->tls_ca, s->tls_cert, s->tls_key};
    struct buffer all = BUFFER_INIT(sizeof(paths) / sizeof(*paths) * SHA256_BYTES);
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        uint8_t digest[SHA256_BYTES];
        struct buffer text = BUFFER_INIT(LOGIN_FILE_MAX);
        if (paths[i][0])
            (void)fs_read_file(paths[i], &text);
        sha256(buffer_string(&text), text.len, digest);
        if (text.data)
            explicit_bzero(text.data, text.len);
        buffer_release(&text);
        buffer_append(&all, digest, sizeof(digest));
    }
    int r = all.error;
    if (r == 0)
        sha256(all.data, all.len, s->files);
    buffer_release(&all);
    return r;
}

bool clustering_settings_same(const struct clustering_settings *a,
                              const struct clustering_settings *b)
{
    const char *const texts[][2] = {
        {a->urls, b->urls},       {a->name, b->name},
        {a->user, b->user},       {a->password, b->password},
        {a->nkey, b->nkey},       {a->creds, b->creds},
        {a->tls_ca, b->tls_ca},   {a->tls_cert, b->tls_cert},
        {a->tls_key, b->tls_key}, {a->server, b->server},
        {a->id, b->id},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (strcmp(texts[i][0], texts[i][1]) != 0)
            return false;
    return sha256_equal(a->files, b->files);
}

int clustering_settings_read(const struct daemon *daemon, struct clustering_settings *ret,
                             bool *ret_some)
{
    const struct config *config = &daemon->config;
    char **texts[] = {&ret->urls,    &ret->name,  &ret->user,   &ret->password,
                      &ret->nkey,    &ret->creds, &ret->tls_ca, &ret->tls_cert,
                      &ret->tls_key, &ret->trust, &ret->server};
    MEMOIR_CLEANUP(freep)
    char *path = NULL;
    int r = 0;
    *ret = (struct clustering_settings){0};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts) && r >= 0; i++)
        r = text_set(texts[i], "");
    if (r >= 0 && asprintf(&path, "%s/cluster.conf", daemon->state_path) < 0)
        r = -ENOMEM;
    if (r >= 0 && !config->cluster[0])
        r = file_read(ret, path);
    if (r >= 0)
        r = config_take(ret, config);
    if (r >= 0)
        r = identity_make(ret, daemon->state_path);
    if (r >= 0)
        r = files_digest(ret);
    if (r < 0) {
        clustering_settings_release(ret);
        return r;
    }
    *ret_some = ret->urls[0] && strcmp(ret->urls, "none") != 0;
    return 0;
}

void clustering_settings_release(struct clustering_settings *s)
{
    char *texts[] = {s->urls,   s->name,     s->user,    s->password, s->nkey,  s->creds,
                     s->tls_ca, s->tls_cert, s->tls_key, s->trust,    s->server};
    if (s->password)
        explicit_bzero(s->password, strlen(s->password));
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        free(texts[i]);
    *s = (struct clustering_settings){0};
}
