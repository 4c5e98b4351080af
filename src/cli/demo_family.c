/* The children of `memoir demo`. See demo_family.h. */
#include "cli/demo_family.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum { END_PATIENCE_MS = 1000 };

const struct family_role family_roles[FAMILY_ROLES] = {
    {"trainer", 0,
     "trains on accelerator A: 6.6 GB of weights and optimizer state stay, activations go up and down "
     "with every step.",
     "memoir devices --device 0"},
    {"inference", 1,
     "serves a model on accelerator B: its KV cache grows with every token and is dropped when the "
     "batch is done. It fills, but it is no leak.",
     "memoir ps --wide --pid %d"},
    {"leaky", 1,
     "answers requests on accelerator B and forgets to free a part of each: 1.4 MB more every second.",
     "memoir log --pid %d"},
    {"victim", 0,
     "holds 150 buffers (25.5 MB), 800 circular buffers (22.4 MB) and 30 kernels (0.2 MB) on "
     "accelerator A. It will be killed without a warning.",
     "memoir buffers --pid %d"},
};

static bool programs_in(const char *directory)
{
    char path[4200];
    snprintf(path, sizeof(path), "%s/%s", directory, family_roles[0].name);
    return access(path, X_OK) == 0;
}

int family_init(struct family *family, unsigned n)
{
    *family = (struct family){.n = n < FAMILY_CLIENTS_MAX ? n : FAMILY_CLIENTS_MAX};
    for (unsigned i = 0; i < family->n; i++) {
        family->clients[i].role = &family_roles[i % FAMILY_ROLES];
        family->clients[i].share = (family->n - i % FAMILY_ROLES + FAMILY_ROLES - 1) / FAMILY_ROLES;
    }
    static const char *const places[] = {"", "/../libexec/memoir/demo"};
    char self[3072];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (len < 0)
        return -errno;
    self[len] = '\0';
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(family->programs, sizeof(family->programs), "%s%s", self, places[i]);
        if (programs_in(family->programs))
            return 0;
    }
    return -ENOENT;
}

/* In the child, between fork and exec. */
static void become(const struct family *family, const struct family_client *client, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(0); /* the parent was gone before the line above took effect */
    char path[4200], device[16], share[16];
    snprintf(path, sizeof(path), "%s/%s", family->programs, client->role->name);
    snprintf(device, sizeof(device), "%d", client->role->device);
    snprintf(share, sizeof(share), "%u", client->share);
    execl(path, client->role->name, device, share, (char *)NULL);
    _exit(127);
}

int family_start(struct family *family, unsigned client)
{
    struct family_client *c = &family->clients[client];
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        become(family, c, parent);
    c->pid = pid;
    c->started_ns = clock_monotonic_ns();
    return 0;
}

int family_reap(struct family *family, int *ret_status)
{
    int status;
    pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0)
        return -ECHILD;
    for (unsigned i = 0; i < family->n; i++) {
        struct family_client *c = &family->clients[i];
        if (c->pid != pid)
            continue;
        c->pid = 0;
        bool early = clock_monotonic_ns() - c->started_ns < NS_PER_S;
        c->early_deaths = early ? c->early_deaths + 1 : 0;
        *ret_status = status;
        return (int)i;
    }
    return -ECHILD;
}

static unsigned signal_all(const struct family *family, int number)
{
    unsigned running = 0;
    for (unsigned i = 0; i < family->n; i++) {
        if (family->clients[i].pid == 0)
            continue;
        running++;
        if (number)
            kill(family->clients[i].pid, number);
    }
    return running;
}

void family_end(struct family *family)
{
    int status;
    signal_all(family, SIGTERM);
    for (int waited = 0; signal_all(family, 0) > 0; waited++) {
        while (family_reap(family, &status) >= 0)
            ;
        if (waited == END_PATIENCE_MS)
            signal_all(family, SIGKILL);
        nanosleep(&(struct timespec){0, (long)NS_PER_MS}, NULL);
    }
}
