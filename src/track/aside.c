/*
 * aside.c: leave a program to its sanitizer. In the shared libraries alone.
 *
 * The runtimes of AddressSanitizer, ThreadSanitizer and their like are allocators, too. One that is not in front of all others ends the
 * program at its start, or sees nothing of what it is there for. `memoir run` preloads nothing into such a program, but children inherit
 * LD_PRELOAD. So where such a runtime is among the libraries of the process, we take ourselves out of LD_PRELOAD and execute the program once more, as
 * ThreadSanitizer itself does for another layout of its addresses. By whatever call, script, or static program in between it was
 * started, it is then what it would be without us: same process, arguments and descriptors. Its own children are not tracked.
 *
 * An entry less each time: this ends even where we come by another way than LD_PRELOAD, unless somebody puts it back. Where executing fails the program goes on.
 *
 * Constructors come too late: a runtime starts from the program's preinit array, before them. But the loader asks, while it fills in our
 * addresses, which function an indirect one shall be, and that is where we look. Nothing is initialised then, and most functions of the C library are
 * the runtime's, so that none is called here.
 */
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/kernel.h"
#include "base/sanitizer.h"

/* Of the loader: the libraries of the process, and where the kernel put the number of arguments and what follows it. Weak: linkers may have
 * the loader ask before it has filled in where these are, and then once more at the end. */
extern struct r_debug _r_debug __attribute__((weak));
extern void *__libc_stack_end __attribute__((weak));
extern char **environ __attribute__((weak));
extern const ElfW(Dyn) our_dynamic[] __asm__("_DYNAMIC") __attribute__((visibility("hidden")));

/* What the kernel told the loader. */
struct told {
    char **arguments, **environment;
    const char *path; /* that was executed: of a script, where there is one */
    bool secure;
    bool
        loader_is_program; /* ld.so PROGRAM: neither arguments nor file are those that were executed */
};

static const char preload_variable[] = "LD_PRELOAD=";
static const char our_name[] = "libmemoir-";
static const char self_path[] = "/proc/self/exe";

static struct told told_read(void)
{
    const uintptr_t *stack = __libc_stack_end;
    struct told told = {.loader_is_program = true, .arguments = (char **)(stack + 1)};
    told.environment = told.arguments + stack[0] + 1;
    char **end = told.environment;
    while (*end)
        end++;
    for (const ElfW(auxv_t) *at = (const void *)(end + 1); at->a_type != AT_NULL; at++) {
        uintptr_t value = at->a_un.a_val;
        if (at->a_type == AT_EXECFN)
            told.path = (const void *)value;
        else if (at->a_type == AT_SECURE)
            told.secure = value != 0;
        else if (at->a_type == AT_BASE)
            told.loader_is_program = value == 0;
    }
    return told;
}

/* From behind the last slash on. */
static const char *file_name(const char *path, const char *end)
{
    const char *name = path;
    for (; end ? path < end : *path; path++)
        if (*path == '/')
            name = path + 1;
    return name;
}

static bool begins(const char *text, const char *wanted)
{
    while (*wanted && *text == *wanted)
        text++, wanted++;
    return !*wanted;
}

static bool ends_entry(char c)
{
    return c == '\0' || c == ':' || c == ' '; /* as the loader has it */
}

/* Takes what is ours out of a list of libraries, in place. */
static bool list_clean(char *list)
{
    bool found = false;
    char *to = list;
    for (const char *from = list; *from;) {
        const char *end = from;
        while (!ends_entry(*end))
            end++;
        bool ours = begins(file_name(from, end), our_name);
        found |= ours;
        end += *end != '\0';
        for (; from < end; from++)
            if (!ours)
                *to++ = *from;
    }
    if (found && to > list && ends_entry(to[-1]))
        to--;
    *to = '\0';
    return found;
}

static bool environment_clean(char **environment)
{
    bool found = false;
    char **to = environment;
    for (char **from = environment; *from; from++) {
        char *list = *from + sizeof(preload_variable) - 1;
        bool ours = begins(*from, preload_variable) && list_clean(list);
        found |= ours;
        if (!ours || *list)
            *to++ = *from;
    }
    *to = NULL;
    return found;
}

static bool is_self(const char *path)
{
    struct stat self, other;
    return kernel_call(SYS_newfstatat, AT_FDCWD, (long)self_path, (long)&self, 0, 0) == 0 &&
           kernel_call(SYS_newfstatat, AT_FDCWD, (long)path, (long)&other, 0, 0) == 0 &&
           self.st_dev == other.st_dev && self.st_ino == other.st_ino;
}

static void execute(const struct told *told, const char *path)
{
    (void)kernel_call(SYS_execve, (long)path, (long)told->arguments, (long)told->environment, 0, 0);
}

/* By the path that was executed, so that the process keeps its name; that is another file where a script was. */
__attribute__((noinline)) static void start_again(const struct told *told)
{
    char path[PATH_MAX];
    if (told->secure || told->loader_is_program || !environment_clean(told->environment))
        return;
    if (told->path && is_self(told->path))
        execute(told, told->path);
    long n =
        kernel_call(SYS_readlinkat, AT_FDCWD, (long)self_path, (long)path, sizeof(path) - 1, 0);
    path[n > 0 ? n : 0] = '\0';
    if (is_self(path))
        execute(told, path);
    execute(told, self_path);
}

/* Not in a program that runs already, whose environment the C library has: dlopen() loads us there. One that refers to the end of its stack has
 * that variable itself, with nothing in it yet. */
__attribute__((noinline, cold)) static bool judge(const char *path)
{
    if (!sanitizer_is_runtime(file_name(path, NULL)) || !&__libc_stack_end || !__libc_stack_end ||
        !&environ || environ)
        return false;
    struct told told = told_read();
    start_again(&told);
    return true;
}

/* Runs in every program, so there is little of it, beside what else does (malloc/link.ld): all names of runtimes have "san" in them. A
 * runtime that comes before us is where it has to be. */
__attribute__((used, cold, section(".text.startup"))) static void (*stand_aside(void))(void)
{
    bool behind = false;
    const struct link_map *at = &_r_debug ? _r_debug.r_map : NULL;
    for (; at; at = at->l_next) {
        for (const char *c = at->l_name; behind && *c; c++)
            if (c[0] == 's' && c[1] == 'a' && c[2] == 'n' && judge(at->l_name))
                return NULL;
        behind |= at->l_ld == our_dynamic;
    }
    return NULL; /* it is never called */
}

/* For its resolver's sake: the loader asks once for each word that has its address. */
static void indirect(void) __attribute__((ifunc("stand_aside")));
__attribute__((used)) static void (*const asked)(void) = indirect;
