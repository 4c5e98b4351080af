/* history.c: see history.h. */
#include "pin/history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pin/callsite.h"
#include "pin/manager.h"
#include "pin/text.h"

enum { LINE_MAX = 8192, WORTH = 6, CREDIT = 10 };

static char *
    loaded; /* of the file that was read; its lines are written again for sites that this run does not see */
static size_t loaded_bytes;

/* The key and the figures of a line; false: not such a line. */
static bool line_read(struct pin_words *w, uint64_t *ret_key,
                      uint64_t figures[static PIN_HISTORY_FIGURES])
{
    if (!pin_word_is(w, "site") || !pin_word_number(w, 16, ret_key) || *ret_key == 0)
        return false;
    for (unsigned i = 0; i < PIN_HISTORY_FIGURES; i++)
        if (!pin_word_number(w, 10, &figures[i]))
            return false;
    return true;
}

/* Call `each` for every line that makes sense. */
static void lines(const char *text, size_t n,
                  void (*each)(uint64_t key, const uint64_t *figures, const char *line,
                               size_t bytes))
{
    const char *end = text + n;
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        if (!stop)
            return;
        struct pin_words w = {text, stop};
        uint64_t key, figures[PIN_HISTORY_FIGURES];
        if (line_read(&w, &key, figures))
            each(key, figures, text, (size_t)(stop + 1 - text));
        text = stop + 1;
    }
}

static void learn(uint64_t key, const uint64_t *figures, const char *line, size_t bytes)
{
    pin_policy_learn(&pin_manager.policy, key, figures[WORTH], figures[CREDIT]);
}

static bool header_read(const char *text, size_t n)
{
    struct pin_words w = {text, text + n};
    uint64_t version;
    return pin_word_is(&w, PIN_HISTORY_FORMAT) && pin_word_number(&w, 10, &version) &&
           version == PIN_HISTORY_VERSION;
}

void pin_history_load(const char *path)
{
    struct stat info;
    int fd = path && *path ? open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) : -1;
    if (fd < 0)
        return;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 &&
        info.st_size <= PIN_HISTORY_MAX) {
        loaded = region_table((uint64_t)info.st_size);
        ssize_t got;
        while (loaded && loaded_bytes < (size_t)info.st_size &&
               (got = read(fd, loaded + loaded_bytes, (size_t)info.st_size - loaded_bytes)) > 0)
            loaded_bytes += (size_t)got;
    }
    close(fd);
    if (loaded && header_read(loaded, loaded_bytes))
        lines(loaded, loaded_bytes, learn);
}

/* ---- saving ---- */

static int out_fd;
static bool out_failed;

static void out(const char *bytes, size_t n)
{
    while (n > 0 && !out_failed) {
        ssize_t done = write(out_fd, bytes, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            out_failed = true;
            return;
        }
        bytes += done;
        n -= (size_t)done;
    }
}

static void frames_write(struct pin_text *t, const struct callsite *site)
{
    for (uint32_t i = 0; i < site->n; i++) {
        const struct callsite_module *m = &callsites->module[site->frame[i].module];
        pin_text_string(t, " ");
        for (uint32_t k = 0; k < m->build_id_len; k++) {
            char two[2] = {"0123456789abcdef"[m->build_id[k] >> 4],
                           "0123456789abcdef"[m->build_id[k] & 15]};
            pin_text_bytes(t, two, 2);
        }
        pin_text_string(t, ":");
        pin_text_hex(t, site->frame[i].offset);
        pin_text_string(t, ":");
        for (const char *c = m->path; *c; c++) {
            char safe = (unsigned char)*c <= ' ' ? '?' : *c; /* words end at spaces */
            pin_text_bytes(t, &safe, 1);
        }
    }
}

static void script_write(struct pin_text *t, const char *script)
{
    const char mark[2] = {' ', PIN_HISTORY_SCRIPT};
    if (!*script)
        return;
    pin_text_bytes(t, mark, 2);
    for (; *script; script++) {
        char safe = *script == ' '                 ? PIN_HISTORY_SPACE
                    : (unsigned char)*script < ' ' ? '?'
                                                   : *script;
        pin_text_bytes(t, &safe, 1);
    }
}

static void site_write(const struct pin_site *s, const struct callsite *site)
{
    char line[LINE_MAX];
    struct pin_text t = {.at = line, .left = sizeof(line) - 1};
    const uint64_t figures[PIN_HISTORY_FIGURES] = {s->blocks,
                                                   s->bytes,
                                                   s->copies[0],
                                                   s->copies[1],
                                                   s->copied_bytes[0],
                                                   s->copied_bytes[1],
                                                   pin_policy_predicted_ns(s, 1 << 20),
                                                   s->missed_ns,
                                                   s->saved_ns,
                                                   s->cost_ns,
                                                   s->credit_ns > 0 ? (uint64_t)s->credit_ns : 0};
    pin_text_string(&t, "site ");
    pin_text_hex(&t, s->key);
    for (unsigned i = 0; i < PIN_HISTORY_FIGURES; i++) {
        pin_text_string(&t, " ");
        pin_text_number(&t, figures[i]);
    }
    script_write(&t, site->script);
    frames_write(&t, site);
    *t.at++ = '\n';
    out(line, (size_t)(t.at - line));
}

/* Sites that this run did not see. */
static void keep(uint64_t key, const uint64_t *figures, const char *line, size_t bytes)
{
    const struct pin_site *s = pin_policy_site(&pin_manager.policy, key);
    if (s->blocks == 0)
        out(line, bytes);
}

int pin_history_save(const char *path)
{
    char fresh[PIN_PATH_MAX + 8];
    struct pin_text t = {.at = fresh, .left = sizeof(fresh) - 1};
    if (!path || !*path || !callsites)
        return 0;
    pin_text_string(&t, path);
    pin_text_string(&t, ".new");
    *t.at = '\0';
    if (t.cut)
        return -ENAMETOOLONG;
    out_fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (out_fd < 0)
        return -errno;
    out_failed = false;
    out(PIN_HISTORY_FORMAT " 1\n", sizeof(PIN_HISTORY_FORMAT " 1\n") - 1);
    for (uint32_t i = 1; i < load_acquire(&callsites->n_sites); i++) {
        const struct callsite *site = &callsites->site[i];
        const struct pin_site *s = pin_policy_site(&pin_manager.policy, site->key);
        bool first = true; /* two stacks may have one key */
        for (uint32_t k = 1; k < i && first; k++)
            first = callsites->site[k].key != site->key;
        if (first && s->key == site->key && (s->copies[0] || s->copies[1] || s->from_history))
            site_write(s, site);
    }
    if (loaded)
        lines(loaded, loaded_bytes, keep);
    close(out_fd);
    if (out_failed || rename(fresh, path) < 0) {
        (void)unlink(fresh);
        return -EIO;
    }
    return 0;
}
