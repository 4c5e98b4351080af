/*
 * run_summary.h: what a program that ended did with its memory, in a few lines or as JSON.
 */
#ifndef MEMOIR_CLI_RUN_SUMMARY_H
#define MEMOIR_CLI_RUN_SUMMARY_H

struct buffer;
struct outside;
struct ledger;
struct run_end;
struct run_facts;
struct run_image;
struct term;

struct run_summary {
    const char *program; /* as it was called */
    const char *why_not; /* why it was not tracked; NULL: it was */
    const struct run_end *end;
    const struct run_image *image; /* what it ran when it was last looked at */
    const struct ledger *ledger;   /* its books; NULL where there are none */
    const struct outside *growth;  /* of its RSS; may be empty */
    const struct buffer *scan; /* a document of its own about lost blocks; NULL, or empty: none */
};

/* For people, each line after "memoir: ". */
void run_summary_text(const struct run_summary *summary, const struct term *term,
                      struct buffer *out);

/* What --assert can check. */
void run_summary_facts(const struct run_summary *summary, struct run_facts *ret_facts);

/* One object, "memoir.run/3". */
int run_summary_json(const struct run_summary *summary, struct buffer *out);

#endif
