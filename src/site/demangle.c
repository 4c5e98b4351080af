/* Demangling with a bound on the output. */
#include "site/demangle.h"

#include <setjmp.h>
#include <stdbool.h>
#include <string.h>

#ifdef HAVE_LIBIBERTY
#include <libiberty/demangle.h>

enum { DROPPED_MAX = 1 << 20 };

struct output {
    char *text;
    size_t len;
    size_t size;    /* room, terminator included */
    size_t dropped; /* bytes that did not fit */
    size_t dropped_max;
    jmp_buf full;
};

/* The demangler offers no way to stop it, and a short name can stand for any number of bytes, so it is left by longjmp().
 * That of C++ holds no memory here. That of Rust does while it prints an identifier in Punycode, so there the rest is dropped
 * first: only a name of more than DROPPED_MAX bytes may leak one identifier. */
static void output_add(const char *text, size_t len, void *opaque)
{
    struct output *o = opaque;
    size_t room = o->size - 1 - o->len;
    size_t n = len < room ? len : room;
    if (n > 0) /* else `text` may be NULL */
        memcpy(o->text + o->len, text, n);
    o->len += n;
    o->dropped += len - n;
    if (o->dropped > o->dropped_max)
        longjmp(o->full, 1);
}

static bool mangled(const char *name)
{
    /* _Z C++ and old Rust, _R Rust; ___Z blocks and the like are left alone. */
    return name[0] == '_' && (name[1] == 'Z' || name[1] == 'R');
}

static size_t readable(const char *name, char *out, size_t size)
{
    struct output o = {.text = out, .size = size};
    if (!mangled(name) || strlen(name) > DEMANGLE_INPUT_MAX)
        return 0;
    o.dropped_max = name[1] == 'R' ? DROPPED_MAX : 0;
    if (setjmp(o.full) == 0) {
        int ok = rust_demangle_callback(name, 0, output_add, &o);
        if (!ok) {
            o.len = o.dropped = 0;
            ok = cplus_demangle_v3_callback(name, DMGL_PARAMS | DMGL_ANSI, output_add, &o);
        }
        if (!ok)
            return 0;
    }
    if (o.dropped && o.len > 3)
        memcpy(out + o.len - 3, "...", 3);
    out[o.len] = '\0';
    return o.len;
}
#else
static size_t readable(const char *name, char *out, size_t size)
{
    return 0;
}
#endif

/* The length of the name before its version, "fopen" of "fopen@GLIBC_2.1" and "fopen@@GLIBC_2.2.5"; 0 if it has none.
 * Elsewhere an @ is part of the name: compilers of other languages use it. */
static size_t before_version(const char *name)
{
    static const char version_chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                        "0123456789_.";
    size_t len = strcspn(name, "@");
    const char *version = name + len;
    version += *version == '@';
    version += *version == '@';
    size_t version_len = strspn(version, version_chars);
    return version_len > 0 && !version[version_len] ? len : 0;
}

size_t demangle(const char *name, char *out, size_t size)
{
    char bare[DEMANGLE_INPUT_MAX + 1];
    size_t bare_len = before_version(name);
    if (size < 2 || bare_len > DEMANGLE_INPUT_MAX)
        return 0;
    if (bare_len == 0)
        return readable(name, out, size);
    memcpy(bare, name, bare_len);
    bare[bare_len] = '\0';
    size_t len = readable(bare, out, size);
    if (len > 0)
        return len;
    len = bare_len < size - 1 ? bare_len : size - 1;
    memcpy(out, bare, len);
    out[len] = '\0';
    return len;
}
