/* A library is unloaded and another appears at the same address: cached rules of the first must not
 * be used for the second. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "site/module.h"
#include "site/rules.h"
#include "site/unwind.h"

enum { MAX = 64 };

static struct unwind_cache cache;
static struct unwind_trace trace;
static uintptr_t plugin_pc; /* the return address inside plugin_call */

struct reference {
    uintptr_t pcs[MAX];
    size_t n;
};

static _Unwind_Reason_Code reference_add(struct _Unwind_Context *context, void *arg)
{
    struct reference *ref = arg;
    uintptr_t pc = _Unwind_GetIP(context);
    if (pc == 0 || ref->n == MAX)
        return _URC_END_OF_STACK;
    ref->pcs[ref->n++] = pc;
    return _URC_NO_REASON;
}

/* Called by the plugin: 1 if our stack is libgcc's. */
static __attribute__((noinline)) int compare_here(void)
{
    uintptr_t pcs[MAX];
    struct reference ref = {.n = 0};
    struct unwind_state from = UNWIND_STATE_CALLER();
    size_t n = unwind_stack_from(&cache, &from, pcs, MAX, &trace);
    _Unwind_Backtrace(reference_add, &ref);
    plugin_pc = pcs[0];
    return n == ref.n - 1 && memcmp(pcs, ref.pcs + 1, n * sizeof(pcs[0])) == 0;
}

struct visit {
    uintptr_t base;
    uintptr_t pc;
    uint64_t identity;
    uint32_t flags;
    int same;
};

/* Load, walk through it several times, unload. */
static struct visit visit(const char *path)
{
    int (*call)(int (*)(void));
    struct link_map *map;
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        fail_msg("%s", dlerror());
    *(void **)&call = dlsym(lib, "plugin_call");
    assert_int_equal(dlinfo(lib, RTLD_DI_LINKMAP, &map), 0);
    struct visit v = {.base = map->l_addr, .same = 1};
    for (int i = 0; i < 5; i++)
        v.same &= call(compare_here);
    v.pc = plugin_pc;
    v.identity = trace.identity;
    v.flags = trace.flags;
    if (!(v.flags & UNWIND_UNSTABLE))
        assert_int_equal(unwind_identity(&cache, v.pc) != 0, 1);
    dlclose(lib);
    return v;
}

/* Visit `path` until it lies where `like` did. */
static struct visit visit_at(const char *path, const struct visit *like)
{
    struct visit v = {0};
    for (int i = 0; i < 100; i++) {
        v = visit(path);
        if (v.base == like->base && v.pc == like->pc)
            return v;
    }
    fail_msg("%s never came to the same address", path);
    return v;
}

static void replaced_library_is_walked_by_its_own_rules(void **state)
{
    struct visit a = visit(PLUGIN_A);
    assert_int_equal(a.same, 1);
    assert_int_equal(a.flags & UNWIND_UNSTABLE, 0);
    struct visit b = visit_at(PLUGIN_B, &a);
    assert_int_equal(b.same, 1);
    struct visit again = visit_at(PLUGIN_A, &a);
    assert_int_equal(again.same, 1);
}

static void identity_tells_replaced_code_apart(void **state)
{
    struct visit a = visit(PLUGIN_A), b = visit_at(PLUGIN_B, &a), again = visit_at(PLUGIN_A, &a);
    assert_true(a.identity != 0 && b.identity != 0);
    assert_true(a.identity != b.identity);
    /* The very same library at the very same place is the same code. */
    assert_true(a.identity == again.identity);
}

static void cached_rules_of_a_loaded_library_are_used(void **state)
{
    visit(PLUGIN_A);
    uint64_t misses = cache.misses;
    visit(PLUGIN_A);
    assert_true(cache.misses - misses <= 2);
}

static void build_id_outside_the_first_page_is_found(void **state)
{
    struct visit a = visit(PLUGIN_FAR_A), b = visit_at(PLUGIN_FAR_B, &a);
    assert_int_equal(a.flags & UNWIND_UNSTABLE, 0);
    assert_int_equal(b.flags & UNWIND_UNSTABLE, 0);
    assert_true(a.same && b.same && a.identity != b.identity);
}

static void library_without_build_id_is_walked_uncached(void **state)
{
    uint64_t uncached = cache.uncached;
    struct visit a = visit(PLUGIN_NOID_A), b = visit_at(PLUGIN_NOID_B, &a);
    assert_true(a.same && b.same);
    assert_true(a.flags & b.flags & UNWIND_UNSTABLE);
    assert_true(cache.uncached >= uncached + 2);
}

static void many_libraries_in_turn_leave_no_trace(void **state)
{
    static const char *const paths[] = {PLUGIN_A,      PLUGIN_B,     PLUGIN_NOID_A,
                                        PLUGIN_NOID_B, PLUGIN_FAR_A, PLUGIN_FAR_B};
    void *holes[8] = {0};
    for (unsigned i = 0; i < 2000; i++) {
        struct visit v = visit(paths[i * 7919 % 6]);
        if (!v.same)
            fail_msg("round %u", i);
        /* Move what comes next by keeping other libraries loaded for a while. */
        unsigned k = i * 31 % 8;
        if (holes[k])
            dlclose(holes[k]);
        holes[k] = i % 3 ? dlopen(paths[(i + k) % 6], RTLD_NOW | RTLD_LOCAL) : NULL;
    }
    for (unsigned k = 0; k < 8; k++)
        if (holes[k])
            dlclose(holes[k]);
}

static void libraries_of_the_program_are_permanent(void **state)
{
    struct module_info info;
    assert_int_equal(module_find((uintptr_t)compare_here, &info), 0);
    assert_true(info.permanent);
    assert_string_equal(info.path, "");
    assert_int_equal(module_find((uintptr_t)dlsym(RTLD_DEFAULT, "gnu_get_libc_version"), &info), 0);
    assert_true(info.permanent);
    assert_non_null(strstr(info.path, "libc.so"));
}

static void dlopened_library_is_not_permanent_unless_marked(void **state)
{
    struct module_info info;
    void *lib = dlopen(PLUGIN_A, RTLD_NOW | RTLD_LOCAL);
    assert_int_equal(module_find((uintptr_t)dlsym(lib, "plugin_call"), &info), 0);
    assert_false(info.permanent);
    dlclose(lib);
    lib = dlopen(PLUGIN_NODELETE, RTLD_NOW | RTLD_LOCAL);
    assert_int_equal(module_find((uintptr_t)dlsym(lib, "plugin_call"), &info), 0);
    assert_true(info.permanent);
    dlclose(lib);
}

static void module_is_known_only_around_its_own_code(void **state)
{
    uint64_t identity;
    void *lib = dlopen(PLUGIN_A, RTLD_NOW | RTLD_LOCAL);
    int (*call)(int (*)(void));
    *(void **)&call = dlsym(lib, "plugin_call");
    call(compare_here);
    unsigned module = rule_module(rule_find(&cache, plugin_pc - 1));
    assert_true(module != 0);
    assert_true(rule_module_verify(&cache, module, plugin_pc - 1, &identity));
    assert_false(rule_module_verify(&cache, module, (uintptr_t)compare_here, &identity));
    assert_false(rule_module_verify(&cache, module, (uintptr_t)dlsym(NULL, "getpid"), &identity));
    assert_false(rule_module_verify(&cache, module + 1, plugin_pc - 1, &identity) &&
                 cache.modules[module].seq == 0);
    dlclose(lib);
}

/* A copy of plugin A that claims to be another build. */
static void write_variant(const char *path, unsigned number)
{
    static char bytes[1 << 17];
    static size_t len;
    static char *id;
    if (!id) {
        struct module_info info;
        void *lib = dlopen(PLUGIN_A, RTLD_NOW | RTLD_LOCAL);
        assert_int_equal(module_find((uintptr_t)dlsym(lib, "plugin_call"), &info), 0);
        FILE *in = fopen(PLUGIN_A, "r");
        len = fread(bytes, 1, sizeof(bytes), in);
        fclose(in);
        dlclose(lib);
        id = memmem(bytes, len, info.build_id, info.build_id_len);
        assert_non_null(id);
    }
    memcpy(id, &number, sizeof(number));
    FILE *out = fopen(path, "w");
    assert_int_equal(fwrite(bytes, 1, len, out), len);
    fclose(out);
}

static void numbers_of_unloaded_modules_are_used_again_without_their_rules(void **state)
{
    char path[] = "/tmp/memoir-plugin-XXXXXX";
    close(mkstemp(path));
    /* A rule of module 1 that nothing else will overwrite. */
    uint64_t planted = UINT64_C(0x123) << RULE_BITS | UINT64_C(1) << RULE_MODULE_AT | 16;
    visit(PLUGIN_A);
    cache.rules[77][3] = planted;
    uint64_t purged = cache.modules_purged;
    for (unsigned i = 1; i <= UNWIND_MODULES_MAX + 20; i++) {
        write_variant(path, i);
        struct visit v = visit(path);
        assert_int_equal(v.same, 1);
        assert_int_equal(v.flags & UNWIND_UNSTABLE, 0);
    }
    unlink(path);
    assert_true(cache.modules_purged > purged);
    assert_true(cache.rules[77][3] != planted);
}

static int threads_stop;
static void *thread_reload(void *arg)
{
    while (!load_relaxed(&threads_stop)) {
        void *lib = dlopen(arg, RTLD_NOW | RTLD_LOCAL);
        if (lib)
            dlclose(lib);
    }
    return NULL;
}

static void walks_go_on_while_another_thread_reloads(void **state)
{
    pthread_t thread;
    store_relaxed(&threads_stop, 0);
    assert_int_equal(pthread_create(&thread, NULL, thread_reload, (void *)PLUGIN_B), 0);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(visit(i & 1 ? PLUGIN_A : PLUGIN_NOID_A).same, 1);
    store_relaxed(&threads_stop, 1);
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replaced_library_is_walked_by_its_own_rules),
        cmocka_unit_test(identity_tells_replaced_code_apart),
        cmocka_unit_test(cached_rules_of_a_loaded_library_are_used),
        cmocka_unit_test(build_id_outside_the_first_page_is_found),
        cmocka_unit_test(library_without_build_id_is_walked_uncached),
        cmocka_unit_test(many_libraries_in_turn_leave_no_trace),
        cmocka_unit_test(libraries_of_the_program_are_permanent),
        cmocka_unit_test(dlopened_library_is_not_permanent_unless_marked),
        cmocka_unit_test(module_is_known_only_around_its_own_code),
        cmocka_unit_test(numbers_of_unloaded_modules_are_used_again_without_their_rules),
        cmocka_unit_test(walks_go_on_while_another_thread_reloads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
