/* Kinds of memory by name. See space_word.h. */
#include "cli/space_word.h"

#include <string.h>
#include <strings.h>

#include <memoir/memoir.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "cli/command.h"
#include "ledger/ledger.h"

enum { TEXT_MAX = 1024 };

static size_t names(const char *words[static MEMOIR_SPACE_MAX + 2], bool rss)
{
    size_t n = 0;
    for (uint32_t space = 1; space <= MEMOIR_SPACE_MAX; space++) {
        if (ledger_space_words[space])
            words[n++] = ledger_space_words[space];
    }
    if (rss)
        words[n++] = "rss";
    words[n] = NULL;
    return n;
}

int space_word_parse(const struct command *command, const char *word, bool rss, uint32_t *ret_space)
{
    if (rss && strcasecmp(word, "rss") == 0) {
        *ret_space = 0;
        return COMMAND_OK;
    }
    for (uint32_t space = 1; space <= MEMOIR_SPACE_MAX; space++)
        if (strcasecmp(ledger_space_name(space), word) == 0) {
            *ret_space = space;
            return COMMAND_OK;
        }
    const char *words[MEMOIR_SPACE_MAX + 2];
    size_t n = names(words, rss);
    const char *nearest = options_nearest(word, words);
    if (nearest)
        return command_misuse(command, "there is no kind of memory '%s', did you mean '%s'?", word,
                              nearest);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer all = BUFFER_INIT(TEXT_MAX);
    for (size_t i = 0; i < n; i++)
        buffer_printf(&all, "%s%s", i ? ", " : "", words[i]);
    return command_misuse(command, "there is no kind of memory '%s'; there are: %s", word,
                          buffer_string(&all));
}
