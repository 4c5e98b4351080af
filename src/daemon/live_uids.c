/* Users that have processes. See live_uids.h. */
#include "daemon/live_uids.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int add(struct live_uids *uids, size_t *room, uint32_t uid)
{
    if (uids->n == *room) {
        size_t more = *room ? *room * 2 : 256;
        uint32_t *grown = reallocarray(uids->uids, more, sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        uids->uids = grown;
        *room = more;
    }
    uids->uids[uids->n++] = uid;
    return 0;
}

int live_uids_get(struct live_uids *ret_uids)
{
    struct live_uids uids = {0};
    size_t room = 0, kept = 0;
    DIR *proc = opendir("/proc");
    if (!proc)
        return -errno;
    int r = 0;
    for (struct dirent *e; r == 0 && (e = readdir(proc));) {
        struct stat st;
        if (e->d_name[0] >= '0' && e->d_name[0] <= '9' &&
            fstatat(dirfd(proc), e->d_name, &st, 0) == 0)
            r = add(&uids, &room, st.st_uid);
    }
    closedir(proc);
    if (r < 0) {
        live_uids_release(&uids);
        return r;
    }
    if (uids.n > 0)
        qsort(uids.uids, uids.n, sizeof(*uids.uids), compare);
    for (size_t i = 0; i < uids.n; i++)
        if (i == 0 || uids.uids[i] != uids.uids[i - 1])
            uids.uids[kept++] = uids.uids[i];
    uids.n = kept;
    *ret_uids = uids;
    return 0;
}

void live_uids_release(struct live_uids *uids)
{
    free(uids->uids);
    *uids = (struct live_uids){0};
}

bool live_uids_have(const struct live_uids *uids, uint32_t uid)
{
    return uids->n > 0 && bsearch(&uid, uids->uids, uids->n, sizeof(uid), compare);
}
