/* The words of accounted blocks: where each one lies, what it can say, and whose an array is. */
#include "malloc/words.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "malloc/os.h"

#include "check.h"
#include "os_faults.h"

enum { GENERATION = 5 };

static struct macro *macro;

static int begin(void **state)
{
    char *at = mmap(NULL, 2 * (size_t)MACRO_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(at != MAP_FAILED);
    macro = (struct macro *)(((uintptr_t)at + MACRO_BYTES - 1) & ~(uintptr_t)(MACRO_BYTES - 1));
    return 0;
}

static struct slab *slab_make(unsigned slice, unsigned class)
{
    struct slab *s = macro_slab(macro, slice);
    *s = (struct slab){.class = (uint8_t) class, .slices = size_slices[class]};
    for (unsigned i = 1; i < s->slices; i++)
        s[i].back = (uint8_t)i;
    s->block_bytes = size_of_class(class);
    s->limit = s->made = ((uint32_t)s->slices << SLICE_SHIFT) / s->block_bytes;
    return s;
}

static char *block_of(const struct slab *s, unsigned i)
{
    return slab_memory(s) + (size_t)i * s->block_bytes;
}

static struct word *array_of(const struct slab *s)
{
    return s->words;
}

/* Every block of every class, wherever in a macro-block its slab begins. */
static void every_block_has_a_word_of_its_own(void **state)
{
    for (unsigned class = 0; class < SIZE_CLASSES; class ++) {
        for (unsigned slice = 1; slice + size_slices[class] <= MACRO_SLICES; slice++) {
            struct slab *s = slab_make(slice, class);
            assert_true(words_attach(s));
            struct word *array = array_of(s);
            for (unsigned i = 0; i < s->limit; i++)
                if (words_at(s->words, s, block_of(s, i)) != &array[i])
                    fail_msg("class %u, slice %u: block %u has word %td", class, slice, i,
                             words_at(s->words, s, block_of(s, i)) - array);
            /* An address that is no block's start is within the array, too. */
            const char *last = slab_memory(s) + ((size_t)s->slices << SLICE_SHIFT) - 1;
            struct word *end = words_at(s->words, s, last) + 1;
            assert_true((char *)end <= (char *)array + words_bytes(s));
            words_detach(s);
            assert_null(s->words);
        }
    }
}

/* At every multiple of 16 in every slab, as free() asks. */
static void only_the_start_of_a_block_is_taken_for_one(void **state)
{
    for (unsigned class = 0; class < SIZE_CLASSES; class ++) {
        for (unsigned slice = 1; slice + size_slices[class] <= MACRO_SLICES; slice += 3) {
            struct slab *s = slab_make(slice, class);
            uint32_t magic = words_magic(s->block_bytes), end = s->limit * s->block_bytes;
            for (uint32_t at = 0; at < end; at += SIZE_STEP) {
                uint64_t product = words_product(magic, s, slab_memory(s) + at);
                if (words_starts(magic, product) != (at % s->block_bytes == 0) ||
                    product >> 32 != at / s->block_bytes)
                    fail_msg("class %u, slice %u, at %u: block %u, start %d", class, slice, at,
                             (unsigned)(product >> 32), words_starts(magic, product));
            }
        }
    }
}

static void arrays_do_not_overlap_and_come_back_empty(void **state)
{
    struct slab *a = slab_make(1, 0), *b = slab_make(2, 0), *c = slab_make(3, 40);
    assert_true(words_attach(a) && words_attach(b) && words_attach(c));
    memset(array_of(a), 0xff, a->limit * sizeof(struct word));
    for (unsigned i = 0; i < b->limit; i++)
        assert_int_equal(array_of(b)[i].high, 0);
    memset(array_of(b), 0xff, b->limit * sizeof(struct word));
    for (unsigned i = 0; i < c->limit; i++)
        assert_int_equal(array_of(c)[i].high, 0);
    struct word *was = array_of(a);
    words_detach(a);
    a = slab_make(9, 0);
    assert_true(words_attach(a));
    assert_ptr_equal(array_of(a), was); /* it serves the next slab */
    for (unsigned i = 0; i < a->limit; i++)
        assert_int_equal(array_of(a)[i].high, 0);
    words_begin(a, a->block_bytes); /* one that begins anew with the same size keeps it */
    assert_ptr_equal(array_of(a), was);
    words_begin(a, a->block_bytes + 16);
    assert_null(a->words);
    words_detach(b);
    words_detach(c);
    /* Of several that wait for a slab, too. */
    for (unsigned i = 0; i < 3; i++)
        assert_true(words_attach(slab_make(20 + i, 0)));
    for (unsigned i = 0; i < 3; i++)
        words_detach(macro_slab(macro, 20 + i));
    for (unsigned i = 0; i < 3; i++) {
        a = slab_make(20 + i, 0);
        assert_true(words_attach(a));
        for (unsigned k = 0; k < a->limit; k++)
            assert_int_equal(array_of(a)[k].high, 0);
    }
    for (unsigned i = 0; i < 3; i++)
        words_detach(macro_slab(macro, 20 + i));
}

static void times_are_never_later_and_close(void **state)
{
    uint32_t before = 0;
    for (uint32_t time = 0; time <= BOOK_TRAILER_TIME_MAX; time += 1 + time / 5000) {
        uint32_t packed = word_time_pack(time), again = word_time_unpack(packed);
        assert_true(packed < 1 << WORD_SITE_SHIFT && packed >= before);
        assert_true(again <= time && time - again <= time / 256);
        before = packed;
    }
    assert_true(word_time_pack(BOOK_TRAILER_TIME_MAX) < 1 << WORD_SITE_SHIFT);
}

/* account.c relies on it: no block below TRACK_LARGE_BYTES of the class for its size has more to spare. */
static void a_word_can_tell_the_slack_of_all_usual_blocks(void **state)
{
    enum { USUAL = 8192 };
    for (size_t bytes = 0; bytes < USUAL; bytes++)
        assert_true(size_of_class(size_class(bytes)) - bytes <= WORD_SLACK_MAX);
}

/* ---- against a model ---- */

struct known {
    size_t bytes;
    uint32_t site, time;
    bool sampled, live;
};

static uint64_t random_state;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static uint32_t low_of(const struct known *k)
{
    return k->site << WORD_SITE_SHIFT | word_time_pack(k->time);
}

static void check_take(char *block, struct known *k)
{
    struct book_trailer said;
    struct word word;
    struct word *place = words_take(block, GENERATION, &word, &said);
    assert_int_equal(place != NULL, k->live);
    if (!place)
        return;
    assert_int_equal(said.start, (uintptr_t)block);
    assert_int_equal(said.bytes, k->bytes);
    assert_int_equal(said.site, k->site);
    assert_int_equal(said.time, word_time_unpack(word_time_pack(k->time)));
    assert_int_equal(said.sampled, k->sampled);
    assert_false(said.inherited);
    assert_true(said.bytes <= said.usable);
    if (random_next() % 4 == 0)
        place->high = word.high; /* as after a realloc() that failed */
    else
        k->live = false;
}

static void words_say_what_was_put(void **state)
{
    enum { SLABS = 12, BLOCKS = 1024, ROUNDS = 200000 };
    static struct known known[SLABS][BLOCKS];
    const char *seed = getenv("TEST_SEED");
    random_state = seed ? strtoull(seed, NULL, 0) : (uint64_t)(uintptr_t)macro | 1;
    print_message("# TEST_SEED=%#llx\n", (unsigned long long)random_state);
    struct slab *slabs[SLABS];
    unsigned slice = 1;
    for (unsigned i = 0; i < SLABS; i++) {
        unsigned class = i == 0 ? SLAB_LARGE : (unsigned)(random_next() % SIZE_CLASSES);
        slabs[i] = slab_make(slice, class == SLAB_LARGE ? SIZE_CLASSES - 1 : class);
        if (class == SLAB_LARGE) {
            slabs[i]->class = SLAB_LARGE;
            slabs[i]->limit = 1;
        } else {
            assert_true(words_attach(slabs[i]));
        }
        slice += slabs[i]->slices;
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned which = (unsigned)(random_next() % SLABS);
        struct slab *s = slabs[which];
        unsigned i = (unsigned)(random_next() % s->limit);
        char *block = block_of(s, i);
        struct known *k = &known[which][i];
        check_take(block, k);
        if (k->live)
            continue;
        size_t room = s->class == SLAB_LARGE ? 100000 : s->block_bytes;
        *k = (struct known){.bytes = random_next() % 2 ? room - random_next() % 20 % (room + 1)
                                                       : random_next() % (room + 1),
                            .site = (uint32_t)(random_next() % WORD_SITES),
                            .time = (uint32_t)(random_next() % BOOK_TRAILER_TIME_MAX),
                            .sampled = random_next() % 8 == 0,
                            .live = true};
        assert_true(words_put(block, k->bytes, low_of(k), GENERATION, k->sampled));
        /* All that the program may use is its own. */
        assert_true(k->bytes + words_inside(block) <= room);
        assert_true(room > WORD_NEAR_MAX || words_inside(block) == 0);
        if (s->class != SLAB_LARGE)
            memset(block, 0xa5, s->block_bytes - words_inside(block));
    }
    for (unsigned i = 0; i < SLABS; i++)
        words_detach(slabs[i]);
}

/* ---- what makes no sense ---- */

static void of_any_bits_no_block_leaves_its_place(void **state)
{
    random_state = 88172645463325252;
    unsigned refused = 0;
    for (unsigned i = 0; i < 1000000; i++) {
        uint64_t bits = random_next(), room = random_next() % 4096;
        struct word word = {.low = (uint32_t)bits, .high = (uint16_t)(bits >> 32)};
        struct book_trailer said;
        bool is = word_read(word, GENERATION, 1 << 20, room, random_next() % 8192, &said);
        refused += !is;
        if (!is)
            continue;
        assert_true(said.bytes <= room && said.ancestors < GENERATION);
        assert_true(said.site < WORD_SITES && said.time <= BOOK_TRAILER_TIME_MAX);
    }
    assert_true(refused > 0);
    struct book_trailer said;
    assert_false(word_read((struct word){.low = UINT32_MAX}, GENERATION, 0, 64, 0, &said));
    assert_false(word_read((struct word){.high = GENERATION + 1}, GENERATION, 0, 64, 0, &said));
    assert_true(word_read((struct word){.high = GENERATION - 1}, GENERATION, 0, 64, 0, &said));
    assert_true(said.inherited);
}

static void a_block_without_words_is_told(void **state)
{
    struct slab *s = slab_make(1, 3);
    struct book_trailer said;
    struct word word;
    assert_false(words_put(block_of(s, 2), 10, 0, GENERATION, false));
    assert_null(words_take(block_of(s, 2), GENERATION, &word, &said));
    assert_int_equal(words_inside(block_of(s, 2)), 0);
}

/* Arrays of a kind that nobody gave back, until a lot is used up. */
static void without_memory_there_are_none(void **state)
{
    enum { SLABS = MACRO_SLICES - 1 };
    unsigned got = 0;
    os_fault = no_map;
    for (; got < SLABS && words_attach(slab_make(got + 1, 0)); got++)
        ;
    /* A megabyte has room for 170 arrays of 6 KiB at most: the second round fails for certain. */
    bool failed = got < SLABS;
    static struct slab other[SLABS];
    for (unsigned i = 0; !failed && i < SLABS; i++) {
        other[i] = *macro_slab(macro, i + 1);
        other[i].words = NULL;
        failed = !words_attach(&other[i]);
    }
    os_fault = NULL;
    assert_true(failed);
    struct slab *s = slab_make(1, 1);
    assert_true(words_attach(s));
}

/* ---- threads ---- */

enum { THREADS = 4, TIMES = 2000 };
static pthread_barrier_t barrier;
static struct slab *shared;
static uint32_t failures;

/* Nobody leaves before the others: they would wait for him. */
static void *attach_many(void *argument)
{
    for (unsigned i = 0; i < TIMES; i++) {
        pthread_barrier_wait(&barrier);
        bool attached = words_attach(shared);
        struct word *word = words_find(block_of(shared, (unsigned)(uintptr_t)argument));
        word->high = GENERATION;
        pthread_barrier_wait(&barrier);
        for (unsigned k = 0; k < THREADS; k++)
            if (!attached || words_find(block_of(shared, k))->high != GENERATION)
                fetch_add_relaxed(&failures, 1); /* others have another array */
        pthread_barrier_wait(&barrier);
        word->high = 0;
        /* One of them takes it away. */
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
            words_detach(shared);
    }
    return NULL;
}

static void of_many_who_attach_one_does(void **state)
{
    pthread_t threads[THREADS];
    shared = slab_make(1, 2);
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, attach_many, (void *)i), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(failures, 0);
    assert_null(shared->words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_block_has_a_word_of_its_own),
        cmocka_unit_test(only_the_start_of_a_block_is_taken_for_one),
        cmocka_unit_test(arrays_do_not_overlap_and_come_back_empty),
        cmocka_unit_test(times_are_never_later_and_close),
        cmocka_unit_test(a_word_can_tell_the_slack_of_all_usual_blocks),
        cmocka_unit_test(words_say_what_was_put),
        cmocka_unit_test(of_any_bits_no_block_leaves_its_place),
        cmocka_unit_test(a_block_without_words_is_told),
        cmocka_unit_test(of_many_who_attach_one_does),
        cmocka_unit_test(without_memory_there_are_none),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
