/* Which process a word means. See process_word.h. */
#include "cli/process_word.h"

#include <stdlib.h>
#include <string.h>

#include "ledger/ledger.h"

bool process_word_pid(const char *word, uint64_t *ret_pid)
{
    char *end = NULL;
    unsigned long long pid = *word >= '0' && *word <= '9' ? strtoull(word, &end, 10) : 0;
    if (pid == 0 || pid > INT32_MAX || *end)
        return false;
    *ret_pid = pid;
    return true;
}

bool process_word_calls(const char *name, const struct ledger_process *process)
{
    return strcmp(process->name, name) == 0 || strcmp(process->comm, name) == 0;
}

size_t process_word_find(const struct ledger *ledger, const char *word,
                         struct ledger_process **ret_process)
{
    size_t n, found = 0;
    struct ledger_process *const *all = ledger_processes(ledger, &n);
    uint64_t pid;
    if (process_word_pid(word, &pid)) {
        struct ledger_process *process = ledger_process_find(ledger, (pid_t)pid);
        if (process)
            *ret_process = process;
        return process != NULL;
    }
    for (size_t i = 0; i < n; i++)
        if (ledger_process_holds(all[i]) && process_word_calls(word, all[i])) {
            *ret_process = all[i];
            found++;
        }
    return found;
}
