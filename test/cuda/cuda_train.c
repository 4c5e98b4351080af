/* cuda_train: looks like a small training job, for the demo on machines without a GPU.
 *
 * Usage: cuda_train [--steps N] [--step-ms N]     until SIGTERM or SIGINT, or for N steps
 *
 * Two loader threads fill pinned staging buffers; each step copies one of them to the device, allocates activations, and
 * frees them. It also has what a look at it should find: labels are copied from pageable memory in every step and should have been
 * pinned; a lookup table is allocated and never copied; metrics leak device memory slowly. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"

#define KIB          (1ul << 10)
#define MIB          (1ul << 20)
#define LAYERS       4
#define LAYER_BYTES  (8 * MIB)
#define BATCH_BYTES  (4 * MIB)
#define LABEL_BYTES  (1 * MIB)
#define TABLE_BYTES  (96 * MIB)
#define METRIC_BYTES (48 * KIB)
#define METRIC_STEPS 10 /* steps from one leaked block to the next */
#define ACTIVATION   (6 * MIB)
#define STAGES       4
#define LOADERS      2
#define REPORT_STEPS 50
#define STEP_MS      100

static volatile sig_atomic_t stopped;

static void on_stop(int number)
{
    stopped = 1;
}

/* A stage is filled by its loader and emptied by the training loop. */
struct stage {
    atomic_bool full;
    unsigned char *bytes; /* pinned */
};

static struct {
    CUcontext context;
    struct stage stages[STAGES];
    CUdeviceptr weights[LAYERS], gradients[LAYERS], moments[LAYERS];
    CUdeviceptr batch, labels, table, loss;
    unsigned char *label_bytes; /* pageable: the mistake */
    unsigned long leaked;
} job;

static void check(const char *what, CUresult r)
{
    const char *text = NULL;

    if (r == CUDA_SUCCESS)
        return;
    CU(cuGetErrorName)(r, &text);
    fprintf(stderr, "cuda_train: %s: %s\n", what, text ? text : "unknown error");
    exit(1);
}

static void pause_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

__attribute__((noinline)) static CUdeviceptr device_alloc(const char *what, size_t bytes)
{
    CUdeviceptr p = 0;

    check(what, CU(cuMemAlloc_v2)(&p, bytes));
    return p;
}

__attribute__((noinline)) static void load_weights(void)
{
    unsigned char *initial = malloc(LAYER_BYTES);

    for (int i = 0; i < LAYERS; i++) {
        job.weights[i] = device_alloc("weights", LAYER_BYTES);
        job.gradients[i] = device_alloc("gradients", LAYER_BYTES);
        job.moments[i] = device_alloc("moments", LAYER_BYTES);
        memset(initial, i + 1, LAYER_BYTES);
        check("weights", CU(cuMemcpyHtoD_v2)(job.weights[i], initial, LAYER_BYTES));
    }
    free(initial);
}

__attribute__((noinline)) static void allocate_buffers(void)
{
    job.batch = device_alloc("batch", BATCH_BYTES);
    job.labels = device_alloc("labels", LABEL_BYTES);
    job.table = device_alloc("lookup table", TABLE_BYTES);
    job.loss = device_alloc("loss", 4 * KIB);
    job.label_bytes = calloc(1, LABEL_BYTES);
    for (int i = 0; i < STAGES; i++) {
        void *p = NULL;
        check("staging buffer", CU(cuMemHostAlloc)(&p, BATCH_BYTES, 0));
        job.stages[i].bytes = p;
    }
}

/* Fill the stages of one loader, again and again. */
static void *load_batches(void *arg)
{
    unsigned first = (unsigned)(uintptr_t)arg, turn = 0;

    while (!stopped) {
        for (unsigned i = first; i < STAGES; i += LOADERS) {
            if (atomic_load(&job.stages[i].full))
                continue;
            memset(job.stages[i].bytes, (int)turn++, BATCH_BYTES);
            atomic_store(&job.stages[i].full, true);
        }
        pause_ms(5);
    }
    return NULL;
}

__attribute__((noinline)) static bool copy_batch(unsigned long step, CUstream stream)
{
    struct stage *s = &job.stages[step % STAGES];

    while (!atomic_load(&s->full)) {
        if (stopped)
            return false;
        pause_ms(1);
    }
    check("batch", CU(cuMemcpyHtoDAsync_v2)(job.batch, s->bytes, BATCH_BYTES, stream));
    check("stream", CU(cuStreamSynchronize)(stream));
    atomic_store(&s->full, false);
    return true;
}

__attribute__((noinline)) static void copy_labels(unsigned long step)
{
    memset(job.label_bytes, (int)step, 4 * KIB);
    check("labels", CU(cuMemcpyHtoD_v2)(job.labels, job.label_bytes, LABEL_BYTES));
}

__attribute__((noinline)) static void forward_and_backward(CUstream stream)
{
    CUdeviceptr activations[LAYERS];

    for (int i = 0; i < LAYERS; i++) {
        check("activations", CU(cuMemAllocAsync)(&activations[i], ACTIVATION, stream));
        check("kernel", CU(cuLaunchKernel)(NULL, 64, 1, 1, 256, 1, 1, 0, stream, NULL, NULL));
    }
    for (int i = LAYERS; i-- > 0;) {
        check("gradients", CU(cuMemsetD8Async)(job.gradients[i], 0, 64 * KIB, stream));
        check("activations", CU(cuMemFreeAsync)(activations[i], stream));
    }
}

/* The defect: blocks of metrics are never freed. */
__attribute__((noinline)) static void log_metrics(unsigned long step)
{
    float loss;

    check("loss", CU(cuMemcpyDtoH_v2)(&loss, job.loss, sizeof(loss)));
    if (step % METRIC_STEPS == 0) {
        device_alloc("metrics", METRIC_BYTES);
        job.leaked += METRIC_BYTES;
    }
}

static void train(unsigned long steps, long step_ms)
{
    CUstream stream;

    check("stream", CU(cuStreamCreate)(&stream, 0));
    for (unsigned long step = 0; !stopped && (steps == 0 || step < steps); step++) {
        if (!copy_batch(step, stream))
            break;
        copy_labels(step);
        forward_and_backward(stream);
        log_metrics(step);
        if (step % REPORT_STEPS == 0) {
            printf("step %lu\n", step);
            fflush(stdout);
        }
        pause_ms(step_ms);
    }
    check("stream", CU(cuStreamDestroy_v2)(stream));
}

int main(int argc, char **argv)
{
    unsigned long steps = 0;
    long step_ms = STEP_MS;
    pthread_t loaders[LOADERS];
    struct sigaction stop = {.sa_handler = on_stop};

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--steps") == 0)
            steps = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--step-ms") == 0)
            step_ms = strtol(argv[i + 1], NULL, 10);
    }
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    driver_open(DRIVER_BY_NAME);
    check("cuInit", CU(cuInit)(0));
    check("context", CU(cuDevicePrimaryCtxRetain)(&job.context, 0));
    check("context", CU(cuCtxSetCurrent)(job.context));
    load_weights();
    allocate_buffers();
    for (uintptr_t i = 0; i < LOADERS; i++)
        pthread_create(&loaders[i], NULL, load_batches, (void *)i);
    train(steps, step_ms);
    stopped = 1;
    for (int i = 0; i < LOADERS; i++)
        pthread_join(loaders[i], NULL);
    printf("stopped; %lu bytes of metrics were never freed\n", job.leaked);
    check("context", CU(cuDevicePrimaryCtxRelease_v2)(0));
    return 0;
}
