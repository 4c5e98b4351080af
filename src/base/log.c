/* The log: a line is put together in a buffer on the stack and leaves in one write. There is no lock:
 * the kernel keeps appends to a file and small writes to a pipe apart, and the few settings are single
 * words. A reopened file takes over the number of the old descriptor (dup3), so a thread that is about
 * to write never holds a stale one. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/utf8.h"

#define CUT_MARK "..."

static struct {
    uint32_t level;  /* enum log_level; any thread, relaxed */
    uint32_t format; /* enum log_format, AUTO until first used; any thread, relaxed */
    int32_t fd;      /* any thread, relaxed; -1 for stderr */
    uint64_t lost;   /* any thread adds */
    uint64_t cut;    /* any thread adds */
} state = {.level = LOG_LEVEL_INFO, .format = LOG_FORMAT_AUTO, .fd = -1};

static const struct {
    const char *name;
    int priority; /* syslog's */
} levels[] = {
    [LOG_LEVEL_ERROR] = {"error", 3},
    [LOG_LEVEL_WARN] = {"warn", 4},
    [LOG_LEVEL_INFO] = {"info", 6},
    [LOG_LEVEL_DEBUG] = {"debug", 7},
};

static const char *const formats[] = {
    [LOG_FORMAT_AUTO] = "auto",
    [LOG_FORMAT_TEXT] = "text",
    [LOG_FORMAT_JSON] = "json",
    [LOG_FORMAT_JOURNAL] = "journal",
};

/* systemd tells device and inode of the stream it connected; stderr may have been redirected since. */
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long dev, ino;
    struct stat st;
    return stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 &&
           fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

static enum log_format resolve_format(enum log_format format, bool to_file)
{
    if (format != LOG_FORMAT_AUTO)
        return format;
    return !to_file && stderr_is_journal() ? LOG_FORMAT_JOURNAL : LOG_FORMAT_TEXT;
}

/* Point the log's descriptor at `fd`, which is ours from here on. */
static int adopt(int fd)
{
    int old = load_relaxed(&state.fd);
    if (old < 0) {
        store_relaxed(&state.fd, fd);
        return 0;
    }
    int r = dup3(fd, old, O_CLOEXEC) < 0 ? -errno : 0;
    close(fd);
    return r;
}

int log_open(const struct log_options *options)
{
    if (options->path) {
        int fd = open(options->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
        if (fd < 0)
            return -errno;
        int r = adopt(fd);
        if (r < 0)
            return r;
    } else {
        log_close();
    }
    store_relaxed(&state.format, resolve_format(options->format, options->path));
    store_relaxed(&state.level, options->level);
    return 0;
}

void log_close(void)
{
    int fd = exchange_relaxed(&state.fd, -1);
    if (fd >= 0)
        close(fd);
}

void log_set_level(enum log_level level)
{
    store_relaxed(&state.level, level);
}

bool log_enabled(enum log_level level)
{
    return level <= load_relaxed(&state.level);
}

int log_level_parse(const char *word, enum log_level *ret_level)
{
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
        if (strcmp(word, levels[i].name) == 0) {
            *ret_level = (enum log_level)i;
            return 0;
        }
    return -EINVAL;
}

int log_format_parse(const char *word, enum log_format *ret_format)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (strcmp(word, formats[i]) == 0) {
            *ret_format = (enum log_format)i;
            return 0;
        }
    return -EINVAL;
}

uint64_t log_lost(void)
{
    return load_relaxed(&state.lost);
}

uint64_t log_cut(void)
{
    return load_relaxed(&state.cut);
}

/* A line under construction. `limit` leaves room for what must come last. */
struct line {
    size_t len;
    size_t limit;
    bool cut;
    char text[LOG_LINE_MAX];
};

/* Appends all of it or nothing, so that an escape or a character is never halved. */
static void put(struct line *l, const char *s, size_t len)
{
    if (l->cut || len > l->limit - l->len) {
        l->cut = true;
        return;
    }
    memcpy(l->text + l->len, s, len);
    l->len += len;
}

static void put_str(struct line *l, const char *s)
{
    put(l, s, strlen(s));
}

/* One byte that must not stand as it is. JSON has no \x; both escapes read well in text. */
static void put_escaped(struct line *l, unsigned char c, bool json)
{
    char escape[8];
    if (json && c >= 0x80)
        put_str(l, "\xef\xbf\xbd"); /* U+FFFD: the byte is not valid UTF-8 */
    else if (c == '"' || c == '\\')
        put(l, (char[]){'\\', (char)c}, 2);
    else if (c == '\n' || c == '\t')
        put_str(l, c == '\n' ? "\\n" : "\\t");
    else {
        snprintf(escape, sizeof(escape), json ? "\\u%04x" : "\\x%02x", c);
        put_str(l, escape);
    }
}

/* C1 controls (U+0080 to U+009F) are valid UTF-8, yet terminals act on them. Others turn the rest of the line around. */
static bool is_harmful(uint32_t c)
{
    return (c >= 0x80 && c < 0xa0) || utf8_deceives(c);
}

static void put_code(struct line *l, uint32_t c)
{
    char escape[16];
    if (c > 0xffff) /* as JSON has it: two halves */
        snprintf(escape, sizeof(escape), "\\u%04x\\u%04x", 0xd7c0 + (c >> 10),
                 0xdc00 + (c & 0x3ff));
    else
        snprintf(escape, sizeof(escape), "\\u%04x", c);
    put_str(l, escape);
}

/* Any bytes, made harmless. Inside quotes, quote and backslash are escaped too. */
static void put_clean(struct line *l, const char *s, bool json, bool quoted)
{
    size_t len = strlen(s);
    for (size_t i = 0; i < len && !l->cut;) {
        unsigned char c = (unsigned char)s[i];
        size_t n = utf8_sequence(s + i, len - i);
        bool special = quoted && (c == '"' || c == '\\');
        if (n == 0 || c < 0x20 || c == 0x7f || special) {
            put_escaped(l, c, json);
            i++;
        } else if (is_harmful(utf8_decode(s + i, n))) {
            put_code(l, utf8_decode(s + i, n));
            i += n;
        } else {
            put(l, s + i, n);
            i += n;
        }
    }
}

static void put_time(struct line *l)
{
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    char text[64];
    size_t n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text + n, sizeof(text) - n, ".%03ldZ", now.tv_nsec / 1000000);
    put_str(l, text);
}

/* Values that read as one word stand bare in text; others are quoted. */
static bool needs_quotes(const char *s)
{
    return *s == '\0' || strpbrk(s, " =\"\\") != NULL;
}

static void put_value(struct line *l, const struct log_field *f, bool json)
{
    char number[32];
    switch (f->type) {
    case LOG_FIELD_U64:
        snprintf(number, sizeof(number), "%" PRIu64, f->u64);
        put_str(l, number);
        return;
    case LOG_FIELD_I64:
        snprintf(number, sizeof(number), "%" PRIi64, f->i64);
        put_str(l, number);
        return;
    case LOG_FIELD_STRING:
        break;
    }
    bool quoted = json || needs_quotes(f->string);
    if (quoted)
        put_str(l, "\"");
    put_clean(l, f->string, json, quoted);
    if (quoted)
        put_str(l, "\"");
}

/* A field that does not fit is left out whole, so JSON stays JSON. */
static void put_field(struct line *l, const struct log_field *f, bool json)
{
    if (f->type == LOG_FIELD_STRING && !f->string)
        return;
    size_t before = l->len;
    put_str(l, json ? ",\"" : " ");
    put_str(l, f->key);
    put_str(l, json ? "\":" : "=");
    put_value(l, f, json);
    if (l->cut)
        l->len = before;
}

static void put_message(struct line *l, const char *message, bool json)
{
    put_clean(l, message, json, json);
    if (!l->cut)
        return;
    l->limit += strlen(CUT_MARK); /* set aside for it */
    l->cut = false;
    put_str(l, CUT_MARK);
    l->cut = true;
}

static void compose(struct line *l, enum log_level level, enum log_format format,
                    const char *message, const struct log_field *fields, size_t field_count)
{
    bool json = format == LOG_FORMAT_JSON;
    const char *tail = json ? "}\n" : "\n";
    size_t mark = strlen(CUT_MARK), quote = json ? 1 : 0;
    l->limit = sizeof(l->text) - strlen(tail) - mark - quote;
    if (json) {
        put_str(l, "{\"time\":\"");
        put_time(l);
        put_str(l, "\",\"level\":\"");
        put_str(l, levels[level].name);
        put_str(l, "\",\"message\":\"");
    } else if (format == LOG_FORMAT_JOURNAL) {
        put(l, (char[]){'<', (char)('0' + levels[level].priority), '>'}, 3);
    } else {
        put_time(l);
        put_str(l, " ");
        put_str(l, levels[level].name);
        put_str(l, ": ");
    }
    put_message(l, message, json);
    if (json)
        l->text[l->len++] = '"'; /* room was set aside */
    for (size_t i = 0; i < field_count && !l->cut; i++)
        put_field(l, &fields[i], json);
    memcpy(l->text + l->len, tail, strlen(tail));
    l->len += strlen(tail);
}

static void send_line(const struct line *l)
{
    int fd = load_relaxed(&state.fd);
    ssize_t n;
    do
        n = write(fd >= 0 ? fd : STDERR_FILENO, l->text, l->len);
    while (n < 0 && errno == EINTR);
    /* A short write (disk full) is not continued: the rest would start a line of its own. */
    if (n != (ssize_t)l->len)
        fetch_add_relaxed(&state.lost, 1);
    else if (l->cut)
        fetch_add_relaxed(&state.cut, 1);
}

void log_write(enum log_level level, const struct log_field *fields, size_t field_count,
               const char *fmt, ...)
{
    int saved_errno = errno;
    if (!log_enabled(level))
        return;
    enum log_format format = load_relaxed(&state.format);
    if (format == LOG_FORMAT_AUTO) {
        format = resolve_format(format, load_relaxed(&state.fd) >= 0);
        store_relaxed(&state.format, format);
    }
    /* A byte more than a line may hold, so that a cut message is seen as cut. */
    char message[LOG_LINE_MAX + 1];
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(message, sizeof(message), fmt, args) < 0)
        snprintf(message, sizeof(message), "%s", fmt);
    va_end(args);
    struct line l = {.len = 0};
    compose(&l, level, format, message, fields, field_count);
    send_line(&l);
    errno = saved_errno;
}
