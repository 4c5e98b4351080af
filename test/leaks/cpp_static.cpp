/* Containers that are filled before main begins: one is destroyed after it, one never is, on purpose. */
#include <map>
#include <string>
#include <vector>

#include "truth.hpp"

struct registry {
    std::vector<char *> entries;
    registry()
    {
        for (int i = 0; i < 10; i++)
            entries.push_back(NEW_ARRAY(char, 100)); /* HELD */
    }
};
static registry &names()
{
    static registry *all = NEW(registry); /* HELD */
    return *all;
}
static const bool filled = !names().entries.empty();
static std::map<std::string, std::string> settings = {
    {"name of a setting that is long", "value of a setting that is long"}};

static void step(int number)
{
    if (!filled || settings.empty())
        abort();
    names().entries[number % 10][0] = 1;
}

TRUTH_MAIN(step)
