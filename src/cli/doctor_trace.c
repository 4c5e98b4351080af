/* Whether CUDA programs can be traced. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "cli/doctor.h"
#include "cli/trace_observer.h"
#include "trace/ask.h"

#define BPFFS_MAGIC 0xcafe4a11

enum { NAMES_MAX = 1 << 16 };

static bool is_bpffs(const char *path)
{
    struct statfs fs;
    return statfs(path, &fs) == 0 && (unsigned long)fs.f_type == BPFFS_MAGIC;
}

/* uprobe_multi came with Linux 6.6. */
static bool has_uprobe_multi(struct utsname *ret_kernel)
{
    unsigned major = 0, minor = 0;
    if (uname(ret_kernel) < 0 || sscanf(ret_kernel->release, "%u.%u", &major, &minor) != 2)
        return false;
    return major > 6 || (major == 6 && minor >= 6);
}

/* Where distributions, the driver's installer and container runtimes put it. */
static const char *libcuda_find(void)
{
    static const char *const places[] = {
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "/usr/lib64/libcuda.so.1",
        "/usr/lib/libcuda.so.1",
        "/usr/lib/wsl/lib/libcuda.so.1",
        "/usr/local/nvidia/lib64/libcuda.so.1",
        "/run/opengl-driver/lib/libcuda.so.1",
    };
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (access(places[i], F_OK) == 0)
            return places[i];
    return NULL;
}

static void check_trace(struct doctor *d)
{
    struct utsname kernel = {0};
    char program[PATH_MAX];
    const char *library = libcuda_find();
    bool fine = true;
    if (!trace_observer_program(program, sizeof(program))) {
        doctor_find(d, DOCTOR_WARN, "install Memoir with BPF (clang and libbpf at build time)",
                    "memoir-observe is not installed: CUDA programs cannot be traced, nor running "
                    "processes attached to");
        return;
    }
    if (!has_uprobe_multi(&kernel)) {
        doctor_find(d, DOCTOR_WARN, "Linux 6.6 or later is needed",
                    "the kernel %s has no uprobe_multi links: CUDA programs cannot be traced, nor "
                    "running processes attached to",
                    kernel.release);
        fine = false;
    }
    if (access("/sys/kernel/btf/vmlinux", R_OK) < 0) {
        doctor_find(d, DOCTOR_WARN, "use a kernel with CONFIG_DEBUG_INFO_BTF",
                    "the kernel has no BTF: CUDA programs cannot be traced, nor running processes "
                    "attached to");
        fine = false;
    }
    if (!trace_observer_parser_works()) {
        doctor_find(d, DOCTOR_WARN, "seccomp filters must be allowed here",
                    "memoir-observe cannot confine the process that parses files and memory of "
                    "users: CUDA programs cannot be traced, nor running processes attached to");
        fine = false;
    }
    if (geteuid() != 0)
        doctor_find(d, DOCTOR_OK, NULL,
                    "tracing CUDA programs needs root; run sudo memoir doctor to check it");
    else if (fine && !is_bpffs("/sys/fs/bpf") && !is_bpffs(TRACE_ASK_DIR "/bpf"))
        doctor_find(d, DOCTOR_OK, NULL,
                    "no bpffs is mounted; memoir trace mounts one when it is needed");
    else if (fine)
        doctor_find(
            d, DOCTOR_OK, NULL,
            "CUDA programs can be traced: kernel %s with BTF and uprobe_multi, bpffs mounted",
            kernel.release);
    if (fine && geteuid() == 0)
        doctor_find(d, DOCTOR_OK, NULL, "memoir attach can account processes that run already");
    doctor_find(d, DOCTOR_OK, NULL,
                library ? "the CUDA driver's library is %s"
                        : "no libcuda.so.1 where it usually is%s",
                library ? library : ": a process that has one elsewhere is traced all the same");
}

static void check_orphans(struct doctor *d)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer names = BUFFER_INIT(NAMES_MAX);
    if (geteuid() != 0)
        return;
    size_t n = trace_observer_orphans_find(&names);
    if (n > 0)
        doctor_find(d, DOCTOR_WARN, "sudo memoir trace stop removes them",
                    "%zu set%s of probes whose observer is gone: %s", n, n == 1 ? "" : "s",
                    buffer_string(&names));
}

const struct doctor_check doctor_trace_checks[] = {
    {"tracing", check_trace}, {"tracing", check_orphans}, {0}};
