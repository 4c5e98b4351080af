/* See chain_bin.h. */
#include "malloc/chain_bin.h"

int bin_drain(struct memoir_chain *c)
{
    for (uint64_t bin = 0; bin < chain_bins(c); bin++) {
        for (uint64_t head, header, next; (head = c->bins[bin]) != 0;) {
            uint64_t *b = bin_at(c, bin, head, &header, &next);
            if (!b)
                return -EUCLEAN;
            chain_store(&c->bins[bin], next);
            int r = chain_merge(c, b, header);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

void bin_clear(struct memoir_chain *c)
{
    for (unsigned bin = 0; bin < chain_bins(c); bin++)
        chain_store(&c->bins[bin], 0);
}
