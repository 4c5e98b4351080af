/* settings.h: what the environment says (doc/pinning.md lists the variables). Read once; programs
 * that run with more rights than their user get the defaults. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum pin_mode {
    PIN_AUTO = 0,
    PIN_USE = 1,
    PIN_PROFILE = 2,
    PIN_SHADOW = 3,
    PIN_OFF = 4,
    PIN_MODES = 5
};

enum { PIN_PATH_MAX = 512 };

struct pin_settings {
    enum pin_mode mode;
    uint64_t threshold_bytes; /* smaller allocations are left to the program's allocator */
    uint64_t budget_bytes;    /* UINT64_MAX: as much as the machine allows */
    uint64_t price_ns_mib;    /* of pinned memory; UINT64_MAX: as calibrated */
    bool unlimited;           /* the budget is "unlimited": pinned memory has no price */
    bool checksum, async;
    bool stage; /* large copies of memory that is not pinned go through a ring that is */
    bool touch; /* memory that the program fills in order is touched ahead of it */
    bool adapt; /* costs follow what copies and registrations really take */
    bool keep;  /* the state file, after the end of the program: whoever started it reads that */
    char history[PIN_PATH_MAX]; /* read at the start, written at the end; "": none */
    char cache[PIN_PATH_MAX];   /* directory of calibrations; "": the usual ones */
};
extern struct pin_settings pin_settings;

void pin_settings_read(void);

/* "64M" and the like; false: not a size. */
bool pin_settings_bytes(const char *text, uint64_t *ret);
const char *pin_mode_word(enum pin_mode mode);
