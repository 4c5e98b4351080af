/* Kinds and units of the figures of a document. See document.h. */
#include "query/document.h"

#include <assert.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"
#include "base/json_read.h"
#include "query/query.h"
#include "query/vocabulary.h"

enum { WORDS_MAX = 512 };

enum seen {
    NOT_SEEN,
    AS_SAID,   /* with the kind and unit of its word */
    AS_NUMBER, /* a time in seconds since 1970, or the number of something that has a name */
};

struct walk {
    struct json_read read;
    const struct query_word *words;
    uint8_t seen[WORDS_MAX]; /* enum seen, by word */
};

static bool is_figure(enum query_kind kind)
{
    switch (kind) {
    case QUERY_NUMBER:
    case QUERY_BYTES:
    case QUERY_AGE:
    case QUERY_PERCENT:
    case QUERY_SHARE:
    case QUERY_RATE:
    case QUERY_POINTS:
        return true;
    default:
        return false;
    }
}

static enum seen seen_as(const struct query_word *word, enum json_type type)
{
    bool figure = is_figure(word->kind);
    switch (type) {
    case JSON_NUMBER:
        return figure ? AS_SAID : word->kind == QUERY_TIME || word->listed ? AS_NUMBER : NOT_SEEN;
    case JSON_NULL:
        return figure ? AS_SAID : NOT_SEEN;
    case JSON_STRING:
        return word->kind == QUERY_TIME ? AS_SAID : NOT_SEEN;
    default:
        return NOT_SEEN;
    }
}

static const struct query_word *word_of(const struct json_text *key)
{
    char name[QUERY_NAME_MAX];
    return json_text_copy(key, name, sizeof(name)) < 0 ? NULL : query_word_find(name);
}

/* One value. `word`: of its key, or of the list that it is part of; NULL: there is none. */
static void walk_value(struct walk *walk, const struct query_word *word)
{
    struct json_read *read = &walk->read;
    struct json_text key;
    enum json_type type = json_read_peek(read);
    if (type == JSON_OBJECT) {
        json_read_object(read);
        while (json_read_key(read, &key))
            walk_value(walk, word && word->map ? word : word_of(&key));
        return;
    }
    if (type == JSON_ARRAY) {
        json_read_array(read);
        while (json_read_item(read))
            walk_value(walk, word);
        return;
    }
    json_read_skip(read);
    if (!word)
        return;
    uint8_t *seen = &walk->seen[word - walk->words];
    if (seen_as(word, type) > *seen)
        *seen = (uint8_t)seen_as(word, type);
}

static void column_put(struct json *json, const struct query_word *word, enum seen seen)
{
    struct query_column column = {.kind = word->kind, .unit = word->unit};
    if (seen == AS_NUMBER && word->kind == QUERY_TIME)
        column.unit = "seconds since 1970";
    else if (seen == AS_NUMBER)
        column.kind = QUERY_NUMBER;
    json_object_begin(json);
    json_field_string(json, "name", word->name);
    json_field_string(json, "kind", query_kind_name(column.kind));
    json_field_string(json, "unit", query_column_unit(&column));
    json_object_end(json);
}

void query_document_end(struct json *json)
{
    struct walk walk = {0};
    size_t n;
    walk.words = query_words(&n);
    assert(n <= WORDS_MAX);
    const struct buffer *out = json->out;
    if (!out->error && out->len > json->start) {
        /* The outermost object is open still: the walk ends with an error there. */
        json_read_init(&walk.read, out->data + json->start, out->len - json->start);
        walk_value(&walk, NULL);
    }
    json_key(json, "columns");
    json_array_begin(json);
    for (size_t i = 0; i < n; i++)
        if (walk.seen[i])
            column_put(json, &walk.words[i], (enum seen)walk.seen[i]);
    json_array_end(json);
    json_object_end(json);
}
