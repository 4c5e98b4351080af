/* An interpreter's name says nothing about the program that it runs, so its script's name is shown
 * instead. A table says which programs are interpreters and which of their options take a value. The arguments of a
 * process are private, its name is not: a name must never show text of an argument. */
#include "ledger/name.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct interpreter {
    const char *name;   /* what follows it may only be a version: python3.11 */
    const char *valued; /* one-letter options whose value is a word that the interpreter checks */
    const char
        *opaque; /* options after which there is no script that could be told from text: code,
                            arguments of code, and values that may be any text */
    const char *modules; /* options whose value is the program */
};

static const struct interpreter interpreters[] = {
    {"python", "", "cWX", "m"}, {"pypy", "", "cWX", "m"},     {"perl", "", "eEIMm", ""},
    {"ruby", "", "eIrCE", ""},  {"node", "", "epr", ""},      {"nodejs", "", "epr", ""},
    {"bash", "oO", "cs", ""},   {"dash", "o", "cs", ""},      {"sh", "o", "cs", ""},
    {"zsh", "o", "cs", ""},     {"php", "", "rBREdcz", "f"},  {"lua", "", "el", ""},
    {"Rscript", "", "e", ""},   {"julia", "", "eECpLJt", ""},
};

/* Long options that take no value. Any other one may have a value with spaces, here or in the next word. */
static const char *const flag_words[] = {
    "--enable-source-maps", "--expose-gc", "--inspect", "--login",          "--no-warnings",
    "--noprofile",          "--norc",      "--posix",   "--trace-warnings", "--"};

/* How names of scripts end. */
static const char *const suffixes[] = {".R",   ".bash", ".cjs", ".jl", ".js",  ".lua",
                                       ".mjs", ".php",  ".pl",  ".py", ".pyc", ".pyz",
                                       ".r",   ".rb",   ".sh",  ".ts", ".zsh"};

enum { COMM_LEN_MAX = 15 }; /* the kernel cuts its name of a process there */

/* One word of a command line. */
struct word {
    const char *start;
    size_t len;
};

static struct word word_next(const char **at)
{
    while (**at == ' ')
        (*at)++;
    struct word word = {*at, strcspn(*at, " ")};
    *at += word.len;
    return word;
}

static struct word word_base(struct word word)
{
    while (word.len > 0 && word.start[word.len - 1] == '/')
        word.len--;
    for (size_t i = word.len; i > 0; i--)
        if (word.start[i - 1] == '/')
            return (struct word){word.start + i, word.len - i};
    return word;
}

static const struct interpreter *interpreter_find(struct word program)
{
    for (size_t i = 0; i < sizeof(interpreters) / sizeof(*interpreters); i++) {
        size_t len = strlen(interpreters[i].name);
        if (program.len < len || strncmp(program.start, interpreters[i].name, len) != 0)
            continue;
        size_t at = len;
        while (at < program.len && (isdigit((unsigned char)program.start[at]) ||
                                    program.start[at] == '.' || program.start[at] == '-'))
            at++;
        if (at == program.len)
            return &interpreters[i];
    }
    return NULL;
}

static bool word_is(struct word word, const char *text)
{
    return word.len == strlen(text) && strncmp(word.start, text, word.len) == 0;
}

/* Does a long option take no value, or a number in the same word? */
static bool is_flag(struct word word)
{
    for (size_t i = 0; i < sizeof(flag_words) / sizeof(*flag_words); i++)
        if (word_is(word, flag_words[i]))
            return true;
    const char *value = memchr(word.start, '=', word.len);
    size_t at = value ? (size_t)(value - word.start) + 1 : word.len;
    bool number = at < word.len;
    for (; at < word.len; at++)
        number = number && isdigit((unsigned char)word.start[at]);
    return number;
}

/* Letters of one word, "-euo". True: it decides, and *ret_script is the script or of length 0; else the next word is
 * looked at. */
static bool letters_read(const struct interpreter *in, struct word word, const char **arguments,
                         struct word *ret_script)
{
    for (size_t i = 1; i < word.len; i++) {
        char letter = word.start[i];
        struct word rest = {word.start + i + 1, word.len - i - 1};
        *ret_script = (struct word){*arguments, 0};
        if (strchr(in->opaque, letter))
            return true;
        if (strchr(in->modules, letter)) {
            *ret_script = rest.len > 0 ? rest : word_next(arguments);
            return true;
        }
        if (strchr(in->valued, letter)) {
            if (rest.len == 0)
                word_next(arguments);
            return false;
        }
    }
    return false;
}

/* What comes through a descriptor has no name of its own: bash <(...), a script that sudo opened. */
static bool is_descriptor(struct word word)
{
    return (word.len > 5 && strncmp(word.start, "/dev/", 5) == 0) ||
           (word.len > 6 && strncmp(word.start, "/proc/", 6) == 0);
}

/* Is it what the kernel calls the process, which cuts long names? */
static bool is_comm(struct word base, const char *comm)
{
    size_t len = strlen(comm);
    return len > 0 && strncmp(base.start, comm, len) == 0 &&
           (base.len == len || (base.len > len && len == COMM_LEN_MAX));
}

/* A word may be the part of a path up to a space. So it counts as a script if it ends as scripts do, or if it is
 * what the kernel calls the process (a script that names its interpreter in its first line), which all may see. */
static struct word script_check(struct word word, const char *comm)
{
    struct word base = word_base(word);
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++) {
        size_t len = strlen(suffixes[i]);
        if (base.len > len && strncmp(base.start + base.len - len, suffixes[i], len) == 0)
            return base;
    }
    return is_comm(base, comm) ? base : (struct word){word.start, 0};
}

/* The script among an interpreter's arguments; of length 0 when there is none. All users may see the name of a
 * process, but only its owner its arguments. The text does not tell where an argument with spaces ends. So in doubt
 * there is no script. */
static struct word script_find(const struct interpreter *in, const char *arguments,
                               const char *comm)
{
    for (;;) {
        struct word word = word_next(&arguments), script;
        const struct word none = {arguments, 0};
        if (word.len == 0)
            return word;
        if (word.start[0] != '-')
            return is_descriptor(word) ? none : script_check(word, comm);
        if (word.len == 1) /* "-" reads the script from stdin */
            return none;
        if (word.start[1] == '-') {
            if (!is_flag(word))
                return none;
        } else if (letters_read(in, word, &arguments, &script)) {
            return script;
        }
    }
}

void ledger_name(const char *exe, const char *comm, const char *command, char *ret_name,
                 size_t size)
{
    const char *rest = command;
    struct word first = word_base(word_next(&rest));
    struct word name = word_base((struct word){exe, strlen(exe)});
    /* The kernel's words for a program whose file was replaced or removed while it runs. */
    static const char deleted[] = " (deleted)";
    size_t end = sizeof(deleted) - 1;
    if (name.len > end && strncmp(name.start + name.len - end, deleted, end) == 0)
        name.len -= end;
    if (name.len == 0)
        name = (struct word){comm, strlen(comm)};
    /* By the name that it was called with, or by that of its file: python3 may be a link. */
    const struct interpreter *in = interpreter_find(first);
    if (!in)
        in = interpreter_find(name);
    if (in) {
        struct word script = script_find(in, rest, comm);
        if (script.len > 0)
            name = script;
    } else if (is_comm(first, comm)) {
        name = first; /* the link by which it was started: redis-server is one to redis-check-rdb */
    }
    if (name.len == 0)
        name = first.len > 0 ? first : (struct word){"?", 1};
    snprintf(ret_name, size, "%.*s", (int)name.len, name.start);
}
