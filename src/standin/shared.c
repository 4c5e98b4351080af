#include "standin/shared.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folder, made with mode 0700. A folder of another user is not used, unless root was told to. */
static bool folder(char *ret, size_t size)
{
    const char *dir = getenv("MEMOIR_STANDIN_DIR");
    bool told = dir && *dir;
    struct stat st;

    int n = told ? snprintf(ret, size, "%s", dir)
                 : snprintf(ret, size, "/tmp/memoir-standin-%u", (unsigned)geteuid());
    if (n < 0 || (size_t)n >= size)
        return false;
    if (mkdir(ret, 0700) < 0 && errno != EEXIST)
        return false;
    if (lstat(ret, &st) < 0 || !S_ISDIR(st.st_mode))
        return false;
    return st.st_uid == geteuid() || (told && geteuid() == 0);
}

void shared_open(struct shared *s)
{
    char dir[128];

    if (s->file || !folder(dir, sizeof(dir)))
        return;
    snprintf(s->path, sizeof(s->path), "%s/%d", dir, (int)getpid());
    unlink(s->path); /* of an earlier process with this PID, or of the program before exec */
    int fd = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return;
    void *p = MAP_FAILED;
    if (ftruncate(fd, sizeof(struct shared_file)) == 0)
        p = mmap(NULL, sizeof(struct shared_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        unlink(s->path);
        close(fd);
        return;
    }
    s->file = p;
    s->file->version = SHARED_VERSION;
    s->file->pid = getpid();
    s->file->fd = fd;
    __atomic_store_n(&s->file->magic, SHARED_MAGIC, __ATOMIC_RELEASE);
}

void shared_close(struct shared *s)
{
    if (!s->file)
        return;
    if (s->file->pid == getpid()) {
        unlink(s->path);
        close(s->file->fd);
    }
    munmap(s->file, sizeof(*s->file));
    s->file = NULL;
}

/* Whether the process of the file still has it open. */
static bool lives(const struct shared_file *f, const struct stat *file)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", f->pid, f->fd);
    return stat(path, &st) == 0 && st.st_dev == file->st_dev && st.st_ino == file->st_ino;
}

void shared_walk(void (*each)(const struct shared_file *file, void *arg), void *arg)
{
    char dir[128];
    DIR *d = folder(dir, sizeof(dir)) ? opendir(dir) : NULL;

    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));) {
        struct shared_file f;
        struct stat st;
        if (e->d_name[0] < '0' || e->d_name[0] > '9')
            continue;
        int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0)
            continue;
        bool whole = fstat(fd, &st) == 0 && read(fd, &f, sizeof(f)) == (ssize_t)sizeof(f);
        close(fd);
        if (!whole || f.magic != SHARED_MAGIC || f.version != SHARED_VERSION)
            continue; /* its process is just making it */
        if (lives(&f, &st))
            each(&f, arg);
        else
            unlinkat(dirfd(d), e->d_name, 0);
    }
    closedir(d);
}

static uint64_t setting(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    char *end;

    if (!text || !*text)
        return fallback;
    errno = 0;
    uint64_t value = strtoull(text, &end, 0);
    return errno || *end || *text == '-' ? fallback : value;
}

int shared_devices(void)
{
    uint64_t n = setting("MEMOIR_STANDIN_DEVICES", SHARED_DEVICES_DEFAULT);

    return n > STANDIN_DEVICES_MAX ? STANDIN_DEVICES_MAX : (int)n;
}

uint64_t shared_memory(void)
{
    uint64_t bytes = setting("MEMOIR_STANDIN_MEMORY", SHARED_MEMORY_DEFAULT);

    return bytes > 1ull << 40 ? 1ull << 40 : bytes < 256ull << 20 ? 256ull << 20 : bytes;
}

void shared_uuid_bytes(int index, unsigned char ret[16])
{
    memcpy(ret, "\0\0\0\0Stand-in\0\0\0", 16);
    ret[15] = (unsigned char)index;
}

void shared_uuid(int index, char ret[SHARED_UUID_SIZE])
{
    unsigned char b[16];

    shared_uuid_bytes(index, b);
    snprintf(ret, SHARED_UUID_SIZE,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
}

void shared_bus(int index, bool domain_long, char *ret, size_t size)
{
    snprintf(ret, size, domain_long ? "00000000:%02X:00.0" : "0000:%02X:00.0", index + 1);
}
