/* Answers: bytes with their headers, made once and given to any number of clients. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/accountable.h"
#include "base/hash.h"
#include "http/gzip.h"
#include "http/headers.h"
#include "http/internal.h"

enum {
    COMPRESS_MIN = 1024, /* smaller ones fit in a packet as they are, */
    COMPRESS_MAX =
        8 << 20, /* and larger ones would keep everybody waiting while the only thread compresses */
};

/* ---- headers ---- */

/* No page of ours needs anything from elsewhere, and no page of others may show ours. */
static const char csp[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; manifest-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

static bool header(struct MHD_Response *response, const char *name, const char *value)
{
    return MHD_add_response_header(response, name, value) == MHD_YES;
}

static bool headers_common(struct MHD_Response *response, const struct answer *answer)
{
    return header(response, "Content-Security-Policy", csp) &&
           header(response, "X-Content-Type-Options", "nosniff") &&
           header(response, "X-Frame-Options", "DENY") &&
           header(response, "Referrer-Policy", "no-referrer") &&
           header(response, "Cross-Origin-Resource-Policy", "same-origin") &&
           header(response, "Cross-Origin-Opener-Policy", "same-origin") &&
           header(response, "Cache-Control",
                  answer->immutable ? "public, max-age=31536000, immutable"
                  : answer->etag[0] ? "private, no-cache"
                                    : "no-store") &&
           header(response, "Vary", "Accept-Encoding, Cookie, Authorization, Memoir-Node-Token");
}

/* A name for a download: plain characters only, since it stands between quotes. */
static bool header_filename(struct MHD_Response *response, const char *filename)
{
    char value[256] = "attachment; filename=\"";
    size_t len = strlen(value);
    for (const char *at = filename; *at && len < sizeof(value) - 2; at++) {
        char c = *at;
        bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                     strchr("._-+", c);
        value[len++] = plain ? c : '_';
    }
    value[len++] = '"';
    value[len] = '\0';
    return header(response, "Content-Disposition", value);
}

bool answer_headers(struct MHD_Response *response, const struct answer *answer, bool gzip)
{
    char text[64];
    bool good = headers_common(response, answer);
    if (answer->type)
        good = good && header(response, "Content-Type", answer->type);
    if (gzip)
        good = good && header(response, "Content-Encoding", "gzip");
    if (answer->etag[0]) {
        snprintf(text, sizeof(text), "\"%s%s\"", answer->etag, gzip ? "-gz" : "");
        good = good && header(response, "ETag", text);
    }
    if (answer->allow[0])
        good = good && header(response, "Allow", answer->allow);
    if (answer->retry_s) {
        snprintf(text, sizeof(text), "%u", answer->retry_s);
        good = good && header(response, "Retry-After", text);
    }
    if (answer->filename)
        good = good && header_filename(response, answer->filename);
    if (answer->location)
        good = good && header(response, "Location", answer->location);
    if (answer->cookie)
        good = good && header(response, "Set-Cookie", answer->cookie);
    if (answer->status == 401)
        good = good && header(response, "WWW-Authenticate", "Bearer realm=\"memoir\"");
    if (answer->closes)
        good = good && header(response, "Connection", "close");
    return good;
}

/* ---- life ---- */

struct answer *answer_new(int status, const char *type, struct buffer *out)
{
    struct answer *answer = calloc(1, sizeof(*answer));
    if (!answer)
        return NULL;
    size_t len = out->len;
    char *data = len ? buffer_take(out) : NULL;
    *answer = (struct answer){.refs = 1, .status = status, .type = type, .data = data, .len = len};
    /* The response owns the bytes from here on. */
    answer->plain = MHD_create_response_from_buffer(
        len, data, data ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (!answer->plain) {
        free(data);
        free(answer);
        return NULL;
    }
    return answer;
}

struct answer *answer_problem(int status, const char *code, const char *instance, const char *fmt,
                              ...)
{
    struct buffer out = BUFFER_INIT(HTTP_ANSWER_MAX);
    char detail[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(detail, sizeof(detail), fmt, args);
    va_end(args);
    problem_write(&out, status, code, detail, instance, NULL, 0);
    struct answer *answer = out.error ? NULL : answer_new(status, "application/problem+json", &out);
    buffer_release(&out);
    return answer;
}

static void etag_set(struct answer *answer)
{
    /* Not a promise against those who look for collisions: what is compared is a client's own last answer. */
    snprintf(answer->etag, sizeof(answer->etag), "%016" PRIx64,
             hash_bytes(answer->data, answer->len, HASH_K2));
}

struct untaken *answer_untaken(struct http *http, const struct http_viewer *viewer)
{
    uint32_t user = viewer->sees_all ? 0 : accountable_uid(viewer->uid);
    struct untaken *empty = NULL;
    for (size_t i = 0; i < UNTAKEN_USERS; i++) {
        struct untaken *place = &http->untaken[i];
        if (place->bytes && place->user == user)
            return place;
        if (!place->bytes && !empty)
            empty = place;
    }
    if (!empty)
        return &http->untaken[user % UNTAKEN_USERS];
    empty->user = user;
    return empty;
}

struct answer *answer_from_call(struct http_call *call)
{
    struct answer *answer =
        call->out.error ? NULL : answer_new(call->status, call->type, &call->out);
    if (!answer)
        return NULL;
    answer->filename = call->filename;
    call->filename = NULL;
    answer->cookie = call->cookie;
    call->cookie = NULL;
    answer->location = call->location;
    answer->compressible = answer->len >= COMPRESS_MIN && answer->len <= COMPRESS_MAX;
    answer->counted = answer_untaken(call->http, &call->viewer);
    answer->counted->bytes += answer->len;
    call->http->untaken_bytes += answer->len;
    answer->http = call->http;
    if (call->status == 200 && strcmp(call->route->method, "GET") == 0 &&
        call->answer != CALL_STREAM)
        etag_set(answer);
    return answer;
}

void answer_unref(struct answer *answer)
{
    if (!answer || --answer->refs > 0)
        return;
    if (answer->counted) {
        answer->counted->bytes -= answer->len;
        answer->http->untaken_bytes -= answer->len;
    }
    MHD_destroy_response(answer->plain);
    if (answer->gzip)
        MHD_destroy_response(answer->gzip);
    free(answer->filename);

    free(answer->cookie);
    free(answer);
}

size_t answer_size(const struct answer *answer)
{
    return sizeof(*answer) + answer->len;
}

/* ---- giving it ---- */

static const char *request_header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* What the client wants to have compressed is, once for all who want that. */
static struct MHD_Response *gzip_response(struct http *http, struct answer *answer)
{
    if (answer->gzip || !answer->compressible)
        return answer->gzip;
    struct buffer out = BUFFER_INIT(HTTP_ANSWER_MAX);
    answer->compressible = false; /* one try */
    if (gzip_compress(answer->data, answer->len, &out) == 0) {
        size_t len = out.len;
        char *data = buffer_take(&out);
        answer->gzip = MHD_create_response_from_buffer(len, data, MHD_RESPMEM_MUST_FREE);
        if (!answer->gzip)
            free(data);
        else if (!answer_headers(answer->gzip, answer, true)) {
            MHD_destroy_response(answer->gzip);
            answer->gzip = NULL;
        }
        COUNT(http, compressed);
    }
    buffer_release(&out);
    return answer->gzip;
}

/* The client has it: which of its two forms? 0: neither. */
static int has_already(const struct answer *answer, struct MHD_Connection *connection)
{
    char gzip[sizeof(answer->etag) + 4];
    const char *wanted = answer->etag[0] ? request_header(connection, "If-None-Match") : NULL;
    if (!wanted)
        return 0;
    int len = snprintf(gzip, sizeof(gzip), "%s-gz", answer->etag);
    if (etag_matches(wanted, answer->etag, strlen(answer->etag)))
        return 1;
    return etag_matches(wanted, gzip, (size_t)len) ? 2 : 0;
}

static struct MHD_Response *unmodified_response(struct answer *answer, bool gzip)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    char text[64];
    if (!response)
        return NULL;
    snprintf(text, sizeof(text), "\"%s%s\"", answer->etag, gzip ? "-gz" : "");
    if (headers_common(response, answer) && header(response, "ETag", text))
        return response;
    MHD_destroy_response(response);
    return NULL;
}

enum MHD_Result answer_queue(struct http *http, struct answer *answer,
                             struct MHD_Connection *connection)
{
    int has = has_already(answer, connection);
    if (has) {
        struct MHD_Response *response = unmodified_response(answer, has == 2);
        enum MHD_Result r = response ? MHD_queue_response(connection, 304, response) : MHD_NO;
        if (response)
            MHD_destroy_response(response);
        COUNT(http, not_modified);
        return r;
    }
    struct MHD_Response *response = NULL;
    if (answer->gzip || answer->compressible)
        if (accept_gzip(request_header(connection, "Accept-Encoding")))
            response = gzip_response(http, answer);
    if (!response) {
        if (!answer->ready && !answer_headers(answer->plain, answer, false))
            return MHD_NO;
        answer->ready = true;
        response = answer->plain;
    }
    if (answer->status >= 400)
        COUNT(http, problems);
    return MHD_queue_response(connection, (unsigned)answer->status, response);
}
