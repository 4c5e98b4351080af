/* memoir heap: what our allocator knows of a living process. */
#include <errno.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/command.h"
#include "cli/heap_report.h"
#include "cli/process_word.h"
#include "ledger/ledger.h"
#include "scan/heap.h"

enum { OUTPUT_MAX = 64 << 20 };

struct heap_values {
    struct command_common common;
    const char *dir;
    uint64_t timeout_ns;
    bool classes, chains, json;
    int color;
};

static const struct heap_values defaults = {.timeout_ns = 10 * NS_PER_S};

#define AT(field) offsetof(struct heap_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"classes", 'c', OPTION_FLAG, AT(classes), .help = "all size classes, empty ones too"},
    {"chains", 't', OPTION_FLAG, AT(chains),
     .help = "all chains (otherwise the 20 that hold most)"},
    {"timeout", 0, OPTION_DURATION, AT(timeout_ns), "TIME",
     "time limit for reading (default: 10s)"},
    OPTION_JSON,
    OPTION_COLOR,
    OPTION_DIR,
    {0},
};

static const struct command_example examples[] = {
    {"memoir heap 4242", "sizes, threads, free memory and fragmentation of a process"},
    {"memoir heap 4242 --json | jq .kept_bytes", "for programs: what is kept and not used"},
    {0},
};

static const struct command_fields fields[] = {
    {"Fields of a size class", heap_class_columns},
    {"Fields of a chain", heap_chain_columns},
    {0},
};

static const struct command_section sections[] = {
    {"WHAT IS SHOWN",
     "Small blocks (up to 32 KiB) lie in slabs of one size; a slab is owned by the chain of a thread, or full, or in a pool. "
     "Large blocks (up to 1 MiB) have slices of 16 KiB of their own, huge ones a mapping. Memory that is free and "
     "was used is kept for a while, so that it can be used again without page faults, and given back to the kernel when "
     "memory is short.\n\n"
     "\"In use\" is what blocks take. \"Free in slabs\" lies between blocks that are in use and can serve blocks of the same size "
     "only: its share is the fragmentation. \"Kept\" can serve any. \"Asked\" is what the program asked for, known "
     "where its blocks are accounted (memoir run, or account=1 in MEMOIR_MALLOC), and so is \"In user chains\": blocks that "
     "memoir_chain_alloc() gave, in buffers of the program's own, which are no part of the rest unless malloc() gave the buffer.\n\n"
     "The figures are read from the memory of the process while it goes on; they are of one moment each."},
    {"WHO HAS IT",
     "Programs started by memoir run (without --track), and those with libmemoir-malloc.so in LD_PRELOAD or linked in. One has to "
     "be allowed to read the process: its owner or root, as for a debugger. After its death the book tells what it held: "
     "memoir ps, sites, leaks."},
    {"JSON",
     "One object: \"schema\" (\"memoir.heap/2\"), \"time\", \"pid\", \"accounting\" (whether its blocks are accounted), \"asked\" and "
     "\"asked_blocks\", \"chain\" and \"chain_blocks\" (null where blocks are not accounted), \"used\", \"small_used\", "
     "\"free_in_slabs\", \"uncut\", \"kept\", \"kept_huge\", \"metadata\", \"macro_blocks\", \"large\" and \"huge\", \"kernel\" (calls of "
     "mmap, munmap, mremap, madvise and mprotect, and bytes), \"nodes\" (of NUMA), \"classes\" and \"chains\". \"columns\" has the unit of "
     "each figure."},
    {0},
};

/* ---- running ---- */

static int cannot(pid_t pid, int error)
{
    switch (error) {
    case -ENOENT:
        command_fail(
            "process %d has another allocator: start it by 'memoir run --malloc COMMAND', or "
            "with libmemoir-malloc.so in LD_PRELOAD",
            (int)pid);
        return COMMAND_NOTHING;
    case -ESRCH:
        command_fail(
            "no process %d, or it has no memory of its own; for ended processes see memoir exited and memoir sites",
            (int)pid);
        return COMMAND_NOTHING;
    case -EPROTO:
        return command_fail("process %d has an allocator of another version of memoir", (int)pid);
    case -EACCES:
    case -EPERM:
        return command_fail("the memory of process %d may not be read: ask as its owner or as root "
                            "(in a container, with CAP_SYS_PTRACE)",
                            (int)pid);
    case -ETIME:
        return command_fail(
            "the memory of process %d did not answer in time: some of it comes from a file system or a "
            "program that hangs. --timeout waits longer",
            (int)pid);
    default:
        return error;
    }
}

/* By its number, or by the name of a program of which one process keeps a book. */
static int process_find(const char *dir, const char *word, uint64_t *ret_pid)
{
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    struct ledger_process *process = NULL;
    if (process_word_pid(word, ret_pid))
        return COMMAND_OK;
    if (!*word || *word == '-' || (*word >= '0' && *word <= '9'))
        return command_misuse(&cmd_heap, "'%s' is not a valid PID", word);
    int r = ledger_scan(dir, &ledger);
    if (r < 0)
        return r;
    size_t found = process_word_find(ledger, word, &process);
    if (found > 1)
        return command_fail("there are %zu processes called '%s': name one by its PID", found,
                            word);
    if (found == 0 || !(process->valid & LEDGER_HAS_PID)) {
        command_fail(
            "no process %s keeps a book; memoir ps lists those that do, and 'memoir run %s' "
            "starts one that does. Others are named by their PID",
            word, word);
        return COMMAND_NOTHING;
    }
    *ret_pid = (uint64_t)process->pid;
    return COMMAND_OK;
}

static int run(const void *values, const struct operands *operands)
{
    const struct heap_values *v = values;
    const char *word = operands->words[0];
    uint64_t pid = 0;
    if (!word)
        return command_misuse(&cmd_heap, "say which process: memoir heap PID|NAME");
    if (command_check_dir(v->dir) != COMMAND_OK)
        return COMMAND_FAILED;
    int r = process_find(v->dir, word, &pid);
    if (r != COMMAND_OK)
        return r;
    MEMOIR_CLEANUP(scan_heap_freep)
    struct scan_heap *heap = NULL;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    struct heap_sums sums;
    struct heap_look look = {v->classes, v->chains, v->color};
    r = scan_heap_read_apart((pid_t)pid, (v->timeout_ns + NS_PER_MS - 1) / NS_PER_MS, &heap);
    if (r < 0)
        return cannot((pid_t)pid, r);
    heap_report_sum(heap, v->dir, (pid_t)pid, &sums);
    r = v->json ? heap_report_json(heap, &sums, (pid_t)pid, &out)
                : heap_report_text(&look, heap, &sums, (pid_t)pid, &out);
    return r < 0 ? r : command_output(&out);
}

const struct command cmd_heap = {
    .name = "heap",
    .usage = "heap [OPTION...] PID|NAME",
    .help = "what memoir's allocator knows of a process: sizes, threads, free memory",
    .description =
        "Shows how a living process that runs with memoir's allocator uses its memory: blocks in use and free by size, the chains of its "
        "threads, what is kept for later and what was given back, and what the allocator itself takes.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .fields = fields,
    .operands_max = 1,
    .takes_processes = true,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
