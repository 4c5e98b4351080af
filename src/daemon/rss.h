/* Resident sizes of many processes, again and again. A kept descriptor of /proc/PID/statm is read in about
 * 1 us, a tenth of opening it anew, and it never shows another process that got the same pid. Where descriptors
 * are scarce, they are for others: then /proc is opened for RSS_LOOKS_MAX processes at a time, in turns, and
 * the values of the rest are those of their last turn. One thread. */
#pragma once

struct rss;
struct sample;

enum {
    RSS_FILES_SHARE = 8, /* only the lowest eighth of the descriptors that we may have are kept */
    RSS_LOOKS_MAX = 500,
};

int rss_new(struct rss **ret_rss);
void rss_free(struct rss *rss); /* NULL is fine */

/* Set rss_bytes and has_rss of every process of the picture that /proc tells of; forget those that are not in
 * it. */
void rss_fill(struct rss *rss, struct sample *sample);
