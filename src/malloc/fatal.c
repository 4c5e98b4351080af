/* fatal.c: see fatal.h. Uses nothing that could allocate. */
#include "malloc/fatal.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct line {
    char text[256];
    size_t length;
};

static void say(struct line *l, const char *text)
{
    size_t n = strlen(text), room = sizeof(l->text) - l->length;
    n = n < room ? n : room;
    memcpy(l->text + l->length, text, n);
    l->length += n;
}

static void say_address(struct line *l, const void *address)
{
    char digits[19] = "0x";
    unsigned n = 2;
    for (int shift = 60; shift >= 0; shift -= 4) {
        unsigned digit = (uintptr_t)address >> shift & 15;
        if (digit || n > 2 || shift == 0)
            digits[n++] = "0123456789abcdef"[digit];
    }
    digits[n] = 0;
    say(l, digits);
}

/* As abort() does, without its lock and its streams. */
static void end(void)
{
    sigset_t abort_only;
    sigemptyset(&abort_only);
    sigaddset(&abort_only, SIGABRT);
    sigprocmask(SIG_UNBLOCK, &abort_only, NULL);
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGABRT);
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid),
            SIGKILL); /* somebody handled it, and came back */
    for (;;)
        _exit(127);
}

void fatal_block(const char *function, const char *problem, const void *block)
{
    struct line l = {.length = 0};
    say(&l, "memoir-malloc: ");
    say(&l, function);
    say(&l, "(): ");
    say_address(&l, block);
    say(&l, ": ");
    say(&l, problem);
    say(&l, "\n");
    (void)!write(STDERR_FILENO, l.text, l.length);
    end();
    __builtin_unreachable();
}
