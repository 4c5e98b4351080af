/* cost_file.c: see cost_file.h. */
#include "pin/cost_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "pin/settings.h"
#include "pin/text.h"

enum { TABLES = 14, PATH = 640 };

static const char *const names[TABLES] = {
    "pageable-to-device", "pageable-from-device", "pinned-to-device",   "pinned-from-device",
    "register",           "unregister",           "staged-1-to-device", "staged-1-from-device",
    "staged-2-to-device", "staged-2-from-device", "staged-4-to-device", "staged-4-from-device",
    "staged-8-to-device", "staged-8-from-device"};

static uint64_t *table_of(struct pin_cost *c, unsigned i)
{
    uint64_t *tables[TABLES] = {c->pageable_ns[0],  c->pageable_ns[1],  c->pinned_ns[0],
                                c->pinned_ns[1],    c->register_ns,     c->unregister_ns,
                                c->staged_ns[0][0], c->staged_ns[0][1], c->staged_ns[1][0],
                                c->staged_ns[1][1], c->staged_ns[2][0], c->staged_ns[2][1],
                                c->staged_ns[3][0], c->staged_ns[3][1]};
    return tables[i];
}

static ssize_t file_read(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    size_t n = 0;
    ssize_t got;
    while (n < size && (got = read(fd, text + n, size - n)) > 0)
        n += (size_t)got;
    close(fd);
    return (ssize_t)n;
}

uint64_t cost_file_driver(uint64_t version)
{
    char text[512];
    ssize_t n = file_read("/proc/driver/nvidia/version", text, sizeof(text));
    return hash_combine(n > 0 ? hash_bytes(text, (size_t)n, 0) : 0, version);
}

static void machine_text(struct pin_text *t, const struct cost_machine *machine,
                         const char *between)
{
    uint64_t halves[2] = {0};
    for (unsigned i = 0; i < 16; i++)
        halves[i / 8] = halves[i / 8] << 8 | machine->uuid[i];
    pin_text_hex(t, halves[0]);
    pin_text_hex(t, halves[1]);
    pin_text_string(t, between);
    pin_text_hex(t, machine->driver);
}

size_t cost_file_format(const struct cost_machine *machine, const struct pin_cost *cost, char *text,
                        size_t size)
{
    struct pin_text t = {.at = text, .left = size};
    struct pin_cost copy = *cost;
    pin_text_string(&t, COST_FILE_HEAD "machine ");
    machine_text(&t, machine, " ");
    pin_text_string(&t, "\n");
    for (unsigned i = 0; i < TABLES; i++) {
        pin_text_string(&t, names[i]);
        for (unsigned k = 0; k < PIN_COST_SIZES; k++) {
            pin_text_string(&t, " ");
            pin_text_number(&t, table_of(&copy, i)[k]);
        }
        pin_text_string(&t, "\n");
    }
    pin_text_string(&t, "touch-mib ");
    pin_text_number(&t, cost->touch_ns_mib);
    pin_text_string(&t, "\nend\n");
    return t.cut ? 0 : (size_t)(t.at - text);
}

bool cost_file_parse(const struct cost_machine *machine, const char *text, size_t n,
                     struct pin_cost *ret)
{
    const size_t head = sizeof(COST_FILE_HEAD) - 1;
    struct pin_words w = {text + head, text + n};
    struct pin_cost cost = {0};
    char wanted[64];
    struct pin_text t = {.at = wanted, .left = sizeof(wanted) - 1};
    const char *uuid, *driver;
    size_t uuid_n, driver_n;
    machine_text(&t, machine, " ");
    if (n < head || memcmp(text, COST_FILE_HEAD, head) != 0 || !pin_word_is(&w, "machine") ||
        !pin_word(&w, &uuid, &uuid_n) || !pin_word(&w, &driver, &driver_n) || uuid_n != 32 ||
        driver_n != 16 || memcmp(uuid, wanted, 32) != 0 || memcmp(driver, wanted + 33, 16) != 0 ||
        !pin_line_next(&w))
        return false;
    for (unsigned i = 0; i < TABLES; i++) {
        if (!pin_word_is(&w, names[i]))
            return false;
        for (unsigned k = 0; k < PIN_COST_SIZES; k++)
            if (!pin_word_number(&w, 10, &table_of(&cost, i)[k]))
                return false;
        if (!pin_line_next(&w))
            return false;
    }
    if (!pin_word_is(&w, "touch-mib") || !pin_word_number(&w, 10, &cost.touch_ns_mib) ||
        !pin_line_next(&w) || !pin_word_is(&w, "end") || !pin_line_next(&w) ||
        !pin_cost_valid(&cost))
        return false;
    *ret = cost;
    return true;
}

/* Directory number `which` in the order of cost_file.h; "": there is none. */
static void directory(unsigned which, char path[static PATH])
{
    struct pin_text t = {.at = path, .left = PATH - 1};
    const char *base = NULL, *below = "";
    if (pin_settings.cache[0]) {
        base = which == 0 ? pin_settings.cache : NULL;
    } else if (which == 0) {
        base = secure_getenv("XDG_CACHE_HOME");
        below = "/memoir";
        if (!base || *base != '/') {
            base = secure_getenv("HOME");
            below = "/.cache/memoir";
        }
    } else if (which == 1) {
        base = "/var/lib/memoir";
    }
    if (base) {
        pin_text_string(&t, base);
        pin_text_string(&t, below);
    }
    *t.at = '\0';
    if (t.cut)
        path[0] = '\0';
}

static bool file_name(unsigned which, const struct cost_machine *machine, const char *suffix,
                      char path[static PATH])
{
    directory(which, path);
    struct pin_text t = {.at = path + strlen(path), .left = PATH - 1 - strlen(path)};
    if (!path[0])
        return false;
    pin_text_string(&t, "/pin-cost-");
    machine_text(&t, machine, "-");
    pin_text_string(&t, suffix);
    *t.at = '\0';
    return !t.cut;
}

bool cost_file_load(const struct cost_machine *machine, struct pin_cost *ret)
{
    char path[PATH], text[COST_FILE_MAX];
    for (unsigned which = 0; which < 2; which++) {
        if (!file_name(which, machine, "", path))
            continue;
        ssize_t n = file_read(path, text, sizeof(text));
        if (n > 0 && cost_file_parse(machine, text, (size_t)n, ret))
            return true;
    }
    return false;
}

/* The directory, and the one around it. */
static void directory_make(char path[static PATH])
{
    char *slash = strrchr(path, '/');
    if (slash && slash != path) {
        *slash = '\0';
        (void)mkdir(path, 0755);
        *slash = '/';
    }
    (void)mkdir(path, 0755);
}

int cost_file_save(const struct cost_machine *machine, const struct pin_cost *cost, char *ret_path,
                   size_t path_size)
{
    char path[PATH], fresh[PATH], text[COST_FILE_MAX];
    size_t n = cost_file_format(machine, cost, text, sizeof(text));
    directory(0, path);
    if (!path[0] || n == 0)
        return -ENOENT;
    directory_make(path);
    if (!file_name(0, machine, ".new", fresh) || !file_name(0, machine, "", path))
        return -ENAMETOOLONG;
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return -errno;
    bool whole = write(fd, text, n) == (ssize_t)n;
    close(fd);
    if (!whole || rename(fresh, path) < 0) {
        (void)unlink(fresh);
        return -EIO;
    }
    if (ret_path && strlen(path) < path_size)
        strcpy(ret_path, path);
    return 0;
}
