/* Names of the ledger's numbers, for people and for output formats: they do not change. */
#include <stdio.h>

#include "ledger/ledger.h"

#define NAME_OF(table, i) ((i) < sizeof(table) / sizeof(*(table)) && (table)[i] ? (table)[i] : NULL)

const char *ledger_state_name(enum ledger_state state)
{
    static const char *const names[] = {
        [LEDGER_RUNNING] = "running", [LEDGER_STOPPED] = "stopped",   [LEDGER_CLOSED] = "closed",
        [LEDGER_EXITED] = "exited",   [LEDGER_REPLACED] = "replaced", [LEDGER_UNKNOWN] = "unknown",
    };
    const char *name = NAME_OF(names, (unsigned)state);
    return name ? name : "unknown";
}

const char *const ledger_space_words[MEMOIR_SPACE_MAX + 1] = {
    [MEMOIR_SPACE_HEAP] = "heap",     [MEMOIR_SPACE_MAPPED] = "mapped",
    [MEMOIR_SPACE_PINNED] = "pinned", [MEMOIR_SPACE_MANAGED] = "managed",
    [MEMOIR_SPACE_SHARED] = "shared", [MEMOIR_SPACE_CHAIN] = "chain",
    [MEMOIR_SPACE_DRAM] = "dram",     [MEMOIR_SPACE_L1] = "l1",
    [MEMOIR_SPACE_TRACE] = "trace",   [MEMOIR_SPACE_L1_SMALL] = "l1_small",
    [MEMOIR_SPACE_KERNEL] = "kernel", [MEMOIR_SPACE_CB] = "cb",
    [MEMOIR_SPACE_SYSTEM] = "system", [MEMOIR_SPACE_REGISTERED] = "registered",
};

const char *ledger_space_name(uint32_t space)
{
    const char *name = NAME_OF(ledger_space_words, space);
    if (name)
        return name;
    /* Numbers set aside for later: a newer writer's space still has a row of its own. */
    static _Thread_local char text[24];
    snprintf(text, sizeof(text), "space-%u", space);
    return text;
}

const char *ledger_source_name(uint32_t source)
{
    static const char *const names[] = {
        [BOOK_SOURCE_CLIENT] = "client", [BOOK_SOURCE_MALLOC] = "malloc",
        [BOOK_SOURCE_TRACK] = "track",   [BOOK_SOURCE_OBSERVER] = "observer",
        [BOOK_SOURCE_SOCKET] = "socket", [BOOK_SOURCE_REGION] = "region",
        [BOOK_SOURCE_CUDA] = "cuda",     [BOOK_SOURCE_ATTACH] = "attach",
    };
    const char *name = NAME_OF(names, source);
    return name ? name : "unknown";
}
