/* An interpreter's name says nothing about the program that it runs, so its script's name is shown
 * instead. A table says which programs are interpreters and which of their options take a value. */
#include "ledger/name.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct interpreter {
    const char *name;    /* what follows it may only be a version: python3.11 */
    const char *valued;  /* one-letter options with a value that is not the script */
    const char *glued;   /* those whose value is always in the same word */
    const char *inlines; /* options after which there is no script: code, or arguments of one */
    const char *modules; /* options whose value is the program */
};

static const struct interpreter interpreters[] = {
    {"python", "WX", "", "c", "m"}, {"pypy", "WX", "", "c", "m"},     {"perl", "I", "Mm", "eE", ""},
    {"ruby", "IrCE", "", "e", ""},  {"node", "r", "", "ep", ""},      {"nodejs", "r", "", "ep", ""},
    {"bash", "oO", "", "cs", ""},   {"dash", "o", "", "cs", ""},      {"sh", "o", "", "cs", ""},
    {"zsh", "o", "", "cs", ""},     {"php", "dcz", "", "rBRE", "f"},  {"lua", "l", "", "e", ""},
    {"Rscript", "", "", "e", ""},   {"julia", "CpLJt", "", "eE", ""},
};

/* Long options that bring code. */
static const char *const inline_words[] = {"--eval",          "--print",        "--run",
                                           "--process-begin", "--process-code", "--process-end"};

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

static bool brings_code(struct word word)
{
    for (size_t i = 0; i < sizeof(inline_words) / sizeof(*inline_words); i++) {
        size_t len = strlen(inline_words[i]);
        if (word.len >= len && strncmp(word.start, inline_words[i], len) == 0 &&
            (word.len == len || word.start[len] == '='))
            return true;
    }
    return false;
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
        if (strchr(in->inlines, letter))
            return true;
        if (strchr(in->modules, letter)) {
            *ret_script = rest.len > 0 ? rest : word_next(arguments);
            return true;
        }
        if (strchr(in->glued, letter))
            return false;
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

/* The script among an interpreter's arguments; of length 0 when there is none. Everybody may see the name of a process,
 * but only its owner its arguments: so in doubt there is none. */
static struct word script_find(const struct interpreter *in, const char *arguments)
{
    for (;;) {
        struct word word = word_next(&arguments), script;
        if (word.len == 0)
            return word;
        if (word.start[0] != '-')
            return is_descriptor(word) ? (struct word){arguments, 0} : word_base(word);
        if (word.len == 1 || brings_code(word)) /* "-" reads the script from stdin */
            return (struct word){arguments, 0};
        if (word.start[1] == '-')
            continue; /* long options carry their value */
        if (letters_read(in, word, &arguments, &script))
            return script;
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
        struct word script = script_find(in, rest);
        if (script.len > 0)
            name = script;
    }
    if (name.len == 0)
        name = first.len > 0 ? first : (struct word){"?", 1};
    snprintf(ret_name, size, "%.*s", (int)name.len, name.start);
}
