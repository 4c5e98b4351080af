/* Programs across nodes. See spread.h. */
#include "query/spread.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/sum.h"
#include "base/units.h"
#include "query/query.h"

/* Makes the median absolute deviation of a normal distribution its standard deviation. */
#define MAD_SCALE 1.4826
/* So many deviations from the median are far. */
#define FAR 3.5
/* So much of the median is noise: nodes that do the same work never hold the same. */
#define NOISE 0.5

const char *spread_odd_word(enum spread_odd odd)
{
    static const char *const words[] = {NULL, "grows", "more", "less"};
    return words[odd];
}

/* ---- which node is odd ---- */

static int by_number(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values. */
static double median_of(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), by_number);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* The median, and how far from it a value is odd. */
struct usual {
    bool known;
    double median, far;
};

static struct usual usual_of(const double *values, size_t n, double *scratch, double least)
{
    struct usual u = {.known = n >= SPREAD_NODES_LEAST};
    if (!u.known)
        return u;
    memcpy(scratch, values, n * sizeof(*values));
    u.median = median_of(scratch, n);
    for (size_t i = 0; i < n; i++)
        scratch[i] = fabs(values[i] - u.median);
    u.far = FAR * MAD_SCALE * median_of(scratch, n);
    u.far = fmax(u.far, NOISE * fabs(u.median));
    u.far = fmax(u.far, least);
    return u;
}

static double level_of(const struct spread_node *node)
{
    return (double)node->value / (double)(node->processes ? node->processes : 1);
}

static void judge_one(struct spread_node *node, const struct usual *level,
                      const struct usual *growth)
{
    double more = level->known ? level_of(node) - level->median : 0;
    node->odd = SPREAD_USUAL;
    if (growth->known && node->has_steady && node->steady - growth->median > growth->far)
        node->odd = SPREAD_GROWS;
    else if (level->known && fabs(more) > level->far)
        node->odd = more > 0 ? SPREAD_MORE : SPREAD_LESS;
    node->typical = node->odd == SPREAD_GROWS ? growth->median : level->median;
}

static int by_oddity(const void *a, const void *b)
{
    const struct spread_node *x = a, *y = b;
    if ((x->odd != SPREAD_USUAL) != (y->odd != SPREAD_USUAL))
        return x->odd != SPREAD_USUAL ? -1 : 1;
    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return strcmp(x->node, y->node);
}

void spread_judge(struct spread_program *p)
{
    size_t n = p->n, known = 0;
    double *levels = calloc(3 * n + 1, sizeof(*levels));
    p->n_odd = 0;
    if (!levels)
        return; /* no outliers, rather than no figures */
    double *growths = levels + n, *scratch = growths + n;
    for (size_t i = 0; i < n; i++) {
        levels[i] = level_of(&p->nodes[i]);
        if (p->nodes[i].has_steady)
            growths[known++] = p->nodes[i].steady;
    }
    struct usual level = usual_of(levels, n, scratch, SPREAD_LEVEL_LEAST);
    struct usual growth = usual_of(growths, known, scratch, SPREAD_GROWTH_LEAST);
    for (size_t i = 0; i < n; i++) {
        judge_one(&p->nodes[i], &level, &growth);
        p->n_odd += p->nodes[i].odd != SPREAD_USUAL;
    }
    free(levels);
    qsort(p->nodes, n, sizeof(*p->nodes), by_oddity);
}

/* Other nodes tell these figures: any may come. */
static uint64_t whole(double value)
{
    return value <= 0 ? 0 : value >= 0x1p63 ? UINT64_C(1) << 63 : (uint64_t)value;
}

const char *spread_why(const struct spread_node *node, char why[static SPREAD_WHY_MAX])
{
    char one[UNITS_TEXT_MAX], other[UNITS_TEXT_MAX];
    bool grows = node->odd == SPREAD_GROWS;
    units_format_bytes(one, whole(grows ? node->steady : level_of(node)), UNITS_DECIMAL);
    units_format_bytes(other, whole(node->typical), UNITS_DECIMAL);
    why[0] = '\0';
    if (grows)
        snprintf(why, SPREAD_WHY_MAX, "grows by %s/s, %s/s on other nodes", one, other);
    else if (node->odd != SPREAD_USUAL)
        snprintf(why, SPREAD_WHY_MAX, "holds %s%s, %s on other nodes", one,
                 node->processes > 1 ? " a process" : "", other);
    return why;
}

/* ---- from an answer ---- */

void spread_spec(const char *measure, const char *where, char show[static SPREAD_SHOW_MAX],
                 struct query_spec *ret_spec)
{
    snprintf(show, SPREAD_SHOW_MAX, "%.63s,growth,growth_steady,count", measure);
    *ret_spec = (struct query_spec){
        .table = "host", .by = "program,node", .where = where, .show = show, .sort = "program"};
}

enum { PROGRAM, NODE, MEASURE, GROWTH, STEADY, COUNT, OUTPUTS };

static bool has_outputs(const struct query *query)
{
    static const char *const names[OUTPUTS] = {"program", "node",          NULL,
                                               "growth",  "growth_steady", "count"};
    if (query_outputs(query) < OUTPUTS)
        return false;
    for (size_t i = 0; i < OUTPUTS; i++)
        if (names[i] && strcmp(query_output(query, i)->name, names[i]) != 0)
            return false;
    return true;
}

static bool take_rate(const struct query_value *value, double *ret_rate)
{
    bool known = value->state & QUERY_KNOWN;
    if (known)
        *ret_rate = (double)(int64_t)value->number / QUERY_RATE_SCALE;
    return known;
}

static const char *text_of(const struct query_value *value)
{
    return value->state & QUERY_KNOWN && value->text ? value->text : "?";
}

/* False: the node does not know the measure. */
static bool row_take(const struct query_result *result, size_t row, struct spread_node *ret)
{
    struct query_value cells[OUTPUTS];
    for (size_t i = 0; i < OUTPUTS; i++)
        cells[i] = query_result_value(result, row, i);
    if (!(cells[MEASURE].state & QUERY_KNOWN))
        return false;
    *ret = (struct spread_node){.node = text_of(&cells[NODE]),
                                .value = cells[MEASURE].number,
                                .processes = cells[COUNT].number};
    ret->has_growth = take_rate(&cells[GROWTH], &ret->growth);
    ret->has_steady = take_rate(&cells[STEADY], &ret->steady);
    return true;
}

static void program_add(struct spread_program *p, const struct spread_node *node)
{
    p->nodes[p->n++] = *node;
    sum_add(&p->total, node->value);
    sum_add(&p->processes, node->processes);
    p->has_growth |= node->has_growth;
    p->growth += node->has_growth ? node->growth : 0;
}

static int by_interest(const void *a, const void *b)
{
    const struct spread_program *x = a, *y = b;
    bool x_grows = x->n_odd && x->nodes[0].odd == SPREAD_GROWS;
    bool y_grows = y->n_odd && y->nodes[0].odd == SPREAD_GROWS;
    if (x_grows != y_grows)
        return x_grows ? -1 : 1;
    if (x->total != y->total)
        return x->total > y->total ? -1 : 1;
    return strcmp(x->program, y->program);
}

int spread_new(const struct query_result *result, const struct query *query,
               struct spread **ret_spread)
{
    size_t rows = query_result_rows(result), used = 0;
    if (!has_outputs(query))
        return -EINVAL;
    struct spread *s = calloc(1, sizeof(*s));
    if (s) {
        s->programs = calloc(rows + 1, sizeof(*s->programs));
        s->nodes = calloc(rows + 1, sizeof(*s->nodes));
    }
    if (!s || !s->programs || !s->nodes) {
        spread_free(s);
        return -ENOMEM;
    }
    for (size_t i = 0; i < rows; i++) { /* sorted by program */
        struct query_value name = query_result_value(result, i, PROGRAM);
        struct spread_program *p = s->n ? &s->programs[s->n - 1] : NULL;
        struct spread_node node;
        if (!row_take(result, i, &node))
            continue;
        if (!p || strcmp(p->program, text_of(&name)) != 0) {
            p = &s->programs[s->n++];
            p->program = text_of(&name);
            p->nodes = &s->nodes[used];
        }
        program_add(p, &node);
        used++;
    }
    for (size_t i = 0; i < s->n; i++)
        spread_judge(&s->programs[i]);
    qsort(s->programs, s->n, sizeof(*s->programs), by_interest);
    *ret_spread = s;
    return 0;
}

void spread_free(struct spread *s)
{
    if (!s)
        return;
    free(s->programs);
    free(s->nodes);
    free(s);
}

void spread_freep(struct spread **spread)
{
    spread_free(*spread);
}

/* ---- for programs ---- */

static void rate_json(struct json *json, const char *key, bool known, double rate)
{
    json_key(json, key);
    if (known)
        json_double(json, rate);
    else
        json_null(json);
}

static void node_json(struct json *json, const struct spread_node *node)
{
    char why[SPREAD_WHY_MAX];
    json_object_begin(json);
    json_field_string(json, "node", node->node);
    json_field_u64(json, "value", node->value);
    json_field_u64(json, "processes", node->processes);
    rate_json(json, "growth", node->has_growth, node->growth);
    rate_json(json, "growth_steady", node->has_steady, node->steady);
    json_field_string(json, "outlier", spread_odd_word(node->odd));
    json_field_string(json, "why", node->odd ? spread_why(node, why) : NULL);
    json_object_end(json);
}

void spread_json(const struct spread *s, size_t limit, size_t nodes_max, struct json *json)
{
    json_array_begin(json);
    for (size_t i = 0; i < s->n && i < limit; i++) {
        const struct spread_program *p = &s->programs[i];
        json_object_begin(json);
        json_field_string(json, "program", p->program);
        json_field_u64(json, "value", p->total);
        json_field_u64(json, "processes", p->processes);
        rate_json(json, "growth", p->has_growth, p->growth);
        json_field_u64(json, "nodes_total", p->n);
        json_field_u64(json, "outliers", p->n_odd);
        json_key(json, "nodes");
        json_array_begin(json);
        for (size_t k = 0; k < p->n && k < nodes_max; k++)
            node_json(json, &p->nodes[k]);
        json_array_end(json);
        json_object_end(json);
    }
    json_array_end(json);
}
