/* Subjects on NATS. The last token is the sender's ID, everywhere: a server that lets each account publish
 * only below its own ID (doc/cluster.md has the permissions) makes it impossible to speak for another node.
 *
 *     memoir.1.beat.SENDER             hello, bye and reports of lost nodes, to all
 *     memoir.1.ask.SENDER              a question to all
 *     memoir.1.to.TARGET.SENDER        a question, or a hello, to one
 *     memoir.1.re.TARGET.SENDER        acknowledgements, replies and refusals, to the asker */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
    SUBJECT_ID_CHARS = 32, /* lower-case hex digits */
    SUBJECT_MAX = 128,
};

#define SUBJECT_PREFIX "memoir.1."

/* The ID of a node: a digest of its machine-id and its name, so that neither travels. */
void subject_id(const char *machine_id, const char *name, char ret_id[static SUBJECT_ID_CHARS + 1]);
bool subject_id_valid(const char *id);

/* The sender of a subject of ours, copied; false for one that has none. */
bool subject_sender(const char *subject, char ret_id[static SUBJECT_ID_CHARS + 1]);

static inline bool subject_starts(const char *subject, const char *word)
{
    size_t n = sizeof(SUBJECT_PREFIX) - 1, len = __builtin_strlen(word);
    return __builtin_strncmp(subject, SUBJECT_PREFIX, n) == 0 &&
           __builtin_strncmp(subject + n, word, len) == 0 && subject[n + len] == '.';
}
