/* maps.bpf.h: the maps of the probes, and what a thread and a call keep between two probes.
 * Included by probe.bpf.c alone. */
#pragma once

enum { SPACE_DRAM = 16, SPACE_PINNED = 3 }; /* enum memoir_space */
enum { BPF_ANY_ = 0, BPF_NOEXIST_ = 1 };

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct wire_settings);
} settings SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, WIRE_FUNCTIONS_MAX);
    __type(key, uint32_t);
    __type(value, struct wire_function);
} functions SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, WIRE_PROCESSES_MAX);
    __type(key, uint32_t);
    __type(value, struct wire_process);
} processes SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, WIRE_CONTEXTS_MAX);
    __type(key, struct wire_context_key);
    __type(value, struct wire_context);
} contexts SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, WIRE_BLOCKS_MAX);
    __type(key, struct wire_key);
    __type(value, struct wire_block);
} blocks SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, WIRE_GRAPHS_MAX);
    __type(key, struct wire_graph_key);
    __type(value, struct wire_graph);
} graphs SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct wire_ranges);
} subordinates SEC(".maps");

/* Live blocks of each user, by UID. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, WIRE_USERS_MAX);
    __type(key, uint32_t);
    __type(value, uint64_t);
} users SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, WIRE_PROCESSES_MAX);
    __type(key, uint32_t);
    __type(value, struct wire_consumed);
} consumed SEC(".maps");

/* Processes that run CPython. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, WIRE_PROCESSES_MAX);
    __type(key, uint32_t);
    __type(value, struct python_kernel_facts);
} python_facts SEC(".maps");

/* Full of stacks that are seen no more, it forgets the one that was asked for least recently. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, WIRE_KNOWN_MAX);
    __type(key, struct wire_known_key);
    __type(value, struct wire_known);
} known SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct wire_machine);
} machine SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, WIRE_RING_BYTES);
} ring SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, WIRE_STACK_RING_BYTES);
} stacks SEC(".maps");

enum { STACK_WORDS = 64 };

/* A probed call that has not returned. */
struct call {
    uint64_t sp; /* at entry */
    uint64_t number;
    uint64_t address, size, source,
        extra;         /* arguments by their roles; for copies what they led to */
    uint64_t stream;   /* that does its work; 0: the default one, or none */
    uint64_t recorder; /* group of the graph that records it; 0: it is done */
    uint32_t site;
    uint32_t epoch; /* of the process, at entry */
    uint16_t function;
    uint8_t has_stack, has_removed;
    uint8_t direction;
    uint8_t async;
    uint8_t spare[2];
    struct wire_block removed; /* by a free, to be put back if it fails */
};

/* The stack that a thread had last: most calls come from where the one before came from. */
struct recent {
    struct wire_known_key key;
    struct wire_known known;
    uint32_t span; /* bytes of the stack that its words are in */
    uint32_t spare;
};

/* Bytes on the device that a call copied without an error. */
struct proved {
    uint64_t start, end;
};

struct thread {
    /* What every copy needs comes first, as in struct wire_process. */
    uint32_t generation;   /* of the process: what is here of an earlier image does not count */
    uint32_t unchecked;    /* copies since the last one whose return was looked at */
    uint32_t proved_epoch; /* of the process, when ranges were proved */
    uint32_t pythons; /* wire_settings.pythons + 1 when the process ran no CPython; 0: not known */
    uint32_t n_contexts; /* may be more than there is room for */
    uint32_t depth;
    uint64_t contexts[WIRE_CONTEXT_STACK]; /* the last one is current; 0: not known */
    struct proved proved[WIRE_PROVED_RANGES];
    struct recent recent;
    struct call brief; /* one whose return is not looked at: it is over at its entry */
    struct call calls[WIRE_CALLS_MAX];
    uint32_t proved_next; /* the range that makes room */
    uint32_t spare;
    uint64_t system[2];           /* arguments of the system call that it is in */
    uint64_t stack[STACK_WORDS];  /* the innermost words of its stack */
    struct python_capture python; /* of the call that begins */
    struct python_scratch scratch;
};

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct thread);
} threads SEC(".maps");

/* What both ends of a call need. */
struct at {
    const struct wire_settings *settings;
    struct wire_process *process;
    struct thread *thread;
    uint32_t pid, tid, generation;
};
