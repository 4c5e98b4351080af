/* Questions to the child about memory of a process, which it reads through the observer. See elf_parser.h. */
#include <string.h>
#include <unistd.h>

#include "observe/elf_parser_child.h"
#include "observe/link_map.h"
#include "observe/python_objects.h"

/* ---- memory ---- */

static uint8_t answer[ELF_WIRE_PIECES_MAX + ELF_WIRE_READ_MAX];

static void pieces_receive(struct remote_piece *const *pieces, size_t n)
{
    uint32_t len;
    elf_child_receive(&len, sizeof(len));
    if (len < n || len > sizeof(answer))
        _exit(1);
    elf_child_receive(answer, len);
    const uint8_t *at = answer + n, *end = answer + len;
    for (size_t i = 0; i < n; i++) {
        pieces[i]->done = answer[i] != 0;
        if (!pieces[i]->done)
            continue;
        if ((size_t)(end - at) < pieces[i]->bytes)
            _exit(1);
        memcpy(pieces[i]->to, at, pieces[i]->bytes);
        at += pieces[i]->bytes;
    }
}

/* A remote_read_fn. As many pieces in a message as it may have. */
static void memory_read(void *context, struct remote_piece *pieces, size_t n)
{
    (void)context;
    for (size_t at = 0; at < n;) {
        struct elf_wire_piece wanted[ELF_WIRE_PIECES_MAX];
        struct remote_piece *of[ELF_WIRE_PIECES_MAX];
        size_t k = 0, bytes = 0;
        for (; at < n && k < ELF_WIRE_PIECES_MAX; at++) {
            struct remote_piece *p = &pieces[at];
            p->done = p->bytes == 0;
            if (p->done || p->bytes > ELF_WIRE_READ_MAX)
                continue;
            if (p->bytes > ELF_WIRE_READ_MAX - bytes)
                break;
            bytes += p->bytes;
            wanted[k] = (struct elf_wire_piece){.address = p->address, .bytes = p->bytes};
            of[k++] = p;
        }
        if (k == 0)
            continue;
        struct elf_tell tell = {.kind = ELF_TELL_PIECES,
                                .bytes = (uint32_t)(k * sizeof(wanted[0]))};
        elf_child_send(&tell, sizeof(tell));
        elf_child_send(wanted, tell.bytes);
        pieces_receive(of, k);
    }
}

/* ---- questions ---- */

static void python_key(const struct elf_ask *ask, const uint8_t *payload)
{
    struct python_key_ask key;
    struct python_key_told told = {0};
    if (ask->payload_bytes != sizeof(key))
        _exit(1);
    memcpy(&key, payload, sizeof(key));
    int r = python_objects_key(&key, memory_read, NULL, &told);
    elf_child_done(r, &told, sizeof(told));
}

static void python_names(const struct elf_ask *ask, const uint8_t *payload)
{
    static struct python_names_ask names;
    static struct python_names_told told;
    if (ask->payload_bytes != sizeof(names))
        _exit(1);
    memcpy(&names, payload, sizeof(names));
    int r = python_objects_names(&names, memory_read, NULL, &told);
    elf_child_done(r, told.calls, r == 0 ? names.n * sizeof(told.calls[0]) : 0);
}

static void link_map(const struct elf_ask *ask, const uint8_t *payload)
{
    static uint64_t bases[LINK_MAP_MAX];
    size_t n = link_map_walk(payload, ask->payload_bytes, memory_read, NULL, bases);
    elf_child_done(0, bases, n * sizeof(bases[0]));
}

void elf_child_process(const struct elf_ask *ask, const uint8_t *payload)
{
    switch (ask->kind) {
    case ELF_ASK_PYTHON_KEY:
        python_key(ask, payload);
        return;
    case ELF_ASK_PYTHON_NAMES:
        python_names(ask, payload);
        return;
    case ELF_ASK_LINK_MAP:
        link_map(ask, payload);
        return;
    }
    _exit(1);
}
