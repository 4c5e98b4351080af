/* A sorted table of the lines of /etc/passwd; user_names.h for users that are not in it. */
#include "daemon/users.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "daemon/user_names.h"

struct user {
    uint32_t uid;
    char name[32];
};

struct users {
    struct user *rows; /* by uid */
    size_t n;
    uint64_t looked_ns;
    struct timespec changed; /* of the file as it was read */
    struct user_names *others;
};

static const char path[] = "/etc/passwd";

int users_new(struct users **ret_users)
{
    struct users *users = calloc(1, sizeof(*users));
    int r = users ? user_names_new(NULL, USER_NAMES_ASK_MS, &users->others) : -ENOMEM;
    if (r < 0) {
        free(users);
        return r;
    }
    *ret_users = users;
    return 0;
}

void users_free(struct users *users)
{
    if (!users)
        return;
    user_names_free(users->others);
    free(users->rows);
    free(users);
}

static int by_uid(const void *a, const void *b)
{
    const struct user *x = a, *y = b;
    return (x->uid > y->uid) - (x->uid < y->uid);
}

static void users_read(struct users *users)
{
    FILE *file = fopen(path, "re");
    struct passwd entry, *found;
    char text[4096];
    users->n = 0;
    if (!file)
        return;
    while (users->n < USERS_MAX && fgetpwent_r(file, &entry, text, sizeof(text), &found) == 0) {
        if ((users->n & (users->n - 1)) == 0) { /* full at each power of two */
            void *more = realloc(users->rows, (users->n ? 2 * users->n : 1) * sizeof(*users->rows));
            if (!more)
                break;
            users->rows = more;
        }
        struct user *row = &users->rows[users->n++];
        row->uid = found->pw_uid;
        snprintf(row->name, sizeof(row->name), "%s", found->pw_name);
    }
    fclose(file);
    if (users->n > 0)
        qsort(users->rows, users->n, sizeof(*users->rows), by_uid);
}

void users_refresh(struct users *users)
{
    struct stat st;
    uint64_t now = clock_monotonic_ns();
    if (users->looked_ns && now - users->looked_ns < USERS_LOOK_NS)
        return;
    users->looked_ns = now;
    if (stat(path, &st) < 0)
        return;
    if (st.st_mtim.tv_sec == users->changed.tv_sec && st.st_mtim.tv_nsec == users->changed.tv_nsec)
        return;
    users->changed = st.st_mtim;
    users_read(users);
}

const char *users_name(const struct users *users, uint32_t uid)
{
    struct user key = {.uid = uid};
    const struct user *found =
        users->n ? bsearch(&key, users->rows, users->n, sizeof(key), by_uid) : NULL;
    return found ? found->name : user_names_of(users->others, uid);
}

bool users_uid(const struct users *users, const char *name, uint32_t *ret_uid)
{
    for (size_t i = 0; i < users->n && strlen(name) < sizeof(users->rows[i].name); i++)
        if (strcmp(users->rows[i].name, name) == 0) {
            *ret_uid = users->rows[i].uid;
            return true;
        }
    return false;
}
