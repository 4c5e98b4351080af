/* See short_name.h. */
#include "site/short_name.h"

#include <stdbool.h>
#include <string.h>

#define ANONYMOUS "(anonymous namespace)"
#define DOTS      "<\xe2\x80\xa6>"

struct shortening {
    const char *at;
    char *out;
    size_t len;
    size_t word; /* where the last word of the output begins */
};

static bool put(struct shortening *s, const char *text, size_t len)
{
    if (s->len + len >= SHORT_NAME_MAX)
        return false;
    memcpy(s->out + s->len, text, len);
    s->len += len;
    return true;
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Does the output end with the word "operator"? Signs after it are part of the name. */
static bool after_operator(const struct shortening *s)
{
    static const char word[] = "operator";
    size_t len = sizeof(word) - 1;
    return s->len >= len && memcmp(s->out + s->len - len, word, len) == 0 &&
           (s->len == len || s->out[s->len - len - 1] == ':' || s->out[s->len - len - 1] == ' ');
}

/* Past the bracket that closes the one at `at`; the end where none does. */
static const char *past(const char *at)
{
    unsigned depth = 0;
    for (; *at; at++) {
        if (*at == '(' || *at == '<' || *at == '[' || *at == '{')
            depth++;
        bool arrow = *at == '>' && at[-1] == '-';
        if ((*at == ')' || *at == '>' || *at == ']' || *at == '}') && !arrow && --depth == 0)
            return at + 1;
    }
    return at;
}

/* "operator()", "operator<<", "operator new[]", "operator bool" */
static bool put_operator(struct shortening *s)
{
    const char *from = s->at;
    if (*from == ' ') {
        s->at += 1 + strcspn(from + 1, "(<");
    } else {
        static const char *const signs[] = {
            "<<=", ">>=", "<=>", "->*", "()", "[]", "<<", ">>", "<=", ">=", "==", "!=", "+=",
            "-=",  "*=",  "/=",  "%=",  "^=", "&=", "|=", "&&", "||", "++", "--", "->"};
        size_t len = strchr("<>=!+-*/%^&|~,", *from) && *from ? 1 : 0;
        for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]) && len < 2; i++)
            len = starts(from, signs[i]) ? strlen(signs[i]) : len;
        s->at += len;
        if (len == 0)
            return put(s, s->at++, 1); /* a name that only ends so */
    }
    size_t len = (size_t)(s->at - from);
    if (starts(s->at, " <")) /* arguments of a template */
        s->at = past(s->at + 1);
    return put(s, from, len);
}

/* "<alloc::vec::Vec<T,A> as core::ops::drop::Drop>::drop" is called by its type. */
static bool put_self_type(struct shortening *s)
{
    const char *end = past(s->at), *at = s->at + 1;
    bool impl = starts(at, "impl ");
    s->at = end;
    if (impl)
        return put(s, DOTS, sizeof(DOTS) - 1);
    while (at < end - 1 && !starts(at, " as ")) {
        if (*at == '<') {
            const char *inner = past(at);
            if (!put(s, DOTS, sizeof(DOTS) - 1))
                return false;
            at = inner;
        } else if (!put(s, at++, 1)) {
            return false;
        }
    }
    return true;
}

static bool skip(struct shortening *s, const char *text)
{
    if (!starts(s->at, text))
        return false;
    s->at += strlen(text);
    return true;
}

static bool step(struct shortening *s)
{
    if (after_operator(s) && *s->at != ':')
        return put_operator(s);
    if (skip(s, "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"))
        return put(s, "std::string", 11);
    if (starts(s->at, "std::__cxx11::") || starts(s->at, "std::__1::")) {
        s->at = strchr(s->at + 5, ':') + 2;
        return put(s, "std::", 5);
    }
    switch (*s->at) {
    case '<':
        if (s->len == s->word)
            return put_self_type(s);
        s->at = past(s->at);
        return put(s, DOTS, sizeof(DOTS) - 1);
    case '(':
        if (starts(s->at, ANONYMOUS)) {
            s->at += sizeof(ANONYMOUS) - 1;
            return put(s, ANONYMOUS, sizeof(ANONYMOUS) - 1);
        }
        s->at = past(s->at);
        while (*s->at && !starts(s->at, "::")) /* "const", "[clone .isra.0]" */
            s->at++;
        return true;
    case '{': { /* "{lambda(int)#1}" */
        const char *end = past(s->at), *from = s->at;
        s->at = end;
        return starts(from, "{lambda") ? put(s, "{lambda}", 8) : put(s, from, (size_t)(end - from));
    }
    case ' ': /* before it stood a type */
        s->at++;
        if (*s->at == '[') {
            s->at = past(s->at);
        } else {
            s->len = s->word = 0;
        }
        return true;
    default:
        return put(s, s->at++, 1);
    }
}

/* "::h0123456789abcdef" */
static size_t without_hash(const char *name, size_t len)
{
    enum { HASH = 19 };
    const char *hash = name + len - HASH;
    if (len <= HASH || !starts(hash, "::h") ||
        strspn(hash + 3, "0123456789abcdef") != (size_t)HASH - 3)
        return len;
    return len - HASH;
}

const char *short_name(const char *name, char out[static SHORT_NAME_MAX])
{
    size_t len = strlen(name);
    if (!strpbrk(name, "<( {") && without_hash(name, len) == len)
        return name;
    if (!strstr(name, "::") && (name[0] == '<' || strstr(name, ".<")))
        return name; /* a script's: "<module>", "load.<locals>.<lambda>" */
    struct shortening s = {.at = name, .out = out};
    while (*s.at && step(&s))
        ;
    out[s.len] = '\0';
    s.len = without_hash(out, s.len);
    out[s.len] = '\0';
    return s.len ? out : name;
}
