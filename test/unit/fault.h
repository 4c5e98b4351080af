/* Let the n-th allocation or system call of the code under test fail.
 *
 *     for (int nth = 0; fault_arm(nth); nth++)
 *         assert_true(history_roundtrip() == 0 || fault_fired());
 *
 * The calls are those that test/unit/meson.build wraps; they count only while armed. A program that
 * uses it has 'fault': true in that list. One thread. */
#pragma once

#include <stdbool.h>

/* Arm the nth (from 0) call to fail. False, and disarmed, when the round before never reached its
 * call: then every call has failed once. The first round of a loop starts with nth 0. */
bool fault_arm(int nth);

/* Whether the armed failure happened. */
bool fault_fired(void);

/* No more failures until armed again; fault_fired() keeps its answer. For the part of a round that
 * looks at the result. */
void fault_disarm(void);

/* From now on failures set errno to `error`; 0: to the usual value of each call. */
void fault_error(int error);

/* How often something was opened, and how often a call gave a descriptor with the number of a standard stream by which somebody could read or write. */
extern int fault_opens, fault_standard_opens;

/* From now on also flock() and madvise(), which code may well do without. */
void fault_widen(void);
