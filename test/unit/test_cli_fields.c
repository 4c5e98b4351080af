/* Fields that commands print are called as the vocabulary says, like columns of tables (test_vocabulary.c). */
#include "check.h"
#include "cli/command.h"
#include "cli/table.h"
#include "query/vocabulary.h"

/* A change has the unit of what changes. */
static bool field_fits(const struct column *column, const struct query_word *word)
{
    static const enum query_kind kinds[] = {
        [COLUMN_TEXT] = QUERY_TEXT,     [COLUMN_NUMBER] = QUERY_NUMBER,
        [COLUMN_BYTES] = QUERY_BYTES,   [COLUMN_AGE] = QUERY_AGE,
        [COLUMN_YES] = QUERY_YES,       [COLUMN_TIME] = QUERY_TIME,
        [COLUMN_SHARE] = QUERY_SHARE,   [COLUMN_PERCENT] = QUERY_PERCENT,
        [COLUMN_CHANGE] = QUERY_NUMBER, [COLUMN_CHANGE_BYTES] = QUERY_BYTES,
        [COLUMN_RATE] = QUERY_RATE,     [COLUMN_RATE_BYTES] = QUERY_RATE,
    };
    enum query_kind kind = kinds[column->type];
    if (word->kind == QUERY_BYTES && kind == QUERY_NUMBER)
        return true; /* the screen shows it to the last digit */
    if (word->kind == QUERY_RATE && (kind == QUERY_BYTES || kind == QUERY_NUMBER))
        return true; /* on the screen its title says that it is a rate */
    return word->kind == kind || (word->also && word->also_kind == kind);
}

/* Fields of `command` that are figures without a word, or of another kind. Texts and yes or no need no unit. */
static size_t count_fields(const struct command *command, size_t *fields)
{
    size_t bad = 0;
    for (const struct command_fields *f = command->fields; f && f->title; f++)
        for (const struct column *c = f->columns; c->key; c++) {
            if (c->type == COLUMN_TEXT || c->type == COLUMN_YES || c->flags & COLUMN_SCREEN_ONLY)
                continue;
            const struct query_word *word = query_word_find(c->key);
            if (!word || !field_fits(c, word)) {
                print_error(
                    "field '%s' of memoir %s is not in src/query/vocabulary.c, or of another kind there\n",
                    c->key, command->name);
                bad++;
            }
            ++*fields;
        }
    for (const struct command *const *sub = command->parts; sub && *sub; sub++)
        bad += count_fields(*sub, fields);
    return bad;
}

static void every_field_of_a_command_is_called_as_the_vocabulary_says(void **state)
{
    size_t fields = 0, bad = 0;
    for (const struct command *const *c = commands; *c; c++)
        bad += count_fields(*c, &fields);
    assert_int_equal(bad, 0);
    assert_true(fields > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_of_a_command_is_called_as_the_vocabulary_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
