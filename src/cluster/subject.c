/* Subjects on NATS. See subject.h. */
#include "cluster/subject.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"

void subject_id(const char *machine_id, const char *name, char ret_id[static SUBJECT_ID_CHARS + 1])
{
    char text[512];
    uint8_t digest[SHA256_BYTES];
    int len = snprintf(text, sizeof(text), "memoir node %s %s", machine_id, name);
    sha256(text, len < (int)sizeof(text) ? (size_t)len : sizeof(text) - 1, digest);
    for (size_t i = 0; i < SUBJECT_ID_CHARS / 2; i++)
        snprintf(ret_id + 2 * i, 3, "%02x", digest[i]);
}

bool subject_id_valid(const char *id)
{
    return strlen(id) == SUBJECT_ID_CHARS && strspn(id, "0123456789abcdef") == SUBJECT_ID_CHARS;
}

bool subject_sender(const char *subject, char ret_id[static SUBJECT_ID_CHARS + 1])
{
    const char *dot = strrchr(subject, '.');
    if (!dot || !subject_id_valid(dot + 1))
        return false;
    memcpy(ret_id, dot + 1, SUBJECT_ID_CHARS + 1);
    return true;
}
