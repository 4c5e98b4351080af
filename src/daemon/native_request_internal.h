/* What the files of native_request.h share: a line that is being read. */
#pragma once

#include "daemon/native_request.h"

struct parse {
    struct json_read r;
    struct native_parser *parser;
    struct native_request *request;
    uint64_t keys; /* bits of those that were seen */
    bool in_report;
    size_t n_reports;
    struct json_text space_text; /* the last one that was looked up, and */
    uint8_t space;               /* what it is: most messages repeat one */
    bool out_of_memory;
};

/* Sets why the line is invalid; returns false, for the caller to return. */
static inline bool parse_fail(struct parse *p, const char *error)
{
    return json_read_fail(&p->r, error);
}

/* ---- native_request_report.c ----
 * Each takes the value that is next; false when it is invalid. */

bool parse_device(struct parse *p, int16_t *ret_device); /* -1 for null */
bool parse_reports(struct parse *p);                     /* an array of compact ones */
bool parse_report(struct parse *p, enum native_op op);   /* one in words */
