/* Stacks as a tree of functions, and as a picture. */
#include "profile/tree.h"

#include <regex.h>

#include "base/buffer.h"
#include "base/json.h"
#include "cli/flame.h"
#include "profile/tree_json.h"
#include "profile_fixture.h"

static struct tree take(struct profile *p, struct tree_options options)
{
    struct tree t;
    assert_int_equal(tree_take(p, &options, &t), 0);
    return t;
}

/* "all(main(left(ask) right(ask)))", with what each holds. */
static void describe(const struct tree *t, uint32_t node, struct buffer *out)
{
    const struct tree_node *n = &t->nodes[node];
    buffer_printf(out, "%s=%llu", node ? profile_text(t->profile, n->name) : "all",
                  (unsigned long long)n->total.live_bytes);
    if (n->child == TREE_NONE)
        return;
    for (uint32_t c = n->child; c != TREE_NONE; c = t->nodes[c].sibling) {
        buffer_append_char(out, c == n->child ? '(' : ' ');
        describe(t, c, out);
    }
    buffer_append_char(out, ')');
}

static void assert_tree(const struct tree *t, const char *expected)
{
    struct buffer out = BUFFER_INIT(1 << 16);
    describe(t, 0, &out);
    assert_string_equal(buffer_string(&out), expected);
    buffer_release(&out);
}

static void functions_hold_what_they_called_holds(void **state)
{
    struct profile *p = fixture_program("build", 0);
    struct tree t = take(p, (struct tree_options){0});
    assert_tree(
        &t, "all=5596(__libc_start_main=5596(main=5596(right=4596(ask=500) left=1000(ask=1000))))");
    assert_int_equal(t.nodes[0].total.live_bytes, profile_total(p).live_bytes);
    assert_int_equal(t.nodes[0].total.alloc_blocks, profile_total(p).alloc_blocks);
    assert_int_equal(t.depth_max, 4);
    for (uint32_t i = 0; i < t.n; i++) { /* what is below and what is its own is all that it has */
        struct profile_figures sum = t.nodes[i].self;
        for (uint32_t c = t.nodes[i].child; c != TREE_NONE; c = t.nodes[c].sibling)
            profile_figures_add(&sum, &t.nodes[c].total);
        assert_memory_equal(&sum, &t.nodes[i].total, sizeof(sum));
    }
    tree_release(&t);
    profile_free(p);
}

static void inverted_it_begins_with_those_who_asked(void **state)
{
    struct profile *p = fixture_program("build", 0);
    struct tree t = take(p, (struct tree_options){.inverted = true, .space = MEMOIR_SPACE_HEAP});
    assert_tree(&t, "all=1500(ask=1500(left=1000(main=1000(__libc_start_main=1000)) "
                    "right=500(main=500(__libc_start_main=500))) main=0(__libc_start_main=0))");
    tree_release(&t);
    profile_free(p);
}

static void a_focus_begins_where_it_is_met(void **state)
{
    struct profile *p = fixture_program("build", 0);
    regex_t focus;
    assert_int_equal(regcomp(&focus, "^(left|ask)$", REG_EXTENDED | REG_NOSUB), 0);
    struct tree t = take(p, (struct tree_options){.focus = &focus});
    assert_tree(&t, "all=1500(left=1000(ask=1000) ask=500)");
    assert_int_equal(t.left_out.live_bytes, 4096);
    tree_release(&t);
    t = take(p, (struct tree_options){.focus = &focus, .inverted = true, .measure = ROWS_BLOCKS});
    assert_int_equal(t.nodes[t.nodes[0].child].total.live_blocks, 3);
    tree_release(&t);
    regfree(&focus);
    profile_free(p);
}

/* A call that was compiled into its caller is a function of its own. */
static void inlined_calls_are_levels(void **state)
{
    struct profile *p = profile_new();
    uint32_t m = fixture_module(p, "/bin/x", "id");
    uint32_t frame = profile_add_frame(p, m, 1);
    struct profile_line lines[] = {{.function = profile_add_string(p, "inner")},
                                   {.function = profile_add_string(p, "outer")}};
    profile_set_lines(p, frame, lines, 2);
    uint32_t bare = profile_add_frame(p, m, 0x20);
    fixture_site(p, (struct fixture_site){fixture_heap(p), 0, 7, 1, 7, 1, 1, {frame, bare}, 2});
    struct tree t = take(p, (struct tree_options){0});
    assert_tree(&t, "all=7(x+0x20=7(outer=7(inner=7)))");
    tree_release(&t);
    profile_free(p);
}

static void the_deepest_stacks_end_at_the_limit(void **state)
{
    struct profile *p = profile_new();
    uint32_t frames[PROFILE_STACK_MAX];
    uint32_t m = fixture_module(p, "/bin/x", "id");
    struct profile_line lines[8];
    for (uint32_t i = 0; i < 8; i++)
        lines[i] = (struct profile_line){.function = profile_add_string(p, "f")};
    for (uint32_t i = 0; i < PROFILE_STACK_MAX; i++) {
        frames[i] = profile_add_frame(p, m, i);
        profile_set_lines(p, frames[i], lines, 8);
    }
    struct profile_site site = {.account = fixture_heap(p), .figures = {9, 1, 9, 1}};
    profile_add_site(p, &site, frames, PROFILE_STACK_MAX);
    struct tree t = take(p, (struct tree_options){0});
    assert_int_equal(t.depth_max, TREE_DEPTH_MAX);
    assert_int_equal(t.nodes[t.n - 1].self.live_bytes, 9);
    struct term term = {.utf8 = true};
    struct buffer out = BUFFER_INIT(64 << 20);
    flame_text(&t, ROWS_LIVE, 0, &term, &out);
    assert_int_equal(out.error, 0);
    buffer_release(&out);
    tree_release(&t);
    profile_free(p);
}

/* ---- the picture ---- */

static const char *picture(struct profile *p, struct tree_options o, unsigned width, unsigned depth,
                           const struct term *term)
{
    static struct buffer out = {.limit = 1 << 20};
    struct flame flame;
    struct tree t = take(p, o);
    buffer_reset(&out);
    assert_int_equal(flame_lay_out(&t, 0, ROWS_LIVE, width, depth, &flame), 0);
    for (size_t row = 0; row < flame.n; row++) {
        unsigned at = 0;
        for (size_t i = 0; i < flame.rows[row].n; i++) { /* nothing overlaps or stands out */
            assert_true(flame.rows[row].cells[i].at >= at);
            at = flame.rows[row].cells[i].at + flame.rows[row].cells[i].columns;
            assert_true(at <= width);
        }
    }
    flame_append(&flame, term, &out);
    flame_release(&flame);
    tree_release(&t);
    return buffer_string(&out);
}

static void the_picture_is_as_wide_as_asked_for(void **state)
{
    struct profile *p = fixture_program("build", 0);
    struct term plain = {0};
    assert_string_equal(
        picture(p, (struct tree_options){.space = MEMOIR_SPACE_HEAP}, 30, 0, &plain),
        "|all  1.5 kB                  \n"
        "|__libc_start_main            \n"
        "|main  1.5 kB  100.0 %        \n"
        "|left               |right    \n"
        "|ask  1.0 kB  66.7 %|ask      \n");
    for (unsigned width = 1; width < 60; width++)
        assert_non_null(picture(p, (struct tree_options){0}, width, 0, &plain));
    profile_free(p);
}

static void the_depth_is_what_was_asked_for(void **state)
{
    struct profile *p = fixture_program("build", 0);
    struct term term = {.utf8 = true};
    assert_string_equal(picture(p, (struct tree_options){0}, 20, 2, &term),
                        "\xe2\x96\x8f"
                        "all  5.6 kB        \n"
                        "\xe2\x96\x8f__libc_start_main  \n");
    profile_free(p);
}

static void colours_are_those_of_modules(void **state)
{
    struct profile *p = fixture_program("build", 0);
    struct term term = {.color = true};
    const char *text = picture(p, (struct tree_options){0}, 40, 0, &term);
    assert_non_null(strstr(text, "\033[30;43m|main "));              /* the program holds most, */
    assert_non_null(strstr(text, "\033[30;46m|__libc_start_main ")); /* the library less */
    assert_non_null(strstr(text, "\033[30;43m program 100.0 % \033[0m\n"));
    profile_free(p);
}

static void lines_of_text_are_complete_but_for_crumbs(void **state)
{
    struct profile *p = fixture_program("build", 0);
    uint32_t m = fixture_module(p, "/usr/bin/program", "build");
    for (uint32_t i = 0; i < 3; i++)
        fixture_site(
            p, (struct fixture_site){
                   fixture_heap(p), 0, 1, 1, 1, 1, 1, {profile_add_frame(p, m, 0x9000 + i)}, 1});
    struct tree t = take(p, (struct tree_options){0});
    struct term term = {0};
    struct buffer out = BUFFER_INIT(1 << 16);
    flame_text(&t, ROWS_LIVE, 0, &term, &out);
    assert_string_equal(buffer_string(&out), "      5.6 kB  100.0 %  all\n"
                                             "      5.6 kB   99.9 %    __libc_start_main\n"
                                             "      5.6 kB   99.9 %      main\n"
                                             "      4.6 kB   82.1 %        right\n"
                                             "       500 B    8.9 %          ask\n"
                                             "      1.0 kB   17.9 %        left\n"
                                             "      1.0 kB   17.9 %          ask\n"
                                             "         3 B    0.1 %    ... 3 smaller\n");
    buffer_reset(&out);
    flame_text(&t, ROWS_LIVE, 2, &term, &out);
    assert_string_equal(buffer_string(&out), "      5.6 kB  100.0 %  all\n"
                                             "      5.6 kB   99.9 %    __libc_start_main\n"
                                             "         3 B    0.1 %    ... 3 smaller\n");
    buffer_release(&out);
    tree_release(&t);
    profile_free(p);
}

static void as_json_parents_come_first_and_names_are_there_once(void **state)
{
    struct profile *p = fixture_program("build", 0);
    struct tree t = take(p, (struct tree_options){0});
    struct buffer out = BUFFER_INIT(1 << 16);
    struct json json;
    json_init(&json, &out);
    json_object_begin(&json);
    assert_int_equal(tree_json(&t, &json), 0);
    json_object_end(&json);
    assert_int_equal(json_finish(&json), 0);
    const char *text = buffer_string(&out);
    assert_non_null(
        strstr(text, "\"values\":[\"bytes\",\"blocks\",\"allocated\",\"allocated_blocks\"]"));
    assert_non_null(strstr(text, "\"nodes\":[[-1,"));
    assert_non_null(strstr(text, "\"left_out\":0"));
    const char *ask = strstr(text, "\"ask\"");
    assert_non_null(ask); /* two nodes, one name */
    assert_null(strstr(ask + 1, "\"ask\""));
    const char *nodes = strstr(text, "\"nodes\":[[") + strlen("\"nodes\":[[");
    for (long number = 0; number < (long)t.n; number++) {
        long parent = strtol(nodes, NULL, 10);
        assert_true(number == 0 ? parent == -1 : parent >= 0 && parent < number);
        nodes = strchr(nodes, ']') + 3;
    }
    buffer_release(&out);
    tree_release(&t);
    profile_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_hold_what_they_called_holds),
        cmocka_unit_test(as_json_parents_come_first_and_names_are_there_once),
        cmocka_unit_test(inverted_it_begins_with_those_who_asked),
        cmocka_unit_test(a_focus_begins_where_it_is_met),
        cmocka_unit_test(inlined_calls_are_levels),
        cmocka_unit_test(the_deepest_stacks_end_at_the_limit),
        cmocka_unit_test(the_picture_is_as_wide_as_asked_for),
        cmocka_unit_test(the_depth_is_what_was_asked_for),
        cmocka_unit_test(colours_are_those_of_modules),
        cmocka_unit_test(lines_of_text_are_complete_but_for_crumbs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
