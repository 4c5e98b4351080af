/* Letters between two threads. See internal.h. */
#include "http/internal.h"

void mailbox_init(struct mailbox *box)
{
    *box = (struct mailbox){0};
    pthread_mutex_init(&box->lock, NULL);
    for (unsigned i = 0; i < LANES; i++)
        STAILQ_INIT(&box->lanes[i]);
}

void mailbox_release(struct mailbox *box)
{
    pthread_mutex_destroy(&box->lock);
}

bool mailbox_put(struct mailbox *box, struct letter *letter)
{
    pthread_mutex_lock(&box->lock);
    STAILQ_INSERT_TAIL(&box->lanes[letter->lane], letter, link);
    box->waiting[letter->lane]++;
    bool first = box->n++ == 0;
    pthread_mutex_unlock(&box->lock);
    return first;
}

struct letter *mailbox_take(struct mailbox *box)
{
    struct letter *letter = NULL;
    pthread_mutex_lock(&box->lock);
    while (box->n > 0 && !letter) {
        unsigned lane = box->next++ % LANES;
        letter = STAILQ_FIRST(&box->lanes[lane]);
        if (!letter)
            continue;
        STAILQ_REMOVE_HEAD(&box->lanes[lane], link);
        box->waiting[lane]--;
        box->n--;
    }
    pthread_mutex_unlock(&box->lock);
    return letter;
}

void mailbox_take_all(struct mailbox *box, struct letters *list)
{
    pthread_mutex_lock(&box->lock);
    for (unsigned i = 0; i < LANES; i++) {
        STAILQ_CONCAT(list, &box->lanes[i]);
        box->waiting[i] = 0;
    }
    box->n = 0;
    pthread_mutex_unlock(&box->lock);
}

size_t mailbox_count(struct mailbox *box)
{
    pthread_mutex_lock(&box->lock);
    size_t n = box->n;
    pthread_mutex_unlock(&box->lock);
    return n;
}

size_t mailbox_count_lane(struct mailbox *box, unsigned lane)
{
    pthread_mutex_lock(&box->lock);
    size_t n = box->waiting[lane];
    pthread_mutex_unlock(&box->lock);
    return n;
}
