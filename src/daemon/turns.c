/* See turns.h. */
#include "daemon/turns.h"

#include "base/hash.h"

void turns_init(struct turns *turns, uint64_t share, uint64_t short_ns)
{
    TAILQ_INIT(&turns->waiting);
    turns->share = share;
    turns->short_ns = short_ns;
}

static void take_out(struct turns *turns, struct turn *turn)
{
    TAILQ_REMOVE(&turns->waiting, turn, link);
    turns->n--;
    turn->waiting = false;
}

/* The user whose last piece is longest ago; of its turns the first. */
static void choose(struct turns *turns)
{
    struct turn *turn;
    turns->next = NULL;
    TAILQ_FOREACH(turn, &turns->waiting, link)
    {
        if (!turns->next || turns->last[turn->who] < turns->last[turns->next->who])
            turns->next = turn;
    }
}

void turns_leave(struct turns *turns, struct turn *turn)
{
    if (!turn->waiting)
        return;
    take_out(turns, turn);
    if (turns->next == turn)
        choose(turns);
}

/* Where the next one did not come, others may not have either: one walk for all. */
static void drop_late(struct turns *turns, uint64_t now_ns)
{
    struct turn *turn, *after;
    if (!turns->next || now_ns <= turns->next->due_ns + TURNS_LATE_NS)
        return;
    for (turn = TAILQ_FIRST(&turns->waiting); turn; turn = after) {
        after = TAILQ_NEXT(turn, link);
        if (now_ns > turn->due_ns + TURNS_LATE_NS)
            take_out(turns, turn);
    }
    choose(turns);
}

static void enter(struct turns *turns, struct turn *turn, uint64_t who)
{
    turn->waiting = true;
    turn->who = (uint32_t)(hash_mix(who + 1) % TURNS_WHO);
    TAILQ_INSERT_TAIL(&turns->waiting, turn, link);
    turns->n++;
    if (!turns->next || turns->last[turn->who] < turns->last[turns->next->who])
        turns->next = turn;
}

uint64_t turns_wait(struct turns *turns, struct turn *turn, uint64_t who, uint64_t now_ns)
{
    uint64_t rest = turns->rest_until_ns > now_ns ? turns->rest_until_ns - now_ns : 0;
    if (!turn->waiting)
        enter(turns, turn, who);
    turn->due_ns = now_ns; /* it has called */
    drop_late(turns, now_ns);
    if (rest == 0 && turns->next == turn) {
        take_out(turns, turn);
        turns->last[turn->who] = ++turns->pieces;
        choose(turns);
        return 0;
    }
    if (turns->next != turn)
        rest += TURNS_LOOK_NS + turns->n * TURNS_LOOK_MORE_NS;
    turn->due_ns = now_ns + rest;
    return rest;
}

void turns_done(struct turns *turns, uint64_t cost_ns, uint64_t now_ns)
{
    if (cost_ns >= turns->short_ns)
        turns->rest_until_ns = now_ns + cost_ns * (turns->share - 1);
}
