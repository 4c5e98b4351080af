/* Questions: who waits for which answer, and answers that are fresh enough to be given again.
 *
 * A question with a key is in a table from the moment it is asked until its answer is stale, so that whoever asks
 * the same meanwhile gets the same. Answers that are kept have a limit in bytes; the oldest go first.
 *
 * Most answers that are asked for again are asked for by many, and most others never are. Those that nobody has asked for
 * twice yet have a small part of the room for themselves, and nothing beyond it: who asks another question each time pushes
 * out nobody's, and the memory that his answers take is soon used again, while it is still in the processor's cache. An answer
 * that is larger than its part is given to those who wait for it, and not kept; so a very large one is kept only if
 * somebody else asked for it while it was made. */
#include "http/question.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"

enum {
    BUCKETS = 1024,
    ONCE_SHARE = 16, /* one part in so many is for answers that were asked for once */
};

/* Answers that are kept, by when they came there. */
struct shelf {
    struct questions questions;
    size_t bytes;
};

struct cache {
    struct question *buckets[BUCKETS];
    struct shelf once, again; /* asked for once, and more often */
    size_t n;
    uint64_t seed;
};

int cache_new(uint64_t seed, struct cache **ret_cache)
{
    struct cache *cache = calloc(1, sizeof(*cache));
    if (!cache)
        return -ENOMEM;
    TAILQ_INIT(&cache->once.questions);
    TAILQ_INIT(&cache->again.questions);
    cache->seed = seed;
    *ret_cache = cache;
    return 0;
}

static struct question **bucket_of(struct cache *cache, uint64_t hash)
{
    return &cache->buckets[hash % BUCKETS];
}

static void cache_remove(struct cache *cache, struct question *question)
{
    struct question **at = bucket_of(cache, question->hash);
    while (*at != question)
        at = &(*at)->next;
    *at = question->next;
    question->in_cache = false;
    cache->n--;
}

static void question_free(struct question *question)
{
    answer_unref(question->answer);
    free(question->key);
    free(question);
}

static size_t kept_size(const struct question *question, const struct answer *answer)
{
    return sizeof(*question) + question->key_len + answer_size(answer);
}

static struct shelf *shelf_of(struct cache *cache, const struct question *question)
{
    return question->again ? &cache->again : &cache->once;
}

static void shelf_put(struct cache *cache, struct question *question)
{
    struct shelf *shelf = shelf_of(cache, question);
    TAILQ_INSERT_TAIL(&shelf->questions, question, link);
    shelf->bytes += kept_size(question, question->answer);
}

static void shelf_take(struct cache *cache, struct question *question)
{
    struct shelf *shelf = shelf_of(cache, question);
    TAILQ_REMOVE(&shelf->questions, question, link);
    shelf->bytes -= kept_size(question, question->answer);
}

/* Its answer is not given again. */
static void kept_drop(struct cache *cache, struct question *question)
{
    shelf_take(cache, question);
    cache_remove(cache, question);
    question_free(question);
}

static size_t shelf_room(bool again, size_t bytes_max)
{
    size_t once = bytes_max / ONCE_SHARE;
    return again ? bytes_max - once : once;
}

static void shelf_trim(struct cache *cache, struct shelf *shelf, size_t room)
{
    while (shelf->bytes > room)
        kept_drop(cache, TAILQ_FIRST(&shelf->questions));
}

struct question *cache_find(struct cache *cache, const char *key, size_t len, uint64_t now_ns)
{
    uint64_t hash = hash_bytes(key, len, cache->seed);
    struct question *question = *bucket_of(cache, hash);
    while (question && (question->hash != hash || question->key_len != len ||
                        memcmp(question->key, key, len) != 0))
        question = question->next;
    if (question && question->answer && now_ns >= question->fresh_until_ns) {
        kept_drop(cache, question);
        return NULL;
    }
    if (question && !question->again) {
        if (question->answer)
            shelf_take(cache, question);
        question->again = true;
        if (question->answer)
            shelf_put(cache, question);
    }
    return question;
}

struct question *question_new(struct cache *cache, char *key, size_t len)
{
    struct question *question = calloc(1, sizeof(*question));
    if (!question)
        return NULL;
    TAILQ_INIT(&question->waiting);
    question->key = key;
    question->key_len = len;
    question->asked_ns = clock_monotonic_ns();
    if (!key)
        return question;
    question->hash = hash_bytes(key, len, cache->seed);
    struct question **bucket = bucket_of(cache, question->hash);
    question->next = *bucket;
    *bucket = question;
    question->in_cache = true;
    cache->n++;
    return question;
}

void question_drop(struct cache *cache, struct question *question)
{
    if (question->in_cache)
        cache_remove(cache, question);
    question_free(question);
}

void question_keep(struct cache *cache, struct question *question, struct answer *answer,
                   uint64_t fresh_ns, size_t bytes_max)
{
    if (!question->in_cache || fresh_ns == 0 ||
        kept_size(question, answer) > shelf_room(question->again, bytes_max)) {
        question_drop(cache, question);
        return;
    }
    answer->refs++;
    question->answer = answer;
    question->fresh_until_ns = clock_monotonic_ns() + fresh_ns;
    shelf_put(cache, question);
    /* Each for itself; never the one that came, which is the last, and fits. Those found since the last time are among
     * the others by now. */
    shelf_trim(cache, &cache->once, shelf_room(false, bytes_max));
    shelf_trim(cache, &cache->again, shelf_room(true, bytes_max));
}

static void shelf_expire(struct cache *cache, struct shelf *shelf, uint64_t now_ns)
{
    struct question *question, *next;
    for (question = TAILQ_FIRST(&shelf->questions); question; question = next) {
        next = TAILQ_NEXT(question, link);
        if (now_ns >= question->fresh_until_ns)
            kept_drop(cache, question);
    }
}

void cache_expire(struct cache *cache, uint64_t now_ns)
{
    shelf_expire(cache, &cache->once, now_ns);
    shelf_expire(cache, &cache->again, now_ns);
}

void cache_size(const struct cache *cache, size_t *ret_n, size_t *ret_bytes)
{
    *ret_n = cache->n;
    *ret_bytes = cache->once.bytes + cache->again.bytes;
}

void cache_free(struct cache *cache)
{
    if (!cache)
        return;
    cache_expire(cache, UINT64_MAX);
    free(cache);
}
