/* See symbol_hosting.h. */
#include "daemon/symbol_hosting.h"

#include "daemon/broker.h"
#include "daemon/daemon.h"
#include "daemon/steady_file.h"
#include "site/symbol_file.h"

static int host_open(void *context, uint32_t owner, const struct symbol_wanted *wanted)
{
    struct daemon *daemon = context;
    if (owner == 0) { /* root's own process, which only root asks about */
        struct symbol_wanted steady = *wanted;
        steady.may_open = steady_file;
        return symbol_wanted_open(&steady);
    }
    return broker_open(daemon->broker, owner, wanted);
}

static int host_spawn(void *context, int fd, const struct symbol_worker_setup *setup)
{
    struct daemon *daemon = context;
    return broker_worker(daemon->broker, fd, setup);
}

struct symbol_host symbol_hosting(struct daemon *daemon)
{
    return (struct symbol_host){host_open, host_spawn, daemon};
}
