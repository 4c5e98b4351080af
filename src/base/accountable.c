/* See accountable.h. */
#include "base/accountable.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"

enum { ROWS_MAX = 1 << 17, NAME_MAX_BYTES = 64 };

struct account {
    uint32_t uid;
    char name[NAME_MAX_BYTES];
};

struct accountable {
    struct accountable_range *ranges; /* by first */
    size_t n_ranges;
    struct account *accounts; /* by uid once read */
    size_t n_accounts;
};

void accountable_free(struct accountable *a)
{
    if (!a)
        return;
    free(a->ranges);
    free(a->accounts);
    free(a);
}

static void accountable_freep(struct accountable **a)
{
    accountable_free(*a);
}

/* ---- reading ---- */

static void filep_close(FILE **file)
{
    if (*file)
        fclose(*file);
}

static void freep_line(char **line)
{
    free(*line);
}

/* "123" up to `end`, below 2^32 - 1. */
static bool number_read(const char *text, char end, uint32_t *ret_number, const char **ret_end)
{
    char *stop;
    if (*text < '0' || *text > '9')
        return false;
    unsigned long long value = strtoull(text, &stop, 10);
    if (*stop != end || value >= UINT32_MAX)
        return false;
    *ret_number = (uint32_t)value;
    *ret_end = stop;
    return true;
}

/* Call `each` for every line without its newline. */
static int lines_read(const char *path, struct accountable *a,
                      int (*each)(struct accountable *a, char *line))
{
    MEMOIR_CLEANUP(filep_close)
    FILE *file = fopen(path, "re");
    MEMOIR_CLEANUP(freep_line)
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    while (file && (n = getline(&line, &room, file)) > 0) {
        if (line[n - 1] == '\n')
            line[n - 1] = '\0';
        int r = each(a, line);
        if (r < 0)
            return r;
    }
    return 0;
}

/* A place for one more row, in steps of powers of two. */
static void *row_new(void *rows, size_t n, size_t size)
{
    if (n >= ROWS_MAX)
        return NULL;
    return n & (n - 1) ? rows : reallocarray(rows, n ? 2 * n : 1, size);
}

/* NAME:PASSWORD:UID:... */
static int account_line(struct accountable *a, char *line)
{
    const char *end;
    char *password = strchr(line, ':'), *uid = password ? strchr(password + 1, ':') : NULL;
    struct account account = {0};
    if (!uid || (size_t)(password - line) >= sizeof(account.name) ||
        !number_read(uid + 1, ':', &account.uid, &end))
        return 0;
    memcpy(account.name, line, (size_t)(password - line));
    struct account *accounts = row_new(a->accounts, a->n_accounts, sizeof(*accounts));
    if (!accounts)
        return -ENOMEM;
    a->accounts = accounts;
    a->accounts[a->n_accounts++] = account;
    return 0;
}

/* Its uid, or `otherwise` for root's and unknown names. */
static uint32_t owner_of(const struct accountable *a, const char *name, uint32_t otherwise)
{
    uint32_t uid;
    const char *end;
    if (number_read(name, '\0', &uid, &end))
        return uid ? uid : otherwise;
    for (size_t i = 0; i < a->n_accounts; i++)
        if (strcmp(a->accounts[i].name, name) == 0)
            return a->accounts[i].uid ? a->accounts[i].uid : otherwise;
    return otherwise;
}

/* OWNER:FIRST:COUNT, the owner by name or number */
static int range_line(struct accountable *a, char *line)
{
    struct accountable_range range;
    uint32_t count;
    const char *end;
    char *colon = strchr(line, ':');
    if (!colon || !number_read(colon + 1, ':', &range.first, &end) ||
        !number_read(end + 1, '\0', &count, &end) || count == 0 || range.first == 0)
        return 0;
    *colon = '\0';
    range.last = count > UINT32_MAX - range.first ? UINT32_MAX - 1 : range.first + (count - 1);
    range.owner = owner_of(a, line, range.first);
    struct accountable_range *ranges = row_new(a->ranges, a->n_ranges, sizeof(*ranges));
    if (!ranges)
        return -ENOMEM;
    a->ranges = ranges;
    a->ranges[a->n_ranges++] = range;
    return 0;
}

static int by_uid(const void *a, const void *b)
{
    const struct account *x = a, *y = b;
    return (x->uid > y->uid) - (x->uid < y->uid);
}

static int by_first(const void *a, const void *b)
{
    const struct accountable_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

int accountable_read(const char *subuid_path, const char *passwd_path,
                     struct accountable **ret_accountable)
{
    MEMOIR_CLEANUP(accountable_freep)
    struct accountable *a = calloc(1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    int r = lines_read(passwd_path, a, account_line);
    if (r == 0)
        r = lines_read(subuid_path, a, range_line);
    if (r < 0)
        return r;
    if (a->n_accounts)
        qsort(a->accounts, a->n_accounts, sizeof(*a->accounts), by_uid);
    if (a->n_ranges)
        qsort(a->ranges, a->n_ranges, sizeof(*a->ranges), by_first);
    *ret_accountable = MEMOIR_TAKE(a);
    return 0;
}

uint32_t accountable_find(const struct accountable *a, uint32_t uid)
{
    struct account key = {.uid = uid};
    if (!a || a->n_ranges == 0 || uid < a->ranges[0].first ||
        (a->n_accounts && bsearch(&key, a->accounts, a->n_accounts, sizeof(key), by_uid)))
        return uid;
    /* The last range that begins at or below it. Where ranges overlap, that is the narrower one as a rule. */
    size_t low = 0, high = a->n_ranges;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (a->ranges[middle].first <= uid)
            low = middle;
        else
            high = middle;
    }
    return uid <= a->ranges[low].last ? a->ranges[low].owner : uid;
}

/* A range is cut where an account lies in it. */
size_t accountable_list(const struct accountable *a, struct accountable_range *ret_ranges,
                        size_t max)
{
    size_t n = 0, next = 0; /* account */
    for (size_t i = 0; a && i < a->n_ranges && n < max; i++) {
        struct accountable_range range = a->ranges[i];
        uint32_t end = i + 1 < a->n_ranges && a->ranges[i + 1].first <= range.last
                           ? a->ranges[i + 1].first - 1
                           : range.last;
        ret_ranges[n++] = range;
        while (next < a->n_accounts && a->accounts[next].uid < range.first)
            next++;
        for (; next < a->n_accounts && a->accounts[next].uid <= end && n < max; next++) {
            uint32_t uid = a->accounts[next].uid;
            ret_ranges[n++] = (struct accountable_range){uid, uid, uid};
            if (uid < end && n < max)
                ret_ranges[n++] = (struct accountable_range){uid + 1, range.last, range.owner};
        }
    }
    return n;
}

/* ---- the machine's ---- */

/* What tells that a file changed. */
struct version {
    uint64_t ino, size, changed_ns;
};

static struct {
    pthread_mutex_t lock; /* for all of it */
    struct accountable *table;
    struct version versions[2];
    uint64_t looked_ns; /* 0: never */
} machine = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const paths[2] = {"/etc/subuid", "/etc/passwd"};

static void refresh(void)
{
    struct version versions[2] = {0};
    struct accountable *table;
    uint64_t now = clock_monotonic_coarse_ns();
    if (machine.looked_ns && now - machine.looked_ns < NS_PER_S)
        return;
    for (size_t i = 0; i < 2; i++) {
        struct stat st;
        if (stat(paths[i], &st) == 0)
            versions[i] = (struct version){st.st_ino, (uint64_t)st.st_size,
                                           (uint64_t)st.st_ctim.tv_sec * NS_PER_S +
                                               (uint64_t)st.st_ctim.tv_nsec};
    }
    bool first = machine.looked_ns == 0;
    machine.looked_ns = now ? now : 1;
    if (!first && memcmp(versions, machine.versions, sizeof(versions)) == 0)
        return;
    if (accountable_read(paths[0], paths[1], &table) < 0)
        return; /* without memory the old one does */
    accountable_free(machine.table);
    machine.table = table;
    memcpy(machine.versions, versions, sizeof(versions));
}

uint32_t accountable_uid(uint32_t uid)
{
    if (uid == 0)
        return 0;
    pthread_mutex_lock(&machine.lock);
    refresh();
    uint32_t owner = accountable_find(machine.table, uid);
    pthread_mutex_unlock(&machine.lock);
    return owner;
}

size_t accountable_ranges(struct accountable_range *ret_ranges, size_t max)
{
    pthread_mutex_lock(&machine.lock);
    refresh();
    size_t n = accountable_list(machine.table, ret_ranges, max);
    pthread_mutex_unlock(&machine.lock);
    return n;
}
