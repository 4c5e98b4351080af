/* state_read.c: see state_read.h. */
#include "pin/state_read.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "pin/text.h"

enum { PLACES = 4, WHERE_MAX = 512, KEPT_S = 60 };

/* Where books of this user are, in the order of book/place.h. */
static int place(unsigned which, const char *dir, uint32_t uid, char path[static WHERE_MAX])
{
    const char *given = dir ? dir : getenv("MEMOIR_DIR"), *runtime = getenv("XDG_RUNTIME_DIR");
    int n = -1;
    if (given)
        n = which == 0   ? snprintf(path, WHERE_MAX, "%s/%u", given, uid)
            : which == 1 ? snprintf(path, WHERE_MAX, "%s", given)
                         : -1;
    else if (which == 0)
        n = snprintf(path, WHERE_MAX, "/run/memoir/%u", uid);
    else if (which == 1 && runtime && *runtime == '/')
        n = snprintf(path, WHERE_MAX, "%s/memoir", runtime);
    else if (which == 2)
        n = snprintf(path, WHERE_MAX, "/run/user/%u/memoir", uid);
    else if (which == 3)
        n = snprintf(path, WHERE_MAX, "/dev/shm/memoir-%u", uid);
    return n > 0 && n < WHERE_MAX - 32 ? n : -1;
}

static int file_read(const char *path, size_t most, char **ret, size_t *ret_n)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode) || info.st_size < 0 ||
        (uint64_t)info.st_size > most) {
        close(fd);
        return -EBADMSG;
    }
    char *bytes = malloc((size_t)info.st_size + 1);
    size_t n = 0;
    ssize_t got = 0;
    while (bytes && n < (size_t)info.st_size &&
           (got = read(fd, bytes + n, (size_t)info.st_size - n)) > 0)
        n += (size_t)got;
    close(fd);
    if (!bytes)
        return -ENOMEM;
    *ret = bytes;
    *ret_n = n;
    return 0;
}

int pin_state_check(const void *bytes, size_t n, pid_t pid, struct pin_state **ret)
{
    const struct pin_state *from = bytes;
    if (n != sizeof(*from) || from->magic != PIN_STATE_MAGIC ||
        from->version != PIN_STATE_VERSION || from->bytes != sizeof(*from) ||
        (pid && from->pid != pid) || from->n_sites > PIN_STATE_SITES ||
        from->n_modules > PIN_STATE_MODULES)
        return -EBADMSG;
    struct pin_state *s = malloc(sizeof(*s));
    if (!s)
        return -ENOMEM;
    memcpy(s, from, sizeof(*s));
    for (unsigned i = 0; i < PIN_STATE_MODULES; i++) {
        s->module[i].path[PIN_STATE_PATH - 1] = '\0';
        if (s->module[i].build_id_len > sizeof(s->module[i].build_id))
            s->module[i].build_id_len = 0;
    }
    for (unsigned i = 0; i < PIN_STATE_SITES; i++) {
        s->site[i].script[PIN_STATE_SCRIPT - 1] = '\0';
        if (s->site[i].n_frames > PIN_STATE_FRAMES)
            s->site[i].n_frames = 0;
        for (unsigned k = 0; k < PIN_STATE_FRAMES; k++)
            if (s->site[i].frame[k].module >= s->n_modules)
                s->site[i].frame[k].module = 0;
    }
    for (unsigned i = 0; i < PIN_STATE_BLOCKS; i++)
        if (s->block[i].site >= s->n_sites)
            s->block[i].site = 0;
    *ret = s;
    return 0;
}

int pin_state_read(const char *dir, pid_t pid, uint32_t uid, struct pin_state **ret)
{
    char path[WHERE_MAX];
    int worst = -ENOENT;
    for (unsigned which = 0; which < PLACES; which++) {
        int n = place(which, dir, uid, path);
        if (n < 0)
            continue;
        snprintf(path + n, sizeof(path) - (size_t)n, "/" PIN_STATE_PREFIX "%d", (int)pid);
        char *bytes = NULL;
        size_t size = 0;
        int r = file_read(path, sizeof(struct pin_state), &bytes, &size);
        if (r == 0)
            r = pin_state_check(bytes, size, pid, ret);
        free(bytes);
        if (r == 0)
            return 0;
        worst = r != -ENOENT && r != -ENOTDIR ? r : worst;
    }
    return worst;
}

void pin_state_remove(const char *dir, pid_t pid, uint32_t uid)
{
    char path[WHERE_MAX];
    for (unsigned which = 0; which < PLACES; which++) {
        int n = place(which, dir, uid, path);
        if (n < 0)
            continue;
        snprintf(path + n, sizeof(path) - (size_t)n, "/" PIN_STATE_PREFIX "%d", (int)pid);
        (void)unlink(path);
    }
}

/* Nobody has it mapped, and it is not one that is left for whoever started the process. */
static bool is_left(int directory, const char *name, pid_t pid)
{
    struct stat info;
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return false;
    bool unused = flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &info) == 0 &&
                  ((kill(pid, 0) < 0 && errno == ESRCH) || time(NULL) - info.st_mtime > KEPT_S);
    close(fd);
    return unused;
}

unsigned pin_state_sweep(const char *dir, uint32_t uid)
{
    char path[WHERE_MAX];
    unsigned removed = 0;
    for (unsigned which = 0; which < PLACES; which++) {
        DIR *list = place(which, dir, uid, path) < 0 ? NULL : opendir(path);
        const struct dirent *entry;
        while (list && (entry = readdir(list)) != NULL) {
            char *end;
            long pid = strncmp(entry->d_name, PIN_STATE_PREFIX, strlen(PIN_STATE_PREFIX)) == 0
                           ? strtol(entry->d_name + strlen(PIN_STATE_PREFIX), &end, 10)
                           : 0;
            if (pid > 0 && *end == '\0' && is_left(dirfd(list), entry->d_name, (pid_t)pid))
                removed += unlinkat(dirfd(list), entry->d_name, 0) == 0;
        }
        if (list)
            closedir(list);
    }
    return removed;
}

/* ---- histories ---- */

static unsigned hex(char c)
{
    return c >= '0' && c <= '9'   ? (unsigned)(c - '0')
           : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                                  : 16;
}

/* The module "BUILDID" and "PATH" of a frame; its number, or 0. */
static uint32_t module_enter(struct pin_state *s, const char *id, size_t id_n, const char *path,
                             size_t path_n)
{
    struct pin_state_module m = {0};
    if (id_n > 2 * sizeof(m.build_id) || id_n % 2 || path_n >= sizeof(m.path))
        return 0;
    for (size_t i = 0; i < id_n; i++) {
        if (hex(id[i]) > 15)
            return 0;
        m.build_id[i / 2] = (uint8_t)(m.build_id[i / 2] << 4 | hex(id[i]));
    }
    m.build_id_len = (uint32_t)id_n / 2;
    memcpy(m.path, path, path_n);
    for (uint32_t i = 1; i < s->n_modules; i++)
        if (memcmp(&s->module[i], &m, sizeof(m)) == 0)
            return i;
    if (s->n_modules == PIN_STATE_MODULES)
        return 0;
    s->module[s->n_modules] = m;
    return s->n_modules++;
}

static void frame_read(struct pin_state *s, struct pin_state_site *site, const char *word, size_t n)
{
    const char *offset = memchr(word, ':', n);
    const char *path = offset ? memchr(offset + 1, ':', (size_t)(word + n - offset - 1)) : NULL;
    struct pin_words w = {offset ? offset + 1 : word, path ? path : word};
    uint64_t at;
    if (!path || !pin_word_number(&w, 16, &at))
        return;
    site->frame[site->n_frames].offset = at;
    site->frame[site->n_frames].module =
        module_enter(s, word, (size_t)(offset - word), path + 1, (size_t)(word + n - path - 1));
    site->n_frames++;
}

static void script_read(struct pin_state_site *site, const char *word, size_t n)
{
    if (n >= sizeof(site->script))
        return;
    memcpy(site->script, word, n);
    site->script[n] = '\0';
    for (char *c = site->script; *c; c++)
        *c = *c == PIN_HISTORY_SPACE ? ' ' : *c;
}

static void line_read(struct pin_state *s, struct pin_words w)
{
    uint64_t key, f[PIN_HISTORY_FIGURES];
    if (s->n_sites == PIN_STATE_SITES || !pin_word_is(&w, "site") ||
        !pin_word_number(&w, 16, &key) || key == 0)
        return;
    for (unsigned i = 0; i < PIN_HISTORY_FIGURES; i++)
        if (!pin_word_number(&w, 10, &f[i]))
            return;
    struct pin_state_site *site = &s->site[s->n_sites++];
    *site = (struct pin_state_site){.key = key,
                                    .blocks = f[0],
                                    .bytes = f[1],
                                    .copies = {f[2], f[3]},
                                    .copied_bytes = {f[4], f[5]},
                                    .worth_ns_mib = f[6],
                                    .missed_ns = f[7],
                                    .saved_ns = f[8],
                                    .cost_ns = f[9]};
    const char *word;
    size_t n;
    while (site->n_frames < PIN_STATE_FRAMES && pin_word(&w, &word, &n))
        if (*word == PIN_HISTORY_SCRIPT)
            script_read(site, word + 1, n - 1);
        else
            frame_read(s, site, word, n);
}

int pin_history_parse(const char *text, size_t n, struct pin_state **ret)
{
    struct pin_words head = {text, text + n};
    uint64_t version;
    if (!pin_word_is(&head, PIN_HISTORY_FORMAT) || !pin_word_number(&head, 10, &version) ||
        version != PIN_HISTORY_VERSION)
        return -EBADMSG;
    struct pin_state *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->n_sites = s->n_modules = 1;
    const char *end = text + n;
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        if (!stop)
            break;
        line_read(s, (struct pin_words){text, stop});
        text = stop + 1;
    }
    *ret = s;
    return 0;
}

int pin_history_read(const char *path, struct pin_state **ret)
{
    char *text = NULL;
    size_t n = 0;
    int r = file_read(path, PIN_HISTORY_MAX, &text, &n);
    if (r == 0)
        r = pin_history_parse(text, n, ret);
    free(text);
    return r;
}
