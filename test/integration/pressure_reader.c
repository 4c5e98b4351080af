/* Reads memory pressure as the allocator does: a level for each line of its input. Arguments: other roots than /proc and
 * /sys/fs/cgroup. */
#include <stdio.h>

#include "malloc/pressure.h"

int main(int argc, char **argv)
{
    char line[64];
    if (argc > 2)
        pressure_roots(argv[1], argv[2]);
    pressure_init();
    while (fgets(line, sizeof(line), stdin)) {
        printf("%s\n", pressure_level_name(pressure_level()));
        fflush(stdout);
    }
    return 0;
}
