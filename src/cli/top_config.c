/* What the user chose, kept for the next time. See top.h.
 *
 * The file is lines of NAME=VALUE: columns=pid,user,rss_bytes and sort=-rss_bytes. It is a convenience: whatever is
 * wrong with it, top starts. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "cli/top.h"

enum { CONFIG_BYTES_MAX = 8192, CONFIG_PATH_MAX = 512 };

int top_sort_parse(const char *text, struct top_wish *wish)
{
    bool sign = *text == '-' || *text == '+';
    int column = table_column_find(top_fields, text + sign);
    if (column < 0 || !top_column_sorts((enum top_column)column))
        return -EINVAL;
    wish->sort = (enum top_column)column;
    wish->ascending = sign ? *text == '+' : top_column_ascends(wish->sort);
    return 0;
}

/* The folder with the file, "" where there is no place for it. */
static void folder_of(char path[static CONFIG_PATH_MAX])
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int n = -1;
    if (config && *config == '/')
        n = snprintf(path, CONFIG_PATH_MAX, "%s/memoir", config);
    else if (home && *home == '/')
        n = snprintf(path, CONFIG_PATH_MAX, "%s/.config/memoir", home);
    if (n < 0 || n >= CONFIG_PATH_MAX - 16)
        path[0] = '\0';
}

static void line_take(char *line, top_column_set *columns, struct top_wish *wish)
{
    char word[32];
    char *value = strchr(line, '=');
    if (!value)
        return;
    *value++ = '\0';
    if (strcmp(line, "columns") == 0)
        top_columns_parse(value, columns, word);
    else if (strcmp(line, "sort") == 0)
        top_sort_parse(value, wish);
}

void top_config_load(top_column_set *columns, struct top_wish *wish)
{
    char path[CONFIG_PATH_MAX], text[CONFIG_BYTES_MAX];
    folder_of(path);
    if (!*path)
        return;
    strcat(path, "/toprc");
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return;
    text[n] = '\0';
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));)
        line_take(line, columns, wish);
}

int top_config_save(top_column_set columns, const struct top_wish *wish)
{
    char folder[CONFIG_PATH_MAX], path[CONFIG_PATH_MAX + 16];
    folder_of(folder);
    if (!*folder)
        return -ENOENT;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(CONFIG_BYTES_MAX);
    buffer_append_str(&text, "columns=");
    top_columns_format(columns, &text);
    buffer_printf(&text, "\nsort=%c%s\n", wish->ascending ? '+' : '-', top_fields[wish->sort].key);
    snprintf(path, sizeof(path), "%s/toprc", folder);
    int r = text.error ? text.error : fs_mkdir_all(folder, 0700);
    if (r == 0)
        r = fs_write_file_atomic(path, buffer_string(&text), text.len, 0600);
    return r;
}
