/* ELF files that processes have mapped: opened, shared and kept within limits. See modules.h. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "observe/deadline.h"
#include "observe/modules.h"

/* ---- opening what is mapped ---- */

/* What is asked for, and what was found; a job of deadline.h where opening may hang. */
struct open_job {
    struct deadline_job job;
    pid_t pid;
    uint64_t start, end, dev, ino;
    struct stat st;
    int fd; /* or -errno */
    char path[];
};

/* A descriptor that only names a file becomes one that reads it, if it is a regular file: opening a device or a FIFO
 * already does something. O_NONBLOCK: a process that has a lease on the file could keep us waiting. */
static int reopen_regular(int path_fd, struct stat *ret_stat)
{
    char link[64];
    int fd = -ENOEXEC;
    if (path_fd < 0)
        return -errno;
    if (fstat(path_fd, ret_stat) == 0 && S_ISREG(ret_stat->st_mode)) {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
        fd = open(link, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (fd < 0)
            fd = -errno;
    }
    close(path_fd);
    return fd;
}

static int open_mapped(struct open_job *j)
{
    char name[96];
    snprintf(name, sizeof(name), "/proc/%d/map_files/%llx-%llx", (int)j->pid,
             (unsigned long long)j->start, (unsigned long long)j->end);
    return reopen_regular(open(name, O_PATH | O_CLOEXEC), &j->st);
}

static int only_same(struct open_job *j, int fd)
{
    if (fd < 0 || (j->st.st_dev == j->dev && j->st.st_ino == j->ino))
        return fd;
    close(fd);
    return -ESTALE;
}

/* By its path, inside the root of the process while it lives. */
static int open_path(struct open_job *j)
{
    char root[64];
    if (j->path[0] != '/')
        return -ENOENT;
    snprintf(root, sizeof(root), "/proc/%d/root", (int)j->pid);
    int root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC), fd = -ENOENT;
    if (root_fd >= 0) {
        struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                               .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
        fd = (int)syscall(SYS_openat2, root_fd, j->path, &how, sizeof(how));
        fd = only_same(j, reopen_regular(fd, &j->st));
        close(root_fd);
    }
    return fd < 0 ? only_same(j, reopen_regular(open(j->path, O_PATH | O_CLOEXEC), &j->st)) : fd;
}

static void open_run(struct deadline_job *job)
{
    struct open_job *j = (struct open_job *)job;
    j->fd = open_mapped(j);
    if (j->fd < 0)
        j->fd = open_path(j);
}

/* ---- reading ---- */

struct read_job {
    struct deadline_job job;
    int fd;
    uint64_t offset;
    size_t n;
    int64_t result;
    uint8_t bytes[];
};

static int64_t read_plain(int fd, uint64_t offset, void *to, size_t n)
{
    ssize_t done;
    do
        done = pread(fd, to, n, (off_t)offset);
    while (done < 0 && errno == EINTR);
    return done < 0 ? -errno : done;
}

static void read_run(struct deadline_job *job)
{
    struct read_job *j = (struct read_job *)job;
    j->result = read_plain(j->fd, j->offset, j->bytes, j->n);
}

static int64_t read_slow(struct module_file *file, uint64_t offset, void *to, size_t n)
{
    if (file->stuck)
        return -EIO;
    struct read_job *j = malloc(sizeof(*j) + n);
    if (!j)
        return -ENOMEM;
    *j = (struct read_job){.job.run = read_run, .fd = file->fd, .offset = offset, .n = n};
    int r = deadline_run(file->deadline, file->owner, &j->job);
    if (r == -ETIME) {
        file->stuck = true;
        return -EIO;
    }
    int64_t result = r < 0 ? r : j->result;
    if (result > 0)
        memcpy(to, j->bytes, (size_t)result);
    free(j);
    return result;
}

static int64_t file_read(void *context, uint64_t offset, void *to, size_t n)
{
    struct module_file *file = context;
    return file->deadline ? read_slow(file, offset, to, n) : read_plain(file->fd, offset, to, n);
}

static void close_run(struct deadline_job *job)
{
    close(((struct read_job *)job)->fd);
}

/* Closing a file asks its file system, too. */
static void descriptor_close(int fd, struct deadline *deadline, uint32_t owner)
{
    if (fd < 0)
        return;
    struct read_job *j = deadline ? malloc(sizeof(*j)) : NULL;
    if (!j) {
        close(fd);
        return;
    }
    *j = (struct read_job){.job.run = close_run, .fd = fd};
    if (deadline_run(deadline, owner, &j->job) != -ETIME)
        free(j);
}

/* ---- the cache ---- */

/* The descriptor of one that hangs stays open: a worker may still use it. */
static void file_free(struct module_file *file)
{
    elf_file_release(&file->elf);
    if (!file->stuck)
        descriptor_close(file->fd, file->deadline, file->owner);
    free(file);
}

void module_files_release(struct module_files *cache)
{
    for (uint32_t i = 0; i < cache->n; i++)
        file_free(cache->files[i]);
    *cache = (struct module_files){0};
}

/* A place for one more file: that of the one which no process uses and which was looked at longest ago. */
static bool cache_make_room(struct module_files *cache)
{
    uint32_t oldest = MODULE_FILES_MAX;
    if (cache->n < MODULE_FILES_MAX)
        return true;
    for (uint32_t i = 0; i < cache->n; i++)
        if (cache->files[i]->references == 0 &&
            (oldest == MODULE_FILES_MAX || cache->files[i]->used < cache->files[oldest]->used))
            oldest = i;
    if (oldest == MODULE_FILES_MAX)
        return false;
    file_free(cache->files[oldest]);
    cache->files[oldest] = cache->files[--cache->n];
    return true;
}

/* The file behind a descriptor, which is taken in any case. */
static int cache_take(struct module_files *cache, int fd, const struct stat *st,
                      struct deadline *deadline, uint32_t owner, struct module_file **ret_file)
{
    uint64_t mtime_ns = (uint64_t)st->st_mtim.tv_sec * 1000000000 + (uint64_t)st->st_mtim.tv_nsec;
    for (uint32_t i = 0; i < cache->n; i++) {
        struct module_file *f = cache->files[i];
        if (f->dev == st->st_dev && f->ino == st->st_ino && f->size == (uint64_t)st->st_size &&
            f->mtime_ns == mtime_ns) {
            descriptor_close(fd, deadline, owner);
            f->used = ++cache->turn;
            *ret_file = f;
            return 0;
        }
    }
    struct module_file *file = cache_make_room(cache) ? calloc(1, sizeof(*file)) : NULL;
    if (!file) {
        descriptor_close(fd, deadline, owner);
        return -ENOSPC;
    }
    *file = (struct module_file){
        .dev = st->st_dev,
        .ino = st->st_ino,
        .size = (uint64_t)st->st_size,
        .mtime_ns = mtime_ns,
        .number = ++cache->numbers,
        .fd = fd,
        .deadline = deadline,
        .owner = owner,
        .used = ++cache->turn,
    };
    int r = elf_file_init(&file->elf, cache->parser, file_read, file,
                          deadline ? MODULE_SLOW_CLUSTER : ELF_CLUSTER);
    if (r < 0) {
        file_free(file);
        return r;
    }
    cache->files[cache->n++] = file;
    *ret_file = file;
    return 0;
}

int module_files_open(struct module_files *cache, pid_t pid, uint32_t owner,
                      const struct module_range *range, const char *path,
                      struct module_file **ret_file)
{
    size_t len = strlen(path) + 1;
    struct deadline *deadline = major(range->dev) == 0 ? cache->deadline : NULL;
    struct open_job *j = calloc(1, sizeof(*j) + len);
    if (!j)
        return -ENOMEM;
    *j = (struct open_job){
        .job.run = open_run,
        .pid = pid,
        .start = range->start,
        .end = range->end,
        .dev = range->dev,
        .ino = range->ino,
    };
    memcpy(j->path, path, len);
    int r = 0;
    if (deadline)
        r = deadline_run(deadline, owner, &j->job);
    else
        open_run(&j->job);
    if (r == -ETIME)
        return r;
    if (r == 0)
        r = j->fd < 0 ? j->fd : cache_take(cache, j->fd, &j->st, deadline, owner, ret_file);
    free(j);
    return r;
}

/* Too many tables are in memory: those which were used longest ago go. */
static void cache_trim(struct module_files *cache, const struct module_file *but)
{
    uint64_t bytes = 0;
    struct module_file *oldest = NULL;
    for (uint32_t i = 0; i < cache->n; i++) {
        struct module_file *f = cache->files[i];
        uint64_t loaded = elf_file_loaded_bytes(&f->elf);
        bytes += loaded;
        if (loaded > 0 && f != but && (!oldest || f->used < oldest->used))
            oldest = f;
    }
    if (bytes > MODULE_TABLES_MAX && oldest)
        elf_file_drop(&oldest->elf);
}

int module_files_rule(struct module_files *cache, struct module_file *file, uint64_t vaddr,
                      struct elf_rule *ret_rule)
{
    uint64_t before = elf_file_loaded_bytes(&file->elf);
    file->used = ++cache->turn;
    int r = elf_file_rule(&file->elf, vaddr, ret_rule);
    if (elf_file_loaded_bytes(&file->elf) != before)
        cache_trim(cache, file);
    return r;
}

int module_files_step(struct module_files *cache, struct module_file *file, uint64_t vaddr,
                      const struct elf_stack *stack, struct elf_frame *frame)
{
    uint64_t before = elf_file_loaded_bytes(&file->elf);
    file->used = ++cache->turn;
    int r = elf_file_step(&file->elf, vaddr, stack, frame);
    if (elf_file_loaded_bytes(&file->elf) != before)
        cache_trim(cache, file);
    return r;
}
