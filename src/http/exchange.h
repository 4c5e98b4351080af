/* One request: who asks, what for, may he, and how he gets his answer. The server's thread only. */
#pragma once

#include "http/headers.h"
#include "http/internal.h"

enum { COOKIE_NAME_MAX = 32 };

struct exchange_callbacks {
    MHD_AccessHandlerCallback on_request;
    void *(*on_target)(void *context, const char *target, struct MHD_Connection *connection);
    MHD_RequestCompletedCallback on_completed;
};

extern const struct exchange_callbacks exchange_callbacks;

/* A call has come back: give the answer to all who wait for it, and keep it. Takes the call. */
void exchange_answered(struct http *http, struct http_call *call);

/* All who wait for this question get `answer` instead; it goes, and its call is nobody's when it comes back. */
void exchange_give_up(struct http *http, struct question *question, struct answer *answer);

void exchange_cookie_name(const struct host *host, char name[static COOKIE_NAME_MAX]);
