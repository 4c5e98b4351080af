/* The table of layouts. */
#include "site/python_layout.h"

#include <stddef.h>

const struct python_layout python_layouts[] = {
    {
        .version = 0x0308,
        .link = PYTHON_LINK_ORDER,
        .lines = PYTHON_LINES_PAIRS,
        .runtime_bytes = 1464,
        .runtime_finalizing = 16,
        .thread_frame = 24,
        .thread_id = 176,
        .frame_code = 32,
        .frame_previous = 24,
        .frame_instr = 104,
        .code_first_line = 40,
        .code_file = 104,
        .code_name = 112,
        .code_lines = 120,
        .text_ascii = 48,
        .text_wide = 72,
    },
    {
        .version = 0x0309,
        .link = PYTHON_LINK_ORDER,
        .lines = PYTHON_LINES_PAIRS,
        .runtime_bytes = 656,
        .runtime_finalizing = 16,
        .thread_frame = 24,
        .thread_id = 176,
        .frame_code = 32,
        .frame_previous = 24,
        .frame_instr = 104,
        .code_first_line = 40,
        .code_file = 104,
        .code_name = 112,
        .code_lines = 120,
        .text_ascii = 48,
        .text_wide = 72,
    },
    {
        .version = 0x030a,
        .link = PYTHON_LINK_RECORD,
        .lines = PYTHON_LINES_RANGES,
        .runtime_bytes = 672,
        .runtime_finalizing = 16,
        .thread_record = 48,
        .thread_frame = 24,
        .thread_id = 176,
        .record_previous = 8,
        .frame_code = 32,
        .frame_previous = 24,
        .frame_instr = 96,
        .code_first_line = 40,
        .code_file = 104,
        .code_name = 112,
        .code_lines = 120,
        .text_ascii = 48,
        .text_wide = 72,
    },
    {
        .version = 0x030b,
        .link = PYTHON_LINK_FLAG,
        .lines = PYTHON_LINES_LOCATIONS,
        .runtime_finalizing = 24,
        .thread_record = 56,
        .thread_id = 152,
        .thread_chunk = 296,
        .record_frame = 8,
        .record_previous = 16,
        .frame_code = 32,
        .frame_previous = 48,
        .frame_instr = 56,
        .frame_owner = 69,
        .frame_flag = 68,
        .code_first_line = 72,
        .code_file = 112,
        .code_name = 128,
        .code_lines = 136,
        .code_start = 184,
        .text_ascii = 48,
        .text_wide = 72,
    },
    {
        .version = 0x030c,
        .link = PYTHON_LINK_SHIM,
        .lines = PYTHON_LINES_LOCATIONS,
        .runtime_finalizing = 24,
        .thread_record = 56,
        .thread_id = 136,
        .thread_chunk = 232,
        .record_frame = 0,
        .record_previous = 8,
        .frame_code = 0,
        .frame_previous = 8,
        .frame_instr = 56,
        .frame_owner = 70,
        .code_first_line = 68,
        .code_version = 92,
        .code_file = 112,
        .code_name = 128,
        .code_lines = 136,
        .code_start = 192,
        .text_ascii = 40,
        .text_wide = 56,
    },
    {
        .version = 0x030d,
        .link = PYTHON_LINK_SHIM,
        .lines = PYTHON_LINES_LOCATIONS,
        .runtime_finalizing = 608,
        .thread_frame = 72,
        .thread_id = 152,
        .thread_chunk = 232,
        .frame_code = 0,
        .frame_previous = 8,
        .frame_instr = 56,
        .frame_owner = 70,
        .code_first_line = 68,
        .code_version = 92,
        .code_file = 112,
        .code_name = 128,
        .code_lines = 136,
        .code_start = 200,
        .text_ascii = 40,
        .text_wide = 56,
    },
    {0},
};

const struct python_layout *python_layout_of(uint64_t version)
{
    for (const struct python_layout *l = python_layouts; l->version; l++)
        if (l->version == version >> 16)
            return l;
    return NULL;
}

const struct python_layout *python_layout_sized(uint64_t runtime_bytes)
{
    for (const struct python_layout *l = python_layouts; l->version; l++)
        if (l->runtime_bytes && l->runtime_bytes == runtime_bytes)
            return l;
    return NULL;
}
