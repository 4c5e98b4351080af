// Memory whose line is not where malloc is called: containers that are compiled into their users, wrappers, constructors. Comments
// LINE:NAME mark the lines that are to be named; test_lines.py finds them there.
//
// Holds it all and waits for the end of its input.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#define ALONE __attribute__((noinline, noclone))

static std::map<int, std::string> sessions;
static std::vector<std::vector<int>> tables;
static std::vector<std::shared_ptr<std::string>> shared;
static std::vector<void *> kept;

ALONE static void session_add(int number)
{
    sessions[number] = std::string(3000, 'x'); // LINE:map
}

ALONE static void table_add(size_t n)
{
    tables.emplace_back(n); // LINE:vector
}

ALONE static void shared_add()
{
    shared.push_back(std::make_shared<std::string>(2000, 'y')); // LINE:shared
}

ALONE static void keep(void *block)
{
    memset(block, 1, 1);
    kept.push_back(block); // LINE:kept
}

// In the list of known wrappers.
ALONE static void *xmalloc(size_t size)
{
    void *block = malloc(size);
    if (!block)
        abort();
    return block;
}

ALONE static void line_read()
{
    keep(xmalloc(5000)); // LINE:xmalloc
}

// In no list: it is told by what it does.
ALONE static void *grab(size_t size)
{
    void *block = malloc(size);
    if (!block)
        exit(1);
    return block;
}

#define GRABS(name, size)                   \
    ALONE static void name()                \
    {                                       \
        keep(grab(size));                   \
    }
GRABS(grab_a, 1000)
GRABS(grab_b, 2500)
GRABS(grab_c, 6000)
GRABS(grab_d, 9000)
GRABS(grab_e, 14000)

ALONE static void grab_most()
{
    keep(grab(20000)); // LINE:grab
}

// As often called, but it makes one kind of thing, so it is the line that its author would name.
struct node {
    node *next;
    char text[4000];
};

ALONE static node *node_new(const char *text)
{
    node *n = (node *)malloc(sizeof(node)); // LINE:node
    if (!n)
        exit(1);
    snprintf(n->text, sizeof(n->text), "%s", text);
    n->next = nullptr;
    return n;
}

#define NODES(name)               \
    ALONE static void name()      \
    {                             \
        keep(node_new(#name));    \
    }
NODES(node_a)
NODES(node_b)
NODES(node_c)
NODES(node_d)
NODES(node_e)
NODES(node_f)

int main()
{
    for (int i = 0; i < 2000; i++) {
        session_add(i);
        table_add(1000);
        shared_add();
        line_read();
        grab_a(), grab_b(), grab_c(), grab_d(), grab_e(), grab_most();
        node_a(), node_b(), node_c(), node_d(), node_e(), node_f();
    }
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}
