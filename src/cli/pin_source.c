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
#include "query/document.h"

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

/* Null: there is no limit. */
static void limit_json(struct json *json, const char *key, uint64_t bytes)
{
    json_key(json, key);
    bytes == UINT64_MAX ? json_null(json) : json_u64(json, bytes);
}

static void times_json(struct json *json, const struct pin_state *s)
{
    json_field_double(json, "missed", (double)s->missed_ns / NS_PER_S);
    json_field_double(json, "saved", (double)s->saved_ns / NS_PER_S);
    json_field_double(json, "cost", (double)s->cost_ns / NS_PER_S);
    json_field_double(json, "staged_saved", (double)s->staged_saved_ns / NS_PER_S);
    if (s->mode == PIN_SHADOW)
        json_field_double(json, "observed", (double)s->observed_ns / (double)NS_PER_S);
}

static void state_json(struct json *json, const struct pin_state *s)
{
    const struct {
        const char *key;
        uint64_t value;
    } figures[] = {
        {"registered", s->registered_bytes},
        {"registered_peak", s->registered_peak},
        {"idle", s->idle_bytes},
        {"warm", s->warm_bytes},
        {"own_pinned", s->own_bytes},
        {"live", s->live_bytes},
        {"blocks", s->live_blocks},
        {"to_device_copies", s->copies[0]},
        {"from_device_copies", s->copies[1]},
        {"pinned_copies", s->pinned_copies},
        {"other_copies", s->other_copies},
        {"promotions", s->promotions},
        {"evictions", s->evictions},
        {"denied", s->denied},
        {"failures", s->failures + s->unregister_failed},
        {"pool_hits", s->pool_hits},
        {"waits", s->waits},
        {"staged_copies", s->staged_copies},
        {"staged", s->staged_bytes},
        {"staging_busy", s->stage_busy},
        {"staging_failures", s->stage_failed},
        {"touched_ahead", s->touched_bytes},
        {"touched_ahead_blocks", s->touched_blocks},
        {"touched_ahead_stopped", s->touch_stopped},
        {"not_shown_blocks", s->not_shown},
        {"mismatches", s->mismatches},
    };
    uint64_t kernel;
    json_field_u64(json, "pid", (uint64_t)s->pid);
    json_field_string(json, "mode", pin_mode_word((enum pin_mode)s->mode));
    times_json(json, s);
    limit_json(json, "budget", s->budget_bytes);
    limit_json(json, "headroom", s->headroom_bytes);
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
        json_field_u64(json, figures[i].key, figures[i].value);
    json_field_bool(json, "calibrated", s->calibrated);
    if (pin_kernel_pinned("/proc/vmstat", &kernel) == 0)
        json_field_u64(json, "kernel_pinned", kernel); /* of the whole machine */
}

static int print_json(const struct table *table, const char *schema, const char *rows,
                      const struct pin_state *s, struct buffer *out)
{
    struct json json;
    command_json_begin(&json, out, schema);
    if (s->magic)
        state_json(&json, s);
    table_json_rows(table, rows, &json);
    query_document_end(&json);
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
