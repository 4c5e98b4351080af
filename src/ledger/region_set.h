/* All regions of tt-metal on this machine, and the processes that they tell of. Inside the ledger; what
 * callers see is ledger_regions_poll() and ledger_regions(). */
#pragma once

struct ledger;
struct region_set;

int region_set_new(const char *dir, struct region_set **ret_set);
void region_set_free(struct region_set *set); /* NULL is fine; after the ledger's books are gone */
