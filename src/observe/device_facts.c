/* Asking NVML. See device_facts.h. */
#include "observe/device_facts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "ledger/proc.h"
#include "nvml/facts.h"
#include "nvml/nvml.h"
#include "nvml/visible.h"

enum state {
    IDLE,
    ASKED,
    ANSWERED
}; /* ASKED: the thread works on it; ANSWERED: the loop has not taken it */

struct device_facts {
    int fd; /* eventfd */
    struct nvml *nvml;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* for all below */
    pthread_cond_t asked;
    enum state state;
    bool ending;
    enum device_question question;
    pid_t pid;
    int32_t ordinal;
    pid_t next_pid; /* of a failure that waits for its turn; 0: none */
    int32_t next_ordinal;
    char *environment; /* of the process, which may be gone when NVML answers */
    size_t environment_len;
    struct device_answer answer; /* pid 0: NVML did not tell */
    struct nvml_device *devices; /* of the last answer */
    size_t n_devices;
};

static int by_bytes(const void *a, const void *b)
{
    const struct trace_failure_other *x = a, *y = b;
    return x->bytes == y->bytes ? 0 : x->bytes < y->bytes ? 1 : -1;
}

static void answer_make(const struct nvml_facts *facts, uint32_t device, pid_t pid,
                        struct device_answer *answer)
{
    const struct nvml_device *d = &facts->devices[device];
    struct trace_failure_other *all = calloc(facts->n_processes + 1, sizeof(*all));
    bool present = false;
    size_t n = 0;
    answer->pid = pid;
    answer->capacity_bytes = d->valid & NVML_HAS_TOTAL ? d->total_bytes : 0;
    for (size_t i = 0; all && i < facts->n_processes; i++) {
        const struct nvml_process *p = &facts->processes[i];
        if (p->device != device || !p->has_used)
            continue;
        if (p->pid == (uint32_t)pid) {
            present = true;
            continue;
        }
        all[n].pid = (int32_t)p->pid;
        all[n].bytes = p->used_bytes;
        snprintf(all[n].name, sizeof(all[n].name), "%s", p->is_here ? p->comm : "process");
        n++;
    }
    if (n)
        qsort(all, n, sizeof(*all), by_bytes);
    answer->n_others = n < TRACE_FAILURE_OTHERS ? n : TRACE_FAILURE_OTHERS;
    if (n)
        memcpy(answer->others, all, answer->n_others * sizeof(*all));
    if (present && d->valid & NVML_HAS_USED)
        answer->used_bytes = d->used_bytes;
    free(all);
}

static void uses_find(const struct nvml_facts *facts, const struct visible *visible, pid_t pid,
                      struct device_answer *answer)
{
    answer->pid = pid;
    for (size_t i = 0; i < visible->n && answer->n_uses < DEVICE_USES_MAX; i++)
        for (size_t p = 0; p < facts->n_processes; p++) {
            const struct nvml_process *process = &facts->processes[p];
            if (process->device == visible->devices[i] && process->pid == (uint32_t)pid &&
                process->has_used)
                answer->uses[answer->n_uses++] =
                    (struct device_use){(int32_t)i, visible->devices[i], process->used_bytes};
        }
}

/* For device_facts_names(). */
static void devices_keep(struct device_facts *f, const struct nvml_facts *facts)
{
    struct nvml_device *devices = calloc(facts->n_devices + 1, sizeof(*devices));
    if (!devices)
        return;
    memcpy(devices, facts->devices, facts->n_devices * sizeof(*devices));
    pthread_mutex_lock(&f->lock);
    free(f->devices);
    f->devices = devices;
    f->n_devices = facts->n_devices;
    pthread_mutex_unlock(&f->lock);
}

static void question_answer(struct device_facts *f, pid_t pid, int32_t ordinal,
                            const char *environment, size_t len, struct device_answer *answer)
{
    struct nvml_facts facts = {0};
    struct visible visible;
    int r = f->nvml ? 0 : nvml_new(&f->nvml);
    if (r == 0)
        r = nvml_ask(f->nvml, DEVICE_FACTS_WAIT_MS, &facts);
    if (r < 0) {
        log_debug("NVML does not answer: %s", f->nvml ? nvml_why(f->nvml) : strerror(-r));
        return;
    }
    visible_devices(visible_environ(environment, len, "CUDA_VISIBLE_DEVICES"),
                    visible_environ(environment, len, "CUDA_DEVICE_ORDER"), facts.devices,
                    facts.n_devices, &visible);
    devices_keep(f, &facts);
    if (answer->question == DEVICE_QUESTION_USE)
        uses_find(&facts, &visible, pid, answer);
    else if (ordinal >= 0 && (size_t)ordinal < visible.n)
        answer_make(&facts, visible.devices[ordinal], pid, answer);
    nvml_facts_release(&facts);
}

static void *work(void *argument)
{
    struct device_facts *f = argument;
    pthread_mutex_lock(&f->lock);
    while (!f->ending) {
        if (f->state != ASKED) {
            pthread_cond_wait(&f->asked, &f->lock);
            continue;
        }
        struct device_answer answer = {.question = f->question};
        pid_t pid = f->pid;
        int32_t ordinal = f->ordinal;
        pthread_mutex_unlock(&f->lock);
        question_answer(f, pid, ordinal, f->environment, f->environment_len, &answer);
        pthread_mutex_lock(&f->lock);
        f->answer = answer;
        f->state = ANSWERED;
        if (eventfd_write(f->fd, 1) < 0)
            break;
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

int device_facts_new(struct device_facts **ret_facts)
{
    struct device_facts *f = calloc(1, sizeof(*f));
    if (!f)
        return -ENOMEM;
    f->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->fd < 0) {
        free(f);
        return -errno;
    }
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->asked, NULL);
    *ret_facts = f;
    return 0;
}

void device_facts_free(struct device_facts *f)
{
    if (!f)
        return;
    if (f->has_thread) {
        pthread_mutex_lock(&f->lock);
        f->ending = true;
        if (f->nvml)
            nvml_cancel(f->nvml);
        pthread_cond_signal(&f->asked);
        pthread_mutex_unlock(&f->lock);
        pthread_join(f->thread, NULL);
    }
    nvml_free(f->nvml);
    close(f->fd);
    free(f->environment);
    free(f->devices);
    free(f);
}

int device_facts_fd(const struct device_facts *f)
{
    return f->fd;
}

/* How many bytes of its environment there are, below DEVICE_FACTS_ENVIRON_MAX. */
static size_t environment_read(char *text, pid_t pid)
{
    ssize_t n = text ? proc_file_read("/proc", pid, "environ", text, DEVICE_FACTS_ENVIRON_MAX) : 0;
    return n > 0 ? (size_t)n : 0;
}

static bool thread_start(struct device_facts *f)
{
    sigset_t all, before;
    if (f->has_thread)
        return true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    f->has_thread = pthread_create(&f->thread, NULL, work, f) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return f->has_thread;
}

/* The caller holds the lock. */
static void question_put(struct device_facts *f, enum device_question question, pid_t pid,
                         int32_t ordinal)
{
    if (!f->environment)
        f->environment = malloc(DEVICE_FACTS_ENVIRON_MAX);
    f->environment_len = environment_read(f->environment, pid);
    f->question = question;
    f->pid = pid;
    f->ordinal = ordinal;
    f->state = ASKED;
    pthread_cond_signal(&f->asked);
}

bool device_facts_ask(struct device_facts *f, enum device_question question, pid_t pid,
                      int32_t ordinal)
{
    if (!thread_start(f))
        return false;
    pthread_mutex_lock(&f->lock);
    bool idle = f->state == IDLE;
    if (idle) {
        question_put(f, question, pid, ordinal);
    } else if (question == DEVICE_QUESTION_FAILURE && !f->next_pid) {
        f->next_pid = pid;
        f->next_ordinal = ordinal;
    }
    pthread_mutex_unlock(&f->lock);
    return idle;
}

size_t device_facts_names(struct device_facts *f, pid_t pid, char (*names)[DEVICE_NAME_MAX])
{
    struct visible visible = {0};
    size_t n = 0;
    pthread_mutex_lock(&f->lock);
    char *text = f->n_devices ? malloc(DEVICE_FACTS_ENVIRON_MAX) : NULL;
    if (text) {
        size_t len = environment_read(text, pid);
        visible_devices(visible_environ(text, len, "CUDA_VISIBLE_DEVICES"),
                        visible_environ(text, len, "CUDA_DEVICE_ORDER"), f->devices, f->n_devices,
                        &visible);
    }
    for (; visible.certain && n < visible.n && n < DEVICE_USES_MAX; n++)
        snprintf(names[n], DEVICE_NAME_MAX, "%s", f->devices[visible.devices[n]].uuid);
    pthread_mutex_unlock(&f->lock);
    free(text);
    return n;
}

int device_facts_take(struct device_facts *f, struct device_answer *ret_answer)
{
    eventfd_t ignored;
    int r = -EAGAIN;
    pthread_mutex_lock(&f->lock);
    if (f->state == ANSWERED) {
        if (eventfd_read(f->fd, &ignored) < 0)
            log_debug("no event for an answer: %m");
        *ret_answer = f->answer;
        f->state = IDLE;
        r = f->answer.pid ? 0 : -EAGAIN;
        if (f->next_pid)
            question_put(f, DEVICE_QUESTION_FAILURE, f->next_pid, f->next_ordinal);
        f->next_pid = 0;
    }
    pthread_mutex_unlock(&f->lock);
    return r;
}

bool device_facts_settle(struct device_facts *f, pid_t pid)
{
    struct pollfd wait = {.fd = f->fd, .events = POLLIN};
    pthread_mutex_lock(&f->lock);
    bool asked = f->next_pid == pid ||
                 (f->state != IDLE && f->pid == pid && f->question == DEVICE_QUESTION_FAILURE);
    pthread_mutex_unlock(&f->lock);
    return asked && poll(&wait, 1, DEVICE_FACTS_SETTLE_MS) > 0;
}
