/* registration.h: between manager.c, copy.c and registration.c. The lock is held, and given up
 * while the driver works. */
#pragma once

#include "pin/manager.h"

/* Register all of a live extent. False: the driver refused. */
bool pin_extent_register(struct extent *extent);

/* Evict until the extent fits into the budget. False: it does not. */
bool pin_make_room(struct extent *extent, const struct pin_decision *decision, uint64_t now_ns);

/* End leases until the extent fits among them. False: it does not. */
bool pin_end_leases(struct extent *extent);
