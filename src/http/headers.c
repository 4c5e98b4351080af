/* Taking headers apart. See headers.h. */
#include "http/headers.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *skip_space(const char *at)
{
    return at + strspn(at, " \t");
}

static const char *trim_end(const char *start, const char *end)
{
    while (end > start && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    return end;
}

/* ---- Accept-Encoding ---- */

/* Is there a weight of zero among the parameters? "q=0", "q=0.000". */
static bool weight_is_zero(const char *at, const char *end)
{
    while (at < end) {
        at = skip_space(at + (*at == ';'));
        if (end - at >= 3 && (at[0] | 0x20) == 'q' && at[1] == '=') {
            const char *digit = at + 2;
            while (digit < end && (*digit == '0' || *digit == '.'))
                digit++;
            return trim_end(at, end) == digit || *digit == ';';
        }
        while (at < end && *at != ';')
            at++;
    }
    return false;
}

bool accept_gzip(const char *accept)
{
    bool any = false;
    for (const char *at = accept; at && *at;) {
        at = skip_space(at);
        size_t len = strcspn(at, ",");
        size_t name = strcspn(at, ",; \t");
        bool zero = weight_is_zero(at + name, at + len);
        if ((name == 4 && strncasecmp(at, "gzip", 4) == 0) ||
            (name == 6 && strncasecmp(at, "x-gzip", 6) == 0))
            return !zero;
        if (name == 1 && *at == '*')
            any = !zero;
        at += len + (at[len] == ',');
    }
    return any;
}

/* ---- If-None-Match ---- */

bool etag_matches(const char *header, const char *tag, size_t len)
{
    for (const char *at = header; at && *at;) {
        at += strspn(at, " \t,");
        if (*at == '*')
            return true;
        if (at[0] == 'W' && at[1] == '/')
            at += 2;
        if (*at != '"')
            return false; /* none that we gave */
        const char *end = strchr(at + 1, '"');
        if (!end)
            return false;
        if ((size_t)(end - at - 1) == len && memcmp(at + 1, tag, len) == 0)
            return true;
        at = end + 1;
    }
    return false;
}

/* ---- Cookie, Authorization ---- */

const char *cookie_find(const char *header, const char *name, size_t *ret_len)
{
    size_t name_len = strlen(name), found_len = 0;
    const char *found = NULL;
    for (const char *at = header; at && *at;) {
        at += strspn(at, " \t;");
        size_t len = strcspn(at, ";");
        if (len > name_len && at[name_len] == '=' && memcmp(at, name, name_len) == 0) {
            if (found)
                return NULL; /* two of one name: somebody else set one of them */
            found = at + name_len + 1;
            found_len = (size_t)(trim_end(found, at + len) - found);
        }
        at += len;
    }
    if (found)
        *ret_len = found_len;
    return found;
}

const char *bearer_token(const char *authorization)
{
    if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0)
        return NULL;
    const char *token = skip_space(authorization + 7);
    return *token ? token : NULL;
}

/* ---- Host, Origin ---- */

static int port_parse(const char *text, uint16_t *ret_port)
{
    unsigned long port = 0;
    size_t len = strspn(text, "0123456789");
    if (len == 0 || len > 5 || text[len])
        return -EINVAL;
    port = strtoul(text, NULL, 10);
    if (port == 0 || port > UINT16_MAX)
        return -EINVAL;
    *ret_port = (uint16_t)port;
    return 0;
}

int host_parse(const char *text, struct host *ret_host)
{
    struct host host = {0};
    bool v6 = text[0] == '[';
    size_t len = v6 ? strcspn(++text, "]") : strcspn(text, ":");
    const char *rest = text + len + (v6 && text[len]);
    if (len == 0 || len > HOST_MAX || (v6 && !text[len]))
        return -EINVAL;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (!isalnum(c) && !strchr(v6 ? ":." : "-._", c))
            return -EINVAL;
        host.name[i] = (char)tolower(c);
    }
    struct in6_addr address;
    if (v6 && inet_pton(AF_INET6, host.name, &address) != 1)
        return -EINVAL;
    if (v6)
        inet_ntop(AF_INET6, &address, host.name, sizeof(host.name));
    if (!v6 && len > 1 && host.name[len - 1] == '.')
        host.name[len - 1] = '\0';
    if (*rest && (*rest != ':' || port_parse(rest + 1, &host.port) < 0))
        return -EINVAL;
    *ret_host = host;
    return 0;
}

static bool word_among(const char *words, const char *word)
{
    static const char space[] = " \t,";
    size_t len = strlen(word);
    for (const char *at = words + strspn(words, space); *at; at += strspn(at, space)) {
        size_t n = strcspn(at, space);
        if (n == len && strncasecmp(at, word, n) == 0)
            return true;
        at += n;
    }
    return false;
}

bool host_is_ours(const struct host *host, const char *hosts)
{
    static const char local[] = ".localhost";
    size_t len = strlen(host->name);
    struct in_addr v4;
    if (strcmp(host->name, "localhost") == 0 || strcmp(host->name, "::1") == 0)
        return true;
    if (len > sizeof(local) - 1 && strcmp(host->name + len - (sizeof(local) - 1), local) == 0)
        return true;
    if (inet_pton(AF_INET, host->name, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127)
        return true;
    return hosts && word_among(hosts, host->name);
}

bool origin_is_host(const char *origin, const struct host *host, bool tls)
{
    const char *scheme = tls ? "https://" : "http://";
    size_t len = strlen(scheme);
    struct host own;
    uint16_t usual = tls ? 443 : 80;
    if (strncasecmp(origin, scheme, len) != 0 || host_parse(origin + len, &own) < 0)
        return false;
    return strcmp(own.name, host->name) == 0 &&
           (own.port ? own.port : usual) == (host->port ? host->port : usual);
}

bool type_is_json(const char *type)
{
    static const char json[] = "application/json";
    if (!type || strncasecmp(type, json, sizeof(json) - 1) != 0)
        return false;
    type = skip_space(type + sizeof(json) - 1);
    return *type == '\0' || *type == ';';
}
