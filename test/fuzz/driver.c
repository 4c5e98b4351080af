/* Runs a fuzz target over the files of its corpus, so that every input that once crashed is an
 * ordinary test, with any compiler. Prints TAP, one test a file; a crash ends it, as it should.
 *
 * Usage: fuzz_NAME FILE_OR_DIRECTORY... */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"

#define INPUT_MAX (64u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int tests;

static void run_file(const char *path)
{
    struct buffer b = BUFFER_INIT(INPUT_MAX);
    int r = fs_read_file(path, &b);
    /* An exact copy, so that ASan sees a read past the end. */
    uint8_t *exact = r == 0 ? malloc(b.len ? b.len : 1) : NULL;
    if (exact) {
        memcpy(exact, buffer_string(&b), b.len);
        LLVMFuzzerTestOneInput(exact, b.len);
    }
    printf("%s %d - %s\n", exact ? "ok" : "not ok", ++tests, path);
    fflush(stdout);
    free(exact);
    buffer_release(&b);
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void run_dir(const char *path)
{
    struct dirent **names = NULL;
    int n = scandir(path, &names, is_visible, alphasort);
    for (int i = 0; i < n; i++) {
        char file[PATH_MAX];
        if (snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name) < (int)sizeof(file))
            run_file(file);
        free(names[i]);
    }
    free(names);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct stat st;
        if (stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode))
            run_dir(argv[i]);
        else
            run_file(argv[i]);
    }
    if (tests == 0)
        printf("not ok %d - the corpus has files\n", ++tests);
    printf("1..%d\n", tests);
    return 0;
}
