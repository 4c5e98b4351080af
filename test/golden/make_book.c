/* Fills a book with something of everything and is killed, so that the book stays: the subject of the
 * golden books. What it reports must stay as it is; a new version may add to it. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <memoir/memoir.h>

#define NOINLINE __attribute__((noinline))

static int gpu, npu;

/* Call sites that cannot be merged. */
NOINLINE static void allocate_weights(uint64_t id, uint64_t bytes)
{
    memoir_tag_push("weights");
    memoir_alloc(gpu, MEMOIR_SPACE_DRAM, id, bytes);
    memoir_tag_pop();
}

/* One line of code, two accounts. */
NOINLINE static void allocate_anywhere(int device, int space, uint64_t id)
{
    memoir_alloc(device, space, id, 777);
    __asm__ volatile(""); /* no tail call: this function is the caller */
}

NOINLINE static void allocate_buffers(int n)
{
    for (int i = 0; i < n; i++)
        memoir_alloc(npu, MEMOIR_SPACE_L1, 0x1000u + (uint64_t)i * 64, 64);
}

NOINLINE static void free_buffers(int from, int to)
{
    for (int i = from; i < to; i++)
        memoir_free(npu, MEMOIR_SPACE_L1, 0x1000u + (uint64_t)i * 64);
}

static void *other_thread(void *unused)
{
    memoir_tag_push("activations");
    for (uint64_t i = 0; i < 10; i++)
        memoir_alloc(gpu, MEMOIR_SPACE_DRAM, 0x900000 + i, 1 << 20);
    memoir_tag_pop();
    free_buffers(0, 20); /* allocated by the first thread */
    return unused;
}

static void transfer_to(uint64_t id, uint64_t bytes)
{
    memoir_transfer(&(struct memoir_transfer_options){
        .struct_size = sizeof(struct memoir_transfer_options),
        .from_device = MEMOIR_HOST,
        .from_space = MEMOIR_SPACE_PINNED,
        .from_id = 0x7f0000000000,
        .to_device = gpu,
        .to_space = MEMOIR_SPACE_DRAM,
        .to_id = id,
        .bytes = bytes,
    });
}

static void declare_devices(void)
{
    gpu = memoir_device(&(struct memoir_device_options){
        .struct_size = sizeof(struct memoir_device_options),
        .kind = MEMOIR_DEVICE_GPU,
        .ordinal = 0,
        .name = "NVIDIA H200",
        .uid = "GPU-00000000-1111-2222-3333-444444444444",
        .bus = "0000:81:00.0",
        .capacity = {{MEMOIR_SPACE_DRAM, UINT64_C(141) << 30}},
    });
    npu = memoir_device(&(struct memoir_device_options){
        .struct_size = sizeof(struct memoir_device_options),
        .kind = MEMOIR_DEVICE_NPU,
        .ordinal = 3,
        .name = "Blackhole p150",
        .capacity = {{MEMOIR_SPACE_DRAM, UINT64_C(32) << 30}, {MEMOIR_SPACE_L1, 192 << 20}},
    });
}

static void report(void)
{
    allocate_weights(0xa0000, 1 << 30);
    allocate_anywhere(gpu, MEMOIR_SPACE_DRAM, 0xe0000);
    allocate_anywhere(npu, MEMOIR_SPACE_DRAM, 0xe0000);
    allocate_weights(0xb0000, 3 << 20);
    memoir_free(gpu, MEMOIR_SPACE_DRAM, 0xb0000);
    memoir_alloc(gpu, MEMOIR_SPACE_DRAM, 0xc0000, 5000);
    memoir_realloc(gpu, MEMOIR_SPACE_DRAM, 0xc0000, 0xd0000, 9000);
    allocate_buffers(200);
    free_buffers(150, 200);
    memoir_alloc(MEMOIR_HOST, MEMOIR_SPACE_PINNED, 0x7f0000000000, 4 << 20);
    memoir_alloc(MEMOIR_HOST, MEMOIR_SPACE_HEAP, UINT64_MAX, 1);
    transfer_to(0xa0000, 4 << 20);
    transfer_to(0xd0000, 9000);
    transfer_to(0xd0000, 9000);
    transfer_to(0xdead, 100);                                   /* never reported */
    memoir_free(gpu, MEMOIR_SPACE_DRAM, 0xdead);                /* neither */
    memoir_alloc(gpu, MEMOIR_SPACE_DRAM, 1, UINT64_C(1) << 48); /* too large */
    memoir_alloc(gpu, MEMOIR_SPACE_DRAM, 0xa0000, 2 << 20);     /* replaces the first */
}

int main(void)
{
    declare_devices();
    int r = memoir_open(0);
    if (r < 0) {
        errno = -r;
        perror("make_book: memoir_open");
        return 1;
    }
    pthread_t thread;
    report();
    if (pthread_create(&thread, NULL, other_thread, NULL) != 0)
        return 1;
    pthread_join(thread, NULL);
    return raise(SIGKILL);
}
