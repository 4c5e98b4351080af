/* hooks.c: the functions that tt-metal calls in the belief that they are its own.
 *
 * Mangled names have no return type in them, so each hook hands on whatever register the real function
 * left, also where nobody looks at it. Allocations are told after they were made and frees before they
 * happen, as tt-metal calls these; then the hook ends in a jump to the real function, so that an exception
 * has no frame of ours to pass. The few that come back from it hold nothing that would have to be undone. */
#include <errno.h>

#include <memoir/memoir.h>

#include "tt/tt.h"

typedef uintptr_t word;

#define TT(name) __asm__("_ZN2tt8tt_metal" name)

MEMOIR_API word tt_hook_track_allocate(void *tracker, const void *buffer)
    TT("12GraphTracker14track_allocateEPKNS0_6BufferE");
MEMOIR_API word tt_hook_track_deallocate(void *tracker, void *buffer)
    TT("12GraphTracker16track_deallocateEPNS0_6BufferE");
MEMOIR_API word tt_hook_track_allocate_cb(void *tracker, const void *cores, uint64_t address,
                                          uint64_t bytes, bool global, const void *device)
    TT("12GraphTracker17track_allocate_cbERKNS0_12CoreRangeSetEmmbPKNS0_7IDeviceE");
MEMOIR_API word tt_hook_track_deallocate_cb(void *tracker, const void *device)
    TT("12GraphTracker19track_deallocate_cbEPKNS0_7IDeviceE");
MEMOIR_API word tt_hook_allocate_cbs(void *program, const void *device)
    TT("6detail11ProgramImpl25allocate_circular_buffersEPKNS0_7IDeviceE");
MEMOIR_API word tt_hook_deallocate_cbs(void *program)
    TT("6detail11ProgramImpl27deallocate_circular_buffersEv");
MEMOIR_API word tt_hook_compile(void *program, void *device, bool slow)
    TT("6detail11ProgramImpl7compileEPNS0_7IDeviceEb");
MEMOIR_API word tt_hook_program_destroyed(const void *program)
    TT("9Inspector17program_destroyedEPKNS0_6detail11ProgramImplE");

void *const tt_own[TT_HOOKS] = {
    [TT_TRACK_ALLOCATE] = tt_hook_track_allocate,
    [TT_TRACK_DEALLOCATE] = tt_hook_track_deallocate,
    [TT_TRACK_ALLOCATE_CB] = tt_hook_track_allocate_cb,
    [TT_TRACK_DEALLOCATE_CB] = tt_hook_track_deallocate_cb,
    [TT_ALLOCATE_CBS] = tt_hook_allocate_cbs,
    [TT_DEALLOCATE_CBS] = tt_hook_deallocate_cbs,
    [TT_COMPILE] = tt_hook_compile,
    [TT_PROGRAM_DESTROYED] = tt_hook_program_destroyed,
};

__thread struct tt_cbs_scope tt_cbs_making, tt_cbs_ending;
__thread struct tt_api *tt_outer;

#define CALLER() ((uintptr_t)__builtin_return_address(0))

word tt_hook_track_allocate(void *tracker, const void *buffer)
{
    int saved = errno;
    struct tt_api *api = tt_api_for(CALLER());
    if (api->features & TT_BUFFERS && buffer) {
        struct unwind_state state = UNWIND_STATE_CALLER();
        tt_buffer_made(api, buffer, &state);
    }
    errno = saved;
    word (*real)(void *, const void *) = tt_real(api, TT_TRACK_ALLOCATE);
    return real ? real(tracker, buffer) : 0;
}

word tt_hook_track_deallocate(void *tracker, void *buffer)
{
    int saved = errno;
    struct tt_api *api = tt_api_for(CALLER());
    if (api->features & TT_BUFFERS && buffer)
        tt_buffer_gone(buffer);
    errno = saved;
    word (*real)(void *, void *) = tt_real(api, TT_TRACK_DEALLOCATE);
    return real ? real(tracker, buffer) : 0;
}

/* A global one lies in a buffer that was told already. */
word tt_hook_track_allocate_cb(void *tracker, const void *cores, uint64_t address, uint64_t bytes,
                               bool global, const void *device)
{
    int saved = errno;
    struct tt_api *api = tt_api_for(CALLER());
    if (api->features & TT_CBS && !global && cores && device && bytes) {
        struct unwind_state state = UNWIND_STATE_CALLER();
        tt_cb_made(api, cores, address, bytes, device, &state);
    }
    errno = saved;
    word (*real)(void *, const void *, uint64_t, uint64_t, bool, const void *) =
        tt_real(api, TT_TRACK_ALLOCATE_CB);
    return real ? real(tracker, cores, address, bytes, global, device) : 0;
}

word tt_hook_track_deallocate_cb(void *tracker, const void *device)
{
    int saved = errno;
    struct tt_api *api = tt_api_for(CALLER());
    if (api->features & TT_CBS && device)
        tt_cbs_gone(api, device);
    errno = saved;
    word (*real)(void *, const void *) = tt_real(api, TT_TRACK_DEALLOCATE_CB);
    return real ? real(tracker, device) : 0;
}

word tt_hook_allocate_cbs(void *program, const void *device)
{
    int saved = errno;
    struct tt_api *api = tt_api_for(CALLER());
    struct tt_cbs_scope outer = tt_cbs_making;
    tt_cbs_making = (struct tt_cbs_scope){
        .program = program, .frame = (uintptr_t)__builtin_frame_address(0), .first = true};
    tt_outer = api; /* an exception leaves it: it stays good */
    errno = saved;
    word (*real)(void *, const void *) = tt_real(api, TT_ALLOCATE_CBS);
    word result = real ? real(program, device) : 0;
    tt_cbs_making = outer;
    return result;
}

word tt_hook_deallocate_cbs(void *program)
{
    int saved = errno;
    struct tt_api *api = tt_api_for(CALLER());
    struct tt_cbs_scope outer = tt_cbs_ending;
    tt_cbs_ending =
        (struct tt_cbs_scope){.program = program, .frame = (uintptr_t)__builtin_frame_address(0)};
    tt_outer = api; /* an exception leaves it: it stays good */
    errno = saved;
    word (*real)(void *) = tt_real(api, TT_DEALLOCATE_CBS);
    word result = real ? real(program) : 0;
    tt_cbs_ending = outer;
    return result;
}

/* Binaries have sizes once they are compiled. */
word tt_hook_compile(void *program, void *device, bool slow)
{
    struct unwind_state state = UNWIND_STATE_CALLER();
    int saved = errno;
    struct tt_api *api = tt_api_for(CALLER());
    tt_outer = api; /* an exception leaves it: it stays good */
    errno = saved;
    word (*real)(void *, void *, bool) = tt_real(api, TT_COMPILE);
    word result = real ? real(program, device, slow) : 0;
    saved = errno;
    if (api->features & TT_KERNELS && program && device)
        tt_program_compiled(api, program, device, &state);
    errno = saved;
    return result;
}

word tt_hook_program_destroyed(const void *program)
{
    int saved = errno;
    struct tt_api *api = tt_api_for(CALLER());
    if (api->features & (TT_CBS | TT_KERNELS) && program)
        tt_program_gone(program);
    errno = saved;
    word (*real)(const void *) = tt_real(api, TT_PROGRAM_DESTROYED);
    return real ? real(program) : 0;
}
