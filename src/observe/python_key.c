/* Where threads of another process keep their states of CPython. See python_objects.h. */
#include <errno.h>
#include <string.h>

#include "observe/python_objects.h"
#include "site/python_layout.h"

enum {
    THREADS_MAX = 8,  /* descriptors of threads among the words of _PyRuntime */
    THREAD_SELF = 16, /* x86-64: the descriptor's address, which also is its first word */
    SELF_WORDS = THREAD_SELF / 8 + 1,
    PROBES_MAX = 256, /* words that are tried at a time */
};

struct search {
    const struct python_key_ask *ask;
    const struct python_layout *layout;
    remote_read_fn *read;
    void *context;
    uint64_t words[PYTHON_RUNTIME_MAX / 8];
    size_t n_words;
    uint64_t threads[THREADS_MAX];
    size_t n_threads;
    unsigned tries;
};

static bool read_u64(struct search *s, uint64_t address, uint64_t *ret)
{
    return address % sizeof(*ret) == 0 &&
           remote_read_one(s->read, s->context, address, ret, sizeof(*ret));
}

/* Could it be the address of a thread's descriptor that is not known yet? */
static bool is_plausible(const struct search *s, uint64_t word)
{
    if (word < 4096 || word % 8 != 0 || word >> 47 != 0)
        return false;
    for (size_t i = 0; i < s->n_threads; i++)
        if (s->threads[i] == word)
            return false;
    return true;
}

/* Try some words together. Returns how many were looked at. */
static size_t threads_try(struct search *s, const uint64_t *words, size_t n)
{
    struct remote_piece pieces[PROBES_MAX];
    uint64_t selves[PROBES_MAX][SELF_WORDS];
    size_t i = 0, k = 0;
    for (; i < n && k < PROBES_MAX; i++)
        if (is_plausible(s, words[i])) {
            pieces[k] = (struct remote_piece){words[i], selves[k], sizeof(selves[k]), false};
            k++;
        }
    s->read(s->context, pieces, k);
    for (size_t p = 0; p < k && s->n_threads < THREADS_MAX; p++)
        if (pieces[p].done && selves[p][0] == pieces[p].address &&
            selves[p][THREAD_SELF / 8] == pieces[p].address && is_plausible(s, pieces[p].address))
            s->threads[s->n_threads++] = pieces[p].address;
    return i;
}

/* Threads whose descriptors _PyRuntime has the addresses of: the one that started the interpreter is among them. */
static void threads_find(struct search *s)
{
    for (size_t at = 0; at < s->n_words && s->n_threads < THREADS_MAX;)
        at += threads_try(s, s->words + at, s->n_words - at);
}

/* Does a thread have a state of its own under a key? */
static bool has_state(struct search *s, uint64_t thread, uint32_t key)
{
    const struct python_key_ask *k = s->ask;
    uint64_t block, state, id;
    return read_u64(s, thread + k->specific + (uint64_t)(key / k->block_keys) * 8, &block) &&
           block != 0 &&
           read_u64(s, block + (uint64_t)(key % k->block_keys) * k->key_bytes + k->key_data,
                    &state) &&
           state != 0 && read_u64(s, state + s->layout->thread_id, &id) && id == thread;
}

/* From 3.13 on _PyRuntime says what it is. */
static bool is_usable(const struct search *s)
{
    return s->layout->version < 0x030d ||
           (s->n_words > PYTHON_DEBUG_FREE_THREADED / 8 &&
            memcmp(s->words, PYTHON_DEBUG_MARK, sizeof(PYTHON_DEBUG_MARK) - 1) == 0 &&
            s->words[PYTHON_DEBUG_FREE_THREADED / 8] == 0);
}

static int key_find(struct search *s, struct python_key_told *told)
{
    const uint32_t *halves = (const uint32_t *)s->words;
    for (size_t i = 0; i + 1 < 2 * s->n_words; i++) {
        uint32_t key = halves[i + PYTHON_TSS_KEY / sizeof(uint32_t)];
        if (halves[i] != 1 || key >= PYTHON_KEYS_MAX)
            continue;
        for (size_t t = 0; t < s->n_threads; t++) {
            if (s->tries++ == PYTHON_KEY_TRIES_MAX)
                return -EAGAIN;
            if (has_state(s, s->threads[t], key)) {
                told->at = (uint32_t)(i * sizeof(uint32_t));
                return 0;
            }
        }
    }
    return -EAGAIN;
}

int python_objects_key(const struct python_key_ask *ask, remote_read_fn *read, void *context,
                       struct python_key_told *ret_told)
{
    struct search s = {
        .ask = ask,
        .layout = python_layout_of((uint64_t)ask->version << 16),
        .read = read,
        .context = context,
    };
    uint32_t bytes = ask->runtime_bytes & ~7u;
    if (bytes > PYTHON_RUNTIME_MAX || ask->block_keys == 0)
        return -EINVAL;
    if (!s.layout)
        return -ENOENT;
    if (!remote_read_one(read, context, ask->runtime, s.words, bytes))
        return -EAGAIN;
    s.n_words = bytes / 8;
    if (!is_usable(&s))
        return -ENOENT;
    threads_find(&s);
    return key_find(&s, ret_told);
}
