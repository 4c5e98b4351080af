/* What the files of behalf.h share. */
#pragma once

#include <sys/queue.h>

#include "book/writer.h"
#include "daemon/behalf.h"

struct loop_source;

/* A directory for books of one user. Books in the ledger refer to its descriptor. */
struct behalf_place {
    uint32_t uid;
    uint32_t user; /* who answers for it: base/accountable.h */
    int dirfd;
    char path[256];
    size_t books;
    uint64_t pages; /* of blocks in all of them, as of when each last grew */
    bool gone;      /* the directory was removed; another one took its place */
    LIST_ENTRY(behalf_place) link;
};
LIST_HEAD(behalf_places, behalf_place);

struct behalf {
    struct behalf_table *table;
    struct book_writer *w; /* BOOK_WRITER_BARE_BYTES; NULL once it is gone */
    struct ledger_book *book;
    struct behalf_place *place;
    size_t refs;
    uint64_t hash;
    uint32_t source, uid;
    uint32_t payer; /* in whose limits the book counts */
    pid_t pid;      /* as we see it; 0: of another machine */
    int32_t remote_pid;
    uint64_t start_ticks, exec_id;
    uint64_t expire_ns; /* of another machine, without connections; 0: connected */
    uint32_t pages;     /* counted in its place */
    bool dirty;         /* in table->dirty: reported something since the ledger looked */
    bool active;        /* reported something in this round of the timer */
    uint8_t idle_rounds;
    uint8_t suspect;      /* looks that are left whether it died; 0: none */
    uint8_t next_session; /* to give up when there are too many */
    LIST_ENTRY(behalf) bucket;
    LIST_ENTRY(behalf) link;
    LIST_ENTRY(behalf) dirty_link;
};
LIST_HEAD(behalf_list, behalf);

enum {
    BEHALF_BUCKETS = 16384,
    BEHALF_BASE_PAGES = 4, /* that a book takes besides those of its blocks */
};

struct behalf_table {
    struct daemon *daemon;
    struct book_thread thread; /* one thread writes all books */
    struct behalf_places places;
    struct behalf_list all, dirty;
    struct behalf_list buckets[BEHALF_BUCKETS];
    size_t n;
    void (*listener)(void *context, const struct behalf *behalf, const struct behalf_event *event);
    void *listener_context;
    struct loop_source *idle_timer, *expire_timer, *suspect_timer;
    uint64_t expire_due_ns; /* when the latter comes; 0: not at all */
    uint64_t said_ns;       /* when the log was last told of a book that cannot be taken over */
    /* when books of other machines without a returning client expire; 0: done */
    uint64_t orphans_ns;
};

/* Pages of all books on behalf of processes of the user who answers for this place. */
uint64_t behalf_user_pages(const struct behalf_table *table, const struct behalf_place *place);

/* The place of `uid`, made if need be; with `fresh` a directory that was removed is made again. */
int behalf_place_get(struct behalf_table *table, uint32_t uid, bool fresh,
                     struct behalf_place **ret_place);
void behalf_place_unref(struct behalf_place *place); /* of a book that is gone; NULL is fine */
void behalf_places_free(struct behalf_table *table);

/* Count the pages of a book; 0 when it is gone. */
void behalf_place_count(struct behalf_place *place, struct behalf *b, uint32_t pages);

/* Copy what a dead daemon's book says into `b`, which is not published yet. -EBUSY: its writer lives. */
int behalf_adopt(struct behalf *b, struct ledger_book *old);
