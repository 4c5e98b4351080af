/* memoird's HTTP server: where it listens, who may ask, and the threads that answer.
 *
 * What there is to ask is in daemon/api.h. */
#pragma once

struct daemon;
struct http;
struct http_viewer;
struct web;

/* Listen as the configuration says. An address that was asked for and cannot be had is an error; the default one
 * that another program has is a warning, and *ret_web is NULL where nothing is left. Needs all tables. */
int web_new(struct daemon *daemon, struct web **ret_web);

/* Ends the server and its worker; NULL is fine. */
void web_free(struct web *web);

struct http *web_http(const struct web *web);

/* "http://localhost:7070", or "" when only a Unix socket is served. */
const char *web_address(const struct web *web);

enum { WEB_LINK_MAX = 512 };

/* A link that logs a browser in as this viewer, once and soon. -ENOTCONN: no address is served. */
int web_link(struct web *web, const struct http_viewer *viewer, char ret_link[static WEB_LINK_MAX]);
