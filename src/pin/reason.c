/* reason.c: see reason.h. */
#include "pin/reason.h"

static const struct {
    const char *word, *text;
} reasons[PIN_REASONS] = {
    [PIN_REASON_NONE] = {"never-copied", "it was never copied"},
    [PIN_REASON_NOT_YET] = {"not-yet", "its copies have not cost as much as pinning it"},
    [PIN_REASON_EARNED] = {"earned", "its copies had cost as much as pinning it"},
    [PIN_REASON_PREDICTED] = {"predicted", "earlier allocations of its call site were worth it"},
    [PIN_REASON_HISTORY] = {"history", "the saved history says that its call site is worth it"},
    [PIN_REASON_PROFILE] = {"profile", "mode profile pins everything"},
    [PIN_REASON_POOL] = {"pool", "it got memory that was pinned already"},
    [PIN_REASON_HINT] = {"hint", "the program asked for it"},
    [PIN_REASON_BUDGET] = {"budget", "the budget is full of memory that is worth more"},
    [PIN_REASON_FAILED] = {"failed", "the driver refused to register it"},
    [PIN_REASON_EVICTED] = {"evicted", "it made room for memory that is worth more"},
    [PIN_REASON_NO_GAIN] = {"no-gain", "copies of this size gain nothing"},
    [PIN_REASON_OWN] = {"own", "the program registered it itself"},
    [PIN_REASON_GRAPH] = {"graph", "a CUDA graph uses it, so it stays as it is"},
    [PIN_REASON_FORK] = {"paused",
                         "unregistered for a fork or realloc; pinned again when that pays"},
    [PIN_REASON_HINT_COLD] = {"hint-cold", "the program asked not to pin it"},
    [PIN_REASON_NOT_IN_HISTORY] = {"not-in-history",
                                   "the saved history does not say that it is worth it"},
    [PIN_REASON_REUSED] =
        {"reused",
         "copies of this memory, with earlier allocations in it, had cost as much as pinning it"},
    [PIN_REASON_LEASED] =
        {"leased", "pinned for a while: registering it pays, its memory is not paid for yet"},
    [PIN_REASON_LEASE_ENDED] = {"lease-ended", "it was pinned for a while, and made room"},
    [PIN_REASON_FUNDED] = {"funded",
                           "registering it pays, and the price of its memory was saved before"},
    [PIN_REASON_RING] = {"ring", "copies of memory that is not pinned are staged through it"},
    [PIN_REASON_OFF] = {"off", "pinning is switched off"},
};

const char *pin_reason_text(enum pin_reason reason)
{
    return (unsigned)reason < PIN_REASONS ? reasons[reason].text : "unknown";
}

const char *pin_reason_word(enum pin_reason reason)
{
    return (unsigned)reason < PIN_REASONS ? reasons[reason].word : "unknown";
}
