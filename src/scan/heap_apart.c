/* scan_heap_read_apart(): see heap.h. The child sends the struct as it is, then its arrays: it is the same program. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/apart.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "scan/heap.h"

#define MESSAGE_MAX                                                       \
    (sizeof(struct scan_heap) + SCAN_HEAP_MACROS_MAX * sizeof(uint64_t) + \
     SCAN_HEAP_CHAINS_MAX * sizeof(struct scan_heap_chain) +              \
     SCAN_HEAP_NODES_MAX * sizeof(struct scan_heap_node) + SCAN_HEAP_LOTS_MAX * sizeof(uint64_t))

static int child(struct buffer *out, void *context)
{
    MEMOIR_CLEANUP(scan_heap_freep)
    struct scan_heap *heap = NULL;
    int r = scan_heap_read(*(const pid_t *)context, &heap);
    if (r < 0)
        return r;
    buffer_append(out, heap, sizeof(*heap));
    buffer_append(out, heap->chains, heap->n_chains * sizeof(*heap->chains));
    buffer_append(out, heap->nodes, heap->n_nodes * sizeof(*heap->nodes));
    buffer_append(out, heap->macros, heap->n_macros * sizeof(*heap->macros));
    return buffer_append(out, heap->lots, heap->n_lots * sizeof(*heap->lots));
}

/* The next `n` of the message, for free(). */
static void *part(const struct buffer *message, size_t *at, size_t n, size_t each)
{
    if (n > (message->len - *at) / each)
        return NULL;
    void *copy = calloc(n ? n : 1, each);
    if (copy && n)
        memcpy(copy, message->data + *at, n * each);
    *at += n * each;
    return copy;
}

int scan_heap_read_apart(pid_t pid, uint64_t timeout_ms, struct scan_heap **ret_heap)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer message = BUFFER_INIT(MESSAGE_MAX);
    MEMOIR_CLEANUP(scan_heap_freep)
    struct scan_heap *heap = NULL;
    size_t at = 0;
    int r = apart_run(child, &pid, &(struct apart_options){.all_ms = timeout_ms}, &message);
    if (r < 0)
        return r;
    heap = part(&message, &at, 1, sizeof(*heap));
    if (!heap)
        return -ENOMEM;
    heap->chains = part(&message, &at, heap->n_chains, sizeof(*heap->chains));
    heap->nodes = part(&message, &at, heap->n_nodes, sizeof(*heap->nodes));
    heap->macros = part(&message, &at, heap->n_macros, sizeof(*heap->macros));
    heap->lots = part(&message, &at, heap->n_lots, sizeof(*heap->lots));
    if (!heap->chains || !heap->nodes || !heap->macros || !heap->lots)
        return -ENOMEM;
    *ret_heap = MEMOIR_TAKE(heap);
    return 0;
}
