/*
 * advice.h: whether the memory of a call site is worth pinning, from what a process shows or a
 * history has (state_read.h). For `memoir pin advise` and the API alike. Pure.
 */
#pragma once

#include <stdint.h>

#include "pin/state.h"

enum pin_advice_kind {
    PIN_ADVICE_LEAVE = 0, /* all its copies together do not save what its memory costs */
    PIN_ADVICE_REUSE = 1, /* all together save what one allocation costs: use one again and again */
    PIN_ADVICE_PIN = 2,   /* each allocation saves what it costs */
};

struct pin_advice {
    enum pin_advice_kind kind;
    uint64_t saves_ns;   /* what pinned copies take less than pageable ones, in all */
    uint64_t each_ns;    /* the same for one allocation */
    uint64_t cost_bytes; /* memory that would be pinned: the average allocation */
};

struct pin_advice pin_advice_of(const struct pin_state *state, const struct pin_state_site *site);

/* "pin", "reuse" or "leave". */
const char *pin_advice_word(enum pin_advice_kind kind);
