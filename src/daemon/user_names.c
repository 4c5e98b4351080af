/* See user_names.h.
 *
 * The owner's thread adds rows and reads names; a helper's thread fills them in. A row never moves, and its state says who
 * may touch it: the name belongs to the helper until the state is KNOWN. The last of the two that lets go frees all. */
#include "daemon/user_names.h"

#include <errno.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/apart.h"
#include "base/atomic.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"

enum { PASSWD_BYTES = 16384, ANSWER_MAX = USER_NAMES_MAX * (USER_NAMES_BYTES + 16) };

enum state {
    STATE_WANTED,  /* to be asked for; the owner's */
    STATE_ASKED,   /* the helper's */
    STATE_KNOWN,   /* `name` is set, for good */
    STATE_UNKNOWN, /* there was no answer */
};

struct name {
    uint32_t uid;
    uint32_t state;    /* enum state; helper stores with release, owner loads with acquire */
    uint64_t asked_ns; /* owner only */
    char name[USER_NAMES_BYTES];
};

struct user_names {
    user_names_fn *look;
    uint64_t ask_ms;
    struct name *rows; /* USER_NAMES_MAX */
    size_t n;          /* owner only */
    size_t batch;      /* rows that the helper looks at; set before it starts */
    uint32_t busy;     /* a helper runs */
    uint32_t refs;
};

static int look_up(uint32_t uid, char ret_name[static USER_NAMES_BYTES])
{
    char text[PASSWD_BYTES];
    struct passwd entry, *found = NULL;
    int error = getpwuid_r(uid, &entry, text, sizeof(text), &found);
    if (!found)
        return error ? -error : -ENOENT;
    snprintf(ret_name, USER_NAMES_BYTES, "%s", found->pw_name);
    return 0;
}

int user_names_new(user_names_fn *look, uint64_t ask_ms, struct user_names **ret_names)
{
    struct user_names *names = calloc(1, sizeof(*names));
    if (!names)
        return -ENOMEM;
    *names = (struct user_names){.look = look ? look : look_up, .ask_ms = ask_ms, .refs = 1};
    *ret_names = names;
    return 0;
}

static void unref(struct user_names *names)
{
    if (fetch_sub_acq_rel(&names->refs, 1) != 1)
        return;
    free(names->rows);
    free(names);
}

void user_names_free(struct user_names *names)
{
    if (names)
        unref(names);
}

/* ---- the helper ---- */

/* In the child: "UID NAME" in lines. */
static int ask(struct buffer *out, void *context)
{
    const struct user_names *names = context;
    for (size_t i = 0; i < names->batch; i++) {
        char name[USER_NAMES_BYTES];
        if (names->rows[i].state != STATE_ASKED)
            continue;
        if (names->look(names->rows[i].uid, name) == 0 && !strpbrk(name, "\n"))
            buffer_printf(out, "%zu %s\n", i, name);
    }
    return 0;
}

static void fill_in(struct user_names *names, char *text)
{
    for (char *line; (line = strsep(&text, "\n"));) {
        char *end;
        size_t i = strtoul(line, &end, 10);
        if (end == line || *end != ' ' || !end[1] || i >= names->batch ||
            load_relaxed(&names->rows[i].state) != STATE_ASKED)
            continue;
        snprintf(names->rows[i].name, USER_NAMES_BYTES, "%s", end + 1);
        store_release(&names->rows[i].state, STATE_KNOWN);
    }
}

static void *help(void *context)
{
    struct user_names *names = context;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer answer = BUFFER_INIT(ANSWER_MAX);
    int r = apart_run(ask, names, &(struct apart_options){.all_ms = names->ask_ms}, &answer);
    char *text = r == 0 ? buffer_take(&answer) : NULL;
    if (text)
        fill_in(names, text);
    free(text);
    for (size_t i = 0; i < names->batch; i++)
        if (load_relaxed(&names->rows[i].state) == STATE_ASKED)
            store_release(&names->rows[i].state, STATE_UNKNOWN);
    store_release(&names->busy, 0);
    unref(names);
    return NULL;
}

static void helper_start(struct user_names *names)
{
    pthread_t thread;
    bool wanted = false;
    if (load_acquire(&names->busy))
        return;
    names->batch = names->n;
    for (size_t i = 0; i < names->n; i++)
        if (load_acquire(&names->rows[i].state) == STATE_WANTED) {
            store_release(&names->rows[i].state, STATE_ASKED);
            wanted = true;
        }
    if (!wanted)
        return;
    store_release(&names->busy, 1);
    fetch_add_relaxed(&names->refs, 1);
    if (pthread_create(&thread, NULL, help, names) == 0) {
        pthread_detach(thread);
        return;
    }
    for (size_t i = 0; i < names->n; i++) /* later */
        if (names->rows[i].state == STATE_ASKED)
            names->rows[i].state = STATE_UNKNOWN;
    store_release(&names->busy, 0);
    unref(names);
}

/* ---- the owner ---- */

static struct name *row_of(struct user_names *names, uint32_t uid, uint64_t now_ns)
{
    for (size_t i = 0; i < names->n; i++)
        if (names->rows[i].uid == uid)
            return &names->rows[i];
    if (!names->rows)
        names->rows = calloc(USER_NAMES_MAX, sizeof(*names->rows));
    if (!names->rows || names->n == USER_NAMES_MAX)
        return NULL;
    names->rows[names->n] = (struct name){.uid = uid, .state = STATE_WANTED, .asked_ns = now_ns};
    return &names->rows[names->n++];
}

const char *user_names_of(struct user_names *names, uint32_t uid)
{
    uint64_t now_ns = clock_monotonic_ns();
    struct name *row = row_of(names, uid, now_ns);
    if (!row)
        return NULL;
    uint32_t state = load_acquire(&row->state);
    if (state == STATE_UNKNOWN && now_ns - row->asked_ns >= USER_NAMES_AGAIN_S * NS_PER_S) {
        row->asked_ns = now_ns;
        store_release(&row->state, state = STATE_WANTED);
    }
    if (state == STATE_WANTED)
        helper_start(names);
    return state == STATE_KNOWN ? row->name : NULL;
}
