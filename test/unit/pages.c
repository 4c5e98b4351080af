/* pages.c: linked into tests of the allocator that are run once more, compiled with OS_PAGES_VARY: as if the kernel had pages of LARGE_PAGE bytes.
 * What is asked of it is the same then, and a kernel with smaller ones does all of it. */
#include "malloc/os.h"

__attribute__((constructor)) static void pages_are_large(void)
{
    os_page_known = LARGE_PAGE;
}
