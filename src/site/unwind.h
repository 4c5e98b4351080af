/* Call stacks, taken inside a stranger's process.
 *
 * Everything here is async-signal-safe, may interrupt itself, works after fork, takes no lock,
 * allocates nothing, keeps errno, and reads only memory that it knows to be readable (stack.h), so
 * it survives any stack, damaged ones too: the worst outcome is a short or wrong list of addresses.
 *
 * Three depths, from cheap to complete:
 *  - the caller: __builtin_return_address(0), by the user, 0.3 ns;
 *  - frame pointers: about 1 ns a frame, complete only where all code keeps them;
 *  - call frame information (.eh_frame): complete for all compiled code; about 5 ns a frame once the
 *    code addresses on the way are in the cache, half a microsecond for one that is not.
 *
 * Addresses come innermost first. Each is a return address, that is, one past a call: look up
 * `pc - 1`. The address of code that a signal interrupted is given plus one, so that this holds for
 * every frame.
 *
 * The cache maps code addresses to compact rules. It is one per process and shared by all threads: an
 * entry is one 64-bit word that holds both the address and its rule, so it can be neither torn nor
 * half-written, and a lost update costs a second look.
 *
 * dlclose. Rules of modules loaded with the program hold forever, for these are never unloaded. A
 * rule of any other module names it by a small number, and once per walk and module the walk asks the
 * loader (_dl_find_object, no lock) what is at this address now: the range, the place of its unwind
 * table and its build-id must be those for which the rules were made. Another library at the same
 * address differs in its build-id and gets a number of its own, so old rules die. No interposing of
 * dlclose is needed, and tables of unloaded modules are never touched. It costs about 25 ns per such
 * module and walk. Unloadable modules without build-id are unwound uncached. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "site/arch.h"

enum {
    UNWIND_SETS = 4096,
    UNWIND_WAYS = 4,
    UNWIND_MODULES_MAX = 255, /* unloadable modules whose rules are cached */
};

/* An unloadable module. Written under an odd `seq`, taken by compare-and-swap and never waited for. */
struct unwind_module {
    uint32_t seq; /* 0: unused. It also tells the module's successors apart */
    uint32_t id_len;
    uintptr_t map_start;
    uintptr_t map_end;
    uintptr_t eh_frame_hdr;
    uint64_t id_at; /* where the build-id lies, or 0 if it has to be looked for */
    uint64_t id[3]; /* its first 24 bytes */
};

/* Zeroed memory is an empty cache. About 150 KiB of address space; untouched pages stay untouched. A
 * copy made by fork is as good as the original. */
struct unwind_cache {
    uint64_t rules[UNWIND_SETS][UNWIND_WAYS] __attribute__((aligned(64)));
    struct unwind_module modules[UNWIND_MODULES_MAX];
    /* Statistics, any thread adds (relaxed, may lose a count). */
    uint64_t misses;         /* rules that had to be made */
    uint64_t uncached;       /* of those, not kept: module without build-id, table full, odd rule */
    uint64_t modules_purged; /* modules whose rules were dropped */
};

enum unwind_flags {
    UNWIND_CUT = 1u << 0,      /* the stack has more frames than fit */
    UNWIND_COMPLETE = 1u << 1, /* ends at the outermost frame (neither cut nor lost) */
    /* A frame lies in a module that may be unloaded and cannot be identified cheaply: whoever maps
     * addresses to sites must ask module_find() again. */
    UNWIND_UNSTABLE = 1u << 2,
};

struct unwind_trace {
    uint32_t flags; /* enum unwind_flags */
    /* 0 if all modules on the stack are permanent. Else a number that changes when an unloadable
     * module on this stack is replaced by another: the same addresses with the same identity are the
     * same code. Meant as a part of the key in caches from addresses to sites. */
    uint64_t identity;
};

/* The stack of the caller: pcs[0] lies in the function that calls this. Returns the number of
 * addresses, at most `max`. `cache` may be NULL (slow). Uses about 2 KiB of stack on a miss. */
size_t unwind_stack(struct unwind_cache *cache, uintptr_t *pcs, size_t max);

/* The same from a given state; with `UNWIND_STATE_CALLER()` pcs[0] is the return address of the
 * function in which that was written, so that a library leaves its own frames out. The state must be
 * of this thread: of a frame further out, or of what a signal handler was told. `ret_trace` may be
 * NULL. */
size_t unwind_stack_from(struct unwind_cache *cache, const struct unwind_state *from,
                         uintptr_t *pcs, size_t max, struct unwind_trace *ret_trace);

/* The same, with the stack pointer of each frame, so that a frame is known to reach from sps[i] to
 * sps[i + 1]: which tells in whose frame an address on the stack lies. `sps` has room for `max`. */
size_t unwind_stack_places(struct unwind_cache *cache, const struct unwind_state *from,
                           uintptr_t *pcs, uintptr_t *sps, size_t max,
                           struct unwind_trace *ret_trace);

/* Identity of the code at one return address, as in unwind_trace: 0 for permanent modules, which
 * costs 4 ns, 25 ns for unloadable ones; UINT64_MAX if it cannot be told (as UNWIND_UNSTABLE). */
uint64_t unwind_identity(struct unwind_cache *cache, uintptr_t pc);

/* Walk the chain of saved frame pointers that starts with `fp`, as __builtin_frame_address(0) gives
 * it; pcs[0] is the return address stored in that frame. Garbage ends the walk. */
size_t unwind_frame_pointers(uintptr_t *pcs, size_t max, uintptr_t fp);
