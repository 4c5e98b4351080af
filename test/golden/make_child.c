/* A child made by fork, whose parent held memory, and a stack deeper than a book keeps: the second golden
 * book. The child is killed, so that its book stays; the parent ends in order and takes its own away. */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memoir/memoir.h>

#define NOINLINE __attribute__((noinline))

enum { DEPTH = 100 };

static int gpu;

NOINLINE static void allocate_below(int depth, uint64_t id)
{
    if (depth > 0)
        allocate_below(depth - 1, id);
    else
        memoir_alloc(gpu, MEMOIR_SPACE_DRAM, id, 4096);
    __asm__ volatile(""); /* no tail call: each level is a frame */
}

static int child(void)
{
    allocate_below(3, 0xa000);
    allocate_below(DEPTH, 0xb000);
    memoir_tag_push("child");
    memoir_alloc(MEMOIR_HOST, MEMOIR_SPACE_HEAP, 0x3000, 300);
    memoir_tag_pop();
    memoir_free(MEMOIR_HOST, MEMOIR_SPACE_HEAP,
                0x1000); /* inherited: this writer does not know its size */
    return raise(SIGKILL);
}

int main(void)
{
    gpu = memoir_device(&(struct memoir_device_options){
        .struct_size = sizeof(struct memoir_device_options),
        .kind = MEMOIR_DEVICE_GPU,
        .ordinal = 1,
        .name = "NVIDIA H200",
        .uid = "GPU-00000000-1111-2222-3333-555555555555",
        .capacity = {{MEMOIR_SPACE_DRAM, UINT64_C(141) << 30}},
    });
    int r = memoir_open(0);
    if (r < 0) {
        errno = -r;
        perror("make_child: memoir_open");
        return 1;
    }
    memoir_alloc(MEMOIR_HOST, MEMOIR_SPACE_HEAP, 0x1000, 100);
    memoir_alloc(MEMOIR_HOST, MEMOIR_SPACE_HEAP, 0x2000, 2000);
    allocate_below(2, 0xc000);
    pid_t pid = fork();
    if (pid == 0)
        return child();
    int status;
    return pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status);
}
