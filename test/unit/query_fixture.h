/* query_fixture.h: a table of pets, so that tests of the query core depend on no ledger. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "check.h"
#include "query/query.h"

struct pet {
    const char *name, *kind; /* NULL: unknown */
    uint64_t weight;         /* bytes; UINT64_MAX: unknown, UINT64_MAX - 1: none */
    uint64_t age_s;
    uint64_t eaten, bowl; /* percent */
    uint32_t owner;
    bool tame;
};
#define PET_UNKNOWN UINT64_MAX
#define PET_NONE    (UINT64_MAX - 1)

static inline const struct pet *pet_of(const struct query_row *row)
{
    return row->custom;
}

static inline void pet_text(struct query_value *ret, const char *text)
{
    if (text)
        query_set_text(ret, text);
    else
        ret->state = QUERY_UNKNOWN;
}
static inline void pet_name(const struct query_world *world, const struct query_row *row,
                            const struct query_field *field, struct query_value *ret)
{
    pet_text(ret, pet_of(row)->name);
}
static inline void pet_kind(const struct query_world *world, const struct query_row *row,
                            const struct query_field *field, struct query_value *ret)
{
    pet_text(ret, pet_of(row)->kind);
}
static inline void pet_weight(const struct query_world *world, const struct query_row *row,
                              const struct query_field *field, struct query_value *ret)
{
    uint64_t weight = pet_of(row)->weight;
    if (weight == PET_UNKNOWN)
        ret->state = QUERY_UNKNOWN;
    else if (weight != PET_NONE)
        query_set_number(ret, weight);
}
/* The same as somebody guessed it. */
static inline void pet_guess(const struct query_world *world, const struct query_row *row,
                             const struct query_field *field, struct query_value *ret)
{
    pet_weight(world, row, field, ret);
    ret->marks = ret->state & QUERY_KNOWN ? QUERY_ESTIMATE : 0;
}
static inline void pet_age(const struct query_world *world, const struct query_row *row,
                           const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, pet_of(row)->age_s * NS_PER_S);
}
/* All years of interest for a few ages. */
static inline void pet_born(const struct query_world *world, const struct query_row *row,
                            const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, pet_of(row)->age_s * 1000003 * NS_PER_S + 7 * NS_PER_MS);
}
static inline void pet_full(const struct query_world *world, const struct query_row *row,
                            const struct query_field *field, struct query_value *ret)
{
    if (!pet_of(row)->bowl)
        return;
    query_set_number(ret, pet_of(row)->eaten);
    ret->per = pet_of(row)->bowl;
}
/* What it gained or lost of late: of both signs. */
static inline void pet_trend(const struct query_world *world, const struct query_row *row,
                             const struct query_field *field, struct query_value *ret)
{
    if (pet_of(row)->weight < PET_NONE)
        query_set_rate(ret, (int64_t)pet_of(row)->age_s * 1000 - 400000);
    else
        ret->state = QUERY_UNKNOWN;
}
/* Its meals of some days, which are not the same for all. */
static inline void pet_meals(const struct query_world *world, const struct query_row *row,
                             const struct query_field *field, struct query_value *ret)
{
    static _Thread_local struct query_point points[8];
    size_t n = pet_of(row)->age_s % 8;
    for (size_t i = 0; i < n; i++)
        points[i] =
            (struct query_point){(pet_of(row)->eaten + i) * 10 * NS_PER_S, pet_of(row)->age_s + i};
    if (pet_of(row)->bowl)
        query_set_points(ret, points, n);
}
static inline void pet_path(const struct query_world *world, const struct query_row *row,
                            const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char text[64];
    snprintf(text, sizeof(text), "home\n%.20s", pet_of(row)->kind ? pet_of(row)->kind : "yard");
    query_set_frames(ret, text);
}
static inline void pet_tame(const struct query_world *world, const struct query_row *row,
                            const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, pet_of(row)->tame);
}
/* Of several the average, and of one what it is. */
static inline void pet_speed(const struct query_world *world, const struct query_row *row,
                             const struct query_field *field, struct query_value *ret)
{
    if (pet_of(row)->bowl)
        query_set_number(ret, pet_of(row)->age_s);
}
static inline void pet_owner(const struct query_world *world, const struct query_row *row,
                             const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, pet_of(row)->owner);
}
static inline bool pet_owner_of(const struct query_row *row, uint32_t *ret_uid)
{
    *ret_uid = pet_of(row)->owner;
    return true;
}

static const struct query_column pet_columns[] = {
    {"name", "what it is called", QUERY_TEXT, .get = pet_name},
    {"kind", "cat, dog", QUERY_TEXT, .get = pet_kind},
    {"secret", "its name, for its owner", QUERY_TEXT, .flags = QUERY_PRIVATE, .get = pet_name},
    {"weight", "in bytes", QUERY_BYTES, .get = pet_weight},
    {"guess", "in bytes, about", QUERY_BYTES, .get = pet_guess},
    {"age", "how old", QUERY_AGE, .get = pet_age},
    {"born", "when", QUERY_TIME, .get = pet_born},
    {"full", "eaten of its bowl", QUERY_PERCENT, .get = pet_full},
    {"tame", "does it bite?", QUERY_YES, .get = pet_tame},
    {"trend", "what it gains in a second", QUERY_RATE, .get = pet_trend},
    {"meals", "what it ate, by day", QUERY_POINTS, .unit = "kg", .get = pet_meals},
    {"path", "how to get to it", QUERY_FRAMES, .get = pet_path},
    {"speed", "how fast", QUERY_NUMBER, QUERY_AVG, .get = pet_speed},
    {"owner", "whose", QUERY_NUMBER, QUERY_SAME, .get = pet_owner},
    {0},
};

static const struct query_table pet_table = {
    .name = "pets",
    .help = "one row for each pet",
    .columns = pet_columns,
    .show = "name,kind,weight",
    .show_by = "count,weight",
    .sort = "name",
    .owner = pet_owner_of,
};

static const struct query_world pet_world = {.sees_all = true};

static inline struct query *pet_query(const struct query_spec *spec)
{
    struct query *query = NULL;
    struct query_error error;
    if (query_new_over(&pet_table, spec, &query, &error) < 0)
        fail_msg("%s", error.text);
    return query;
}

static inline void pets_add(struct query_result *result, const struct pet *pets, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_true(query_result_add(result, &pet_world, &(struct query_row){.custom = &pets[i]}) >=
                    0);
}

/* The finished result as JSON, for free(). */
static inline char *result_text(struct query_result *result)
{
    struct buffer out = BUFFER_INIT(64 << 20);
    struct json json;
    assert_int_equal(query_result_finish(result), 0);
    json_init(&json, &out);
    json_object_begin(&json);
    query_result_json(result, &json);
    json_object_end(&json);
    assert_int_equal(json_finish(&json), 0);
    return buffer_take(&out);
}

/* Only its "rows". */
static inline char *rows_text(struct query_result *result)
{
    char *text = result_text(result);
    char *begin = strstr(text, "\"rows\":") + strlen("\"rows\":");
    char *end = strstr(begin, ",\"matched\"");
    *end = '\0';
    char *rows = strdup(begin);
    free(text);
    return rows;
}
