/* ranges_hostile.c: images that were cut, changed and forged. Whatever comes, the process that reads them goes on with a heap that is
 * whole: as it was, or with what the image says. Each attempt is made by a child of one process that waits for an image. */
#define OS_FAULTS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <memoir/heap.h>
#include <memoir/malloc.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "cases.h"
#include "malloc/range_image.h"
#include "ranges.h"

enum { ATTEMPTS = 300, IMAGE_MAX = 16 << 20, PLACES_MAX = 4096 };

static unsigned char *image, *forged; /* shared with who makes it */
static size_t image_bytes;
static uint64_t *seed;

/* ---- what an image is made of ---- */

/* Where there are words that are not pages. */
static struct place {
    size_t at, bytes;
} places[PLACES_MAX];
static size_t n_places;

struct walk {
    unsigned char *bytes;
    size_t n, at;
    uint64_t check;
};

/* The next bytes, or NULL where there are no more. */
static void *next(struct walk *w, size_t bytes, bool words)
{
    if (bytes > w->n - w->at)
        return NULL;
    void *here = w->bytes + w->at;
    if (words && n_places < PLACES_MAX && bytes > 0)
        places[n_places++] = (struct place){w->at, bytes};
    w->check = hash_bytes(here, bytes, w->check);
    w->at += bytes;
    return here;
}

/* Parts of the image that was walked last: the last macro-block with a small slab, and huge blocks. */
static struct {
    struct image_item *macro, *huge, *alone;
    struct image_slab *slab; /* of small blocks */
    struct image_slab *large;
    uint64_t *bits;  /* of the slab */
    uint64_t *pages; /* of the macro-block */
    struct image_run *run;
} found;

static bool skip_pages(struct walk *w, size_t n)
{
    for (; n > 0; n--)
        if (!next(w, OS_PAGE_BYTES, false))
            return false;
    return true;
}

static bool skip_macro(struct walk *w, const struct image_item *item)
{
    size_t words = 0, pages = 0;
    struct image_slab *slabs = next(w, (size_t)item->n * sizeof(*slabs), true), *small = NULL;
    for (size_t i = 0; slabs && i < item->n; i++) {
        bool large = slabs[i].class == SLAB_LARGE;
        small = small || large || words > 0 ? small : &slabs[i]; /* whose bits come first */
        found.large = large ? &slabs[i] : found.large;
        words += large ? 0 : image_words(slabs[i].made);
    }
    uint64_t *blocks = slabs ? next(w, words * 8, true) : NULL;
    if (!blocks)
        return false;
    uint64_t *bits = next(w, IMAGE_MACRO_PAGES / 8, true);
    if (small) {
        found.macro = (struct image_item *)slabs - 1;
        found.slab = small;
        found.bits = blocks;
        found.pages = bits;
    }
    for (size_t i = 0; bits && i < IMAGE_MACRO_PAGES / 64; i++)
        pages += (size_t)__builtin_popcountll(bits[i]);
    return bits && skip_pages(w, pages);
}

static bool skip_huge(struct walk *w, struct image_item *item)
{
    struct image_run *run;
    do {
        run = next(w, sizeof(*run), true);
        if (run && run->n > 1 && item->at % MACRO_BYTES == 0) {
            found.run = run;
            found.huge = item;
        }
        if (!run || !skip_pages(w, run->n < IMAGE_MAX ? run->n : IMAGE_MAX))
            return false;
    } while (run->n > 0);
    return true;
}

/* Make the checks right again, as who forges an image can. False: it is too broken to tell where they are. */
static bool reseal(unsigned char *bytes, size_t n)
{
    struct walk w = {bytes, n, 0, 0};
    n_places = 0;
    if (n < sizeof(struct image_header))
        return false;
    struct image_header *h = (struct image_header *)bytes;
    h->check = hash_bytes(h, offsetof(struct image_header, check), IMAGE_VERSION);
    next(&w, sizeof(*h), true);
    for (uint64_t items = 0;; items++) {
        uint64_t before = w.check;
        struct image_item *item = next(&w, sizeof(*item), true);
        if (!item)
            return false;
        if (item->kind == IMAGE_END) {
            item->at = items;
            item->bytes = before;
            return true;
        }
        if (item->kind == IMAGE_HUGE && item->at % MACRO_BYTES)
            found.alone = item;
        if (!(item->kind == IMAGE_MACRO ? skip_macro(&w, item) : skip_huge(&w, item)))
            return false;
    }
}

/* ---- one attempt ---- */

static void use_the_heap(void)
{
    for (int i = 0; i < 20; i++) { /* what was free is zero */
        char *block = calloc(1, 200000);
        MUST(block && block[0] == 0 && memcmp(block, block + 1, 199999) == 0);
    }
    struct tree *t = tree_make(40, 5);
    tree_change(t, 6);
    tree_check(t);
    tree_free(t);
    int problems = memoir_malloc_check(STDERR_FILENO);
    MUST_SAY(problems == 0, "%d problems after use", problems);
}

/* Gives what memoir_malloc_range_load() did, after a look at the heap. */
static int attempt(const unsigned char *bytes, size_t n)
{
    int file = memfd_create("forged", 0), status = -1;
    MUST(file >= 0 && write(file, bytes, n) == (ssize_t)n && lseek(file, 0, SEEK_SET) == 0);
    pid_t child = case_fork();
    if (child == 0) {
        int r = memoir_malloc_range_load(file, NULL);
        int problems = memoir_malloc_check(STDERR_FILENO);
        MUST_SAY(problems == 0, "%d problems, load gave %d", problems, r);
        struct memoir_malloc_range now = range_now();
        if (r < 0)
            MUST_SAY(now.waiting && now.mapped_bytes == 0, "after %d: %llu bytes", r,
                     (unsigned long long)now.mapped_bytes);
        use_the_heap();
        _exit(-r);
    }
    while (waitpid(child, &status, 0) < 0)
        MUST(errno == EINTR);
    close(file);
    MUST_SAY(WIFEXITED(status) && WEXITSTATUS(status) != 2, "seed %llu: the child %s %d",
             (unsigned long long)*seed, WIFSIGNALED(status) ? "was killed by" : "ended with",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return -WEXITSTATUS(status);
}

/* ---- forging ---- */

static uint64_t word_like(uint64_t *state, const void *here, size_t bytes)
{
    struct memoir_malloc_range r = range_now();
    uint64_t is = 0;
    memcpy(&is, here, bytes);
    switch (case_random(state) % 12) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX;
    case 2:
        return is + 1;
    case 3:
        return is - 1;
    case 4:
        return is ^ (UINT64_C(1) << case_random(state) % (8 * bytes));
    case 5:
        return case_random(state) % 256;
    case 6:
        return r.base + (case_random(state) % 512) * (2 << 20);
    case 7:
        return r.base + r.bytes - 4096 * (case_random(state) % 4);
    case 8:
        return r.base - 4096;
    case 9:
        return is << 1;
    case 10:
        return UINT64_MAX << case_random(state) % 64;
    default:
        return case_random(state);
    }
}

/* One bit less and another more: the rest of the image is where it was. */
static void move_a_bit(uint64_t *state, unsigned char *bytes)
{
    const struct place *p = &places[case_random(state) % n_places];
    size_t bits = p->bytes * 8, set = 0, unset = 0;
    for (int i = 0; i < 200; i++) {
        size_t bit = case_random(state) % bits;
        *(bytes[p->at + bit / 8] >> bit % 8 & 1 ? &set : &unset) = bit;
    }
    bytes[p->at + set / 8] &= (unsigned char)~(1 << set % 8);
    bytes[p->at + unset / 8] |= (unsigned char)(1 << unset % 8);
}

static void change_a_word(uint64_t *state, unsigned char *bytes)
{
    const struct place *p = &places[case_random(state) % n_places];
    size_t width = (size_t)1 << case_random(state) % 4;
    width = width <= p->bytes ? width : p->bytes;
    size_t at = p->at + case_random(state) % (p->bytes / width) * width;
    uint64_t word = word_like(state, bytes + at, width);
    memcpy(bytes + at, &word, width);
}

/* A stretch of it is there once more, or not at all. */
static size_t repeat_or_drop(uint64_t *state, unsigned char *bytes, size_t n)
{
    size_t a = places[case_random(state) % n_places].at,
           b = places[case_random(state) % n_places].at;
    size_t from = a < b ? a : b, length = a < b ? b - a : a - b;
    if (case_random(state) % 2 && n + length <= IMAGE_MAX) {
        memmove(bytes + from + length, bytes + from, n - from);
        return n + length;
    }
    memmove(bytes + from, bytes + from + length, n - from - length);
    return n - length;
}

static size_t forge(uint64_t *state, bool *ret_sealed)
{
    size_t n = image_bytes;
    memcpy(forged, image, n);
    MUST(reseal(forged, n)); /* finds the places */
    if (case_random(state) % 8 == 0)
        n = repeat_or_drop(state, forged, n);
    else
        for (uint64_t i = case_random(state) % 3 + 1; i > 0; i--)
            (case_random(state) % 3 ? change_a_word : move_a_bit)(state, forged);
    *ret_sealed = case_random(state) % 4 != 0 && reseal(forged, n);
    return n;
}

/* ---- cases ---- */

/* In the process that sends. */
static void part_make(void)
{
    struct tree *t = tree_make(40, 21);
    char *huge = calloc(1, 5 << 20), *aligned = aligned_alloc(4 << 20, 3 << 20);
    MUST(huge && aligned);
    huge[0] = aligned[0] = aligned[2 << 20] = 1;
    memset(huge + (3 << 20), 1, 5 * OS_PAGE_BYTES);
    free(malloc(100000));
    MUST(memoir_malloc_range_save(IMAGE_FD, t) == 0);
}

static void send_from(const char *part)
{
    int file = memfd_create("image", 0);
    MUST(file >= 0 && dup2(file, IMAGE_FD) == IMAGE_FD);
    pid_t child = case_fork();
    if (child == 0) {
        setenv("MEMOIR_MALLOC", SEND, 1);
        execl("/proc/self/exe", "ranges_hostile", part, NULL);
        _exit(99);
    }
    case_reap(child);
}

static void make_image(void)
{
    send_from("part_make");
    image = mmap(NULL, 2 * IMAGE_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(image != MAP_FAILED);
    forged = image + IMAGE_MAX;
    ssize_t n = pread(IMAGE_FD, image, IMAGE_MAX, 0);
    MUST(n > 0 && n < IMAGE_MAX);
    image_bytes = (size_t)n;
    static uint64_t first;
    seed = &first;
    MUST(attempt(image, image_bytes) == 0);
}

static void a_cut_image_is_none(void)
{
    uint64_t state = 1;
    make_image();
    MUST(reseal(image, image_bytes));
    for (size_t i = 0; i < 150; i++) {
        const struct place *p = &places[case_random(&state) % n_places];
        size_t n = i < 70    ? i * 2
                   : i < 120 ? p->at + case_random(&state) % (p->bytes + 1)
                             : case_random(&state) % image_bytes;
        n = n < image_bytes ? n : image_bytes - 1;
        *seed = n;
        int r = attempt(image, n);
        MUST_SAY(r == -EBADMSG, "%zu of %zu bytes: %d", n, image_bytes, r);
    }
}

static void every_word_of_the_header_counts(void)
{
    static const struct {
        size_t at;
        int error;
    } words[] = {
        {offsetof(struct image_header, magic), EBADMSG},
        {offsetof(struct image_header, version), EPROTONOSUPPORT},
        {offsetof(struct image_header, bytes), EPROTONOSUPPORT},
        {offsetof(struct image_header, layout), EPROTONOSUPPORT},
        {offsetof(struct image_header, base), EXDEV},
        {offsetof(struct image_header, range_bytes), EXDEV},
        {offsetof(struct image_header, slot), EXDEV},
        {offsetof(struct image_header, zero), EBADMSG},
    };
    make_image();
    for (size_t i = 0; i < COUNT_OF(words); i++) {
        memcpy(forged, image, image_bytes);
        forged[words[i].at] ^= 1;
        MUST(reseal(forged, image_bytes));
        int r = attempt(forged, image_bytes);
        MUST_SAY(r == -words[i].error, "word at %zu: %d", words[i].at, r);
    }
    memcpy(forged, image, image_bytes);
    ((struct image_header *)forged)->root = 4096;
    MUST(reseal(forged, image_bytes) && attempt(forged, image_bytes) == -EBADMSG);
    memcpy(forged, image, image_bytes);
    ((struct image_header *)forged)->check ^= 1;
    MUST(attempt(forged, image_bytes) == -EBADMSG);
}

/* Move the bit of the first page that is there to another place. */
static void page_to(size_t page)
{
    size_t first = 0;
    while (!bit_is(found.pages, first))
        first++;
    bit_clear(found.pages, first);
    bit_set(found.pages, page);
}

static void forge_macro_at(void)
{
    found.macro->at += 4096;
}
static void forge_macro_below(void)
{
    found.macro->at -= (uint64_t)4 << 30;
}
static void forge_macro_beyond(void)
{
    found.macro->at += (uint64_t)1 << 30;
}
static void forge_macro_twice(void)
{
    found.macro->at = found.huge->at;
}
static void forge_macro_bytes(void)
{
    found.macro->bytes = 1;
}
static void forge_slab_slices(void)
{
    found.slab->slices++;
}
static void forge_slab_first(void)
{
    found.slab->first = 0;
}
static void forge_slab_zero(void)
{
    found.slab->zero = 1;
}
static void forge_slab_start(void)
{
    found.slab->start = 16;
}
static void forge_slab_asked(void)
{
    found.slab->asked = 16;
}
static void forge_slab_class(void)
{
    found.slab->class = SLAB_UNUSED;
}
static void forge_slab_none_used(void)
{
    memset(found.bits, 0, image_words(found.slab->made) * 8);
}
static void forge_slab_never_made(void)
{
    found.slab->made -= found.slab->made % 64 ? 0 : 1;
    found.bits[image_words(found.slab->made) - 1] = UINT64_MAX;
}
static void forge_large_start(void)
{
    found.large->start = SLICE_BYTES;
}
static void forge_large_odd(void)
{
    found.large->start = 8;
}
static void forge_large_asked(void)
{
    found.large->asked = UINT32_MAX;
}
static void forge_large_over(void)
{
    found.large->first = MACRO_SLICES - 1;
}
static void forge_page_of_records(void)
{
    page_to(0);
}
static void forge_page_of_nobody(void)
{
    page_to(IMAGE_MACRO_PAGES - 1);
}
static void forge_huge_at(void)
{
    found.huge->at += 4096 * 7;
}
static void forge_huge_bytes(void)
{
    found.huge->bytes++;
}
static void forge_huge_small(void)
{
    found.huge->bytes = 0;
}
static void forge_huge_beyond(void)
{
    found.huge->bytes = (uint64_t)1 << 40;
}
static void forge_huge_wrap(void)
{
    found.huge->bytes = -(uint64_t)4096;
}
static void forge_huge_asked(void)
{
    found.huge->asked = found.huge->bytes;
}
static void forge_huge_offset(void)
{
    found.huge->offset = 48;
}
static void forge_huge_offset_odd(void)
{
    found.huge->offset = 72;
}
static void forge_huge_offset_far(void)
{
    found.huge->offset = 2 << 20;
}
static void forge_huge_n(void)
{
    found.huge->n = 1;
}
static void forge_alone_offset(void)
{
    found.alone->offset = 64;
}
static void forge_run_first(void)
{
    found.run->first = (uint64_t)1 << 52;
}
static void forge_run_over(void)
{
    found.huge->asked = 0;
    found.huge->bytes = (found.run->first + 1) * OS_PAGE_BYTES;
}
static void forge_run_back(void)
{
    found.run->first = 0;
}

/* Each is a word that would make the heap wrong, in an image whose checks are right. */
static void words_that_make_no_sense_are_refused(void)
{
    static const struct {
        void (*forge)(void);
        const char *name;
    } words[] = {
#define WORD(name) {forge_##name, #name}
        WORD(macro_at),        WORD(macro_below),     WORD(macro_beyond),    WORD(macro_twice),
        WORD(macro_bytes),     WORD(slab_slices),     WORD(slab_first),      WORD(slab_zero),
        WORD(slab_start),      WORD(slab_asked),      WORD(slab_class),      WORD(slab_none_used),
        WORD(slab_never_made), WORD(large_start),     WORD(large_odd),       WORD(large_asked),
        WORD(large_over),      WORD(page_of_records), WORD(page_of_nobody),  WORD(huge_at),
        WORD(huge_bytes),      WORD(huge_small),      WORD(huge_beyond),     WORD(huge_wrap),
        WORD(huge_asked),      WORD(huge_offset),     WORD(huge_offset_odd), WORD(huge_offset_far),
        WORD(huge_n),          WORD(alone_offset),    WORD(run_first),       WORD(run_back),
        WORD(run_over),
    };
    make_image();
    memcpy(forged, image, image_bytes);
    MUST(reseal(forged, image_bytes) && attempt(forged, image_bytes) == 0);
    MUST(found.macro && found.huge && found.alone && found.slab && found.large && found.run);
    for (size_t i = 0; i < COUNT_OF(words); i++) {
        memcpy(forged, image, image_bytes);
        MUST(reseal(forged, image_bytes)); /* finds the words */
        words[i].forge();
        MUST_SAY(reseal(forged, image_bytes), "%s: cannot be sealed", words[i].name);
        int r = attempt(forged, image_bytes);
        MUST_SAY(r == -EBADMSG, "%s: %d", words[i].name, r);
    }
}

/* An image with one macro-block, without pages, that has these slabs; of small ones the first block is in use. */
static int attempt_slabs(const struct image_slab *slabs, unsigned n)
{
    struct image_header h = *(struct image_header *)image;
    struct image_item item = {.kind = IMAGE_MACRO, .n = n, .at = h.base + 8 * MAP_UNIT_BYTES};
    struct image_item end = {.kind = IMAGE_END};
    unsigned char *to = forged;
    h.root = 0;
    to = mempcpy(to, &h, sizeof(h));
    to = mempcpy(to, &item, sizeof(item));
    to = mempcpy(to, slabs, n * sizeof(*slabs));
    for (unsigned i = 0; i < n; i++) {
        size_t words = slabs[i].class == SLAB_LARGE ? 0 : image_words(slabs[i].made);
        memset(to, 0, words * 8);
        if (words > 0)
            *to = 1;
        to += words * 8;
    }
    memset(to, 0, IMAGE_MACRO_PAGES / 8);
    to = mempcpy(to + IMAGE_MACRO_PAGES / 8, &end, sizeof(end));
    MUST(reseal(forged, (size_t)(to - forged)));
    return attempt(forged, (size_t)(to - forged));
}

static void slabs_that_cannot_be_are_refused(void)
{
    make_image();
    MUST(reseal(image, image_bytes) && found.slab);
    struct image_slab one = {.class = found.slab->class, .slices = found.slab->slices, .made = 1};
    struct image_slab good[2] = {one, one}, bad[2];
    unsigned last = MACRO_SLICES - one.slices;
    good[0].first = 9;
    good[1].first = (uint8_t)last;
    MUST(attempt_slabs(good, 2) == 0);
#define BAD(change)                                                 \
    do {                                                            \
        memcpy(bad, good, sizeof(bad));                             \
        change;                                                     \
        MUST_SAY(attempt_slabs(bad, 2) == -EBADMSG, "%s", #change); \
    } while (0)
    BAD(bad[1].first = 9);                   /* both have the same slices */
    BAD(bad[1].first = 1);                   /* not in order */
    BAD(bad[0].first = 0);                   /* where the descriptors are */
    BAD(bad[1].first = (uint8_t)(last + 1)); /* over the end */
    BAD(bad[0].slices++);                    /* not as many as the class has */
    BAD(bad[0].slices = 0);
    BAD(bad[0].made = 0);
    BAD(bad[0].made = (uint32_t)one.slices * SLICE_BYTES / SIZE_STEP + 1);
    BAD(bad[0].made = 1 << 20);
    BAD(bad[0].class = SIZE_CLASSES);
    BAD(bad[0].class = SLAB_UNUSED);
    BAD(bad[0].class = SLAB_LARGE); /* of which none is carved */
    BAD((bad[0] = (struct image_slab){SLAB_LARGE, 9, 3, 0, 0, 64, 3 * SLICE_BYTES}));
    BAD((bad[0] = (struct image_slab){SLAB_LARGE, 9, 3, 0, 0, SLICE_BYTES, 1}));
    good[0] = (struct image_slab){SLAB_LARGE, 9, 3, 0, 0, 64, 3 * SLICE_BYTES - 64};
    MUST(attempt_slabs(good, 2) == 0);
}

/* Bytes of pages are the program's; but who did not forge them on purpose is found out. */
static void a_changed_byte_is_found(void)
{
    uint64_t state = 3;
    make_image();
    for (int i = 0; i < 60; i++) {
        size_t at = case_random(&state) % image_bytes;
        memcpy(forged, image, image_bytes);
        forged[at] ^= (unsigned char)(1 << case_random(&state) % 8);
        *seed = at;
        int r = attempt(forged, image_bytes);
        MUST_SAY(r < 0, "byte %zu was changed: %d", at, r);
    }
}

static void whatever_is_forged_the_heap_stays_whole(void)
{
    const char *given = getenv("SEED"), *more = getenv("ATTEMPTS");
    uint64_t attempts = more ? strtoull(more, NULL, 0) : ATTEMPTS;
    uint64_t first = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL) * 1000003;
    unsigned refused = 0, taken = 0;
    make_image();
    dprintf(STDERR_FILENO, "SEED=%llu, an image of %zu bytes\n", (unsigned long long)first,
            image_bytes);
    for (uint64_t i = 0; i < attempts; i++) {
        uint64_t state = first + i;
        bool sealed;
        *seed = first + i; /* SEED=that begins with this attempt */
        size_t n = forge(&state, &sealed);
        bool same = n == image_bytes && memcmp(forged, image, n) == 0;
        int r = attempt(forged, n);
        MUST_SAY(r == 0 || r == -EBADMSG || r == -EXDEV || r == -EPROTONOSUPPORT || r == -ENOMEM,
                 "seed %llu: %d", (unsigned long long)*seed, r);
        MUST_SAY(r < 0 || sealed || same, "seed %llu: a wrong check", (unsigned long long)*seed);
        refused += r < 0;
        taken += r == 0;
    }
    dprintf(STDERR_FILENO, "%u refused, %u taken\n", refused, taken);
    MUST(attempts < ATTEMPTS || (refused > attempts / 4 && taken > 0));
}

/* ---- a kernel that has no more ---- */

static uint32_t calls, failing;

static bool fails(enum os_call call)
{
    return calls++ == failing;
}

/* With the library that lets its system calls fail: all of the image is there, or nothing. */
static void each_system_call_fails_in_turn(void)
{
    bool (**fault)(enum os_call) = dlsym(RTLD_DEFAULT, "os_fault");
    if (!fault)
        case_skip("the allocator was not built with faults");
    make_image();
    unsigned refused = 0;
    for (bool fired = true; fired; failing++) {
        int status = -1;
        MUST(lseek(IMAGE_FD, 0, SEEK_SET) == 0);
        pid_t child = case_fork();
        if (child == 0) {
            void *root = NULL;
            *fault = fails;
            int r = memoir_malloc_range_load(IMAGE_FD, &root);
            *fault = NULL;
            fired = calls > failing;
            MUST_SAY(r == 0 || (r == -ENOMEM && fired), "call %u: %d", failing, r);
            MUST(memoir_malloc_check(STDERR_FILENO) == 0);
            if (r < 0)
                MUST(range_now().waiting && range_now().mapped_bytes == 0);
            else
                tree_check(root);
            use_the_heap();
            _exit(fired ? (r < 0 ? 11 : 10) : 0);
        }
        while (waitpid(child, &status, 0) < 0)
            MUST(errno == EINTR);
        MUST_SAY(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) >= 10),
                 "call %u: status %x", failing, (unsigned)status);
        fired = WEXITSTATUS(status) != 0;
        refused += WEXITSTATUS(status) == 11;
    }
    MUST_SAY(refused >= 3, "only %u", refused);
}

static pid_t lost_child;

/* Asked for memory with a lock held: a child of this moment finds it held by nobody that it has. */
static bool fork_here(enum os_call call)
{
    bool (**fault)(enum os_call) = dlsym(RTLD_DEFAULT, "os_fault");
    if (call != OS_CALL_PROTECT || lost_child)
        return false;
    *fault = NULL;
    lost_child = _Fork();
    if (lost_child == 0) {
        int r = memoir_malloc_range_save(IMAGE_FD, NULL);
        MUST_SAY(r == -ENOTRECOVERABLE, "%d", r);
        _exit(0);
    }
    return false;
}

static void part_lost(void)
{
    bool (**fault)(enum os_call) = dlsym(RTLD_DEFAULT, "os_fault");
    struct tree *t = tree_make(40, 1);
    *fault = fork_here;
    for (int i = 0; i < 200 && !lost_child; i++)
        MUST(malloc(30000));
    MUST(lost_child > 0);
    case_reap(lost_child);
    MUST(memoir_malloc_range_save(IMAGE_FD, t) == 0); /* the parent has lost nothing */
}

static void a_heap_that_lost_a_part_is_not_saved(void)
{
    if (!dlsym(RTLD_DEFAULT, "os_fault"))
        case_skip("the allocator was not built with faults");
    send_from("part_lost");
}

static const struct test_case cases[] = {
    {"a_heap_that_lost_a_part_is_not_saved", a_heap_that_lost_a_part_is_not_saved},
    {"each_system_call_fails_in_turn", each_system_call_fails_in_turn},
    {"a_cut_image_is_none", a_cut_image_is_none},
    {"every_word_of_the_header_counts", every_word_of_the_header_counts},
    {"words_that_make_no_sense_are_refused", words_that_make_no_sense_are_refused},
    {"slabs_that_cannot_be_are_refused", slabs_that_cannot_be_are_refused},
    {"a_changed_byte_is_found", a_changed_byte_is_found},
    {"whatever_is_forged_the_heap_stays_whole", whatever_is_forged_the_heap_stays_whole},
};

static const struct test_case parts[] = {{"part_make", part_make}, {"part_lost", part_lost}};

int main(int argc, char **argv)
{
    return argc > 1 && strncmp(argv[1], "part_", 5) == 0
               ? cases_main(argc, argv, parts, COUNT_OF(parts))
               : cases_main(argc, argv, cases, COUNT_OF(cases));
}
