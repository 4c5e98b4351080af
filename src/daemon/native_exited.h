/* The processes that memoird retired, as the query core wants them. */
#pragma once

#include <stddef.h>

struct query_exited;
struct retired;
struct users;

struct native_exited {
    struct query_exited *rows; /* latest first; texts are the retired processes' own */
    size_t n;
    char (*causes)[48];
};

/* Good until the next process is retired. -ENOMEM. */
int native_exited_read(const struct retired *retired, const struct users *users,
                       struct native_exited *ret_exited);
void native_exited_release(struct native_exited *exited); /* fine after zeroing */
