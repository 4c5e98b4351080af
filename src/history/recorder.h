/* From pictures to rows: keeps the points of each series since the last flush, and writes them to the store.
 *
 * Knows every process that was in a picture lately by its identity, so that whoever takes the pictures need
 * not number anything. One thread at a time. Memory: about 100 bytes and 8 for each second between flushes, per
 * series. */
#pragma once

#include <stdint.h>

#include "history/sample.h"

struct store;
struct recorder;

enum { RECORDER_PENDING_MAX = 64 }; /* moments between two flushes */

/* What tells this boot from others: the `boot` of recorder_new(). */
uint64_t history_boot(void);

/* `boot` tells the same pid and start time of two boots apart; `flush_s` is how many moments to have room
 * for. */
int recorder_new(uint64_t boot, unsigned flush_s, struct recorder **ret_recorder);
void recorder_free(struct recorder *recorder); /* what was not flushed is lost; NULL is fine */
void recorder_freep(struct recorder **recorder);

/* Take over the values of a picture. Of two in the same second the later one counts. -EAGAIN when they
 * belong to another window, or when there is no more room: flush, then add it again. -ENOMEM. */
int recorder_add(struct recorder *recorder, const struct sample *sample);

/* Write what is pending in one transaction, and see to the store's windows. On failure everything stays pending
 * for another try. */
int recorder_flush(struct recorder *recorder, struct store *store, uint64_t now_s);

/* Give up what is pending; returns how many values that is. */
uint64_t recorder_drop(struct recorder *recorder);

/* Another store, or the same begun anew: numbers mean nothing any more. */
void recorder_forget(struct recorder *recorder);

uint64_t recorder_pending(const struct recorder *recorder); /* moments */
uint64_t recorder_written(const struct recorder *recorder); /* values, since the start */
