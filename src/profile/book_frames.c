/* See book_frames.h. */
#include "profile/book_frames.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/ledger.h"
#include "site/key.h"

int book_frames_init(struct book_frames *f, struct profile *to, const struct ledger_book *book,
                     const struct book_sites *sites)
{
    *f = (struct book_frames){.to = to, .book = book, .sites = sites};
    f->module_numbers = malloc((sites->n_modules + 1) * sizeof(uint32_t));
    if (!f->module_numbers)
        return -ENOMEM;
    memset(f->module_numbers, 0xff, (sites->n_modules + 1) * sizeof(uint32_t));
    const struct ledger_process *p = book->process;
    f->address_module = profile_add_module(
        to, &(struct profile_module){.kind = PROFILE_MODULE_ADDRESS,
                                     .pid = p->valid & LEDGER_HAS_PID ? p->pid : 0});
    f->unknown_module =
        profile_add_module(to, &(struct profile_module){.kind = PROFILE_MODULE_UNKNOWN});
    return profile_error(to);
}

void book_frames_release(struct book_frames *f)
{
    free(f->module_numbers);
    *f = (struct book_frames){0};
}

static uint32_t add_module(struct book_frames *f, const struct book_module *m)
{
    const struct ledger_process *p = f->book->process;
    struct profile_module module = {
        .kind = PROFILE_MODULE_FILE,
        .path = profile_add_string(f->to, m->path[0] ? m->path : f->book->identity->exe),
        .build_id_len = m->build_id_len,
        .bias = m->bias,
        .map_start = m->map_start,
        .map_end = m->map_end,
        .started_real_ns = p->valid & LEDGER_HAS_START ? p->start_realtime_ns : 0,
        .pid = f->book->dirfd < 0 ? p->pid : 0, /* a container's path is not ours */
    };
    memcpy(module.build_id, m->build_id, m->build_id_len); /* which the reader has checked */
    return profile_add_module(f->to, &module);
}

/* A line of a script brings its name along. What tells two lines of a file apart stands for the offset. */
static uint32_t add_line(struct book_frames *f, const struct book_script *script, uint32_t line)
{
    struct profile_module module = {
        .kind = PROFILE_MODULE_SCRIPT,
        .path = profile_add_string(f->to, script->file),
    };
    uint32_t frame = profile_add_frame(f->to, profile_add_module(f->to, &module),
                                       site_key_line(script->function, line));
    struct profile_line name = {
        .function = profile_add_string(f->to, script->function),
        .file = module.path,
        .line = line,
    };
    if (!profile_error(f->to) && !f->to->frames[frame].looked_up)
        profile_set_lines(f->to, frame, &name, 1);
    return frame;
}

static uint32_t add_frame(struct book_frames *f, uint64_t frame)
{
    uint32_t number = BOOK_FRAME_MODULE(frame);
    const struct book_script *script = book_sites_script(f->sites, frame);
    if (script)
        return add_line(f, script, BOOK_FRAME_LINE(frame));
    const struct book_module *module = book_sites_module(f->sites, frame);
    if (module) {
        if (f->module_numbers[number] == UINT32_MAX)
            f->module_numbers[number] = add_module(f, module);
        return profile_add_frame(f->to, f->module_numbers[number], BOOK_FRAME_OFFSET(frame));
    }
    if (number == BOOK_MODULE_NONE)
        return profile_add_frame(f->to, f->address_module, BOOK_FRAME_OFFSET(frame));
    return profile_add_frame(f->to, f->unknown_module, 0);
}

size_t book_frames_stack(struct book_frames *f, const struct book_site *site,
                         uint32_t ret_frames[static PROFILE_STACK_MAX])
{
    size_t n = site->frames < PROFILE_STACK_MAX ? site->frames : PROFILE_STACK_MAX;
    for (size_t i = 0; i < n; i++)
        ret_frames[i] = add_frame(f, f->sites->frames[site->first_frame + i]);
    return profile_error(f->to) ? 0 : n;
}
