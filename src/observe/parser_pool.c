/* A parser for each user. See parser_pool.h. */
#include "observe/parser_pool.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "observe/elf_parser.h"

struct place {
    struct elf_parser *parser; /* NULL: unused */
    uint32_t owner;
    uint64_t used_ns;
};

struct parser_pool {
    struct place places[PARSER_POOL_MAX];
    uint64_t deaths; /* of parsers that gave way */
    uint64_t refused;
    uint64_t retry_ns; /* none is started before, */
    uint64_t wait_ns;  /* since the last try failed and this time must pass; 0: it did not */
};

int parser_pool_new(struct parser_pool **ret_pool)
{
    struct parser_pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return -ENOMEM;
    *ret_pool = pool;
    return 0;
}

static void place_empty(struct parser_pool *pool, struct place *place)
{
    if (place->parser)
        pool->deaths += elf_parser_deaths(place->parser);
    elf_parser_free(place->parser);
    *place = (struct place){0};
}

void parser_pool_free(struct parser_pool *pool)
{
    for (size_t i = 0; pool && i < PARSER_POOL_MAX; i++)
        place_empty(pool, &pool->places[i]);
    free(pool);
}

/* An unused place, or that of the parser which was used least lately; NULL: all are in use. */
static struct place *place_find(struct parser_pool *pool, uint64_t now)
{
    struct place *oldest = &pool->places[0];
    for (size_t i = 0; i < PARSER_POOL_MAX; i++) {
        struct place *place = &pool->places[i];
        if (!place->parser)
            return place;
        if (place->used_ns < oldest->used_ns)
            oldest = place;
    }
    return now - oldest->used_ns < PARSER_POOL_KEEP_MS * NS_PER_MS ? NULL : oldest;
}

/* A start that fails costs the observer a fork or a wait, and stacks come by the thousand. */
static bool start(struct parser_pool *pool, struct place *place, uint64_t now)
{
    struct elf_parser *parser;
    if (elf_parser_new(&parser) >= 0) {
        place_empty(pool, place);
        place->parser = parser;
        pool->wait_ns = 0;
        return true;
    }
    pool->wait_ns = pool->wait_ns ? 2 * pool->wait_ns : PARSER_POOL_RETRY_MS * NS_PER_MS;
    if (pool->wait_ns > PARSER_POOL_RETRY_MAX_MS * NS_PER_MS)
        pool->wait_ns = PARSER_POOL_RETRY_MAX_MS * NS_PER_MS;
    pool->retry_ns = now + pool->wait_ns;
    return false;
}

struct elf_parser *parser_pool_get(struct parser_pool *pool, uint32_t owner)
{
    uint64_t now = clock_monotonic_ns();
    for (size_t i = 0; i < PARSER_POOL_MAX; i++) {
        struct place *place = &pool->places[i];
        if (!place->parser || place->owner != owner)
            continue;
        place->used_ns = now;
        return place->parser;
    }
    struct place *place = now < pool->retry_ns ? NULL : place_find(pool, now);
    if (!place || !start(pool, place, now)) {
        pool->refused++;
        return NULL;
    }
    place->owner = owner;
    place->used_ns = now;
    return place->parser;
}

void parser_pool_figures(const struct parser_pool *pool, struct parser_pool_figures *ret)
{
    *ret = (struct parser_pool_figures){.deaths = pool->deaths, .refused = pool->refused};
    for (size_t i = 0; i < PARSER_POOL_MAX; i++) {
        const struct place *place = &pool->places[i];
        ret->running += place->parser && elf_parser_pid(place->parser) != 0;
        ret->deaths += place->parser ? elf_parser_deaths(place->parser) : 0;
    }
}
