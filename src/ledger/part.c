/* See part.h. */
#include "ledger/part.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

void part_take(const struct ledger_process *p, struct part *ret_part)
{
    struct part *part = ret_part;
    *part = (struct part){
        .pid = p->valid & LEDGER_HAS_PID ? p->pid : 0,
        .start_ticks = p->start_ticks,
        .uid = p->uid,
    };
    memcpy(part->name, p->name, sizeof(part->name));
    snprintf(part->command, sizeof(part->command), "%s", p->command);
    for (size_t i = 0; i < p->n_books; i++) {
        struct part_book *book = &part->books[part->n];
        book->fd = ledger_book_open(p->books[i]);
        if (book->fd < 0)
            continue;
        book->uid = p->books[i]->place_uid;
        memcpy(book->path, p->books[i]->path, sizeof(book->path));
        part->n++;
    }
}

void part_release(struct part *part)
{
    for (size_t i = 0; i < part->n; i++)
        close(part->books[i].fd);
    part->n = 0;
}

/* Of a process whose books are not its own; /proc would wait for its memory. */
static void command_read(void *context, pid_t pid, char *ret_text, size_t size)
{
    const struct part *part = context;
    snprintf(ret_text, size, "%s", pid == part->pid ? part->command : "");
}

int part_open(const struct part *part, struct ledger **ret_ledger,
              struct ledger_process **ret_process)
{
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    struct ledger_options options = {.command_read = command_read, .command_context = (void *)part};
    int r = ledger_new(&options, &ledger);
    struct ledger_process *process = NULL;
    for (size_t i = 0; i < part->n && r >= 0; i++) {
        struct ledger_where where = {
            .dirfd = -1,
            .fd = part->books[i].fd,
            .hint_pid = part->pid,
            .uid = part->books[i].uid,
            .has_payer = true,
            .payer = part->uid,
            .place = part->books[i].path,
        };
        struct ledger_book *book;
        r = ledger_book_add(ledger, &where, &book);
        if (r >= 0)
            process = book->process;
        else if (r != -ENOMEM)
            r = 0; /* the others may be fine */
    }
    if (r < 0)
        return r;
    if (!process)
        return -ESRCH;
    ledger_update_state(ledger, process);
    ledger_refresh(ledger);
    *ret_process = process;
    *ret_ledger = MEMOIR_TAKE(ledger);
    return 0;
}
