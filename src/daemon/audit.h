/* The audit: a line in the log and one in STATE/audit.jsonl for each thing that somebody did over HTTP. One thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct audit;
struct http_action;

enum { AUDIT_FILE_MAX = 16 << 20 }; /* then a new one is begun; one older is kept */

/* `path` is the file; it is made when something happens. */
int audit_new(const char *path, struct audit **ret_audit);
void audit_free(struct audit *audit); /* NULL is fine */

void audit_write(struct audit *audit, const struct http_action *action);
