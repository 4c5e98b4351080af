// Services with a planted leak, in C++. Usage: service KIND leak|steady. Comments LINE:KIND mark what is to be named.
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

static constexpr size_t KEPT_MAX = 1000;
static bool steady;

struct Sessions {
    std::map<int, std::string> all;
    void add(int number)
    {
        all[number] = std::string(8000, 'x'); // LINE:map
        if (steady && all.size() > KEPT_MAX)
            all.erase(all.begin());
    }
};

struct Node {
    std::shared_ptr<Node> other;
    std::vector<char> data;
};

static std::deque<std::shared_ptr<Node>> recent;

static void cycle()
{
    auto one = std::make_shared<Node>(), other = std::make_shared<Node>();
    one->data.resize(8000); // LINE:cycle
    one->other = other;
    other->other = one;
    recent.push_back(one);
    if (recent.size() > 100) {
        if (steady)
            recent.front()->other->other.reset();
        recent.pop_front();
    }
}

static std::vector<std::string> lines;

static void log_line(int number)
{
    lines.push_back("request " + std::to_string(number) + std::string(8000, '.')); // LINE:strings
    if (steady && lines.size() > KEPT_MAX)
        lines.clear();
}

int main(int argc, char **argv)
{
    std::string kind = argc > 1 ? argv[1] : "";
    Sessions sessions;
    steady = argc > 2 && std::string(argv[2]) == "steady";
    for (int i = 0;; i++) {
        if (kind == "map")
            sessions.add(i);
        else if (kind == "cycle")
            cycle();
        else
            log_line(i);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}
