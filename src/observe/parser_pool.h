/* parser_pool.h: a parser for the memory of each user's processes (elf_parser.h).
 *
 * Whatever bytes of one user do to the child that interprets them, that child is asked about memory of the same user's processes only:
 * it never sees memory of others, and cannot tell wrong names for them. Files, which processes of all users share, have a parser of
 * their own. Children are started when they are first needed, and end when others need their place. One thread at a time. */
#pragma once

#include <stdint.h>

enum {
    PARSER_POOL_MAX = 16,
    PARSER_POOL_KEEP_MS = 2000, /* a parser that was used so lately does not give way */
    PARSER_POOL_RETRY_MS = 100, /* after one could not be started none is tried for so long, */
    PARSER_POOL_RETRY_MAX_MS = 10000, /* twice as long after each further failure, up to this */
};

struct elf_parser;
struct parser_pool;

int parser_pool_new(struct parser_pool **ret_pool);
void parser_pool_free(struct parser_pool *pool); /* NULL is fine */

/* The parser for a user; borrowed, good until the next call. Starting one takes some milliseconds. NULL: it cannot be started or
 * confined, could not a short while ago, or all places are in use; nothing is interpreted then. */
struct elf_parser *parser_pool_get(struct parser_pool *pool, uint32_t owner);

struct parser_pool_figures {
    uint32_t running;
    uint64_t deaths;  /* children that died or took too long */
    uint64_t refused; /* how often there was none */
};
void parser_pool_figures(const struct parser_pool *pool, struct parser_pool_figures *ret_figures);
