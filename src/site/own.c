/* See own.h. */
#include "site/own.h"

#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* A word of a list; one that ends with '*' stands for all that begin so. */
static bool is_one_of(const char *text, size_t len, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t word = strlen(list[i]);
        if (list[i][word - 1] == '*' ? len >= word - 1 && memcmp(text, list[i], word - 1) == 0
                                     : len == word && memcmp(text, list[i], word) == 0)
            return true;
    }
    return false;
}

/* ---- modules ---- */

static const char *const standard_modules[] = {
    "libc.so*",     "libc-2*",      "libc.musl*", "ld-linux*", "ld-musl*",      "libstdc++*",
    "libc++*",      "libgcc_s*",    "libm.so*",   "libm-2*",   "libpthread*",   "libdl.so*",
    "librt.so*",    "libasan*",     "libtsan*",   "libubsan*", "libmemoir*",    "libjemalloc*",
    "libtcmalloc*", "libmimalloc*", "[vdso]",     "libstd-*",  "libtbbmalloc*",
};

static const char *const interpreters[] = {
    "python",   "python2*",  "python3*", "libpython*", "pypy*",    "perl",     "perl5*",
    "libperl*", "ruby",      "ruby2*",   "ruby3*",     "libruby*", "node",     "nodejs",
    "libnode*", "libv8*",    "php",      "php7*",      "php8*",    "php-fpm*", "libphp*",
    "java",     "libjvm.so", "lua5*",    "luajit*",    "liblua*",
};

static const char *base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_shared(const char *name)
{
    const char *so = strstr(name, ".so");
    return so && (so[3] == '\0' || so[3] == '.');
}

/* A shared library where systems install them. Programs in these folders are themselves what is looked at. */
static bool is_installed(const char *path)
{
    static const char *const folders[] = {"/usr/lib", "/lib/",          "/lib64/",
                                          "/lib32/",  "/usr/local/lib", "/usr/libexec/"};
    for (size_t i = 0; i < COUNT(folders); i++)
        if (starts(path, folders[i]))
            return is_shared(base(path));
    return false;
}

static bool is_standard_module(const char *path)
{
    const char *name = base(path);
    size_t len = strlen(name);
    return is_one_of(name, len, standard_modules, COUNT(standard_modules)) ||
           is_one_of(name, len, interpreters, COUNT(interpreters)) ||
           (starts(path, "/usr/lib/jvm/") && is_shared(name));
}

bool own_module(const char *path)
{
    return path && *path && !is_standard_module(path) && !is_installed(path);
}

/* ---- source files ---- */

static bool has_part(const char *path, const char *const *parts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(path, parts[i]))
            return true;
    return false;
}

static bool is_standard_file(const char *file)
{
    static const char *const beginnings[] = {
        "/usr/include/",       "/usr/lib/gcc/", "/usr/lib/llvm",  "/usr/lib/clang/",
        "/usr/local/include/", "/rustc/",       "/usr/src/rustc", "/usr/lib/go",
        "/usr/local/go/src/",  "/rust/deps/",   "/usr/share/go-",
    };
    static const char *const parts[] = {"/include/c++/", "/libstdc++-v3/", "/libcxx/",
                                        "/rustlib/src/rust/"};
    for (size_t i = 0; i < COUNT(beginnings); i++)
        if (starts(file, beginnings[i]))
            return true;
    return has_part(file, parts, COUNT(parts));
}

static bool is_library_file(const char *file)
{
    static const char *const parts[] = {"/.cargo/registry/", "/.cargo/git/", "/usr/share/cargo/",
                                        "/go/pkg/mod/"};
    return has_part(file, parts, COUNT(parts));
}

/* Modules of a script that it did not bring along. */
static bool is_library_script(const char *file)
{
    static const char *const beginnings[] = {"/usr/lib/python", "/usr/local/lib/python", "<frozen ",
                                             "node:"};
    static const char *const parts[] = {"/lib/python2.", "/lib/python3.", "/site-packages/",
                                        "/dist-packages/", "/node_modules/"};
    for (size_t i = 0; i < COUNT(beginnings); i++)
        if (starts(file, beginnings[i]))
            return true;
    return has_part(file, parts, COUNT(parts));
}

/* ---- functions ---- */

static const char *const wrappers[] = {
    "malloc",         "calloc",           "realloc",         "reallocarray",   "aligned_alloc",
    "posix_memalign", "strdup",           "strndup",         "operator new*",  "zmalloc*",
    "zcalloc*",       "zrealloc*",        "ztrymalloc*",     "ztrycalloc*",    "ztryrealloc*",
    "zstrdup",        "xmalloc*",         "xcalloc*",        "xrealloc*",      "xstrdup",
    "xstrndup",       "xmemdup*",         "xzalloc",         "xnmalloc",       "os::malloc*",
    "os::realloc*",   "AllocateHeap*",    "ReallocateHeap*", "Perl_safesys*",  "Perl_savepv*",
    "ruby_x*",        "rb_xmalloc*",      "objspace_x*",     "_emalloc*",      "emalloc",
    "erealloc*",      "ecalloc",          "g_malloc*",       "g_realloc*",     "g_strdup",
    "g_slice_alloc*", "safe_malloc",      "safe_calloc",     "safe_realloc",   "checked_malloc",
    "malloc_or_die",  "my_malloc",        "mem_malloc",      "CRYPTO_malloc*", "CRYPTO_zalloc",
    "sqlite3Malloc*", "sqlite3MemMalloc", "sqlite3_malloc*", "apr_palloc",     "ngx_alloc",
    "av_malloc*",     "__rust_alloc*",    "__rdl_alloc*",    "__rg_alloc*",    "__rust_realloc*",
};

/* A qualified name up to its arguments: "os::malloc" of "os::malloc(unsigned long, MEMFLAGS)". */
bool own_is_wrapper(const char *function)
{
    return function && is_one_of(function, strcspn(function, "("), wrappers, COUNT(wrappers));
}

/* Return types stand before the names of templates: "void std::vector<int>::emplace_back<int>(int&&)". */
static const char *skip_type(const char *function)
{
    static const char *const types[] = {"void ", "void* ", "bool ", "auto "};
    for (size_t i = 0; i < COUNT(types); i++)
        if (starts(function, types[i]))
            return function + strlen(types[i]);
    return function;
}

/* Where the source file is not known. */
static bool is_standard_function(const char *function)
{
    static const char *const beginnings[] = {
        "std::",        "__gnu_cxx::", "alloc::",  "core::",  "hashbrown::", "__cxxabi",
        "<alloc::",     "<core::",     "<std::",   "__rust_", "__rdl_",      "__libc_",
        "operator new", "_start",      "runtime.", "_cgo_",
    };
    function = skip_type(function);
    for (size_t i = 0; i < COUNT(beginnings); i++)
        if (starts(function, beginnings[i]))
            return true;
    return false;
}

/* ---- all together ---- */

static bool known(const char *text)
{
    return text && *text;
}

/* Of code made at run time, as V8 and the JVM name it. */
static bool is_standard_code(const char *function)
{
    static const char *const beginnings[] = {
        "Builtin:", "Stub:",  "BytecodeHandler:", "Handler:",    "RegExp:",
        "java.",    "Ljava/", "javax.",           "jdk.",        "Ljdk/",
        "sun.",     "Lsun/",  "StubRoutines",     "Interpreter", "py::<frozen",
    };
    for (size_t i = 0; i < COUNT(beginnings); i++)
        if (starts(function, beginnings[i]))
            return true;
    return strstr(function, " node:") != NULL;
}

static enum own_kind module_kind(const struct own_line *line)
{
    if (line->code)
        return known(line->function) && !is_standard_code(line->function) ? OWN_CODE : OWN_STANDARD;
    if (!known(line->module) || is_standard_module(line->module))
        return OWN_STANDARD;
    return is_installed(line->module) ? OWN_LIBRARY : OWN_CODE;
}

enum own_kind own_kind(const struct own_line *line)
{
    if (line->script)
        return known(line->file) && is_library_script(line->file) ? OWN_LIBRARY : OWN_CODE;
    enum own_kind kind = module_kind(line);
    if (known(line->file) ? is_standard_file(line->file)
                          : known(line->function) && is_standard_function(line->function))
        kind = OWN_STANDARD;
    else if (kind == OWN_CODE && known(line->file) && is_library_file(line->file))
        kind = OWN_LIBRARY;
    if (own_is_wrapper(line->function))
        kind = kind == OWN_CODE ? OWN_WRAPPER : OWN_ALLOCATOR;
    return kind;
}

size_t own_choose(const enum own_kind *kinds, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n && kinds[best] != OWN_CODE; i++)
        if (kinds[i] <= kinds[best])
            best = i;
    return best;
}
