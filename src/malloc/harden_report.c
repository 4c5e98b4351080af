/*
 * harden_report.c: the last words of a program that did something wrong with its heap.
 *
 * One message, so that it stays in one piece:
 *
 *   memoir-malloc: double free of a block of 24 bytes at 0x7f21a0400040
 *     now by:
 *       /usr/bin/program+0x1234
 *     freed before by:
 *       ...
 *     allocated by:
 *       ...
 *
 * Places are module and offset, as addr2line takes them. It is written with what was there before the crime: the depot and the
 * block's record, whose check says whether it can be believed.
 */
#include <string.h>
#include <unistd.h>

#include "malloc/depot.h"
#include "malloc/fatal.h"
#include "malloc/gone.h"
#include "malloc/harden.h"
#include "malloc/line.h"

static const struct {
    char what[64];  /* before "at ADDRESS" */
    char block[40]; /* before the bytes of a block that is known */
} crimes[] = {
    [HARD_FOREIGN] = {"free of something that this program's heap does not have,", ""},
    [HARD_INSIDE] = {"free of an address inside a block,", "inside a block"},
    [HARD_UNUSED] = {"free of memory that is no block, or is none any more,", ""},
    [HARD_TWICE] = {"double free", "double free of a block"},
    [HARD_OVERRUN] = {"write beyond the end of a block", "write beyond the end of a block"},
    [HARD_RECORD] = {"what follows a block was overwritten",
                     "what follows a block was overwritten"},
    [HARD_AFTER] = {"write after free", "write after free into a block"},
};

static void stack_say(struct line *l, const char *title, uint32_t stack)
{
    const struct depot_stack *s = depot_get(stack);
    line_text(l, title);
    line_stack(l, s ? s->pcs : NULL, s ? s->n : 0);
}

/* The record of a block is to be believed only while its check holds. */
static void block_say(struct line *l, const struct hard_block *b)
{
    enum hard_state state = hard_state(b);
    if (state == HARD_DAMAGED)
        return;
    if (state == HARD_FREED)
        stack_say(l, "  freed before by:\n", b->record->free_stack);
    stack_say(l, "  allocated by:\n", b->record->alloc_stack);
}

/* A large block that was freed, and is no more. */
static void gone_say(struct line *l, const struct gone *g, const struct unwind_state *from)
{
    line_text(l, "double free of a block of ");
    line_number(l, g->bytes);
    line_text(l, " bytes at ");
    line_hex(l, (uintptr_t)g->start);
    stack_say(l, "\n  now by:\n", depot_add(from));
    stack_say(l, "  freed before by:\n", g->free_stack);
    stack_say(l, "  allocated by:\n", g->alloc_stack);
}

/* What can be said of the block in one line. */
static void crime_say(struct line *l, enum hard_crime crime, const void *p,
                      const struct hard_block *b, const void *where)
{
    bool known = b && b->start && hard_state(b) != HARD_DAMAGED;
    if (known && crime != HARD_INSIDE) {
        line_text(l, crimes[crime].block);
        line_text(l, " of ");
        line_number(l, b->record->bytes);
        line_text(l, " bytes");
    } else {
        line_text(l, crimes[crime].what);
    }
    line_text(l, " at ");
    line_hex(l, (uintptr_t)p);
    if (known && crime == HARD_INSIDE) {
        line_text(l, ", ");
        line_number(l, (uint64_t)((const char *)p - b->start));
        line_text(l, " bytes into one of ");
        line_number(l, b->record->bytes);
    } else if (known && where && where != b->record) {
        line_text(l, ", byte ");
        line_number(l, (uint64_t)((const char *)where - b->start));
    } else if (b && b->start && !known) {
        line_text(l, ", which has room for ");
        line_number(l, b->usable - HARD_EXTRA);
    }
    line_text(l, "\n");
}

_Noreturn void hard_report(enum hard_crime crime, const void *p, const struct hard_block *b,
                           const void *where)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    struct line l = {.length = 0};
    struct gone gone;
    bool late = crime == HARD_AFTER || crime == HARD_OVERRUN || crime == HARD_RECORD;
    line_text(&l, "memoir-malloc: ");
    if ((crime == HARD_UNUSED || crime == HARD_FOREIGN) && gone_find(p, &gone)) {
        gone_say(&l, &gone, &from);
    } else {
        crime_say(&l, crime, p, b, where);
        stack_say(&l, late ? "  found by:\n" : "  now by:\n", depot_add(&from));
        if (b && b->start)
            block_say(&l, b);
    }
    line_write(&l, STDERR_FILENO);
    fatal_end();
}
