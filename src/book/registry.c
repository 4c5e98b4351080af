/* registry.c: devices, accounts and tags: few, found by walking, added under the writer's lock. */
#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "book/lock.h"
#include "book/text.h"
#include "book/writer.h"

static union book_record *record_at(struct book_writer *w, uint64_t number)
{
    return &((union book_record *)w->at[BOOK_SECTION_REGISTRY])[number];
}

static bool same_device(const struct book_device *a, const struct book_device *b)
{
    if (a->uid[0] && b->uid[0])
        return strcmp(a->uid, b->uid) == 0;
    if (a->bus[0] && b->bus[0])
        return strcmp(a->bus, b->bus) == 0;
    return a->kind == b->kind && a->ordinal == b->ordinal && strcmp(a->name, b->name) == 0;
}

static int device_add_locked(struct book_writer *w, const struct book_device *device)
{
    uint64_t used = w->section[BOOK_SECTION_REGISTRY]->used;
    for (uint64_t i = 1; i < used; i++) {
        union book_record *record = record_at(w, i);
        if (record->type == BOOK_RECORD_DEVICE && same_device(&record->device, device))
            return (int)i;
    }
    int64_t number = book_entry_next(w, BOOK_SECTION_REGISTRY, BOOK_RECORDS_MAX);
    if (number < 0)
        return (int)number;
    struct book_device *target = &record_at(w, (uint64_t)number)->device;
    *target = *device;
    target->type = BOOK_RECORD_NONE;
    store_release(&target->type, BOOK_RECORD_DEVICE);
    book_entry_done(w, BOOK_SECTION_REGISTRY, number);
    return (int)number;
}

int book_device_add(struct book_writer *w, struct book_thread *t, const struct book_device *device)
{
    if (!book_lock_take(w, t, &w->lock))
        return -EBUSY;
    int r = device_add_locked(w, device);
    book_lock_drop(t, &w->lock);
    return r;
}

static int account_add_locked(struct book_writer *w, uint32_t space, uint32_t device,
                              const char *name)
{
    uint64_t used = w->section[BOOK_SECTION_REGISTRY]->used;
    for (uint64_t i = 1; i < used; i++) {
        const struct book_account *account = &record_at(w, i)->account;
        if (account->type == BOOK_RECORD_ACCOUNT && account->space == space &&
            account->device == device)
            return (int)i;
    }
    int64_t number = book_entry_next(w, BOOK_SECTION_REGISTRY, BOOK_RECORDS_MAX);
    if (number < 0)
        return (int)number;
    struct book_account *account = &record_at(w, (uint64_t)number)->account;
    account->space = space;
    account->device = device;
    text_copy(account->name, sizeof(account->name), name);
    store_release(&account->type, BOOK_RECORD_ACCOUNT);
    book_entry_done(w, BOOK_SECTION_REGISTRY, number);
    return (int)number;
}

int book_account_add(struct book_writer *w, struct book_thread *t, uint32_t space, uint32_t device,
                     const char *name)
{
    if (!book_lock_take(w, t, &w->lock))
        return -EBUSY;
    int r = account_add_locked(w, space, device, name);
    book_lock_drop(t, &w->lock);
    return r;
}

void book_account_capacity(struct book_writer *w, uint32_t account, uint64_t bytes)
{
    store_relaxed(&book_account_at(w, account)->capacity, bytes);
}

static int tag_add_locked(struct book_writer *w, const char *name)
{
    struct book_tag tag = {{0}};
    text_copy(tag.name, sizeof(tag.name), name);
    struct book_tag *tags = (struct book_tag *)w->at[BOOK_SECTION_TAGS];
    uint64_t key = hash_string(tag.name, w->header->hash_seed);
    uint32_t cursor = 0, found;
    while ((found = index_next(&w->tags, key, &cursor)) != 0)
        if (strcmp(tags[found].name, tag.name) == 0)
            return (int)found;
    int64_t number = book_entry_next(w, BOOK_SECTION_TAGS, BOOK_TAGS_MAX);
    if (number < 0)
        return (int)number;
    int r = index_add(&w->tags, key, (uint32_t)number, w->sealed);
    if (r < 0)
        return r;
    tags[number] = tag;
    book_entry_done(w, BOOK_SECTION_TAGS, number);
    return (int)number;
}

int book_tag_add(struct book_writer *w, struct book_thread *t, const char *name)
{
    if (!book_lock_take(w, t, &w->lock))
        return -EBUSY;
    int r = tag_add_locked(w, name);
    book_lock_drop(t, &w->lock);
    return r;
}
