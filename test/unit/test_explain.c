/* Where resident memory goes: smaps, whose memory a page is, and parts that sum. */
#include "explain/explain.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "check.h"
#include "explain/outside.h"
#include "explain/owner.h"
#include "explain/smaps.h"

static const char text[] = "55d000000000-55d000002000 r-xp 00001000 08:01 42    /usr/bin/a b\n"
                           "Size:                  8 kB\n"
                           "Rss:                   8 kB\n"
                           "Private_Clean:         4 kB\n"
                           "Private_Dirty:         0 kB\n"
                           "Anonymous:             0 kB\n"
                           "VmFlags: rd ex mr mw me\n"
                           "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \n"
                           "Rss:                4096 kB\n"
                           "Private_Dirty:      4096 kB\n"
                           "Anonymous:          4096 kB\n"
                           "AnonHugePages:      2048 kB\n"
                           "Swap:                 12 kB\n"
                           "Private_Hugetlb:    2048 kB\n";

static void smaps_tells_what_is_resident(void **unused)
{
    struct smaps smaps;
    assert_int_equal(smaps_parse(text, sizeof(text) - 1, &smaps), 0);
    assert_int_equal(smaps.n, 2);
    assert_int_equal(smaps.rss, (8 + 4096) * 1024);
    assert_string_equal(smaps_name(&smaps, &smaps.all[0]), "/usr/bin/a b");
    assert_string_equal(smaps_name(&smaps, &smaps.all[1]), "");
    assert_true(smaps.all[0].executable && !smaps.all[0].writable);
    assert_int_equal(smaps.all[0].private_bytes, 4096);
    assert_int_equal(smaps.all[0].inode, 42);
    assert_int_equal(smaps.all[1].huge, 2 << 20);
    assert_int_equal(smaps.all[1].hugetlb, 2 << 20);
    assert_int_equal(smaps.all[1].swap, 12 * 1024);
    smaps_release(&smaps);
}

static void smaps_refuses_what_the_kernel_does_not_write(void **unused)
{
    static const char *const bad[] = {
        "Rss:  4 kB\n",                                           /* of no mapping */
        "2000-1000 rw-p 0 0:0 0\n",                               /* ends before it begins */
        "1000-2000 rw-p 0 0:0 0\nRss: 4 MB\n",                    /* another unit */
        "1000-2000 rw-p 0 0:0 0\nRss: 99999999999999999999 kB\n", /* too large */
        "1000-3000 rw-p 0 0:0 0\n2000-4000 rw-p 0 0:0 0\n",       /* overlap */
        "1000-2000 rw-p 0 0:0 0\nRss: 4 kB",                      /* half a line */
        "1000-2000 rw",
        " x\n",
    };
    struct smaps smaps;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(smaps_parse(bad[i], strlen(bad[i]), &smaps), -EBADMSG);
    char *lasting = malloc(SMAPS_LINE_MAX + 10);
    memset(lasting, 'a', SMAPS_LINE_MAX + 10);
    assert_int_equal(smaps_parse(lasting, SMAPS_LINE_MAX + 10, &smaps), -EBADMSG);
    free(lasting);
}

static void heads_are_known_by_their_layout(void **unused)
{
    uint64_t head[OWNER_HEAD / 8] = {0};
    head[1] = (1 << 20) | 2;
    assert_int_equal(owner_glibc_chunk(head, 2 << 20), 1 << 20);
    assert_int_equal(owner_glibc_chunk(head, 4096), 0); /* more than there is */
    head[1] |= 1;                                       /* no chunk with a mapping of its own */
    assert_int_equal(owner_glibc_chunk(head, 2 << 20), 0);

    uint32_t pool[OWNER_HEAD / 4] = {5};
    pool[9] = 3;           /* blocks of 64 bytes */
    pool[10] = 128;        /* the next one */
    pool[11] = 16384 - 64; /* the last one */
    assert_int_equal(owner_python_arena(pool, 8 << 20), 1 << 20);
    pool[11] = 4096 - 64;
    assert_int_equal(owner_python_arena(pool, 8 << 20), 256 << 10);
    assert_int_equal(owner_python_arena(pool, 8192), 8192);
    pool[11] = 5000;
    assert_int_equal(owner_python_arena(pool, 8 << 20), 0);

    uint64_t at = UINT64_C(0x7f1200040000);
    uint64_t chunk[OWNER_HEAD / 8] = {256 << 10, 7, 0x5555000, at + 512, at + (256 << 10)};
    assert_int_equal(owner_v8_chunk(chunk, at, 1 << 20), 256 << 10);
    assert_int_equal(owner_v8_chunk(chunk, at + 4096, 1 << 20), 0);
    chunk[4] = at + (512 << 10); /* ends behind itself */
    assert_int_equal(owner_v8_chunk(chunk, at, 1 << 20), 0);

    uint64_t zend[OWNER_HEAD / 8] = {0x7f1200000040, 0x7f1200200000, 0x7f1200400000};
    assert_int_equal(owner_php_chunk(zend, 0x7f1200200000, 4 << 20), 2 << 20);
    zend[1] += 4096;
    assert_int_equal(owner_php_chunk(zend, 0x7f1200200000, 4 << 20), 0);
}

static void parts_beyond_the_table_are_folded_and_still_sum(void **unused)
{
    struct explain *e = calloc(1, sizeof(*e));
    char name[300];
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "/lib/%u", i);
        explain_add(e, &(struct explain_share){EXPLAIN_FILE, 0, name, 4096});
        e->rss_bytes += 4096;
    }
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    explain_add(e, &(struct explain_share){EXPLAIN_REST, 0, name, 4096});
    e->rss_bytes += 4096;
    explain_sort(e);
    assert_true(explain_valid(e));
    assert_int_equal(explain_sum(e, EXPLAIN_FILE), 1000 * 4096);
    const struct explain_part *last = &e->parts[e->n_parts - 2];
    assert_string_equal(last->name, "other files");
    assert_int_equal(last->others, 1000 - (e->n_parts - 2));
    e->parts[3].bytes++;
    assert_false(explain_valid(e));
    free(e);
}

static void blocks_in_use_and_slack_divide_the_heap(void **unused)
{
    struct explain *e = calloc(1, sizeof(*e));
    explain_add(e, &(struct explain_share){EXPLAIN_HEAP, 0, "heap of brk", 1000, 1000});
    explain_add(e, &(struct explain_share){EXPLAIN_HEAP, 0, "arenas", 200, 200});
    e->rss_bytes = 1200;
    struct explain *twice = malloc(sizeof(*twice));
    *twice = *e;
    explain_live(e, 900, false);
    assert_true(explain_valid(e));
    assert_int_equal(explain_sum(e, EXPLAIN_HEAP), 900);
    assert_int_equal(explain_sum(e, EXPLAIN_SLACK), 300);
    assert_int_equal(e->absent_bytes, 0);
    explain_live(twice, 5000, false); /* most of it was never touched */
    assert_true(explain_valid(twice));
    assert_int_equal(explain_sum(twice, EXPLAIN_HEAP), 1200);
    assert_int_equal(twice->absent_bytes, 3800);
    *twice = (struct explain){.rss_bytes = 1200};
    explain_add(twice, &(struct explain_share){EXPLAIN_HEAP, 0, "heap of brk", 1200, 1200});
    explain_live(twice, 900, true); /* of a book that began with an attach */
    assert_true(explain_valid(twice));
    assert_int_equal(explain_sum(twice, EXPLAIN_SLACK), 0);
    assert_int_equal(explain_sum(twice, EXPLAIN_OLDER), 300);
    assert_int_equal(explain_sum_malloc(twice), 1200);
    free(twice);
    free(e);
}

static void this_process_is_explained(void **unused)
{
    struct explain *e = calloc(1, sizeof(*e));
    size_t bytes = 32 << 20;
    mallopt(M_PERTURB, 0); /* which meson sets, and which touches every block */
    char *block = malloc(bytes),
         *unknown = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(block, 1, bytes / 2);
    memset(unknown, 0xff, bytes / 4);
    assert_int_equal(explain_take_apart(getpid(), getuid(), 10000, e), 0);
    assert_true(explain_valid(e));
    assert_true(e->memory_read);
#if !defined(UNDER_ASAN) && !defined(UNDER_TSAN) /* another allocator */
    assert_in_range(explain_sum(e, EXPLAIN_HEAP), bytes / 2, bytes / 2 + (2 << 20));
    assert_in_range(explain_sum(e, EXPLAIN_REST), bytes / 4, bytes / 4 + (1 << 20));
#endif
    assert_true(explain_sum(e, EXPLAIN_FILE) > 1 << 20);
    assert_true(explain_sum(e, EXPLAIN_STACK) >= 4096);
    free(block);
    munmap(unknown, bytes);
    free(e);
}

static void processes_without_memory_are_none(void **unused)
{
    struct explain *e = calloc(1, sizeof(*e));
    assert_int_equal(explain_take(INT32_MAX - 1, e), -ESRCH);
    free(e);
}

/* A process of which `outside` bytes a step are added to a runtime and `inside` to the heap. */
static void outside_steps(struct outside *g, uint64_t outside, uint64_t inside, unsigned steps)
{
    memset(g, 0, sizeof(*g));
    for (int k = 0; k < 2; k++) {
        struct explain *e = calloc(1, sizeof(*e));
        uint64_t runtime = 50000000 + (k ? outside * steps : 0);
        uint64_t heap = 10000000 + (k ? inside * steps : 0);
        explain_add(
            e, &(struct explain_share){EXPLAIN_RUNTIME, 0, "CPython arenas (pymalloc)", runtime});
        explain_add(e, &(struct explain_share){EXPLAIN_HEAP, 0, "heap of brk", heap});
        e->rss_bytes = runtime + heap;
        *(k ? &g->last : &g->first) = e;
    }
    for (unsigned i = 0; i < steps; i++)
        g->points[g->n++] = (struct detect_point){.time_ns = (i + 1) * OUTSIDE_INTERVAL_NS,
                                                  .alloc_bytes = 60000000 + i * (outside + inside)};
    g->last_ns = steps * OUTSIDE_INTERVAL_NS;
}

/* Many small files may grow more than one large mapping. */
static void what_grew_is_the_kind_that_grew_most_and_its_largest_part(void **unused)
{
    struct explain *a = calloc(1, sizeof(*a)), *b = calloc(1, sizeof(*b));
    struct outside_verdict verdict;
    explain_add(a, &(struct explain_share){EXPLAIN_FILE, 0, "/big", 100000});
    explain_add(b, &(struct explain_share){EXPLAIN_FILE, 0, "/big", 100000});
    explain_add(b, &(struct explain_share){EXPLAIN_FILE, 0, "/one", 40000});
    explain_add(b, &(struct explain_share){EXPLAIN_FILE, 0, "/two", 50000});
    explain_add(b, &(struct explain_share){EXPLAIN_STACK, 0, "other threads", 60000});
    a->rss_bytes = 100000;
    b->rss_bytes = 250000;
    outside_compare(a, b, NS_PER_S, &verdict);
    assert_int_equal(verdict.kind, EXPLAIN_FILE);
    assert_string_equal(verdict.name, "mapped file /two");
    outside_verdict_all(&verdict);
    assert_int_equal(verdict.kind, EXPLAIN_FILE);
    free(a);
    free(b);
}

static void growth_outside_malloc_has_a_verdict_and_a_name(void **unused)
{
    struct outside g;
    struct outside_verdict verdict;
    struct buffer told = BUFFER_INIT(1024);
    outside_steps(&g, 100000, 1000, 160);
    outside_judge(&g, &verdict);
    assert_true(verdict.grows);
    outside_tell(&verdict, &told);
    assert_non_null(strstr(buffer_string(&told), "RSS grows by 24."));
    assert_non_null(strstr(buffer_string(&told), "growing part: CPython arenas (pymalloc)"));
    assert_non_null(strstr(buffer_string(&told), "memoir run"));
    buffer_release(&told);
    outside_release(&g);
    outside_steps(&g, 100000, 1000, 160); /* an exit that frees what there is */
    for (unsigned i = 150; i < 160; i++)
        g.points[i].alloc_bytes = 20000000 - i;
    outside_judge(&g, &verdict);
    assert_false(verdict.grows);
    outside_ended(&g);
    assert_int_equal(g.n, 150);
    outside_judge(&g, &verdict);
    assert_true(verdict.grows);
    outside_release(&g);
    outside_steps(&g, 100000, 1000, 160); /* given back long before the end */
    for (unsigned i = 120; i < 160; i++)
        g.points[i].alloc_bytes = 20000000;
    outside_ended(&g);
    assert_int_equal(g.n, 160);
    outside_release(&g);
    outside_steps(&g, 1000, 100000, 160); /* its sites tell */
    outside_judge(&g, &verdict);
    assert_false(verdict.grows);
    outside_judge_all(&g, &verdict); /* or there are none: it has no book */
    assert_true(verdict.grows);
    assert_int_equal(verdict.kind, EXPLAIN_HEAP);
    assert_string_equal(verdict.name, "malloc heap");
    assert_non_null(strstr(verdict.advice, "memoir attach"));
    outside_release(&g);
    outside_steps(&g, 0, 0, 160);
    outside_judge(&g, &verdict);
    assert_false(verdict.grows);
    outside_release(&g);
    outside_steps(&g, 100000, 0, 40); /* too short a time */
    outside_judge(&g, &verdict);
    assert_false(verdict.grows);
    outside_release(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smaps_tells_what_is_resident),
        cmocka_unit_test(smaps_refuses_what_the_kernel_does_not_write),
        cmocka_unit_test(heads_are_known_by_their_layout),
        cmocka_unit_test(parts_beyond_the_table_are_folded_and_still_sum),
        cmocka_unit_test(blocks_in_use_and_slack_divide_the_heap),
        cmocka_unit_test(growth_outside_malloc_has_a_verdict_and_a_name),
        cmocka_unit_test(what_grew_is_the_kind_that_grew_most_and_its_largest_part),
        cmocka_unit_test(this_process_is_explained),
        cmocka_unit_test(processes_without_memory_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
