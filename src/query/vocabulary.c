/* Names of columns. See vocabulary.h. */
#include "query/vocabulary.h"

#include <string.h>

/* By name. */
static const struct query_word words[] = {
    {"accounted", QUERY_BYTES, "bytes that its books account there; absent without a book"},
    {"active", QUERY_BYTES, "used lately"},
    {"age", QUERY_AGE, "how old it is: since the process started, or the block was allocated"},
    {"ago", QUERY_AGE, "how long ago it ended"},
    {"allocated", QUERY_BYTES, "bytes allocated since the start"},
    {"allocated_blocks", QUERY_NUMBER, "blocks allocated since the start"},
    {"anon", QUERY_BYTES, "anonymous memory: what processes have of their own"},
    {"available", QUERY_BYTES,
     "what programs can still get without swapping, as the kernel estimates"},
    {"blocks", QUERY_NUMBER, "blocks allocated and not freed"},
    {"book_inode", QUERY_NUMBER, "inode of the book"},
    {"book_pid", QUERY_NUMBER, "process id as the process itself sees it"},
    {"book_size", QUERY_BYTES, "memory that its books take"},
    {"buffers", QUERY_BYTES, "part: blocks of disks"},
    {"bytes", QUERY_BYTES, "bytes allocated and not freed"},
    {"cache", QUERY_BYTES, "part: files, without tmpfs and shared memory"},
    {"cached", QUERY_BYTES, "files, with tmpfs and shared memory"},
    {"capacity", QUERY_BYTES, "size of the memory"},
    {"cause", QUERY_TEXT, "how it ended"},
    {"cgroup", QUERY_TEXT, "path of the cgroup"},
    {"cgroup_limit", QUERY_BYTES, "the limit on memory of that cgroup, or of one around it"},
    {"cgroup_used", QUERY_BYTES, "what the cgroup takes, with its page cache"},
    {"chain", QUERY_BYTES,
     "blocks in user chains; no part of host: their buffers are other memory"},
    {"command", QUERY_TEXT, "the command line"},
    {"confidence", QUERY_SHARE, "how sure the verdict is"},
    {"confirmed", QUERY_YES, "whether the driver or root tells the capacity"},
    {"container", QUERY_TEXT, "identity of its container"},
    {"core", QUERY_YES, "whether it left a core dump"},
    {"cpu", QUERY_AGE, "processor time that it used, up to its last tick"},
    {"current", QUERY_BYTES, "memory that it holds, with its page cache and all below it"},
    {"data", QUERY_BYTES, "virtual memory of its data and stack"},
    {"depth", QUERY_NUMBER, "how many are around it"},
    {"details_age", QUERY_AGE, "how old state, threads, faults and the parts of rss are"},
    {"device", QUERY_BYTES,
     "memory held on devices; where a row is of one device, its number and name", .also = true,
     .also_kind = QUERY_TEXT},
    {"device.cb", QUERY_BYTES, "of it, circular buffers"},
    {"device.dram", QUERY_BYTES, "of it, DRAM"},
    {"device.driver", QUERY_BYTES, "memory that the driver counts for it on all devices (NVIDIA)"},
    {"device.kernel", QUERY_BYTES, "of it, kernel binaries"},
    {"device.l1", QUERY_BYTES, "of it, buffers in L1"},
    {"device.l1_small", QUERY_BYTES, "of it, small buffers in L1"},
    {"device.system", QUERY_BYTES, "host memory that belongs to devices; no part of device"},
    {"device.trace", QUERY_BYTES, "of it, recorded traces"},
    {"device_bus", QUERY_TEXT, "PCI address of the device"},
    {"device_id", QUERY_TEXT, "identity of the device: its uid, else its PCI address and node"},
    {"device_kind", QUERY_TEXT, "gpu, npu, fpga, simulated or other"},
    {"device_name", QUERY_TEXT, "name of the device alone"},
    {"device_uid", QUERY_TEXT, "what makes it the same device for all programs"},
    {"dirty", QUERY_BYTES, "memory that was written to, and not to a disk yet"},
    {"disputed", QUERY_YES, "whether a user claims another capacity"},
    {"driver", QUERY_BYTES, "bytes that the driver counts for the process on the device"},
    {"driver.processes", QUERY_NUMBER, "processes that use the device, as the driver counts"},
    {"driver.reserved", QUERY_BYTES, "held by the driver itself; no part of driver.used"},
    {"driver.used", QUERY_BYTES, "held by all processes, as the driver counts (NVIDIA)"},
    {"driver_pid", QUERY_NUMBER, "the process id that the driver gives"},
    {"ended", QUERY_TIME, "when it ended"},
    {"estimated", QUERY_YES, "are the figures estimated from samples"},
    {"examples", QUERY_FRAMES,
     "blocks: address, bytes and age in seconds; the oldest, one of the middle, the newest"},
    {"exe", QUERY_TEXT, "path of the program"},
    {"exit_code", QUERY_NUMBER, "code with which it exited"},
    {"figures_age", QUERY_AGE, "how old all of this is"},
    {"file", QUERY_BYTES, "memory of files"},
    {"frame", QUERY_TEXT, "path of the module and offset in its file"},
    {"frames", QUERY_FRAMES, "the stack of calls, the outermost first"},
    {"free", QUERY_BYTES, "memory that is free"},
    {"freed", QUERY_BYTES, "bytes freed since the start"},
    {"freed_blocks", QUERY_NUMBER, "blocks freed since the start"},
    {"freed_share", QUERY_SHARE, "of all bytes ever allocated there, freed"},
    {"function", QUERY_TEXT, "name of the function"},
    {"growing", QUERY_AGE, "how long it has grown without falling, as far as it was watched"},
    {"growth", QUERY_RATE, "how fast it grows; below 0 it shrinks"},
    {"growth_10m", QUERY_RATE, "the same over the last 10 minutes"},
    {"growth_1m", QUERY_RATE, "the same over the last minute"},
    {"growth_blocks", QUERY_RATE, "blocks by which it grows in a second", .unit = "blocks/s"},
    {"has_book", QUERY_YES, "whether it kept a book"},
    {"headroom", QUERY_BYTES,
     "what a cgroup may still take: the least limit, less what cannot be reclaimed"},
    {"heap", QUERY_BYTES, "memory of the heap"},
    {"high", QUERY_BYTES, "above it the kernel slows its processes down"},
    {"holds", QUERY_YES, "is it still there, so that its figures count"},
    {"host", QUERY_BYTES, "host memory that it reported, all spaces but chain and registered"},
    {"host.shared", QUERY_BYTES, "of it, shared between processes"},
    {"hugetlb", QUERY_BYTES, "part: huge pages set aside"},
    {"id", QUERY_TEXT, "address or handle, as the program calls it"},
    {"inactive", QUERY_BYTES, "not used for a while, first to be given up"},
    {"inherited", QUERY_BYTES, "live in the parent at fork and not freed since; no part of bytes"},
    {"job", QUERY_TEXT, "its batch job"},
    {"kernel", QUERY_BYTES, "of current, the kernel's own, with slab"},
    {"kernel_stacks", QUERY_BYTES, "part: stacks of the kernel"},
    {"kernel_thread", QUERY_YES, "is it a thread of the kernel"},
    {"key", QUERY_TEXT,
     "number of the place in the code, the same in every run of the same program"},
    {"kind", QUERY_TEXT, "of the cause: code, signal, oom, exec or unknown"},
    {"level", QUERY_NUMBER,
     "the verdict as a number: 4 leak, 3 growing, 2 warming up, 1 steady, 0 unknown yet"},
    {"lib", QUERY_BYTES, "virtual memory of the code of its libraries"},
    {"limit", QUERY_BYTES, "the limit on memory"},
    {"limit_in", QUERY_AGE, "until the limit is reached at this rate"},
    {"limit_kind", QUERY_TEXT, "which limit: cgroup, machine or device"},
    {"line", QUERY_NUMBER, "line in the source file"},
    {"lived", QUERY_AGE, "how long it lived"},
    {"losses", QUERY_NUMBER, "reports that were not fully accounted"},
    {"major_faults", QUERY_NUMBER, "pages that had to be read from a disk"},
    {"managed", QUERY_BYTES, "of it, managed: moves between host and device by itself"},
    {"mapped", QUERY_BYTES, "of it, mapped"},
    {"minor_faults", QUERY_NUMBER, "pages that it got without a disk"},
    {"moved_in", QUERY_BYTES, "bytes of transfers into it"},
    {"moved_out", QUERY_BYTES, "bytes of transfers out of it"},
    {"moves", QUERY_NUMBER, "transfers that it was part of"},
    {"name", QUERY_TEXT, "the last part of its path"},
    {"node", QUERY_TEXT, "name of the machine"},
    {"notes", QUERY_TEXT, "why the figures are not the whole truth, or where the process is"},
    {"oom_kills", QUERY_NUMBER,
     "processes in it and below that were killed because memory ran out"},
    {"oom_score", QUERY_NUMBER, "how likely the kernel is to kill it when memory runs out"},
    {"order", QUERY_NUMBER, "its number in the order of the tree"},
    {"ordinal", QUERY_NUMBER, "number of the device"},
    {"other", QUERY_BYTES, "of host, what is neither heap nor pinned"},
    {"own_processes", QUERY_NUMBER, "processes in it, without those below"},
    {"page_tables", QUERY_BYTES, "part: page tables"},
    {"parent", QUERY_NUMBER, "process id of the parent"},
    {"parent_path", QUERY_TEXT, "path of the one around it"},
    {"path", QUERY_TEXT, "where it is in the tree"},
    {"peak", QUERY_BYTES, "the most that was held at once"},
    {"peak_rss", QUERY_BYTES, "the most that rss has been"},
    {"percent", QUERY_PERCENT, "used as a part of the capacity or limit"},
    {"percpu", QUERY_BYTES, "part: the kernel's memory of each processor"},
    {"pid", QUERY_NUMBER, "process id"},
    {"pinned", QUERY_BYTES, "memory pinned for transfers"},
    {"pod", QUERY_TEXT, "identity of its pod"},
    {"pressure", QUERY_PERCENT, "part of the last 10 s in which some program waited for memory"},
    {"pressure_1m", QUERY_PERCENT, "the same over the last minute"},
    {"pressure_5m", QUERY_PERCENT, "the same over the last 5 minutes"},
    {"processes", QUERY_NUMBER, "number of processes"},
    {"program", QUERY_TEXT, "name of the program, or of the script that it runs"},
    {"pss", QUERY_BYTES, "resident memory, what is shared by n processes counted as an n-th"},
    {"pss_age", QUERY_AGE, "how old pss, uss, dirty and oom_score are"},
    {"rank", QUERY_NUMBER, "its number in an MPI program"},
    {"reason", QUERY_TEXT,
     "what the verdict rests on: sustained, stopped, slowing, teeth, one-off, load, drift, one block, frees late, slower now, churn, idle, shrinks, too short, too few looks"},
    {"registered", QUERY_BYTES,
     "pinned in place; no part of host: it counts where it was allocated"},
    {"rss", QUERY_BYTES, "resident memory"},
    {"samples", QUERY_NUMBER, "live samples of the place"},
    {"scarcity", QUERY_TEXT, "how scarce memory is: plenty, some, high or critical"},
    {"sequence", QUERY_NUMBER, "order in which the kernel told of them"},
    {"shared", QUERY_BYTES, "memory that processes share"},
    {"shmem", QUERY_BYTES, "tmpfs and shared memory"},
    {"signal", QUERY_NUMBER, "number of the signal that killed it"},
    {"site", QUERY_TEXT, "the place in the code"},
    {"site_number", QUERY_NUMBER, "the place's number in the book"},
    {"slab", QUERY_BYTES, "structures of the kernel"},
    {"slab_reclaimable", QUERY_BYTES, "part: of slab, what can be given up"},
    {"slab_unreclaimable", QUERY_BYTES, "part: of slab, what cannot"},
    {"source", QUERY_TEXT, "who counted: client, socket, malloc, ..."},
    {"source_file", QUERY_TEXT, "source file"},
    {"space", QUERY_TEXT, "kind of memory: dram, l1, cb, heap, ..."},
    {"stack", QUERY_FRAMES, "who called it, as far as that is known"},
    {"stack_samples", QUERY_NUMBER, "live samples that have this stack; absent where it is exact"},
    {"stall", QUERY_PERCENT, "part of the last 10 s in which all programs waited for memory"},
    {"stall_1m", QUERY_PERCENT, "the same over the last minute"},
    {"stall_5m", QUERY_PERCENT, "the same over the last 5 minutes"},
    {"start", QUERY_TIME, "when it was started"},
    {"state", QUERY_TEXT,
     "what the process does: of one that keeps a book running, stopped, closed, exited, replaced or unknown, else as the kernel says"},
    {"summed", QUERY_YES,
     "whether the row is a sum of processes that gave way to later ones; such rows come only where the question names this column"},
    {"swap", QUERY_BYTES, "memory that is swapped out"},
    {"swap_cached", QUERY_BYTES, "in swap, and still in memory"},
    {"swap_free", QUERY_BYTES, "of it, free"},
    {"swap_total", QUERY_BYTES, "room for memory on disks"},
    {"tag", QUERY_TEXT, "what the program was doing"},
    {"text", QUERY_BYTES, "virtual memory of its code"},
    {"threads", QUERY_NUMBER, "number of threads"},
    {"total", QUERY_BYTES, "all memory that the kernel manages"},
    {"tracked", QUERY_TEXT, "are all of its allocations accounted, and if not, why"},
    {"trend", QUERY_POINTS, "bytes held over the time watched"},
    {"uid", QUERY_NUMBER, "the same as a number"},
    {"unattributed", QUERY_BYTES, "memory that nobody is known to hold"},
    {"use", QUERY_TEXT, "compute, graphics or both"},
    {"used", QUERY_BYTES, "memory in use"},
    {"user", QUERY_TEXT, "who owns the process"},
    {"uss", QUERY_BYTES, "resident memory that nobody shares"},
    {"verdict", QUERY_TEXT, "leak, growing, warming up, steady or unknown yet"},
    {"vms", QUERY_BYTES, "virtual memory"},
    {"watched", QUERY_AGE, "the time that the verdict is about"},
    {"watcher", QUERY_TEXT, "who watched: memoird, or memoir itself"},
    {"watchers", QUERY_TEXT, "the daemons that watch its books: root:PID, user:PID"},
    {"why", QUERY_TEXT, "a sentence that explains the verdict"},
};

const struct query_word *query_words(size_t *ret_n)
{
    *ret_n = sizeof(words) / sizeof(*words);
    return words;
}

const struct query_word *query_word_find(const char *name)
{
    size_t low = 0, high = sizeof(words) / sizeof(*words);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(words[middle].name, name);
        if (order == 0)
            return &words[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

bool query_word_fits(const struct query_column *column)
{
    const struct query_word *word = query_word_find(column->name);
    if (!word)
        return false;
    if (word->also && column->kind == word->also_kind)
        return true;
    return column->kind == word->kind &&
           strcmp(column->unit ? column->unit : "", word->unit ? word->unit : "") == 0;
}

const char *query_column_help(const struct query_column *column)
{
    const struct query_word *word = column->help ? NULL : query_word_find(column->name);
    return column->help ? column->help : word ? word->help : "";
}
