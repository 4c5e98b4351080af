/* The audit: a line in the log and one in STATE/audit.jsonl for each action over HTTP. One thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct audit;
struct http_action;

enum {
    AUDIT_FILE_MAX = 16 << 20, /* then a new one is begun; one older is kept */
    AUDIT_USER_LINES = 1000,   /* of one user other than root, within */
    AUDIT_USER_S = 3600, /* so long: who does more cannot push out what others did; it is counted */
};

/* `path` is the file; it is made when something happens. */
int audit_new(const char *path, struct audit **ret_audit);
void audit_free(struct audit *audit); /* NULL is fine */

void audit_write(struct audit *audit, const struct http_action *action);
