/* mapping.c: see mapping.h. */
#include "book/mapping.h"

#include <errno.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "base/atomic.h"

uint32_t book_locks_future;
static struct book_mapping list[BOOK_MAPPINGS_MAX]; /* start 0: unused. `end` is stored first */

static void list_add(void *memory, size_t bytes)
{
    for (size_t i = 0; i < BOOK_MAPPINGS_MAX; i++) {
        uintptr_t none = 0;
        if (load_relaxed(&list[i].start) == 0 && cas_acquire(&list[i].start, &none, UINTPTR_MAX)) {
            store_relaxed(&list[i].end, (uintptr_t)memory + bytes);
            store_release(&list[i].start, (uintptr_t)memory);
            return;
        }
    }
}

static void list_remove(const void *memory)
{
    for (size_t i = 0; i < BOOK_MAPPINGS_MAX; i++)
        if (load_relaxed(&list[i].start) == (uintptr_t)memory) {
            store_release(&list[i].start, 0);
            return;
        }
}

size_t book_mappings(struct book_mapping *ret)
{
    size_t n = 0;
    for (size_t i = 0; i < BOOK_MAPPINGS_MAX; i++) {
        uintptr_t start = load_acquire(&list[i].start);
        if (start != 0 && start != UINTPTR_MAX)
            ret[n++] = (struct book_mapping){start, load_relaxed(&list[i].end)};
    }
    return n;
}

static void *map(size_t bytes, int access, int fd)
{
    int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *memory = mmap(NULL, bytes, access, flags, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Where new mappings are locked, one that is larger than what may be locked is refused. But one that is not locked any more may grow, and
 * stays so: a page is locked for a moment. */
static void *map_unlocked(size_t bytes, int fd)
{
    size_t page = getauxval(AT_PAGESZ);
    void *first = map(page, PROT_NONE, fd);
    if (!first)
        return NULL;
    munlock(first, page);
    void *whole = bytes > page ? mremap(first, page, bytes, MREMAP_MAYMOVE) : first;
    if (whole != MAP_FAILED)
        return whole;
    int error = errno;
    munmap(first, page);
    errno = error;
    return NULL;
}

void *book_reserve_new(size_t bytes, int fd)
{
    void *reserve = map(bytes, PROT_NONE, fd);
    if (reserve)
        munlock(reserve, bytes); /* the program may have asked without our knowing of it */
    else if (errno == EAGAIN)
        reserve = map_unlocked(bytes, fd);
    if (reserve)
        list_add(reserve, bytes);
    return reserve;
}

void book_reserve_free(void *reserve, size_t bytes)
{
    list_remove(reserve);
    munmap(reserve, bytes);
}

/* Without access first where it would be locked, since the kernel fills what is locked. */
void *book_private_new(size_t bytes)
{
    void *memory;
    if (load_relaxed(&book_locks_future)) {
        memory = book_reserve_new(bytes, -1);
        if (memory && mprotect(memory, bytes, PROT_READ | PROT_WRITE) < 0) {
            book_reserve_free(memory, bytes);
            return NULL;
        }
        return memory;
    }
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    list_add(memory, bytes);
    return memory;
}

void book_private_free(void *memory, size_t bytes)
{
    if (memory)
        book_reserve_free(memory, bytes);
}
