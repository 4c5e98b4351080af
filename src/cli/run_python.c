/* See run_python.h. */
#include "cli/run_python.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/elf_program.h"

enum { LINE_MAX_BYTES = 256 }; /* of "#!", as the kernel reads */

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "python", "python3", "python3.11", "python3.13t". */
static bool is_name(const char *path)
{
    const char *base = base_of(path);
    return strncmp(base, "python", 6) == 0 && base[6 + strspn(base + 6, "0123456789.td")] == '\0';
}

static bool is_file(const char *path)
{
    char real[PATH_MAX];
    return is_name(path) || (realpath(path, real) && is_name(real));
}

/* The words after "#!" that name the program: of env(1) the first that is neither an option nor a setting. */
static bool line_interpreter(char *line, char *ret, size_t size)
{
    char *rest = line, *word = strtok_r(line, " \t", &rest);
    if (word && strcmp(base_of(word), "env") == 0)
        do
            word = strtok_r(NULL, " \t", &rest);
        while (word && (*word == '-' || strchr(word, '=')));
    if (!word)
        return false;
    return strchr(word, '/') ? (size_t)snprintf(ret, size, "%s", word) < size
                             : elf_program_find(word, getenv("PATH"), ret, size) == 0;
}

static bool script_interpreter(const char *path, char *ret, size_t size)
{
    char line[LINE_MAX_BYTES + 1];
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, line, LINE_MAX_BYTES);
    if (n < 3 || line[0] != '#' || line[1] != '!')
        return false;
    line[n] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return line_interpreter(line + 2, ret, size);
}

/* Options of one letter stand before the program; some take the next word. */
static bool ignores_environment(char *const *argv)
{
    for (size_t i = 1; argv[i] && argv[i][0] == '-' && argv[i][1] && argv[i][1] != '-'; i++) {
        for (const char *letter = argv[i] + 1; *letter; letter++) {
            if (*letter == 'E' || *letter == 'I')
                return true;
            if (*letter == 'c' || *letter == 'm')
                return false; /* the rest is the program's */
            if (*letter == 'W' || *letter == 'X') {
                i += letter[1] == '\0' && argv[i + 1];
                break;
            }
        }
    }
    return false;
}

bool run_python_is(char *const *argv, const char *path)
{
    char at[PATH_MAX], next[PATH_MAX];
    if (is_name(argv[0]) || (path && is_file(path)))
        return !ignores_environment(argv);
    if (!path || (size_t)snprintf(at, sizeof(at), "%s", path) >= sizeof(at))
        return false;
    for (int depth = 0; depth < ELF_PROGRAM_DEPTH_MAX; depth++) {
        if (!script_interpreter(at, next, sizeof(next)))
            return false;
        if (is_file(next))
            return true;
        memcpy(at, next, sizeof(at));
    }
    return false;
}

bool run_python_chosen(void)
{
    const char *developer = getenv("PYTHONDEVMODE");
    return getenv("PYTHONMALLOC") || (developer && *developer);
}
