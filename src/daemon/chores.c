/* See chores.h. */
#include "daemon/chores.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/worker.h"

/* Always enough: only users with waiting or running chores must have a place. The rest remembers who was slow. */
enum { USERS = CHORES_WAITING_MAX + CHORES_LANES_MAX + 256 };

struct user {
    uint32_t id;
    uint32_t waiting, running; /* both 0: the place may be given to another user */
    uint64_t last;             /* number of the last chore that was begun; 0: none */
    uint64_t busy_ns, at_ns;   /* time in lanes as of `at_ns`, less what was taken off since */
};

struct chore {
    chore_fn *run, *drop;
    void *context;
    struct user *user;
    bool slow; /* begun as one of a slow user */
};

struct chores {
    const char *name;
    unsigned lanes_max;
    pthread_mutex_t lock; /* for all below */
    pthread_cond_t more;
    bool stop;
    struct worker lanes[CHORES_LANES_MAX];
    unsigned lanes_started, lanes_idle, slow_running;
    struct chore waiting[CHORES_WAITING_MAX]; /* as they came */
    size_t n;
    struct user users[USERS];
    uint64_t begun;
};

static void work(void *context);

/* ---- users; the lock is held ---- */

static uint64_t busy_now(const struct user *user, uint64_t now_ns)
{
    uint64_t off_ns = (now_ns - user->at_ns) / CHORES_SLOW_SHARE;
    return user->busy_ns > off_ns ? user->busy_ns - off_ns : 0;
}

static bool is_slow(const struct user *user, uint64_t now_ns)
{
    return user->id != CHORES_ROOT && busy_now(user, now_ns) >= CHORES_SLOW_MS * NS_PER_MS;
}

/* The place of a user, or else the one that was not used for the longest time. */
static struct user *user_find(struct chores *chores, uint32_t id)
{
    struct user *place = NULL;
    for (size_t i = 0; i < USERS; i++) {
        struct user *u = &chores->users[i];
        bool used = u->waiting || u->running || u->last;
        if (used && u->id == id)
            return u;
        if (!u->waiting && !u->running && (!place || u->last < place->last))
            place = u;
    }
    *place = (struct user){.id = id};
    return place;
}

static bool may_wait(const struct chores *chores, const struct user *user)
{
    bool crowded = chores->n >= CHORES_WAITING_MAX / 2;
    return chores->n < CHORES_WAITING_MAX &&
           user->waiting < (crowded ? CHORES_USER_FEW : CHORES_USER_MAX);
}

static bool may_run(const struct chores *chores, const struct user *user, uint64_t now_ns)
{
    unsigned slow_max = chores->lanes_max > 1 ? chores->lanes_max / 2 : 1;
    if (user->running >= (user->id == CHORES_ROOT ? CHORES_ROOT_MAX : 1))
        return false;
    return chores->slow_running < slow_max || !is_slow(user, now_ns);
}

/* ---- lanes; the lock is held ---- */

/* The chore to begin next: the first one of the user whose last one is longest ago, so that thirty chores of one user do not delay
 * the single one of another. The number of waiting chores: none may run. */
static size_t choose(const struct chores *chores, uint64_t now_ns)
{
    size_t best = chores->n;
    for (size_t i = 0; i < chores->n; i++) {
        const struct user *u = chores->waiting[i].user;
        if ((best == chores->n || u->last < chores->waiting[best].user->last) &&
            may_run(chores, u, now_ns))
            best = i;
    }
    return best;
}

/* One more lane if a chore could run and no lane is free. Without one the chore waits for those that there are. */
static void lane_add(struct chores *chores, uint64_t now_ns)
{
    if (chores->stop || chores->lanes_idle || chores->lanes_started == chores->lanes_max ||
        choose(chores, now_ns) == chores->n)
        return;
    struct worker *lane = &chores->lanes[chores->lanes_started];
    *lane = (struct worker){0};
    if (worker_start(lane, chores->name, 0, work, chores) == 0)
        chores->lanes_started++;
}

static struct chore take(struct chores *chores, size_t i)
{
    struct chore chore = chores->waiting[i];
    chores->n--;
    chore.user->waiting--;
    memmove(&chores->waiting[i], &chores->waiting[i + 1], (chores->n - i) * sizeof(chore));
    return chore;
}

static void begin(struct chores *chores, struct chore *chore, uint64_t now_ns)
{
    chore->slow = is_slow(chore->user, now_ns);
    chores->slow_running += chore->slow;
    chore->user->running++;
    chore->user->last = ++chores->begun;
    lane_add(chores, now_ns);
}

static void end(struct chores *chores, const struct chore *chore, uint64_t begin_ns)
{
    struct user *user = chore->user;
    uint64_t now_ns = clock_monotonic_ns();
    user->busy_ns = busy_now(user, now_ns) + (now_ns - begin_ns);
    user->at_ns = now_ns;
    user->running--;
    chores->slow_running -= chore->slow;
    if (chores->n > 0)
        pthread_cond_signal(&chores->more); /* one more may run, beside the one of this lane */
}

static void work(void *context)
{
    struct chores *chores = context;
    pthread_mutex_lock(&chores->lock);
    while (!chores->stop) {
        uint64_t now_ns = clock_monotonic_ns();
        size_t i = choose(chores, now_ns);
        if (i == chores->n) {
            chores->lanes_idle++;
            pthread_cond_wait(&chores->more, &chores->lock);
            chores->lanes_idle--;
            continue;
        }
        struct chore chore = take(chores, i);
        begin(chores, &chore, now_ns);
        pthread_mutex_unlock(&chores->lock);
        chore.run(chore.context);
        pthread_mutex_lock(&chores->lock);
        end(chores, &chore, now_ns);
    }
    pthread_mutex_unlock(&chores->lock);
}

/* ---- for others ---- */

int chores_new(const char *name, unsigned lanes, struct chores **ret_chores)
{
    struct chores *chores = calloc(1, sizeof(*chores));
    if (!chores)
        return -ENOMEM;
    chores->name = name;
    chores->lanes_max = lanes < 1 ? 1 : lanes < CHORES_LANES_MAX ? lanes : CHORES_LANES_MAX;
    pthread_mutex_init(&chores->lock, NULL);
    pthread_cond_init(&chores->more, NULL);
    pthread_mutex_lock(&chores->lock);
    int r = worker_start(&chores->lanes[0], name, 0, work, chores);
    chores->lanes_started = r == 0;
    pthread_mutex_unlock(&chores->lock);
    if (r < 0) {
        chores_free(chores);
        return r;
    }
    *ret_chores = chores;
    return 0;
}

void chores_free(struct chores *chores)
{
    if (!chores)
        return;
    pthread_mutex_lock(&chores->lock);
    chores->stop = true;
    pthread_cond_broadcast(&chores->more);
    unsigned n = chores->lanes_started; /* no more are started from now on */
    pthread_mutex_unlock(&chores->lock);
    for (unsigned i = 0; i < n; i++)
        worker_stop(&chores->lanes[i]);
    while (chores->n > 0) {
        struct chore chore = take(chores, 0);
        chore.drop(chore.context);
    }
    pthread_mutex_destroy(&chores->lock);
    pthread_cond_destroy(&chores->more);
    free(chores);
}

int chores_add(struct chores *chores, uint32_t user, chore_fn *run, chore_fn *drop, void *context)
{
    pthread_mutex_lock(&chores->lock);
    struct user *place = user_find(chores, user);
    int r = may_wait(chores, place) && !chores->stop ? 0 : -EBUSY;
    if (r == 0) {
        chores->waiting[chores->n++] = (struct chore){run, drop, context, place, false};
        place->waiting++;
        lane_add(chores, clock_monotonic_ns());
        pthread_cond_signal(&chores->more);
    }
    pthread_mutex_unlock(&chores->lock);
    return r;
}

size_t chores_waiting(struct chores *chores)
{
    pthread_mutex_lock(&chores->lock);
    size_t n = chores->n;
    pthread_mutex_unlock(&chores->lock);
    return n;
}
