/* Print the table of layouts, "VERSION FIELD VALUE" a line, for test_python_frames.py. */
#include <stdio.h>

#include "site/python_layout.h"

#define FIELDS(X)         \
    X(runtime_bytes)      \
    X(runtime_finalizing) \
    X(thread_record)      \
    X(thread_frame)       \
    X(thread_id)          \
    X(thread_chunk)       \
    X(record_frame)       \
    X(record_previous)    \
    X(frame_code)         \
    X(frame_previous)     \
    X(frame_instr)        \
    X(frame_owner)        \
    X(frame_flag)         \
    X(code_first_line)    \
    X(code_version)       \
    X(code_file)          \
    X(code_name)          \
    X(code_lines)         \
    X(code_start)         \
    X(text_ascii)         \
    X(text_wide)

int main(void)
{
    for (const struct python_layout *l = python_layouts; l->version; l++) {
#define PRINT(field) printf("%x " #field " %u\n", l->version, l->field);
        FIELDS(PRINT)
        printf("%x text_length %d\n%x text_hash %d\n%x text_state %d\n", l->version,
               PYTHON_TEXT_LENGTH, l->version, PYTHON_TEXT_HASH, l->version, PYTHON_TEXT_STATE);
        printf("%x bytes_length %d\n%x bytes_start %d\n%x tss_key %d\n", l->version,
               PYTHON_BYTES_LENGTH, l->version, PYTHON_BYTES_START, l->version, PYTHON_TSS_KEY);
    }
    return 0;
}
