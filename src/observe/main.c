/* memoir-observe: traces programs that use an accelerator, from outside. memoird starts one for the machine, `memoir trace` one
 * for a process. doc/trace.md describes it. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/version.h"
#include "nvml/worker.h"
#include "observe/elf_parser.h"
#include "observe/heap.h"
#include "observe/observer.h"

enum {
    OPTION_ALL = 256,
    OPTION_PID,
    OPTION_NAME,
    OPTION_SOCKET,
    OPTION_DIR,
    OPTION_LIBRARY,
    OPTION_SEARCH,
    OPTION_STREAM,
    OPTION_READY,
    OPTION_LINGER,
    OPTION_KEEP,
    OPTION_NO_BOOKS,
    OPTION_SYSTEM,
    OPTION_RING,
    OPTION_RING_QUOTA,
    OPTION_BLOCKS,
    OPTION_BLOCKS_QUOTA,
    OPTION_USER_QUOTA,
    OPTION_TWO_LINKS,
    OPTION_ORPHANS,
    OPTION_CHECK_PARSER,
    OPTION_HEAP,
    OPTION_KEEP_ENDED,
    OPTION_FOR,
    OPTION_SAMPLE,
    OPTION_BUDGET,
    OPTION_CHILDREN,
    OPTION_VERBOSE,
    OPTION_VERSION,
};

static const struct option options_known[] = {
    {"all", no_argument, NULL, OPTION_ALL},
    {"pid", required_argument, NULL, OPTION_PID},
    {"name", required_argument, NULL, OPTION_NAME},
    {"socket", required_argument, NULL, OPTION_SOCKET},
    {"dir", required_argument, NULL, OPTION_DIR},
    {"library", required_argument, NULL, OPTION_LIBRARY},
    {"search", required_argument, NULL, OPTION_SEARCH},
    {"stream", required_argument, NULL, OPTION_STREAM},
    {"ready", required_argument, NULL, OPTION_READY},
    {"linger", required_argument, NULL, OPTION_LINGER},
    {"keep", required_argument, NULL, OPTION_KEEP},
    {"no-books", no_argument, NULL, OPTION_NO_BOOKS},
    {"system-calls", no_argument, NULL, OPTION_SYSTEM},
    {"ring-bytes", required_argument, NULL, OPTION_RING},
    {"ring-quota", required_argument, NULL, OPTION_RING_QUOTA},
    {"blocks-max", required_argument, NULL, OPTION_BLOCKS},
    {"blocks-quota", required_argument, NULL, OPTION_BLOCKS_QUOTA},
    {"user-quota", required_argument, NULL, OPTION_USER_QUOTA},
    {"two-links", no_argument, NULL, OPTION_TWO_LINKS},
    {"remove-orphans", no_argument, NULL, OPTION_ORPHANS},
    {"check-parser", no_argument, NULL, OPTION_CHECK_PARSER},
    {"heap", no_argument, NULL, OPTION_HEAP},
    {"keep-ended", no_argument, NULL, OPTION_KEEP_ENDED},
    {"for", required_argument, NULL, OPTION_FOR},
    {"sample-bytes", required_argument, NULL, OPTION_SAMPLE},
    {"budget", required_argument, NULL, OPTION_BUDGET},
    {"children", required_argument, NULL, OPTION_CHILDREN},
    {"verbose", no_argument, NULL, OPTION_VERBOSE},
    {"version", no_argument, NULL, OPTION_VERSION},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static const char help[] =
    "Usage: memoir-observe --all | --pid PID [OPTION]...\n"
    "       memoir-observe --heap --pid PID [OPTION]...\n"
    "Trace the accelerator memory of unmodified programs, or the heap of one that runs. Started by memoird, 'memoir trace' and\n"
    "'memoir attach'.\n"
    "\n"
    "  --all                 every process that uses a probed library\n"
    "  --pid PID|all         one process, or as --all\n"
    "  --name NAME           of the pinned probes (default: all, or pid-PID)\n"
    "  --socket PATH         answer requests here\n"
    "  --dir DIR             directory of books\n"
    "  --library FILE        attach to this file, too (may be repeated)\n"
    "  --search DIR[:DIR...] look for libraries here first, as LD_LIBRARY_PATH says\n"
    "  --stream FD           write all events to this descriptor, and no books\n"
    "  --ready FD            write 'ready' to this descriptor once probes are attached\n"
    "  --linger SECONDS      exit this long after the last holder closed its connection\n"
    "  --keep SECONDS        with --pid: exit this long after the process ended\n"
    "  --no-books            keep histories only\n"
    "  --system-calls        tell large mappings of host memory and advice about them, too; this makes every\n"
    "                        system call of the machine a little slower\n"
    "  --ring-bytes N, --ring-quota N, --blocks-max N, --blocks-quota N, --user-quota N\n"
    "                        limits, of all processes, of one and of one user's\n"
    "  --two-links           probe the return of every call, as kernels before 6.13 must\n"
    "  --remove-orphans      remove probes whose observer is gone (after --name: those of that name), and exit\n"
    "  --check-parser        check that the process that parses files and memory of users can give up its rights, and exit\n"
    "  --heap                probes on the allocator of the process; of the other options it takes --socket, --dir, --ready, --linger,\n"
    "                        --blocks-max, --two-links and:\n"
    "  --keep-ended          leave the book when the process ends, for memoird\n"
    "  --for UID             on behalf of this user, who must be allowed to trace the process\n"
    "  --sample-bytes N      bytes between two stacks, on average\n"
    "  --budget PERCENT      of the process's CPU time that probes may take before they are in for part of the time only; 0: any\n"
    "  --children N          attach to processes that it forks, too, to N at a time, 16 at most\n"
    "  --verbose             log more\n"
    "  --version, --help     show the version or this help and exit\n";

static bool number_read(const char *text, unsigned long max, unsigned long *ret_value)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno || end == text || *end || value > max || *text == '-')
        return false;
    *ret_value = value;
    return true;
}

static int parser_check(void)
{
    struct elf_parser *parser;
    int r = elf_parser_new(&parser);
    if (r < 0) {
        fprintf(stderr, "memoir-observe: cannot confine the parser: %s\n", strerror(-r));
        return 1;
    }
    elf_parser_free(parser);
    return 0;
}

static void orphan_tell(void *context, const char *name)
{
    printf("removed the probes of '%s', whose observer is gone\n", name);
}

static bool number_needed(const char *option, unsigned long max, unsigned long *ret_value)
{
    if (number_read(optarg, max, ret_value))
        return true;
    fprintf(stderr, "memoir-observe: invalid number '%s' for --%s\n", optarg, option);
    return false;
}

/* What belongs to --heap alone. False: another option. */
static bool heap_option_take(int option, unsigned long n, struct heap_options *h, bool *heap)
{
    switch (option) {
    case OPTION_HEAP:
        *heap = true;
        return true;
    case OPTION_KEEP_ENDED:
        h->keep_ended = true;
        return true;
    case OPTION_CHILDREN:
        h->children = (unsigned)n;
        return true;
    case OPTION_FOR:
        h->uid = (uint32_t)n;
        return true;
    case OPTION_SAMPLE:
        h->sample_bytes = (uint32_t)n;
        return true;
    case OPTION_BUDGET:
        h->budget = (unsigned)n;
        return true;
    default:
        return false;
    }
}

/* One option; -1: go on, else an exit status. */
static int option_take(int option, const char *name, struct observer_options *o,
                       struct heap_options *h, bool *heap)
{
    unsigned long n = 0;
    bool all = option == OPTION_PID && strcmp(optarg, "all") == 0;
    bool numeric = (option == OPTION_PID && !all) || option == OPTION_STREAM ||
                   option == OPTION_READY || option == OPTION_LINGER || option == OPTION_KEEP ||
                   (option >= OPTION_RING && option <= OPTION_USER_QUOTA) ||
                   option == OPTION_SAMPLE || option == OPTION_BUDGET || option == OPTION_FOR ||
                   option == OPTION_CHILDREN;
    if (numeric && !number_needed(name, INT32_MAX, &n))
        return 2;
    if (heap_option_take(option, n, h, heap))
        return -1;
    switch (option) {
    case OPTION_ALL:
        o->kernel.all = true;
        break;
    case OPTION_PID:
        o->pid = (pid_t)n;
        o->kernel.all |= all;
        break;
    case OPTION_NAME:
        o->kernel.name = optarg;
        break;
    case OPTION_SOCKET:
        o->socket = optarg;
        break;
    case OPTION_DIR:
        o->dir = optarg;
        break;
    case OPTION_SEARCH:
        o->search = optarg;
        break;
    case OPTION_LIBRARY:
        if (o->n_libraries < sizeof(o->libraries) / sizeof(o->libraries[0]))
            o->libraries[o->n_libraries++] = optarg;
        break;
    case OPTION_STREAM:
        o->stream_fd = (int)n;
        break;
    case OPTION_READY:
        o->ready_fd = (int)n;
        break;
    case OPTION_LINGER:
        o->linger_s = (unsigned)n;
        break;
    case OPTION_KEEP:
        o->keep_s = (unsigned)n;
        break;
    case OPTION_SYSTEM:
        o->kernel.system_calls = true;
        break;
    case OPTION_NO_BOOKS:
        o->no_books = true;
        break;
    case OPTION_RING:
        o->kernel.ring_bytes = (uint32_t)n;
        break;
    case OPTION_RING_QUOTA:
        o->kernel.ring_quota = (uint32_t)n;
        break;
    case OPTION_BLOCKS:
        o->kernel.blocks_max = (uint32_t)n;
        break;
    case OPTION_BLOCKS_QUOTA:
        o->kernel.blocks_quota = (uint32_t)n;
        break;
    case OPTION_USER_QUOTA:
        o->kernel.user_quota = (uint32_t)n;
        break;
    case OPTION_TWO_LINKS:
        o->kernel.two_links = true;
        break;
    case OPTION_ORPHANS:
        return kernel_orphans(o->kernel.name, true, orphan_tell, NULL) < 0 ? 1 : 0;
    case OPTION_CHECK_PARSER:
        return parser_check();
    case OPTION_VERBOSE:
        log_set_level(LOG_LEVEL_DEBUG);
        break;
    case OPTION_VERSION:
        printf("memoir-observe %s\n", MEMOIR_VERSION);
        return 0;
    case 'h':
        fputs(help, stdout);
        return 0;
    default:
        fputs(help, stderr);
        return 2;
    }
    return -1;
}

/* Names become file names. */
static bool name_fits(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len < KERNEL_NAME_MAX - 16 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == len;
}

static int heap_main(const struct observer_options *o, struct heap_options *h)
{
    if (o->pid <= 0) {
        fputs("memoir-observe: --heap needs --pid PID\n", stderr);
        return 2;
    }
    h->pid = o->pid;
    h->dir = o->dir;
    h->socket = o->socket;
    h->ready_fd = o->ready_fd;
    h->linger_s = o->linger_s;
    h->blocks_max = o->kernel.blocks_max;
    h->two_links = o->kernel.two_links;
    return heap_run(h);
}

int main(int argc, char **argv)
{
    if (nvml_worker_is_this(argc, argv))
        return nvml_worker_main();
    if (elf_parser_is_this(argc, argv))
        return elf_parser_main();
    struct observer_options o = {.stream_fd = -1, .ready_fd = -1};
    struct heap_options h = {.budget = HEAP_BUDGET};
    bool heap = false;
    char name[32];
    int option, index = 0;
    while ((option = getopt_long(argc, argv, "h", options_known, &index)) != -1) {
        int status = option_take(option, options_known[index].name, &o, &h, &heap);
        if (status >= 0)
            return status;
    }
    if (heap && optind == argc)
        return heap_main(&o, &h);
    if (optind != argc || o.kernel.all == (o.pid > 0)) {
        fputs("memoir-observe: give either --all or --pid PID\n", stderr);
        return 2;
    }
    if (!o.kernel.name) {
        if (o.stream_fd >= 0)
            snprintf(name, sizeof(name), "stream-%d", (int)getpid());
        else
            snprintf(name, sizeof(name), o.pid ? "pid-%d" : "all", (int)o.pid);
        o.kernel.name = name;
    }
    o.no_books |= o.stream_fd >= 0; /* another observer may write them: they must not count twice */
    if (!name_fits(o.kernel.name)) {
        fprintf(stderr, "memoir-observe: invalid name '%s': use letters, digits, - and _\n",
                o.kernel.name);
        return 2;
    }
    return observer_run(&o);
}
