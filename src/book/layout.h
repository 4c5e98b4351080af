/*
 * layout.h: the bytes of a book, version 1.
 *
 * A book is one sparse tmpfs file. Its writer maps all of it, opens pages as it needs them and
 * stores with plain 64-bit stores; anybody else only reads. doc/book.md describes the same bytes
 * for readers in other languages: change both together, and never change what a released version
 * means. What may be added without breaking old readers: section kinds, record types, flags in
 * `compat`, fields in space marked `spare` (zero until defined). Everything else sets a bit in
 * `incompat`, which an old reader refuses.
 *
 * All integers are in the machine's byte order; `endian_mark` tells which. Counters only grow and
 * are stored whole (64-bit aligned). A reader takes "freed" before "allocated", so that live =
 * allocated - freed is never negative.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define BOOK_MAGIC \
    "MEMOIRBK" /* 8 bytes, no terminator; stored last, so a book has it or is not ready */
#define BOOK_VERSION     1
#define BOOK_ENDIAN_MARK 0x01020304u

enum {
    BOOK_HEADER_BYTES = 4096,
    BOOK_SECTION_ALIGN = 64, /* of offsets; who maps a section rounds down to his page */
    BOOK_SECTIONS_MAX = 32,
    BOOK_LOSSES_MAX = 32,
    BOOK_BLOCK_SHARDS_MAX = 16,
    BOOK_INDEX_FORMAT = 1,    /* changes whenever table.h finds or places blocks in another way */
    BOOK_INDEX_BY_DEVICE = 2, /* of books written by a daemon: see table.h */
};

/* Bits a reader must know to read the book at all. Version 1 has none. */
#define BOOK_INCOMPAT_KNOWN 0u

/* Bits that say more, and that a reader may ignore. */
enum book_compat {
    BOOK_COMPAT_ON_BEHALF = 1u << 0,  /* written by a daemon; the identity is the subject's */
    BOOK_COMPAT_FORK_CHILD = 1u << 1, /* the subject inherited memory: see inherited_bytes */
    BOOK_COMPAT_REMOTE = 1u << 2,     /* the subject runs on another machine: see host */
    BOOK_COMPAT_RESTORED = 1u << 3,   /* set aside: made after a checkpoint was restored */
};

/* Who wrote it. A process usually has one book per source; several written by the process itself
 * (two copies of a library) add up. */
enum book_source {
    BOOK_SOURCE_CLIENT = 1,   /* libmemoir: the program reports by itself */
    BOOK_SOURCE_MALLOC = 2,   /* libmemoir-malloc: the program's allocator is ours */
    BOOK_SOURCE_TRACK = 3,    /* libmemoir-track: wraps the program's allocator */
    BOOK_SOURCE_OBSERVER = 4, /* eBPF probes, written by the daemon */
    BOOK_SOURCE_SOCKET = 5,   /* reports over a socket, written by the daemon */
    BOOK_SOURCE_REGION = 6,   /* another program's own shared region, written by the daemon */
    BOOK_SOURCE_CUDA = 7,     /* set aside: a shim over CUDA inside the process */
    BOOK_SOURCE_ATTACH = 8, /* heap probes attached to a running process, written by the observer */
};

/* Does it count every block of the heap, whoever asked for it? One that was attached does for blocks that are younger. */
static inline bool book_source_counts_heap(uint32_t source)
{
    return source == BOOK_SOURCE_MALLOC || source == BOOK_SOURCE_TRACK ||
           source == BOOK_SOURCE_ATTACH;
}

/* Where a book stands. It only moves forward. It tells about the book's own writer: a process may close
 * one book and go on with another. */
enum book_state {
    BOOK_STATE_INITIAL = 0, /* being made: nothing is promised */
    BOOK_STATE_OPEN = 1,    /* in use, or its writer died without a word */
    BOOK_STATE_CLOSED = 2,  /* the writer ended in order and left the book for the daemon */
    BOOK_STATE_STOPPED = 3, /* accounting ended early, figures are final: see stop_reason */
};

enum book_stop_reason {
    BOOK_STOP_NONE = 0,
    BOOK_STOP_ASKED = 1, /* the program or the control page said so for good */
    BOOK_STOP_FULL = 2,  /* the file system or a limit gave no more pages */
};

/* What was not accounted, by cause. Index into header.losses; each counts reports. */
enum book_loss {
    BOOK_LOSS_BLOCKS_FULL = 0,   /* no room for a block entry; totals still count the block */
    BOOK_LOSS_SITES_FULL = 1,    /* no room for a call site; counted under site 0 */
    BOOK_LOSS_ACCOUNTS_FULL = 2, /* no room for a device or an account; nothing counted */
    BOOK_LOSS_TAGS_FULL = 3,     /* no room for a tag; counted without it */
    BOOK_LOSS_MODULES_FULL = 4,  /* frame kept as an absolute address */
    BOOK_LOSS_COUNTERS_FULL = 5, /* no page for site counters; the site is not counted */
    BOOK_LOSS_REENTRY = 6,       /* reported from a signal handler inside a report, queue full */
    BOOK_LOSS_STUCK_LOCK = 7,    /* a lock stayed held (its thread was torn away) */
    BOOK_LOSS_UNKNOWN_FREE = 8,  /* freed a block that was never reported */
    BOOK_LOSS_REPLACED = 9,      /* reported a live block again; the old one counted as freed */
    BOOK_LOSS_BAD_ARGUMENT = 10, /* a device or space that does not exist, a size of 2^48 or more */
    BOOK_LOSS_SUSPENDED = 11,    /* reports that came while the control page suspended the book */
    BOOK_LOSS_TORN = 12,         /* a report was cut short by longjmp() or cancellation */
    BOOK_LOSS_UNKNOWN_MOVE = 13, /* a transfer named a block that was never reported */
    BOOK_LOSS_LIMIT = 14, /* past what its daemon accounts for one process; nothing counted */
    BOOK_LOSS_SCRIPTS_FULL = 15, /* no room for a function of a script; its frames are unknown */
};

/* ---- sections ---- */

enum book_section_kind {
    BOOK_SECTION_NONE = 0,
    BOOK_SECTION_CONTROL = 1,       /* struct book_control, the only bytes a daemon writes */
    BOOK_SECTION_REGISTRY = 2,      /* struct book_record[]: devices and accounts */
    BOOK_SECTION_COUNTER_INDEX = 3, /* struct book_counter_page[]: what each counter page holds */
    BOOK_SECTION_COUNTERS = 4,      /* counter pages of 4,096 bytes */
    BOOK_SECTION_MODULES = 5,       /* struct book_module[] */
    BOOK_SECTION_FRAMES = 6,        /* uint64_t[]: BOOK_FRAME(module, offset) */
    BOOK_SECTION_SITES = 7,         /* struct book_site[] */
    BOOK_SECTION_TAGS = 8,          /* struct book_tag[] */
    BOOK_SECTION_BLOCKS = 9,        /* struct book_block_page[]; pages may be holes: use pread */
    BOOK_SECTION_BLOCK_INDEX = 10,  /* the writer's own hash index; readers leave it alone */
    BOOK_SECTION_MOVES = 11,        /* struct book_moves[], one per block slot; may have holes */
    BOOK_SECTION_SHADOW = 12,       /* set aside for heap trackers */
    BOOK_SECTION_SAMPLES = 13,      /* set aside for sampled stacks */
    BOOK_SECTION_SCRIPTS = 14,      /* struct book_script[] */
};

struct book_section {
    uint32_t kind;       /* enum book_section_kind; constant */
    uint32_t entry_size; /* bytes of one entry; constant; readers step by it, so entries may grow */
    uint64_t offset;     /* in the file, multiple of BOOK_SECTION_ALIGN; constant */
    uint64_t size;       /* bytes set aside; constant */
    uint64_t open;       /* bytes in use; only grows. A mapped read of a hole would make a page */
    uint64_t used;       /* entries in use; only grows, stored (release) after the entry;
                            0 for BLOCKS, BLOCK_INDEX and MOVES, whose slots speak for themselves */
    uint64_t spare;
};
static_assert(sizeof(struct book_section) == 48, "section");

/* ---- header ---- */

/* One run of a client that numbers its reports; a process may have several at a time. */
struct book_session {
    uint64_t id;  /* 0: none */
    uint64_t seq; /* number of its last report that is accounted here; stored after it */
};
static_assert(sizeof(struct book_session) == 16, "session");

enum { BOOK_SESSIONS_MAX = 8 }; /* the latest ones */

struct book_header {
    char magic[8]; /* BOOK_MAGIC, stored last */
    uint32_t endian_mark;
    uint16_t version;
    uint16_t header_bytes; /* BOOK_HEADER_BYTES */
    uint32_t incompat;
    uint32_t compat; /* enum book_compat */
    uint64_t file_size;
    uint32_t page_size; /* of the writer's machine */
    uint32_t source;    /* enum book_source */

    /* Identity of the subject; constant. Zero means "could not be read". */
    uint8_t boot_id[16];  /* /proc/sys/kernel/random/boot_id, as 16 bytes */
    uint64_t pid_ns;      /* inode of the subject's pid namespace */
    uint64_t time_ns;     /* inode of the subject's time namespace */
    uint64_t start_ticks; /* field 22 of /proc/PID/stat: clock ticks since boot */
    uint64_t exec_id;     /* one per exec image: see book_exec_id() */
    int32_t pid;          /* in its own namespace */
    int32_t parent_pid;   /* at creation */
    uint32_t uid;         /* effective uid at creation */
    uint32_t exec_count;  /* earlier images of this process that left a book here */
    int32_t writer_pid;   /* who writes: the subject, or a daemon on its behalf */
    uint32_t time_shift;  /* a block's time is (monotonic ns - created_monotonic_ns) >> this */
    /* One moment, from which times count: of creation or earlier. A book that continues another takes
     * over both, since a block's time cannot lie before them. */
    uint64_t created_realtime_ns;
    uint64_t created_monotonic_ns; /* CLOCK_MONOTONIC */

    /* Changes while the book lives. */
    uint32_t state;                   /* enum book_state */
    uint32_t stop_reason;             /* enum book_stop_reason */
    uint64_t peak_error;              /* bytes by which any account's peak may be wrong */
    uint64_t blocks_seq;              /* odd while entries of the block table are being moved */
    uint64_t losses[BOOK_LOSSES_MAX]; /* by enum book_loss */

    /* The block table's shape; constant. */
    uint64_t hash_seed;
    uint32_t block_shards;       /* equal parts of the section BLOCKS that grow side by side */
    uint32_t block_index_format; /* of BLOCK_INDEX and of the order of slots: BOOK_INDEX_FORMAT */
    uint32_t block_pages[BOOK_BLOCK_SHARDS_MAX]; /* pages in use at the start of each part */

    /* NUL-terminated, truncated if need be. */
    char comm[16];
    char host[64]; /* only with BOOK_COMPAT_REMOTE */
    char exe[512];
    char command[512]; /* arguments, separated by NUL in the process and by spaces here */

    struct book_section sections[BOOK_SECTIONS_MAX]; /* unused ones have kind 0 */

    /* With BOOK_COMPAT_ON_BEHALF, for clients that number their reports. */
    struct book_session sessions[BOOK_SESSIONS_MAX];

    /* identity, too: with exec_id, where the subject writes itself; constant */
    uint64_t exec_random;

    /* Of heap trackers: how to find the live blocks in the memory of the process. See trailer.h. */
    uint64_t trailer_key;
    uint32_t trailer_generation; /* 1, and one more for each fork since */
    uint32_t trailer_format;     /* BOOK_TRAILER_FORMAT or its kin; 0: none */
    /* With BOOK_TRAILER_FORMAT_BESIDE: */
    uint64_t beside_heap;  /* address whose word is the first, a multiple of 32 */
    uint64_t beside_words; /* address of that word */
    uint64_t beside_span;  /* bytes of address space that there may be words for */

    uint8_t spare[792];
};
static_assert(sizeof(struct book_header) == BOOK_HEADER_BYTES, "header is one page");

/* ---- control ---- */

enum book_control_flags {
    BOOK_CONTROL_WATCHED = 1u << 0,   /* a daemon will retire this book: leave it at exit */
    BOOK_CONTROL_SUSPENDED = 1u << 1, /* count no further reports until cleared */
    BOOK_CONTROL_RECORDING = 1u << 2, /* write an event recording */
};

/* A daemon that watches the book: number 0 is root's, number 1 the user's own. */
struct book_watcher {
    int32_t pid; /* 0: nobody */
    uint32_t flags;
    uint64_t start_ticks; /* tells it from a later process with its pid */
    uint64_t pid_ns;      /* in which the pid means something */
};

enum { BOOK_WATCHERS = 2 };

struct book_control {
    uint32_t flags; /* the watchers' flags and flags_more, or-ed; daemons store, the writer loads */
    /* asked for by others than these two: daemons or it into flags. Written by the writer before the magic,
     * and by who acts for its user (book_control_ask()) */
    uint32_t flags_more;
    struct book_watcher watchers[BOOK_WATCHERS];
    /* For heap trackers: up to BOOK_CLOSE_SITES numbers of sites whose stacks are sampled more often, of BOOK_CLOSE_BITS
     * each, the first one lowest; 0: none. Who watches them stores it whole. */
    uint64_t close_sites;
};
static_assert(sizeof(struct book_control) == 64, "control");

enum {
    BOOK_CLOSE_SITES = 3,
    BOOK_CLOSE_BITS = 20,
    BOOK_CLOSE_BYTES = 65536, /* mean distance between the samples of such a site */
};

/* ---- registry: devices and accounts ---- */

enum book_record_type {
    BOOK_RECORD_NONE = 0,
    BOOK_RECORD_DEVICE = 1,
    BOOK_RECORD_ACCOUNT = 2,
};

enum {
    BOOK_RECORD_BYTES = 256,
    BOOK_RECORDS_MAX = 4096, /* a block names its account in 12 bits; record 0 stays empty */
    BOOK_DEVICE_HOST = 0,    /* in account.device: the host's own memory */
    BOOK_SPACE_DEVICE = 16,  /* spaces below it are the host's, those from it up to 31 a device's */
};

/* Counters of one account in one shard. Each is monotonic except fold_delta. */
struct book_counters {
    uint64_t freed_bytes; /* asked for, not served */
    uint64_t freed_blocks;
    uint64_t alloc_bytes;
    uint64_t alloc_blocks;
    uint64_t freed_served; /* bytes really taken; 0 from sources that know only what was asked */
    uint64_t alloc_served;
    int64_t fold_delta; /* the writer's: change not yet folded into account.live_folded */
    uint64_t reallocs;
    uint64_t moved_in_bytes; /* transfers into this account, and out of it */
    uint64_t moved_in;
    uint64_t moved_out_bytes;
    uint64_t moved_out;
    uint64_t fold_more; /* the writer's: how much more than usual may wait in fold_delta */
    uint64_t spare[3];
};
static_assert(sizeof(struct book_counters) == 128, "counters");

struct book_device {
    uint32_t type;   /* BOOK_RECORD_DEVICE; stored last */
    uint32_t kind;   /* enum memoir_device_kind of memoir.h */
    int32_t ordinal; /* the number the program uses for it */
    uint32_t flags;
    char name[64]; /* "NVIDIA H200", "Blackhole p150" */
    char uid[64];  /* UUID, serial, ASIC or MIG id: the same in every process, or "" */
    char bus[32];  /* PCI address "0000:81:00.0", or "" */
    uint8_t spare[80];
};
static_assert(sizeof(struct book_device) == BOOK_RECORD_BYTES, "device");

enum book_account_flags {
    BOOK_ACCOUNT_PARTIAL = 1u << 0, /* counted from some moment on, not from the start */
    BOOK_ACCOUNT_SAMPLED = 1u << 1, /* an estimate */
};

/* Memory of one kind in one place. Accounts with equal space and device add up. */
struct book_account {
    uint32_t type;     /* BOOK_RECORD_ACCOUNT; stored last */
    uint32_t space;    /* enum memoir_space of memoir.h */
    uint32_t device;   /* record of type DEVICE, or BOOK_DEVICE_HOST; the host's spaces: ignored */
    uint32_t flags;    /* enum book_account_flags */
    uint64_t capacity; /* bytes of this space on this device, 0 if not told */
    uint64_t inherited_bytes; /* live in the parent at fork; not part of the counters; may shrink */
    int64_t live_folded;      /* the writer's: live bytes as of the last fold, all shards */
    uint64_t peak_bytes;      /* highest live_folded; wrong by header.peak_error at most */
    char name[32];            /* of the space, for people: "dram", "L1", "CB" */
    uint64_t inherited_blocks;
    /* What its sites held at the peak, in pages of BOOK_COUNTERS_PEAK_SITES. */
    uint64_t
        at_peak_bytes; /* live when that was saved; near at_peak_of by header.peak_error, or 64 KiB */
    uint64_t at_peak_of; /* peak_bytes then */
    uint32_t
        at_peak_seq; /* saved so often; 0: never; stored last. Odd: set 1 holds it, even: set 0 */
    uint32_t at_peak_time; /* in the unit of a block's time */
    uint8_t spare[16];
    struct book_counters common; /* the shard that everybody may use */
};
static_assert(sizeof(struct book_account) == BOOK_RECORD_BYTES, "account");

union book_record {
    uint32_t type;
    struct book_device device;
    struct book_account account;
};
static_assert(sizeof(union book_record) == BOOK_RECORD_BYTES, "record");

/* ---- counter pages ----
 * A thread that reports owns counter pages nobody else writes. Page n of the section COUNTERS is
 * described by entry n of COUNTER_INDEX. A total is the sum over all pages that hold the account
 * (plus account.common), or the site. */

enum {
    BOOK_COUNTER_PAGE_BYTES = 4096,
    BOOK_ACCOUNTS_PER_PAGE = 32, /* struct book_counters */
    BOOK_SITES_PER_PAGE = 128,   /* struct book_site_counters */
};

enum book_counter_what {
    BOOK_COUNTERS_NONE = 0,
    BOOK_COUNTERS_ACCOUNTS = 1,
    BOOK_COUNTERS_SITES = 2,         /* a block counts in one site at most: they add up */
    BOOK_COUNTERS_SAMPLED_SITES = 3, /* estimates, in no sum with the others */
    BOOK_COUNTERS_PEAK_SITES = 4,    /* struct book_site_peak: what was live at a peak */
};

struct book_counter_page {
    uint32_t what;  /* enum book_counter_what */
    uint32_t first; /* registry record or site number of its first entry */
    uint32_t shard; /* for statistics; totals ignore it */
    uint32_t spare;
};
static_assert(sizeof(struct book_counter_page) == 16, "counter page");

struct book_site_counters {
    uint64_t freed_bytes;
    uint64_t freed_blocks;
    uint64_t alloc_bytes;
    uint64_t alloc_blocks;
};
static_assert(sizeof(struct book_site_counters) == 32, "site counters");

/* What a site held when its account was at its peak. Of the two sets one is whole and the other is being written:
 * account.at_peak_seq tells which. */
struct book_site_peak {
    struct {
        uint64_t bytes, blocks;
    } set[2];
};
static_assert(sizeof(struct book_site_peak) == sizeof(struct book_site_counters), "site peak");

/* ---- call sites ---- */

enum {
    BOOK_MODULES_MAX = 4080,
    BOOK_MODULE_NONE =
        0, /* frame offset is an absolute address: JIT code, unmapped module; 0: a run of such
                                  frames in an exact site */
    BOOK_MODULE_LINK = 4093,   /* no frame: the stack goes on elsewhere, see BOOK_FRAME() */
    BOOK_MODULE_KERNEL = 4094, /* set aside: a kernel address, to be sign-extended from bit 51 */
    BOOK_MODULE_SCRIPT =
        4095, /* a line of a script: see book_script. Readers show numbers from 4080
                                  on that they do not know as unknown, never as an address */
    BOOK_SITES_MAX = 1 << 20,
    BOOK_SITE_NONE = 0,
    BOOK_SITE_FRAMES_MAX = 64,   /* of a stack that is taken now and then */
    BOOK_STACK_FRAMES_MAX = 512, /* of any */
};

/* Module 0 and site 0 stay empty. Entries never change or move once counted in section.used. */
struct book_module {
    uint64_t bias;      /* address in the process minus address in the ELF file */
    uint64_t map_start; /* first and one past the last mapped address */
    uint64_t map_end;
    uint32_t generation; /* how many modules were seen at this place before: dlclose, dlopen */
    uint32_t flags;      /* BOOK_MODULE_PATH_CUT */
    uint8_t build_id_len;
    uint8_t build_id[32];
    uint8_t spare[15];
    char path[432]; /* "" for the program itself: see header.exe */
};
static_assert(sizeof(struct book_module) == 512, "module");

#define BOOK_MODULE_PATH_CUT 1u

/* A frame: bits 52-63 module, 0-51 address as in the module's ELF file. With the module BOOK_MODULE_LINK it is a link: the
 * stack goes on at the frame with the number offset - 1, up to the next link; at offset 0 it ends. */
#define BOOK_FRAME(module, offset) \
    ((uint64_t)(module) << 52 | ((uint64_t)(offset) & ((UINT64_C(1) << 52) - 1)))
#define BOOK_FRAME_MODULE(frame) ((uint32_t)((frame) >> 52))
#define BOOK_FRAME_OFFSET(frame) ((frame) & ((UINT64_C(1) << 52) - 1))

/* A function of a script: code that an interpreter runs and that is in no ELF file. Script 0 stays empty:
 * a frame that names it is a call of which nothing is known. Entries never change. */
struct book_script {
    char function[128];  /* "Loader.load_batch"; the end may be cut */
    uint32_t first_line; /* where it begins; 0 if not known */
    uint32_t flags;      /* enum book_script_flags */
    uint64_t spare;
    char file[368]; /* as the interpreter has it; of a long one the end is kept */
};
static_assert(sizeof(struct book_script) == 512, "script");

enum book_script_flags {
    BOOK_SCRIPT_FUNCTION_CUT = 1u << 0,
    BOOK_SCRIPT_FILE_CUT = 1u << 1,
};

enum {
    BOOK_SCRIPTS_MAX = 65536,
    BOOK_SCRIPT_BITS = 24, /* of a frame's offset; above them the line that runs, 0 if not known */
    BOOK_SCRIPT_LINE_MAX = (1 << 28) - 1,
};

#define BOOK_SCRIPT_FRAME(script, line) \
    BOOK_FRAME(BOOK_MODULE_SCRIPT, (uint64_t)(line) << BOOK_SCRIPT_BITS | (script))
#define BOOK_FRAME_SCRIPT(frame) ((uint32_t)((frame) & ((1u << BOOK_SCRIPT_BITS) - 1)))
#define BOOK_FRAME_LINE(frame)   ((uint32_t)(BOOK_FRAME_OFFSET(frame) >> BOOK_SCRIPT_BITS))

struct book_site {
    uint64_t key;         /* the same in every run of the same binaries: see site_key() */
    uint32_t first_frame; /* innermost first */
    uint16_t frames;      /* words there; if the last one is a link, the stack has those as well */
    uint16_t flags;       /* enum book_site_flags */
    uint32_t time;        /* first seen, in the unit of a block's time */
    uint32_t account;     /* registry record of all its blocks: one stack has a site for each */
    uint32_t spare[2];
};
static_assert(sizeof(struct book_site) == 32, "site");

enum book_site_flags {
    BOOK_SITE_CALLER_ONLY = 1u << 0, /* one frame, by the return address */
    BOOK_SITE_CUT = 1u << 1,         /* the stack was deeper */
    BOOK_SITE_SAMPLED = 1u << 2, /* found by sampling: its counters are estimates, of blocks that
                                        count at another site, too */
    BOOK_SITE_CLOSE =
        1u << 4, /* with SAMPLED: of samples that were taken more often; see control */
    BOOK_SITE_AGAIN = 1u << 3, /* a second entry for the same place: add them up */
};

/* Tag 0 stays empty. */
struct book_tag {
    char name[64];
};
enum { BOOK_TAGS_MAX = 65535 };

/* ---- blocks ---- */

/* Not every block of an account need be here: those of a sampled one, of another program's region or of a
 * full book are not. A slot is live if its account is not 0. The writer stores `place` last and clears it first.
 * Entries stay where they are except while header.blocks_seq is odd; if it is odd in the book of a
 * dead process, one block may stand in two slots. */
struct book_block {
    uint64_t id;       /* the program's own: an address or a handle; unique within its account */
    uint64_t size_tag; /* bits 0-47 bytes asked, 48-63 tag */
    uint64_t place;    /* bits 0-11 account, 12-31 site, 32-63 time; UINT32_MAX: then or later */
};
static_assert(sizeof(struct book_block) == 24, "block");

enum {
    BOOK_BLOCK_SIZE_BITS = 48,
    BOOK_BLOCK_PAGE_BYTES = 4096,
    BOOK_BLOCKS_PER_PAGE = 168,
};

/* Slot number n is entry n % 168 of page n / 168. */
struct book_block_page {
    struct book_block slots[BOOK_BLOCKS_PER_PAGE];
    uint8_t spare[64];
};
static_assert(sizeof(struct book_block_page) == BOOK_BLOCK_PAGE_BYTES, "block page");

#define BOOK_BLOCK_SIZE_MAX ((UINT64_C(1) << BOOK_BLOCK_SIZE_BITS) - 1)

static inline uint64_t book_block_bytes(const struct book_block *b)
{
    return b->size_tag & BOOK_BLOCK_SIZE_MAX;
}
static inline uint32_t book_block_tag(const struct book_block *b)
{
    return (uint32_t)(b->size_tag >> 48);
}
static inline uint32_t book_place_account(uint64_t place)
{
    return (uint32_t)place & 0xfff;
}
static inline uint32_t book_place_site(uint64_t place)
{
    return (uint32_t)place >> 12;
}
static inline uint32_t book_place_time(uint64_t place)
{
    return (uint32_t)(place >> 32);
}

/* How often the block in the slot of the same number was part of a transfer. Cleared when the slot
 * is reused; a missing page means never. */
struct book_moves {
    uint32_t count;
    uint32_t time; /* of the last one */
};
static_assert(sizeof(struct book_moves) == 8, "moves");
