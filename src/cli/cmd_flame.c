/* memoir flame: the stacks that lead to a process's memory, as a picture or for other tools. */
#include <errno.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/flame.h"
#include "cli/profile_source.h"
#include "cli/space_word.h"
#include "cli/view.h"
#include "cli/view_process.h"
#include "profile/export.h"
#include "profile/profile.h"
#include "profile/tree.h"

enum { OUTPUT_MAX = 256 << 20, WIDTH_MIN = 20, FILE_MODE = 0644 };

static const char *const formats[] = {"none", "pprof", "folded", "speedscope", NULL};
enum { FORMAT_NONE, FORMAT_PPROF, FORMAT_FOLDED, FORMAT_SPEEDSCOPE };

struct flame_values {
    struct command_common common;
    const char *dir, *space, *function;
    uint64_t depth, width;
    int export;
    bool live, allocated, blocks, inverted, text, browse, no_names, at_peak;
    struct view_options view;
};

static const struct flame_values defaults = {0};

#define AT(field) offsetof(struct flame_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"live", 0, OPTION_FLAG, AT(live), .help = "width is bytes held (the default)"},
    {"allocated", 0, OPTION_FLAG, AT(allocated), .help = "width is bytes asked for in all"},
    {"blocks", 0, OPTION_FLAG, AT(blocks), .help = "width is blocks held"},
    {"at-peak", 0, OPTION_FLAG, AT(at_peak),
     .help = "what was held when the process held the most, instead of now"},
    {"function", 'f', OPTION_STRING, AT(function), "REGEX",
     "only stacks with a function like that (an extended regular expression), from there on"},
    {"inverted", 'i', OPTION_FLAG, AT(inverted),
     .help = "from the functions that asked up to their callers"},
    {"space", 0, OPTION_STRING, AT(space), "SPACE",
     "only this kind of memory: heap, dram, l1, pinned ..."},
    {"depth", 'd', OPTION_NUMBER, AT(depth), "N", "show N rows at most (default: all)"},
    {"width", 'w', OPTION_NUMBER, AT(width), "N",
     "draw N columns wide, also where the output is no terminal"},
    {"text", 't', OPTION_FLAG, AT(text),
     .help = "lines of text instead of a picture (the default where the output is no terminal)"},
    {"browse", 'b', OPTION_FLAG, AT(browse),
     .help =
         "walk through it on the whole screen: choose by arrows or mouse, Enter zooms in and Esc "
         "out, / searches, q ends"},
    {"export", 'x', OPTION_CHOICE, AT(export), "FORMAT",
     "write it for other tools, to the file named last or to standard output: pprof, folded or "
     "speedscope",
     .choices = formats},
    {"no-names", 0, OPTION_FLAG, AT(no_names),
     .help = "do not look up functions: faster, frames are then modules and offsets"},
    VIEW_OPTION_WHERE,
    VIEW_OPTION_BY,
    VIEW_OPTION_SHOW,
    {"sort", 0, OPTION_STRING, AT(view.sort), "COLUMNS", "the order, as in memoir query"},
    VIEW_OPTIONS_PRINT,
    OPTION_DIR,
    {0},
};

static const struct command_example examples[] = {
    {"memoir flame 4242", "what leads to the memory that a process holds"},
    {"memoir flame 4242 --browse", "walk through it"},
    {"memoir flame 4242 --function '^parse_' --allocated",
     "what parsing asked for in all, whether or not it was freed"},
    {"memoir flame before.sites --inverted", "a saved moment, from the lines that asked upwards"},
    {"memoir flame 4242 --export pprof heap.pb.gz", "for pprof: go tool pprof heap.pb.gz"},
    {"memoir flame 4242 --where 'bytes>1MB' --json", "the table stacks, as memoir query answers"},
    {"memoir flame 4242 --export folded | flamegraph.pl > heap.svg", "for FlameGraph"},
    {0},
};

static const struct command_section sections[] = {
    {"THE PICTURE",
     "The top row is everything. Below each function stand those that it called, as wide as their part "
     "of the whole; what a function holds itself is empty below it. Colours stand for the program and its "
     "libraries, which are listed at the end with what they hold themselves. Functions that are narrower "
     "than a column are left out."},
    {"EXACT AND ESTIMATED",
     "Widths add up to the exact figures of memoir sites. Where stacks were sampled (the default of memoir "
     "run), how each line's exact figure divides among the stacks that lead to it is an estimate, marked "
     "with ~."},
    {"FORMATS",
     "pprof: the gzipped message Profile with the sample types alloc_objects, alloc_space, inuse_objects "
     "and inuse_space, labels space, device and estimate, and mappings with build-ids. folded: a line for "
     "each stack, functions from the outermost on separated by semicolons, then the number. speedscope: "
     "JSON with a profile for each of live bytes, allocated bytes, live blocks and allocated blocks. All "
     "have all stacks, whatever --function, --depth and --inverted say."},
    {0},
};

/* ---- what was asked for ---- */

struct ask {
    const struct flame_values *v;
    enum rows_measure measure;
    struct tree_options tree;
    regex_t focus;
    bool has_focus;
    struct profile_source source;
};

static void ask_release(struct ask *ask)
{
    if (ask->has_focus)
        regfree(&ask->focus);
    profile_source_release(&ask->source);
}

static int check(const struct flame_values *v, const struct operands *operands)
{
    if (v->live + v->allocated + v->blocks > 1)
        return command_misuse(&cmd_flame, "--live, --allocated and --blocks exclude each other");
    if (v->width && (v->width < WIDTH_MIN || v->width > FLAME_WIDTH_MAX))
        return command_misuse(&cmd_flame, "--width takes %d to %d", WIDTH_MIN, FLAME_WIDTH_MAX);
    if (v->browse && (v->text || v->width || v->depth || v->export != FORMAT_NONE))
        return command_misuse(&cmd_flame,
                              "--browse takes the whole screen; it goes with neither --text, "
                              "--width, --depth nor --export");
    if (operands->n == 0)
        return command_misuse(&cmd_flame,
                              "of which process? memoir flame PID; memoir ps lists them");
    if (operands->n > 1 && v->export == FORMAT_NONE)
        return command_misuse(&cmd_flame, "one process or file at a time; --export FORMAT takes a "
                                          "second word, the file to write");
    return COMMAND_OK;
}

static int ask_parse(struct ask *ask, const struct flame_values *v)
{
    ask->v = v;
    ask->measure = v->allocated ? ROWS_ALLOCATED : v->blocks ? ROWS_BLOCKS : ROWS_LIVE;
    ask->tree = (struct tree_options){.measure = ask->measure, .inverted = v->inverted};
    if (v->function) {
        int r = regcomp(&ask->focus, v->function, REG_EXTENDED | REG_NOSUB);
        if (r) {
            char why[128];
            regerror(r, &ask->focus, why, sizeof(why));
            return command_misuse(&cmd_flame, "invalid regular expression '%s': %s", v->function,
                                  why);
        }
        ask->has_focus = true;
        ask->tree.focus = &ask->focus;
    }
    return v->space ? space_word_parse(&cmd_flame, v->space, false, &ask->tree.space) : COMMAND_OK;
}

/* ---- for other tools ---- */

static int write_out(const struct ask *ask, struct profile *p, const char *path)
{
    static int (*const writers[])(struct profile *, const struct export_options *,
                                  struct buffer *) = {
        [FORMAT_PPROF] = export_pprof,
        [FORMAT_FOLDED] = export_folded,
        [FORMAT_SPEEDSCOPE] = export_speedscope,
    };
    struct export_options o = {.measure = ask->measure, .space = ask->tree.space};
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(EXPORT_MAX);
    bool to_stdout = !path || strcmp(path, "-") == 0;
    if (to_stdout && ask->v->export == FORMAT_PPROF && isatty(STDOUT_FILENO))
        return command_misuse(&cmd_flame,
                              "pprof's format is no text; name a file: memoir flame PID "
                              "--export pprof heap.pb.gz");
    int r = writers[ask->v->export](p, &o, &out);
    if (r < 0)
        return r;
    if (to_stdout)
        return command_output(&out);
    r = fs_write_file_atomic(path, buffer_string(&out), out.len, FILE_MODE);
    return r < 0 ? command_fail("cannot write '%s': %s", path, strerror(-r)) : COMMAND_OK;
}

/* ---- the picture ---- */

static void summary(const struct ask *ask, const struct profile *p, const struct tree *tree,
                    const struct term *term, struct buffer *out)
{
    static const char *const whats[] = {
        [ROWS_LIVE] = "live", [ROWS_ALLOCATED] = "allocated in all", [ROWS_BLOCKS] = "live"};
    char who[PROFILE_WHO_MAX], text[FLAME_VALUE_MAX];
    uint64_t left_out = rows_value(&tree->left_out, ask->measure);
    buffer_append_str(out, term_style(term, STYLE_TITLE));
    term_append(term, out, profile_who(p, who), 0);
    buffer_printf(
        out, ": %s %s%s",
        flame_value(rows_value(&tree->nodes[0].total, ask->measure), ask->measure, false, text),
        p->at_peak && ask->measure != ROWS_ALLOCATED ? "at the peak" : whats[ask->measure],
        term_plain(term, STYLE_TITLE));
    if (left_out)
        buffer_printf(out, "; %s elsewhere", flame_value(left_out, ask->measure, false, text));
    buffer_append_char(out, '\n');
    if (tree->estimated.alloc_bytes)
        buffer_append_str(out,
                          "What is marked ~ is divided by an estimate: stacks were sampled.\n");
}

static int draw(const struct ask *ask, struct profile *p, const struct term *term)
{
    const struct flame_values *v = ask->v;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    MEMOIR_CLEANUP(tree_release)
    struct tree tree = {0};
    MEMOIR_CLEANUP(flame_release)
    struct flame flame = {0};
    int r = tree_take(p, &ask->tree, &tree);
    if (r < 0)
        return r;
    if (rows_value(&tree.nodes[0].total, ask->measure) == 0) {
        command_fail(v->function ? "no stack that still counts has a function like '%s'"
                     : v->space  ? "no site has memory of the kind '%s'"
                                 : "nothing is held%s; --allocated shows what was asked for in all",
                     v->function ? v->function
                     : v->space  ? v->space
                                 : "");
        return COMMAND_NOTHING;
    }
    if (v->browse) {
        char who[PROFILE_WHO_MAX];
        r = flame_browse(&tree, ask->measure, profile_who(p, who), (enum term_color)v->view.color);
        return r == -ENOTTY ? command_fail("--browse needs a terminal") : r;
    }
    unsigned width = v->width ? (unsigned)v->width : term->tty ? term->width : 0;
    unsigned depth = v->depth < UINT16_MAX ? (unsigned)v->depth : 0;
    if (v->text || !width) {
        flame_text(&tree, ask->measure, depth, term, &out);
    } else {
        r = flame_lay_out(&tree, 0, ask->measure, width, depth, &flame);
        if (r < 0)
            return r;
        flame_append(&flame, term, &out);
    }
    buffer_append_char(&out, '\n');
    summary(ask, p, &tree, term, &out);
    return command_output(&out);
}

/* ---- running ---- */

static int run(const void *values, const struct operands *operands)
{
    const struct flame_values *v = values;
    MEMOIR_CLEANUP(ask_release)
    struct ask ask = {0};
    MEMOIR_CLEANUP(profile_freep)
    struct profile *p = NULL;
    int r = check(v, operands);
    if (r == COMMAND_OK)
        r = ask_parse(&ask, v);
    if (r == COMMAND_OK)
        r = command_check_dir(v->dir);
    if (r != COMMAND_OK)
        return r;
    if (v->view.where || v->view.sort || view_is_plain(&v->view))
        return view_process(&cmd_flame, "flame", &v->view, operands->words[0], v->dir, 0);
    struct term term;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->view.color);
    profile_source_init(&ask.source, v->dir, !v->no_names);
    ask.source.at_peak = v->at_peak;
    r = profile_source_take(&ask.source, operands->words[0], &p);
    if (r == COMMAND_OK)
        r = profile_source_name(&ask.source, p, PROFILE_NAMES_ALL);
    if (r != COMMAND_OK)
        return r;
    if (v->export != FORMAT_NONE)
        return write_out(&ask, p, operands->n > 1 ? operands->words[1] : NULL);
    return draw(&ask, p, &term);
}

const struct command cmd_flame = {
    .name = "flame",
    .usage =
        "flame [OPTION...] PID|NAME|FILE | flame --export FORMAT [OPTION...] PID|NAME|FILE [OUT]",
    .help = "the stacks that lead to a program's memory, as a picture",
    .description =
        "Draws the calls that lead to the memory of a process, each function as wide as what it and all "
        "that it called hold; or writes them for other tools. Takes what memoir sites takes: a process, "
        "all processes of a program, or a moment that memoir sites --save wrote. No daemon is needed.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .operands_max = 2,
    .takes_processes = true,
    .takes_files = true,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
