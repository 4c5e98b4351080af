/* small.c: a small program: a few dozen blocks, a line of output. What it has resident is its start. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 40 };

int main(void)
{
    char *blocks[BLOCKS];
    size_t sum = 0;
    for (int i = 0; i < BLOCKS; i++) {
        size_t bytes = 16 + (size_t)(i * 37 % 500);
        blocks[i] = malloc(bytes);
        if (!blocks[i])
            return 1;
        memset(blocks[i], i, bytes);
        sum += (size_t)blocks[i][bytes / 2];
    }
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    printf("%zu\n", sum);
    return 0;
}
