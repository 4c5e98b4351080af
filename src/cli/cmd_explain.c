/* memoir explain: where the resident memory of a process goes. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/explain_print.h"
#include "cli/process_word.h"
#include "cli/term.h"
#include "explain/sites.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"
#include "profile/site_names.h"
#include "query/document.h"

enum { OUTPUT_MAX = 16 << 20, TOP_DEFAULT = 8 };

struct explain_values {
    struct command_common common;
    const char *dir;
    uint64_t timeout_ns, top;
    bool json;
    int color;
};

static const struct explain_values defaults = {.timeout_ns = 10 * NS_PER_S, .top = TOP_DEFAULT};

#define AT(field) offsetof(struct explain_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"top", 'n', OPTION_NUMBER, AT(top), "N", "lines for each kind (default: 8)"},
    {"timeout", 0, OPTION_DURATION, AT(timeout_ns), "TIME",
     "time limit for reading (default: 10s)"},
    OPTION_JSON,
    OPTION_COLOR,
    OPTION_DIR,
    {0},
};

static const struct command_example examples[] = {
    {"memoir explain 4242", "heap by call site, slack, runtimes, stacks, files and what is left"},
    {"memoir explain python3 --json | jq .kinds.rest", "for programs: the unexplained bytes"},
    {0},
};

static const struct command_section sections[] = {
    {"WHAT IS SHOWN",
     "The parts sum exactly to the RSS of one read of /proc/PID/smaps. \"heap\" is malloc's memory: with a book (memoir run) the "
     "blocks in use by call site, else what is in use or free. \"allocator slack\" is free memory that the allocator keeps, "
     "fragmentation, rounding and its records. \"older than the attach\" (memoir attach) is what was allocated before, and free "
     "memory between it. \"runtime\" is memory that a language's runtime takes by itself: arenas of CPython, "
     "heap and code of V8 and of a JVM, heaps of Go and PHP. \"files\" are mapped files with their data and bss. \"Memoir itself\" is "
     "the cost of accounting. \"unexplained\" is anonymous memory whose owner could not be told, by mapping.\n\n"
     "Figures marked ~ are estimates: a site is as resident as those of its blocks are that were sampled, and sites without "
     "enough samples as all others together. Bytes in use that are not resident are told below the table, outside the sum."},
    {"RIGHTS",
     "The owner of the process or root. Runtimes are recognised by what lies in the memory, which needs the right to trace the "
     "process; without it size and alignment of mappings decide."},
    {"JSON",
     "One object: \"schema\" (\"memoir.explain/2\"), \"time\", \"program\", \"pid\", \"rss\", \"swap\", \"hugetlb\", \"mappings\", "
     "\"threads\", \"memory_read\", \"live\" and \"live_absent\" (null without a book), \"kinds\" (bytes by kind), \"parts\" (kind, name, "
     "bytes, private, huge, swap, mappings, folded, estimated, by_shape), \"sites\" (site, via, bytes, live, blocks; null without a "
     "book), \"others\" (sites and bytes of further call sites) and \"columns\", which has the unit of each figure."},
    {0},
};

static int cannot(pid_t pid, int error)
{
    switch (error) {
    case -ESRCH:
        command_fail("no process %d with memory of its own", (int)pid);
        return COMMAND_NOTHING;
    case -EACCES:
    case -EPERM:
        return command_fail(
            "cannot read /proc/%d/smaps: permission denied; run as its owner or root", (int)pid);
    case -ETIME:
        return command_fail("process %d did not answer in time; --timeout waits longer", (int)pid);
    case -E2BIG:
        return command_fail("process %d has too many mappings to explain", (int)pid);
    default:
        return error;
    }
}

/* ---- which process ---- */

static bool comm_is(const char *pid, const char *name)
{
    char comm[PROC_COMM_MAX];
    return proc_comm_read((pid_t)strtol(pid, NULL, 10), comm) == 0 && strcmp(comm, name) == 0;
}

/* Processes without a book, by the kernel's name. */
static size_t comm_find(const char *name, uint64_t *ret_pid)
{
    size_t found = 0;
    DIR *proc = opendir("/proc");
    const struct dirent *entry;
    while (proc && (entry = readdir(proc)))
        if (isdigit((unsigned char)entry->d_name[0]) && comm_is(entry->d_name, name)) {
            *ret_pid = strtoull(entry->d_name, NULL, 10);
            found++;
        }
    if (proc)
        closedir(proc);
    return found;
}

static int process_find(const struct ledger *ledger, const char *word, uint64_t *ret_pid)
{
    struct ledger_process *process = NULL;
    if (process_word_pid(word, ret_pid))
        return COMMAND_OK;
    if (*word == '-' || isdigit((unsigned char)*word))
        return command_misuse(&cmd_explain, "'%s' is not a valid PID", word);
    size_t found = ledger ? process_word_find(ledger, word, &process) : 0;
    if (found == 1 && process->valid & LEDGER_HAS_PID) {
        *ret_pid = (uint64_t)process->pid;
        return COMMAND_OK;
    }
    if (found == 0)
        found = comm_find(word, ret_pid);
    if (found == 1)
        return COMMAND_OK;
    if (found > 1)
        return command_fail("%zu processes are called '%s': give a PID", found, word);
    command_fail("no process called '%s'", word);
    return COMMAND_NOTHING;
}

/* ---- running ---- */

static int output(const struct explain_values *v, const struct explain *e, const char *program,
                  const struct explain_sites *sites)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    if (v->json) {
        struct json json;
        command_json_begin(&json, &out, "memoir.explain/2");
        json_field_string(&json, "program", program);
        explain_json(e, &json);
        explain_sites_json(sites, &json);
        query_document_end(&json);
        buffer_append_char(&out, '\n');
        int r = json_finish(&json);
        return r < 0 ? r : command_output(&out);
    }
    struct term term;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    if (program) {
        term_append(&term, &out, program, 0);
        buffer_printf(&out, " (PID %d): ", (int)e->pid);
    } else {
        buffer_printf(&out, "PID %d: ", (int)e->pid);
    }
    explain_print(e, sites, v->top, &term, &out);
    return command_output(&out);
}

static int run(const void *values, const struct operands *operands)
{
    const struct explain_values *v = values;
    const char *word = operands->words[0];
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    MEMOIR_CLEANUP(freep)
    struct explain *e = calloc(1, sizeof(*e));
    MEMOIR_CLEANUP(site_names_freep)
    struct site_names *symbols = NULL;
    MEMOIR_CLEANUP(explain_sites_release)
    struct explain_sites sites = {0};
    uint64_t pid = 0;
    if (!e)
        return -ENOMEM;
    if (!word)
        return command_misuse(&cmd_explain, "missing argument: PID or NAME");
    if (command_check_dir(v->dir) != COMMAND_OK)
        return COMMAND_FAILED;
    (void)ledger_scan(v->dir, &ledger); /* without books there are still mappings */
    int r = process_find(ledger, word, &pid);
    if (r != COMMAND_OK)
        return r;
    uint64_t timeout_ms = (v->timeout_ns + NS_PER_MS - 1) / NS_PER_MS;
    r = explain_take_apart((pid_t)pid, getuid(),
                           timeout_ms < UINT32_MAX ? (uint32_t)timeout_ms : UINT32_MAX, e);
    if (r < 0)
        return cannot((pid_t)pid, r);
    struct ledger_process *process = ledger ? ledger_process_find(ledger, (pid_t)pid) : NULL;
    bool known = explain_live_by(e, process);
    if (known) {
        symbols = site_names_new();
        known = explain_sites_take(process, getuid(), e, v->top, symbols, &sites) == 0;
    }
    char comm[PROC_COMM_MAX];
    const char *program = process                                 ? process->name
                          : proc_comm_read((pid_t)pid, comm) == 0 ? comm
                                                                  : NULL;
    return output(v, e, program, known ? &sites : NULL);
}

const struct command cmd_explain = {
    .name = "explain",
    .usage = "explain [OPTION...] PID|NAME",
    .help = "where the resident memory of a process goes, in parts that sum",
    .description =
        "Divides the RSS of a process into heap by call site, allocator slack, memory of language runtimes, thread stacks, mapped "
        "files, shared memory and an unexplained rest. The parts always sum to the RSS.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .operands_max = 1,
    .takes_processes = true,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
