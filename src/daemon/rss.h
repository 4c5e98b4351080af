/* Resident sizes of many processes, again and again. A kept descriptor of /proc/PID/statm is read in about
 * 1 us, a sixth of opening it anew, and it never shows another process that got the same pid. One thread. */
#pragma once

struct rss;
struct sample;

enum { RSS_FILES_SHARE = 4 }; /* at most a quarter of the descriptors that we may have are kept */

int rss_new(struct rss **ret_rss);
void rss_free(struct rss *rss); /* NULL is fine */

/* Set rss_bytes and has_rss of every process of the picture that /proc tells of; forget those that are not in
 * it. */
void rss_fill(struct rss *rss, struct sample *sample);
