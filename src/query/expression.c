/* Expressions of --where: parsing into a tree and evaluation. See plan.h and doc/query.md.
 *
 *     all   = or { "," or }           the comma binds least
 *     or    = and { "or" and }
 *     and   = not { "and" not }
 *     not   = "not" not | "(" all ")" | test
 *     test  = column [ op word ]      = != < <= > >= ~ !~
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "query/plan.h"
#include "query/value.h"

enum token_kind {
    TOKEN_END,
    TOKEN_WORD,   /* bare */
    TOKEN_QUOTED, /* never a keyword */
    TOKEN_OPEN,
    TOKEN_CLOSE,
    TOKEN_COMMA,
    TOKEN_OP,
};

struct token {
    enum token_kind kind;
    size_t at, len;   /* in the text */
    const char *word; /* of words: ended by NUL, quotes taken off */
    size_t word_len;
    enum node_op op;
};

enum { FIGURE_MAX = 64 }; /* of a figure with its unit */

struct parser {
    const struct query_table *table;
    const char *text;
    size_t pos;
    struct token token; /* the next one */
    struct expression e;
    size_t nodes_cap;
    size_t words_used;
    unsigned depth;
    struct query_error *error;
};

static int fail_at(struct parser *p, const struct token *token, const char *what)
{
    return query_fail(p->error, "where", token->at, token->len, "%s", what);
}

/* ---- tokens ---- */

static bool ends_word(char c)
{
    return !c || isspace((unsigned char)c) || strchr("(),=!<>~\"'", c);
}

static void put_word(struct parser *p, char c)
{
    p->e.words[p->words_used++] = c;
}

/* A quote begins a text that the same quote ends; inside, \ takes the next byte as it is. */
static int take_quoted(struct parser *p, struct token *token)
{
    char quote = p->text[p->pos++];
    token->kind = TOKEN_QUOTED;
    while (p->text[p->pos] != quote) {
        if (p->text[p->pos] == '\\' && p->text[p->pos + 1])
            p->pos++;
        if (!p->text[p->pos]) {
            token->len = p->pos - token->at;
            return fail_at(p, token, "this quote is never closed");
        }
        put_word(p, p->text[p->pos++]);
    }
    p->pos++;
    return 0;
}

static bool take_op(struct parser *p, struct token *token)
{
    static const struct {
        const char *text;
        enum node_op op;
    } ops[] = {/* longer ones first */
               {"!=", NODE_NE}, {"!~", NODE_UNLIKE}, {"<=", NODE_LE},
               {">=", NODE_GE}, {"==", NODE_EQ},     {"=", NODE_EQ},
               {"<", NODE_LT},  {">", NODE_GT},      {"~", NODE_LIKE}};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        size_t len = strlen(ops[i].text);
        if (strncmp(p->text + p->pos, ops[i].text, len) == 0) {
            token->kind = TOKEN_OP;
            token->op = ops[i].op;
            p->pos += len;
            return true;
        }
    }
    return false;
}

/* Read the next token into p->token. */
static int advance(struct parser *p)
{
    while (isspace((unsigned char)p->text[p->pos]))
        p->pos++;
    struct token token = {.at = p->pos, .len = 1};
    char c = p->text[p->pos];
    size_t word = p->words_used;
    int r = 0;
    if (!c) {
        token.kind = TOKEN_END;
    } else if (c == '(' || c == ')' || c == ',') {
        token.kind = c == '(' ? TOKEN_OPEN : c == ')' ? TOKEN_CLOSE : TOKEN_COMMA;
        p->pos++;
    } else if (c == '"' || c == '\'') {
        r = take_quoted(p, &token);
    } else if (!ends_word(c)) {
        token.kind = TOKEN_WORD;
        while (!ends_word(p->text[p->pos]))
            put_word(p, p->text[p->pos++]);
    } else if (!take_op(p, &token)) {
        return fail_at(p, &token, "'!' stands before = or ~ only; to turn a test round, write not");
    }
    if (r < 0)
        return r;
    token.len = token.kind == TOKEN_END ? 1 : p->pos - token.at;
    if (token.kind == TOKEN_WORD || token.kind == TOKEN_QUOTED) {
        token.word = p->e.words + word;
        token.word_len = p->words_used - word;
        put_word(p, '\0');
    }
    p->token = token;
    return 0;
}

static bool at_keyword(const struct parser *p, const char *word)
{
    return p->token.kind == TOKEN_WORD && strcasecmp(p->token.word, word) == 0;
}

/* ---- the tree ---- */

enum { NODES_MIN = 4 }; /* most expressions have fewer */

static int grow_nodes(struct parser *p)
{
    if (p->e.n < p->nodes_cap)
        return 0;
    size_t cap = p->nodes_cap ? 2 * p->nodes_cap : NODES_MIN;
    struct node *nodes = realloc(p->e.nodes, cap * sizeof(*nodes));
    if (!nodes)
        return -ENOMEM;
    p->e.nodes = nodes;
    p->nodes_cap = cap;
    return 0;
}

static int add_node(struct parser *p, const struct token *token, const struct node *node,
                    uint32_t *ret)
{
    if (p->e.n == QUERY_NODES_MAX)
        return fail_at(p, token, "this expression is too long");
    if (grow_nodes(p) < 0)
        return -ENOMEM;
    p->e.nodes[p->e.n] = *node;
    *ret = (uint32_t)p->e.n++;
    return 0;
}

static bool ordered(enum node_op op)
{
    return op != NODE_LIKE && op != NODE_UNLIKE;
}

/* Figures are shown with their unit apart, "1.5 GB", "3.2 ms" and "62.2 %", and may be typed so: does the word after this
 * one, which is the next token now, belong to it? Of other words only "and" and "or" can stand there, which are no units;
 * a second figure must not: "150 000" would be read as another number.
 * 1 if it does, 0 if not, -ERANGE if both are too large. */
static int takes_unit(const struct parser *p, enum query_kind kind, const struct token *figure,
                      uint64_t *ret_number)
{
    char whole[FIGURE_MAX];
    if (kind != QUERY_BYTES && kind != QUERY_AGE && !query_kind_is_part(kind) && kind != QUERY_RATE)
        return 0;
    if (figure->kind != TOKEN_WORD || p->token.kind != TOKEN_WORD)
        return 0;
    if (!isalpha((unsigned char)p->token.word[0]) && p->token.word[0] != '%')
        return 0;
    int len = snprintf(whole, sizeof(whole), "%s%s", figure->word, p->token.word);
    int r = len < FIGURE_MAX ? literal_parse(kind, whole, ret_number) : -EINVAL;
    return r == 0 ? 1 : r == -ERANGE ? r : 0;
}

/* What stands right of the operator. */
static int parse_value(struct parser *p, struct node *node)
{
    const struct query_column *column = node->field.column;
    const struct token figure = p->token, *token = &figure;
    if (token->kind != TOKEN_WORD && token->kind != TOKEN_QUOTED)
        return query_fail(p->error, "where", token->at, token->len, "expected %s",
                          literal_example(column->kind));
    node->text = token->word;
    node->len = (uint32_t)token->word_len;
    if (token->kind == TOKEN_WORD && strcmp(token->word, "none") == 0 &&
        (node->op == NODE_EQ || node->op == NODE_NE)) {
        node->op = node->op == NODE_EQ ? NODE_IS_NONE : NODE_IS_SOME;
        return advance(p);
    }
    if (kind_is_text(column->kind)) {
        node->pattern = strpbrk(token->word, "*?") != NULL;
        return advance(p);
    }
    int r = advance(p);
    if (r < 0)
        return r;
    r = takes_unit(p, column->kind, token, &node->number);
    if (r > 0)
        return advance(p);
    if (r == 0)
        r = literal_parse(column->kind, token->word, &node->number);
    if (r == -ERANGE)
        return fail_at(p, token, "this number is too large");
    if (r < 0) {
        struct query_error ignored;
        r = query_field_find(p->table, "where", token->at, token->word, token->word_len,
                             &node->other, &ignored);
        if (r < 0 || node->other.column->kind != column->kind || query_kind_is_part(column->kind) ||
            column->kind == QUERY_POINTS)
            return query_fail(p->error, "where", token->at, token->len,
                              "invalid value '%.60s' for %s: expected %s", token->word,
                              column->name, literal_example(column->kind));
    }
    return 0;
}

static int parse_test(struct parser *p, uint32_t *ret)
{
    struct token name = p->token;
    if (name.kind != TOKEN_WORD)
        return fail_at(p, &name,
                       name.kind == TOKEN_END ? "expected a column, found the end of the expression"
                                              : "expected a column");
    struct node node = {0};
    int r = query_field_find(p->table, "where", name.at, name.word, name.word_len, &node.field,
                             p->error);
    if (r == 0)
        r = advance(p);
    if (r < 0)
        return r;
    const struct query_column *column = node.field.column;
    if (p->token.kind != TOKEN_OP) {
        if (column->kind != QUERY_YES)
            return query_fail(p->error, "where", p->token.at, p->token.len,
                              "'%s' has to be compared with something: = != < <= > >= ~",
                              column->name);
        node.op = NODE_EQ;
        node.number = 1;
        return add_node(p, &name, &node, ret);
    }
    node.op = p->token.op;
    if (!ordered(node.op) && !kind_is_text(column->kind))
        return query_fail(p->error, "where", p->token.at, p->token.len,
                          "~ looks into texts, and %s is none; use = < >", column->name);
    r = advance(p);
    if (r == 0)
        r = parse_value(p, &node);
    return r < 0 ? r : add_node(p, &name, &node, ret);
}

static int parse_all(struct parser *p, uint32_t *ret);

static int parse_not(struct parser *p, uint32_t *ret)
{
    struct token token = p->token;
    bool negate = at_keyword(p, "not");
    if (!negate && token.kind != TOKEN_OPEN)
        return parse_test(p, ret);
    if (++p->depth > QUERY_DEPTH_MAX)
        return fail_at(p, &token, "this is nested too deep");
    int r = advance(p);
    if (r == 0)
        r = negate ? parse_not(p, ret) : parse_all(p, ret);
    if (r < 0)
        return r;
    p->depth--;
    if (negate)
        return add_node(p, &token, &(struct node){.op = NODE_NOT, .left = *ret}, ret);
    if (p->token.kind != TOKEN_CLOSE)
        return fail_at(p, &token, "this parenthesis is never closed");
    return advance(p);
}

static int join(struct parser *p, const struct token *token, enum node_op op, uint32_t right,
                uint32_t *left)
{
    return add_node(p, token, &(struct node){.op = op, .left = *left, .right = right}, left);
}

static int parse_and(struct parser *p, uint32_t *ret)
{
    int r = parse_not(p, ret);
    while (r == 0 && at_keyword(p, "and")) {
        struct token token = p->token;
        uint32_t right;
        r = advance(p);
        if (r == 0)
            r = parse_not(p, &right);
        if (r == 0)
            r = join(p, &token, NODE_AND, right, ret);
    }
    return r;
}

static int parse_or(struct parser *p, uint32_t *ret)
{
    int r = parse_and(p, ret);
    while (r == 0 && at_keyword(p, "or")) {
        struct token token = p->token;
        uint32_t right;
        r = advance(p);
        if (r == 0)
            r = parse_and(p, &right);
        if (r == 0)
            r = join(p, &token, NODE_OR, right, ret);
    }
    return r;
}

static int parse_all(struct parser *p, uint32_t *ret)
{
    int r = parse_or(p, ret);
    while (r == 0 && p->token.kind == TOKEN_COMMA) {
        struct token token = p->token;
        uint32_t right;
        r = advance(p);
        if (r == 0)
            r = parse_or(p, &right);
        if (r == 0)
            r = join(p, &token, NODE_AND, right, ret);
    }
    return r;
}

int expression_parse(const struct query_table *table, const char *text, struct expression *ret,
                     struct query_error *error)
{
    struct parser p = {.table = table, .text = text, .error = error};
    /* Every word is shorter than its token and ended by one more byte; a token has one at least. */
    p.e.words = malloc(2 * strlen(text) + 2);
    int r = p.e.words ? advance(&p) : -ENOMEM;
    uint32_t root;
    if (r == 0)
        r = parse_all(&p, &root);
    if (r == 0 && p.token.kind != TOKEN_END)
        r = fail_at(&p, &p.token,
                    p.token.kind == TOKEN_CLOSE
                        ? "this closes nothing"
                        : "expected 'and', 'or' or the end of the expression");
    if (r < 0) {
        expression_release(&p.e);
        return r;
    }
    *ret = p.e;
    return 0;
}

void expression_release(struct expression *e)
{
    free(e->nodes);
    free(e->words);
    *e = (struct expression){0};
}

/* ---- evaluation ---- */

static int compare_text(const struct query_value *value, const struct node *node)
{
    size_t len = value->len < node->len ? value->len : node->len;
    int order = len ? memcmp(value->text, node->text, len) : 0;
    return order ? order : (value->len > node->len) - (value->len < node->len);
}

static int compare_numbers(unsigned __int128 a, unsigned __int128 b)
{
    return (a > b) - (a < b);
}

static bool holds(enum node_op op, int order)
{
    switch (op) {
    case NODE_EQ:
        return order == 0;
    case NODE_NE:
        return order != 0;
    case NODE_LT:
        return order < 0;
    case NODE_LE:
        return order <= 0;
    case NODE_GT:
        return order > 0;
    default:
        return order >= 0;
    }
}

struct evaluation {
    const struct expression *e;
    const struct query_table *table;
    const struct query_world *world;
    const struct query_row *row;
    bool rough;
};

static enum truth test(const struct evaluation *ev, const struct node *node)
{
    const struct query_column *other = node->other.column;
    unsigned flags = node->field.column->flags | (other ? other->flags : 0);
    if (ev->rough && (flags & QUERY_DETAIL))
        return TRUTH_UNKNOWN;
    struct query_value value, against = {.number = node->number};
    value_of_field(ev->table, ev->world, ev->row, &node->field, &value);
    bool known = value.state & QUERY_KNOWN;
    if (node->op == NODE_IS_NONE || node->op == NODE_IS_SOME)
        return known == (node->op == NODE_IS_SOME) ? TRUTH_YES : TRUTH_NO;
    if (!known)
        return TRUTH_UNKNOWN;
    if (other) {
        value_of_field(ev->table, ev->world, ev->row, &node->other, &against);
        if (!(against.state & QUERY_KNOWN))
            return TRUTH_UNKNOWN;
    }
    if (node->op == NODE_LIKE || node->op == NODE_UNLIKE) {
        bool like = literal_like(value.text, value.len, node->text, node->len, node->pattern);
        return like == (node->op == NODE_LIKE) ? TRUTH_YES : TRUTH_NO;
    }
    int order;
    if (kind_is_text(node->field.column->kind))
        order = compare_text(&value, node);
    else if (node->field.column->kind == QUERY_RATE)
        order = ((int64_t)value.number > (int64_t)against.number) -
                ((int64_t)value.number < (int64_t)against.number);
    else if (query_kind_is_part(node->field.column->kind))
        order = compare_numbers((unsigned __int128)value.number * 1000000,
                                (unsigned __int128)against.number * value.per);
    else
        order = compare_numbers(value.number, against.number);
    return holds(node->op, order) ? TRUTH_YES : TRUTH_NO;
}

static enum truth eval(const struct evaluation *ev, uint32_t at)
{
    const struct node *node = &ev->e->nodes[at];
    switch (node->op) {
    case NODE_NOT: {
        enum truth t = eval(ev, node->left);
        return t == TRUTH_UNKNOWN ? t : t == TRUTH_YES ? TRUTH_NO : TRUTH_YES;
    }
    case NODE_AND:
    case NODE_OR: {
        enum truth decides = node->op == NODE_AND ? TRUTH_NO : TRUTH_YES;
        enum truth a = eval(ev, node->left);
        if (a == decides)
            return a;
        enum truth b = eval(ev, node->right);
        return b == decides || a != TRUTH_UNKNOWN ? b : a;
    }
    default:
        return test(ev, node);
    }
}

enum truth expression_eval(const struct expression *e, const struct query_table *table,
                           const struct query_world *world, const struct query_row *row, bool rough)
{
    struct evaluation ev = {e, table, world, row, rough};
    return e->n ? eval(&ev, (uint32_t)e->n - 1) : TRUTH_YES;
}
