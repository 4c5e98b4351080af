/* See smaps.h. A mapping is a line as in /proc/PID/maps, then lines "Field:   number kB". */
#include "explain/smaps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/procfs.h"
#include "base/sum.h"

enum { CHUNK = 256 << 10 }; /* the kernel gives at most a page or so a read, but may give more */

struct parser {
    struct smaps smaps;
    char line[SMAPS_LINE_MAX];
    size_t len;
};

/* ---- lines ---- */

/* The same path as that of the mapping before is stored once: a library has several. */
static int name_add(struct smaps *smaps, const char *name, uint32_t *ret_name)
{
    if (smaps->n > 0) {
        const struct smaps_mapping *last = &smaps->all[smaps->n - 1];
        if (strcmp(smaps_name(smaps, last), name) == 0) {
            *ret_name = last->name;
            return 0;
        }
    }
    if (!*name) { /* the first byte of all names is one of these */
        *ret_name = 0;
        return 0;
    }
    *ret_name = (uint32_t)smaps->names.len;
    int r = buffer_append(&smaps->names, name, strlen(name) + 1);
    return r == -ENOBUFS ? -E2BIG : r;
}

static int room_make(struct smaps *smaps)
{
    if (smaps->n < smaps->room)
        return 0;
    if (smaps->n >= SMAPS_MAPPINGS_MAX)
        return -E2BIG;
    size_t room = smaps->room ? smaps->room * 2 : 256;
    struct smaps_mapping *grown = reallocarray(smaps->all, room, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    smaps->all = grown;
    smaps->room = room;
    return 0;
}

static int mapping_begin(struct smaps *smaps, const char *line)
{
    struct procfs_mapping m;
    if (!procfs_mapping_parse(line, line + strlen(line), &m) ||
        (smaps->n && smaps->all[smaps->n - 1].end > m.start))
        return -EBADMSG;
    struct smaps_mapping mapping = {
        .start = m.start,
        .end = m.end,
        .inode = m.inode,
        .readable = m.readable,
        .writable = m.writable,
        .executable = m.executable,
        .shared = m.shared,
    };
    int r = room_make(smaps);
    if (r == 0)
        r = name_add(smaps, m.name, &mapping.name);
    if (r == 0)
        smaps->all[smaps->n++] = mapping;
    return r;
}

struct field {
    const char *name;
    size_t offset;
};

static const struct field fields[] = {
    {"Rss:", offsetof(struct smaps_mapping, rss)},
    {"Private_Clean:", offsetof(struct smaps_mapping, private_bytes)},
    {"Private_Dirty:", offsetof(struct smaps_mapping, private_bytes)},
    {"Anonymous:", offsetof(struct smaps_mapping, anonymous)},
    {"AnonHugePages:", offsetof(struct smaps_mapping, huge)},
    {"ShmemPmdMapped:", offsetof(struct smaps_mapping, huge)},
    {"FilePmdMapped:", offsetof(struct smaps_mapping, huge)},
    {"Shared_Hugetlb:", offsetof(struct smaps_mapping, hugetlb)},
    {"Private_Hugetlb:", offsetof(struct smaps_mapping, hugetlb)},
    {"Swap:", offsetof(struct smaps_mapping, swap)},
};

/* Lines of fields that are unknown here are for newer readers. */
static int field_add(struct smaps *smaps, const char *line)
{
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        size_t n = strlen(fields[i].name);
        if (line[0] != fields[i].name[0] || strncmp(line, fields[i].name, n) != 0)
            continue;
        const char *at = line + n;
        uint64_t kilobytes;
        if (!procfs_number(&at, &kilobytes) || strcmp(at, " kB") != 0 ||
            kilobytes > UINT64_MAX / 1024 || smaps->n == 0)
            return -EBADMSG;
        struct smaps_mapping *m = &smaps->all[smaps->n - 1];
        sum_add((uint64_t *)((char *)m + fields[i].offset), kilobytes * 1024);
        if (fields[i].offset == offsetof(struct smaps_mapping, rss))
            sum_add(&smaps->rss, kilobytes * 1024);
        return 0;
    }
    return 0;
}

static int line_take(struct smaps *smaps, const char *line)
{
    bool field = line[0] >= 'A' && line[0] <= 'Z';
    if (line[0] && !field)
        return mapping_begin(smaps, line);
    return field ? field_add(smaps, line) : 0;
}

/* ---- the text ---- */

static int parser_init(struct parser *parser)
{
    parser->smaps = (struct smaps){.names = BUFFER_INIT(SMAPS_NAMES_MAX)};
    parser->len = 0;
    return buffer_append_char(&parser->smaps.names, '\0');
}

static int parser_feed(struct parser *parser, const char *text, size_t len)
{
    while (len > 0) {
        const char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t)(end - text) : len;
        if (n >= sizeof(parser->line) - parser->len)
            return -EBADMSG;
        memcpy(parser->line + parser->len, text, n);
        parser->len += n;
        if (!end)
            return 0;
        parser->line[parser->len] = '\0';
        parser->len = 0;
        int r = line_take(&parser->smaps, parser->line);
        if (r < 0)
            return r;
        text += n + 1;
        len -= n + 1;
    }
    return 0;
}

/* A last line without its end is none that the kernel writes. */
static int parser_end(struct parser *parser, int r, struct smaps *ret_smaps)
{
    if (r == 0 && parser->len > 0)
        r = -EBADMSG;
    if (r < 0)
        smaps_release(&parser->smaps);
    else
        *ret_smaps = parser->smaps;
    free(parser);
    return r;
}

int smaps_parse(const char *text, size_t len, struct smaps *ret_smaps)
{
    struct parser *parser = malloc(sizeof(*parser));
    if (!parser)
        return -ENOMEM;
    int r = parser_init(parser);
    if (r == 0)
        r = parser_feed(parser, text, len);
    return parser_end(parser, r, ret_smaps);
}

static int file_feed(int fd, struct parser *parser)
{
    MEMOIR_CLEANUP(freep)
    char *chunk = malloc(CHUNK);
    if (!chunk)
        return -ENOMEM;
    for (;;) {
        ssize_t n = read(fd, chunk, CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : 0;
        int r = parser_feed(parser, chunk, (size_t)n);
        if (r < 0)
            return r;
    }
}

int smaps_read(pid_t pid, struct smaps *ret_smaps)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    struct parser *parser = malloc(sizeof(*parser));
    if (!parser)
        return -ENOMEM;
    int r = parser_init(parser);
    if (r == 0)
        r = file_feed(fd, parser);
    if (r == 0 && parser->smaps.n == 0)
        r = -ESRCH;
    return parser_end(parser, r, ret_smaps);
}

void smaps_release(struct smaps *smaps)
{
    free(smaps->all);
    buffer_release(&smaps->names);
    *smaps = (struct smaps){0};
}
