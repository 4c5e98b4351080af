/* Circular buffers of many programs: what is reported is the union of the L1 in which they lie. The rest of the
 * library is played here, so that the reports can be added up. */
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

#include "check.h"
#include "tt/tt.h"

enum { DEVICES = 3, ADDRESSES = 64, PROGRAMS = 6, UNIT = 16, STEPS = 20000 };

__thread struct tt_cbs_scope tt_cbs_making, tt_cbs_ending;
static struct tt_cbs list;
static uint64_t live[DEVICES][ADDRESSES]; /* as reported, by device and id */
static struct tt_fan fans[2] = {{.n = 1, .devices = {0}}, {.n = 2, .devices = {1, 2}}};
static uint32_t cores_now;
static struct tt_api api;

bool tt_lock(void)
{
    return true;
}
void tt_unlock(void)
{
}
struct tt_cbs *tt_cbs_list(void)
{
    return &list;
}
int tt_fan_find(struct tt_api *unused, const void *device)
{
    return (int)(uintptr_t)device - 1;
}
const struct tt_fan *tt_fan_at(int index)
{
    return &fans[index];
}
struct tt_site tt_site_find(const struct tt_api *unused, const struct unwind_state *state)
{
    return (struct tt_site){.pc = 1};
}
void tt_alloc_on(int device, int space, uint64_t id, uint64_t bytes, const struct tt_site *site)
{
    assert_int_equal(space, MEMOIR_SPACE_CB);
    assert_int_equal(live[device][id / UNIT], 0); /* never reported twice */
    assert_true(bytes > 0);
    live[device][id / UNIT] = bytes;
}
void tt_free_on(int device, int space, uint64_t id)
{
    assert_int_not_equal(live[device][id / UNIT], 0);
    live[device][id / UNIT] = 0;
}
static uint32_t num_cores(const void *unused)
{
    return cores_now;
}

static void *program_of(int number)
{
    return (void *)(uintptr_t)(number + 1);
}
static const void *device_of(int fan)
{
    return (void *)(uintptr_t)(fan + 1);
}

/* Frames lie above those of what they call. */
static struct tt_cbs_scope scope_of(void *program)
{
    return (struct tt_cbs_scope){.program = program, .frame = UINTPTR_MAX, .first = true};
}

static uint64_t reported(int device)
{
    uint64_t sum = 0;
    for (int i = 0; i < ADDRESSES; i++)
        sum += live[device][i];
    return sum;
}

static int begin(void **state)
{
    memset(live, 0, sizeof(live));
    list.n = 0;
    cores_now = 1;
    api = (struct tt_api){.num_cores = num_cores};
    api.real[TT_PROGRAM_DESTROYED] = program_of(0);
    tt_cbs_making = tt_cbs_ending = (struct tt_cbs_scope){0};
    return 0;
}

static void make(int program, int fan, uint64_t from, uint64_t to)
{
    tt_cb_made(&api, &api, from * UNIT, (to - from) * UNIT, device_of(fan), NULL);
}

/* ---- tests ---- */

/* A model that knows which units of which device each program covers. */
static void random_programs_report_their_union(void **state)
{
    static bool covered[DEVICES][PROGRAMS][ADDRESSES];
    memset(covered, 0, sizeof(covered));
    srand(1);
    for (int step = 0; step < STEPS; step++) {
        int program = rand() % PROGRAMS, fan = rand() % 2;
        const struct tt_fan *f = &fans[fan];
        if (rand() % 3 == 0) { /* it ends, here or everywhere */
            bool everywhere = rand() % 2;
            if (everywhere) {
                tt_cbs_of_program_gone(program_of(program));
            } else {
                tt_cbs_ending = scope_of(program_of(program));
                tt_cbs_gone(&api, device_of(fan));
                tt_cbs_ending.program = NULL;
            }
            for (int d = 0; d < DEVICES; d++)
                if (everywhere || (fan == 0) == (d == 0))
                    memset(covered[d][program], 0, sizeof(covered[d][program]));
        } else { /* it is laid out, perhaps again */
            tt_cbs_making = scope_of(program_of(program));
            for (uint32_t i = 0; i < f->n; i++)
                memset(covered[f->devices[i]][program], 0, ADDRESSES);
            for (int n = 1 + rand() % 4; n > 0; n--) {
                int from = rand() % (ADDRESSES - 1),
                    to = from + 1 + rand() % (ADDRESSES - 1 - from);
                make(program, fan, (uint64_t)from, (uint64_t)to);
                for (uint32_t i = 0; i < f->n; i++)
                    memset(&covered[f->devices[i]][program][from], 1, (size_t)(to - from));
            }
            tt_cbs_making.program = NULL;
        }
        for (int d = 0; d < DEVICES; d++) {
            uint64_t units = 0;
            for (int a = 0; a < ADDRESSES; a++) {
                bool any = false;
                for (int p = 0; p < PROGRAMS; p++)
                    any |= covered[d][p][a];
                units += any;
            }
            assert_int_equal(reported(d), units * UNIT);
        }
    }
}

static void cores_multiply(void **state)
{
    cores_now = 10;
    make(0, 0, 0, 2);
    assert_int_equal(reported(0), 2 * UNIT * 10);
    cores_now = 64; /* more cores use the same addresses */
    make(0, 0, 0, 1);
    assert_int_equal(reported(0), UNIT * 64 + UNIT * 64);
}

static void those_of_nobody_known_go_with_the_device(void **state)
{
    make(0, 0, 0, 4);
    tt_cbs_making = scope_of(program_of(1));
    make(1, 0, 8, 10);
    tt_cbs_making.program = NULL;
    tt_cbs_gone(&api, device_of(0)); /* nobody says whose */
    assert_int_equal(reported(0), 2 * UNIT);
    tt_cbs_of_program_gone(program_of(1));
    assert_int_equal(reported(0), 0);
}

/* Where the end of a program is not seen, the word about the device is all there is. */
static void all_go_where_programs_end_unseen(void **state)
{
    api.real[TT_PROGRAM_DESTROYED] = NULL;
    tt_cbs_making = scope_of(program_of(1));
    make(1, 0, 8, 10);
    tt_cbs_making.program = NULL;
    tt_cbs_gone(&api, device_of(0));
    assert_int_equal(reported(0), 0);
}

/* An exception went through the hook: its frame is gone, and what comes later is not that program's. */
static void a_scope_that_was_left_does_not_count(void **state)
{
    tt_cbs_making = scope_of(program_of(1));
    tt_cbs_making.frame = 1; /* further in than anything that runs */
    make(0, 0, 0, 4);
    tt_cbs_of_program_gone(program_of(1));
    assert_int_equal(reported(0), 4 * UNIT);
}

static void nonsense_is_left_out(void **state)
{
    tt_cb_made(&api, &api, UINT64_MAX - 5, 100, device_of(0), NULL); /* past the end */
    cores_now = 0;
    make(0, 0, 0, 4);
    assert_int_equal(list.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(random_programs_report_their_union, begin),
        cmocka_unit_test_setup(cores_multiply, begin),
        cmocka_unit_test_setup(those_of_nobody_known_go_with_the_device, begin),
        cmocka_unit_test_setup(all_go_where_programs_end_unseen, begin),
        cmocka_unit_test_setup(a_scope_that_was_left_does_not_count, begin),
        cmocka_unit_test_setup(nonsense_is_left_out, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
