/* See broker_ready.h. */
#include "daemon/broker_ready.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"

static bool has_terms_of(pid_t child, pid_t broker)
{
    cpu_set_t own, given;
    return sched_getaffinity(child, sizeof(own), &own) == 0 &&
           sched_getaffinity(broker, sizeof(given), &given) == 0 && CPU_EQUAL(&own, &given) &&
           getpriority(PRIO_PROCESS, (id_t)child) == getpriority(PRIO_PROCESS, (id_t)broker) &&
           sched_getscheduler(child) == sched_getscheduler(broker);
}

uint64_t broker_ready_ns(pid_t child, pid_t broker)
{
    char text[96];
    unsigned long long ran_ns, waited_ns;
    snprintf(text, sizeof(text), "/proc/%d/schedstat", (int)child);
    MEMOIR_CLEANUP(closep)
    int fd = open(text, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    if (sscanf(text, "%llu %llu", &ran_ns, &waited_ns) != 2)
        return 0;
    return ran_ns + (has_terms_of(child, broker) ? waited_ns : 0);
}
