/* Questions: who waits for which answer, and answers that are fresh enough to be given again. The server's thread
 * only. */
#pragma once

#include "http/internal.h"

struct cache;

int cache_new(uint64_t seed, struct cache **ret_cache);
/* Questions that are still out must have been dropped. NULL is fine. */
void cache_free(struct cache *cache);

/* The same question: one that is out, or one whose answer is fresh, and which counts as asked again; NULL: it has to be
 * asked. */
struct question *cache_find(struct cache *cache, const char *key, size_t len, uint64_t now_ns);

/* A question that is asked now. Takes `key` on success (NULL: it is not shared). */
struct question *question_new(struct cache *cache, char *key, size_t len);

/* Its answer has come: keep it for `fresh_ns`, or drop the question where that is nothing. The caller's reference
 * of the answer stays his. */
void question_keep(struct cache *cache, struct question *question, struct answer *answer,
                   uint64_t fresh_ns, size_t bytes_max);
/* Nobody waits for it, and nobody will. */
void question_drop(struct cache *cache, struct question *question);

/* Forget answers that are stale. */
void cache_expire(struct cache *cache, uint64_t now_ns);
void cache_size(const struct cache *cache, size_t *ret_n, size_t *ret_bytes);
