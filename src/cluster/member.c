/* The members of the cluster. See member.h. */
#include "cluster/member.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

struct members {
    struct member *list; /* by ID */
    size_t n, cap;
    uint64_t left_out;
};

int members_new(struct members **ret_members)
{
    *ret_members = calloc(1, sizeof(**ret_members));
    return *ret_members ? 0 : -ENOMEM;
}

void members_free(struct members *members)
{
    if (!members)
        return;
    free(members->list);
    free(members);
}

const struct member *members_list(const struct members *members, size_t *ret_n)
{
    *ret_n = members->n;
    return members->list;
}

/* The place of `id`, or where it belongs. */
static size_t place_of(const struct members *members, const char *id, bool *ret_found)
{
    size_t low = 0, high = members->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = memcmp(members->list[middle].id, id, SUBJECT_ID_CHARS);
        if (order == 0) {
            *ret_found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_found = false;
    return low;
}

struct member *members_find(struct members *members, const char *id)
{
    bool found;
    size_t at = place_of(members, id, &found);
    return found ? &members->list[at] : NULL;
}

static void names_mark(struct members *members, const char *name)
{
    struct member *first = NULL;
    for (size_t i = 0; i < members->n; i++) {
        struct member *m = &members->list[i];
        if (strcmp(m->name, name) != 0)
            continue;
        m->shared_name = first != NULL;
        if (first)
            first->shared_name = true;
        else
            first = m;
    }
}

static void member_remove(struct members *members, size_t at)
{
    char name[MESSAGE_NAME_MAX + 1];
    memcpy(name, members->list[at].name, sizeof(name));
    memmove(&members->list[at], &members->list[at + 1],
            (members->n - at - 1) * sizeof(*members->list));
    members->n--;
    names_mark(members, name);
}

/* Evict the member that left or became unreachable first. False: all are alive. */
static bool make_room(struct members *members)
{
    size_t oldest = SIZE_MAX;
    for (size_t i = 0; i < members->n; i++)
        if (members->list[i].state != MEMBER_ALIVE &&
            (oldest == SIZE_MAX || members->list[i].since_ns < members->list[oldest].since_ns))
            oldest = i;
    if (oldest == SIZE_MAX)
        return false;
    member_remove(members, oldest);
    return true;
}

static struct member *member_add(struct members *members, const char *id)
{
    bool found;
    if (members->n == MEMBERS_MAX && !make_room(members))
        return NULL;
    if (members->n == members->cap) {
        size_t cap = members->cap ? 2 * members->cap : 16;
        void *list = realloc(members->list, cap * sizeof(*members->list));
        if (!list)
            return NULL;
        members->list = list;
        members->cap = cap;
    }
    size_t at = place_of(members, id, &found);
    memmove(&members->list[at + 1], &members->list[at], (members->n - at) * sizeof(*members->list));
    members->n++;
    struct member *m = &members->list[at];
    *m = (struct member){0};
    memcpy(m->id, id, SUBJECT_ID_CHARS);
    return m;
}

static void member_name(struct members *members, struct member *m, const char *name,
                        const char *version)
{
    char before[MESSAGE_NAME_MAX + 1];
    memcpy(before, m->name, sizeof(before));
    snprintf(m->version, sizeof(m->version), "%s", version);
    if (strcmp(before, name) == 0)
        return;
    snprintf(m->name, sizeof(m->name), "%s", name);
    if (before[0])
        names_mark(members, before);
    names_mark(members, m->name);
}

static void state_set(struct member *m, enum member_state state, uint64_t now_ns)
{
    if (m->state != state || !m->since_ns)
        m->since_ns = now_ns;
    m->state = state;
}

int members_add_self(struct members *members, const char *id, const char *name, const char *version,
                     uint64_t started_ns, uint64_t now_ns)
{
    struct member *m = member_add(members, id);
    if (!m)
        return -ENOMEM;
    m->self = true;
    m->started_ns = started_ns;
    m->heard_ns = now_ns;
    state_set(m, MEMBER_ALIVE, now_ns);
    member_name(members, m, name, version);
    return 0;
}

enum members_change members_hello(struct members *members, const char *id,
                                  const struct message_hello *hello, uint64_t now_ns,
                                  uint64_t now_real_ns)
{
    struct member *m = members_find(members, id);
    enum members_change change = MEMBERS_SAME;
    if (m && m->self)
        return MEMBERS_SAME;
    if (!m) {
        m = member_add(members, id);
        change = MEMBERS_JOINED;
    } else if (m->state != MEMBER_ALIVE || m->started_ns != hello->started_ns) {
        change = MEMBERS_BACK;
    }
    if (!m) {
        members->left_out++;
        return MEMBERS_FULL;
    }
    member_name(members, m, hello->name, hello->version);
    m->started_ns = hello->started_ns;
    m->interval_ns = hello->interval_ms * NS_PER_MS;
    m->heard_ns = now_ns;
    m->doubt_due_ns = 0;
    if (hello->watch_ms > MESSAGE_WATCH_END)
        m->watch_due_ns = now_ns + (2ull * hello->watch_ms + MEMBER_GRACE_MS) * NS_PER_MS;
    else if (hello->watch_ms == MESSAGE_WATCH_END)
        m->watch_due_ns = 0;
    m->clock_offset_ns = (int64_t)(hello->now_ns - now_real_ns);
    state_set(m, MEMBER_ALIVE, now_ns);
    return change;
}

static bool gone(struct members *members, const char *id, enum member_state state, uint64_t now_ns)
{
    struct member *m = members_find(members, id);
    if (!m || m->self || m->state == state || m->state == MEMBER_LEFT)
        return false;
    state_set(m, state, now_ns);
    m->watch_due_ns = m->doubt_due_ns = 0;
    return true;
}

bool members_bye(struct members *members, const char *id, uint64_t now_ns)
{
    return gone(members, id, MEMBER_LEFT, now_ns);
}

bool members_lost(struct members *members, const char *id, uint64_t now_ns)
{
    return gone(members, id, MEMBER_UNREACHABLE, now_ns);
}

bool members_doubt(struct members *members, const char *id, uint64_t now_ns)
{
    struct member *m = members_find(members, id);
    if (!m || m->self || m->state != MEMBER_ALIVE || m->doubt_due_ns ||
        now_ns - m->heard_ns < MEMBER_WATCH_MS * NS_PER_MS)
        return false;
    m->doubt_due_ns = now_ns + MEMBER_DOUBT_MS * NS_PER_MS;
    return true;
}

size_t members_watchers(const struct members *members,
                        char ret_ids[static MEMBER_WATCHERS][SUBJECT_ID_CHARS + 1])
{
    size_t self = 0, found = 0;
    while (self < members->n && !members->list[self].self)
        self++;
    for (size_t i = 1; i < members->n && found < MEMBER_WATCHERS; i++) {
        const struct member *m = &members->list[(self + i) % members->n];
        if (m->state == MEMBER_ALIVE)
            memcpy(ret_ids[found++], m->id, SUBJECT_ID_CHARS + 1);
    }
    return found;
}

void members_unwatch(struct members *members)
{
    for (size_t i = 0; i < members->n; i++)
        members->list[i].watch_due_ns = 0;
}

static uint64_t alive_until(const struct member *m)
{
    uint64_t due = m->heard_ns + 2 * m->interval_ns + MEMBER_GRACE_MS * NS_PER_MS;
    if (m->watch_due_ns && m->watch_due_ns < due)
        due = m->watch_due_ns;
    if (m->doubt_due_ns && m->doubt_due_ns < due)
        due = m->doubt_due_ns;
    return due;
}

static uint64_t due_of(const struct member *m)
{
    if (m->self)
        return UINT64_MAX;
    if (m->state == MEMBER_ALIVE)
        return alive_until(m);
    return m->since_ns +
           (m->state == MEMBER_LEFT ? MEMBER_LEFT_S : (uint64_t)MEMBER_FORGET_S) * NS_PER_S;
}

uint64_t members_tick(struct members *members, uint64_t now_ns,
                      void (*died)(const struct member *member, void *context), void *context)
{
    uint64_t next = UINT64_MAX;
    for (size_t i = 0; i < members->n;) {
        struct member *m = &members->list[i];
        if (due_of(m) <= now_ns && m->state != MEMBER_ALIVE) {
            member_remove(members, i);
            continue;
        }
        if (due_of(m) <= now_ns) {
            state_set(m, MEMBER_UNREACHABLE, now_ns);
            if (died)
                died(m, context);
            m->watch_due_ns = m->doubt_due_ns = 0;
        }
        if (due_of(m) < next)
            next = due_of(m);
        i++;
    }
    return next;
}

uint32_t members_interval_ms(const struct members *members)
{
    uint32_t alive = 0;
    for (size_t i = 0; i < members->n; i++)
        alive += members->list[i].state == MEMBER_ALIVE;
    uint32_t ms = alive * MEMBER_INTERVAL_NODE_MS;
    return ms > MEMBER_INTERVAL_MS ? ms : MEMBER_INTERVAL_MS;
}

const char *member_label(const struct member *member, char label[static MEMBER_LABEL_MAX])
{
    if (member->shared_name)
        snprintf(label, MEMBER_LABEL_MAX, "%s~%.4s", member->name, member->id);
    else
        snprintf(label, MEMBER_LABEL_MAX, "%s", member->name);
    return label;
}

static bool is_meant(const struct member *m, const char *word)
{
    char label[MEMBER_LABEL_MAX];
    size_t len = strlen(word);
    return strcmp(m->name, word) == 0 || strcmp(member_label(m, label), word) == 0 ||
           (len >= 4 && len <= SUBJECT_ID_CHARS && strncmp(m->id, word, len) == 0);
}

const struct member *members_named(const struct members *members, const char *word,
                                   bool *ret_several)
{
    const struct member *found = NULL;
    bool several = false, is_id = false;
    if (subject_id_valid(word)) { /* whatever other nodes call themselves */
        size_t at = place_of(members, word, &is_id);
        found = is_id ? &members->list[at] : NULL;
    }
    for (size_t i = 0; i < members->n && !is_id; i++) {
        const struct member *m = &members->list[i];
        if (!is_meant(m, word))
            continue;
        /* One that runs comes before those of the same name that are gone. */
        if (found && (found->state == MEMBER_ALIVE) == (m->state == MEMBER_ALIVE))
            several = true;
        else if (!found || m->state == MEMBER_ALIVE) {
            found = m;
            several = false;
        }
    }
    if (ret_several)
        *ret_several = several;
    return found;
}

const char *member_state_word(enum member_state state)
{
    static const char *const words[] = {"alive", "unreachable", "left"};
    return words[state];
}

uint64_t members_left_out(const struct members *members)
{
    return members->left_out;
}
