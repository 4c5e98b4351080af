/* root.c: see root.h. */
#include "malloc/root.h"

struct malloc_root malloc_root __attribute__((aligned(ROOT_ALIGN), used)) = {
    ROOT_HEAD(malloc_root),  .source_main = &source_main,  .sources_more = sources_more,
    .sources_n = &sources_n, .heaps = &heap_all,           .huge = &huge_look,
    .os = &os_counts,        .settings = &malloc_settings, .words = &words_lots,
};
