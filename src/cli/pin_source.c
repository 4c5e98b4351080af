/* pin_source.c: where `memoir pin` reads from, names of call sites, and printing. See pin.h. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "cli/pin.h"
#include "cli/process_word.h"
#include "pin/kernel_pinned.h"
#include "pin/settings.h"

const char *const pin_mode_words[] = {"auto", "use", "profile", "shadow", "off", NULL};
const struct pin_values pin_defaults = {.limit = 50};

static int state_open(const struct pin_values *v, const char *word, uint64_t pid,
                      struct pin_state **ret)
{
    struct stat info;
    char proc[32];
    snprintf(proc, sizeof(proc), "/proc/%u", (unsigned)pid);
    uint32_t uid = stat(proc, &info) == 0 ? info.st_uid : geteuid();
    int r = pin_state_read(v->dir, (pid_t)pid, uid, ret);
    if (r == 0)
        return COMMAND_OK;
    if (r == -ENOENT) {
        command_fail(
            "process %s shows no pinning: start it by memoir pin run; it shows up with its first copy to or from a device",
            word);
        return COMMAND_NOTHING;
    }
    return command_fail("cannot read the pinning of process %s: %s", word,
                        r == -EBADMSG ? "of another version, or damaged" : strerror(-r));
}

int pin_source_open(const struct command *command, const struct pin_values *v,
                    const struct operands *operands, bool histories, struct pin_state **ret)
{
    uint64_t pid;
    if (operands->n < 1)
        return command_misuse(command, histories ? "missing argument: PID or HISTORY"
                                                 : "missing argument: PID");
    const char *word = operands->words[0];
    if (process_word_pid(word, &pid))
        return state_open(v, word, pid, ret);
    if (!histories)
        return command_misuse(command, "'%s' is not a valid PID", word);
    int r = pin_history_read(word, ret);
    if (r < 0)
        return command_fail("cannot read the history '%s': %s", word,
                            r == -EBADMSG ? "not a history of memoir pin" : strerror(-r));
    return COMMAND_OK;
}

/* ---- the library ---- */

bool pin_library_find(char *ret_path, size_t size)
{
    static const char *const places[] = {"/../pin/", "/../" MEMOIR_LIBDIR "/", "/../lib/"};
    char self[PATH_MAX / 2], path[PATH_MAX], real[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0)
        return false;
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(path, sizeof(path), "%s%slibmemoir-cuda.so", self, places[i]);
        if (realpath(path, real) && strlen(real) < size) {
            strcpy(ret_path, real);
            return true;
        }
    }
    return false;
}

/* ---- printing ---- */

static int print_json(const struct table *table, const char *schema, const char *rows,
                      const struct pin_state *s, struct buffer *out)
{
    struct json json;
    uint64_t kernel;
    command_json_begin(&json, out, schema);
    if (s->magic) {
        json_key(&json, "pid");
        json_u64(&json, (uint64_t)s->pid);
        json_key(&json, "mode");
        json_string(&json, pin_mode_word((enum pin_mode)s->mode));
        const struct {
            const char *key;
            uint64_t value;
        } figures[] = {
            {"budget_bytes", s->budget_bytes},
            {"headroom_bytes", s->headroom_bytes},
            {"registered_bytes", s->registered_bytes},
            {"registered_peak_bytes", s->registered_peak},
            {"idle_bytes", s->idle_bytes},
            {"warm_bytes", s->warm_bytes},
            {"own_pinned_bytes", s->own_bytes},
            {"live_bytes", s->live_bytes},
            {"live_blocks", s->live_blocks},
            {"copies_to_device", s->copies[0]},
            {"copies_from_device", s->copies[1]},
            {"pinned_copies", s->pinned_copies},
            {"other_copies", s->other_copies},
            {"promotions", s->promotions},
            {"evictions", s->evictions},
            {"denied", s->denied},
            {"failures", s->failures + s->unregister_failed},
            {"pool_hits", s->pool_hits},
            {"waits", s->waits},
            {"staged_copies", s->staged_copies},
            {"staged_bytes", s->staged_bytes},
            {"staging_busy", s->stage_busy},
            {"staging_failures", s->stage_failed},
            {"touched_ahead_bytes", s->touched_bytes},
            {"touched_ahead_blocks", s->touched_blocks},
            {"touched_ahead_stopped", s->touch_stopped},
            {"not_shown_blocks", s->not_shown},
            {"mismatches", s->mismatches},
            {"calibrated", s->calibrated},
        };
        const struct {
            const char *key;
            uint64_t ns;
        } times[] = {
            {"missed", s->missed_ns},
            {"saved", s->saved_ns},
            {"cost", s->cost_ns},
            {"staged_saved", s->staged_saved_ns},
        };
        for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
            json_field_double(&json, times[i].key, (double)times[i].ns / NS_PER_S);
        if (s->mode == PIN_SHADOW)
            json_field_double(&json, "observed", (double)s->observed_ns / (double)NS_PER_S);
        for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
            json_key(&json, figures[i].key);
            json_u64(&json, figures[i].value);
        }
        if (pin_kernel_pinned("/proc/vmstat", &kernel) == 0) {
            json_key(&json, "kernel_pinned_bytes"); /* of the whole machine */
            json_u64(&json, kernel);
        }
    }
    table_json_rows(table, rows, &json);
    json_object_end(&json);
    int r = json_finish(&json);
    buffer_append_char(out, '\n');
    return r;
}

int pin_print(const struct pin_values *v, const struct table *table, const char *schema,
              const char *rows, const char *empty, const struct pin_state *state,
              const struct buffer *before)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(PIN_OUTPUT_MAX);
    struct table_layout layout = {.header = !v->no_header};
    struct term term;
    int r;
    if (v->json) {
        r = print_json(table, schema, rows, state, &out);
    } else if (v->csv) {
        r = table_print_csv(table, &layout, &out);
    } else {
        term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
        if (before)
            buffer_append(&out, before->data, before->len);
        r = table_print(table, &layout, &term, &out);
        if (table->n_rows == 0)
            fprintf(stderr, "memoir: %s\n", empty);
    }
    return r < 0 ? r : command_output(&out);
}
