/* A program some of whose memory never comes: all pages of its own that are not there yet are to be filled by somebody who does not. It
 * says "ready" and waits, or with an argument ends; "none" where this cannot be had. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *volatile kept[1000];
static char maps[1 << 16];

static void say(const char *text)
{
    if (write(STDOUT_FILENO, text, strlen(text)) < 0)
        _exit(1);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        memset(kept[i] = malloc(i < 900 ? 1000 : 20), 1, 20);
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0) {
        say("none\n");
        return 0;
    }
    int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    ssize_t got;
    for (size_t n = 0; (got = read(file, maps + n, sizeof(maps) - 1 - n)) > 0;)
        n += (size_t)got;
    for (char *line = maps, *end; (end = strchr(line, '\n')); line = end + 1) {
        unsigned long from, to, inode;
        char access[8];
        *end = 0;
        if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &from, &to, access, &inode) != 4 ||
            inode != 0 || memcmp(access, "rw-p", 4) != 0 || strstr(line, "[stack]"))
            continue;
        struct uffdio_register wanted = {.range = {from, to - from},
                                         .mode = UFFDIO_REGISTER_MODE_MISSING};
        ioctl(fd, UFFDIO_REGISTER, &wanted);
    }
    say("ready\n");
    if (argc > 1)
        _exit(0);
    for (;;)
        pause();
}
