/* Letters between two threads: first in, first out. */
#include "http/internal.h"

void mailbox_init(struct mailbox *box)
{
    pthread_mutex_init(&box->lock, NULL);
    STAILQ_INIT(&box->list);
    box->n = 0;
}

void mailbox_release(struct mailbox *box)
{
    pthread_mutex_destroy(&box->lock);
}

bool mailbox_put(struct mailbox *box, struct letter *letter)
{
    pthread_mutex_lock(&box->lock);
    STAILQ_INSERT_TAIL(&box->list, letter, link);
    bool first = box->n++ == 0;
    pthread_mutex_unlock(&box->lock);
    return first;
}

struct letter *mailbox_take(struct mailbox *box)
{
    pthread_mutex_lock(&box->lock);
    struct letter *letter = STAILQ_FIRST(&box->list);
    if (letter) {
        STAILQ_REMOVE_HEAD(&box->list, link);
        box->n--;
    }
    pthread_mutex_unlock(&box->lock);
    return letter;
}

void mailbox_take_all(struct mailbox *box, struct letters *list)
{
    pthread_mutex_lock(&box->lock);
    STAILQ_CONCAT(list, &box->list);
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
