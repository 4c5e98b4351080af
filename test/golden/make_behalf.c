/* A book that a daemon writes on behalf of a process on another machine, with sizes served beside those that
 * were asked for, and an account that is an estimate: the third golden book. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

#include "base/atomic.h"
#include "book/report.h"
#include "book/writer.h"

static void subject_write(struct book_header *h)
{
    h->compat |= BOOK_COMPAT_REMOTE;
    h->pid = 4242;
    h->parent_pid = 1;
    h->pid_ns = 4026531836;
    h->time_ns = 4026531834;
    h->start_ticks = 987654;
    h->exec_id = 0x0123456789abcdef;
    h->uid = 1000;
    h->exec_count = 2;
    strcpy(h->comm, "worker");
    strcpy(h->host, "node-7.example");
    strcpy(h->exe, "/opt/train/worker");
    strcpy(h->command, "worker --rank 7");
}

static void serve(struct book_writer *w, uint32_t account, uint64_t alloc, uint64_t freed)
{
    struct book_counters *common = &book_account_at(w, account)->common;
    store_release(&common->alloc_served, alloc);
    store_release(&common->freed_served, freed);
}

static void report(struct book_writer *w, struct book_thread *t)
{
    struct book_device npu = {.kind = MEMOIR_DEVICE_NPU, .ordinal = 2};
    strcpy(npu.name, "Blackhole p150");
    strcpy(npu.uid, "ASIC-0123456789");
    strcpy(npu.bus, "0000:c1:00.0");
    uint32_t device = (uint32_t)book_device_add(w, t, &npu);
    uint32_t dram = (uint32_t)book_account_add(w, t, MEMOIR_SPACE_DRAM, device, "dram");
    uint32_t heap = (uint32_t)book_account_add(w, t, MEMOIR_SPACE_HEAP, BOOK_DEVICE_HOST, "heap");
    uint64_t tag = (uint64_t)book_tag_add(w, t, "kv-cache") << BOOK_BLOCK_SIZE_BITS;
    book_account_capacity(w, dram, UINT64_C(32) << 30);
    for (uint64_t i = 0; i < 40; i++)
        book_alloc(w, t, 0x1000 + i, 1000 * (i + 1) | (i % 2 ? tag : 0), dram | i << 32);
    for (uint64_t i = 0; i < 10; i++)
        book_free(w, t, dram, 0x1000 + i * 3);
    book_transfer(w, t, dram, 0x1001, 512, true, 50);
    book_transfer(w, t, dram, 0x1001, 256, false, 51);
    book_free(w, t, dram, 0xdead); /* never reported */
    serve(w, dram, 900000, 150000);
    book_account_at(w, heap)->flags = BOOK_ACCOUNT_SAMPLED | BOOK_ACCOUNT_PARTIAL;
    book_alloc(w, t, 0x7f0000, 70000, heap | UINT64_C(60) << 32);
    serve(w, heap, 73728, 0);
}

int main(void)
{
    struct book_writer *w = calloc(1, sizeof(*w));
    struct book_thread *t = calloc(1, sizeof(*t));
    struct book_writer_options options = {.source = BOOK_SOURCE_SOCKET, .on_behalf = true};
    if (!w || !t || book_writer_init(w, &options) < 0) {
        fprintf(stderr, "make_behalf: no writer\n");
        return 1;
    }
    subject_write(w->header);
    book_thread_init(w, t);
    int r = book_writer_publish(w);
    if (r < 0) {
        fprintf(stderr, "make_behalf: %s\n", strerror(-r));
        return 1;
    }
    report(w, t);
    return raise(SIGKILL);
}
