// containers.cpp: what the standard containers ask of an allocator.
//
// Usage: bench_malloc_containers trees|texts PERCENT
//
// trees: map, set, unordered_map and list, whose nodes come and go one by one. texts: vectors of strings, split, joined,
// sorted and kept in tables, and a deque.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace
{

uint64_t state = UINT64_C(0x9e3779b97f4a7c15);

uint64_t next()
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state >> 16;
}

uint64_t trees(uint64_t keys)
{
    std::map<uint64_t, std::unique_ptr<uint64_t[]>> map;
    std::unordered_map<uint64_t, std::list<uint32_t>> lists;
    std::set<uint32_t> set;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < keys; i++) {
        uint64_t key = next() % (keys / 8 + 1);
        auto &place = map[key];
        if (place) {
            sum += place[0];
            map.erase(key);
        } else {
            place.reset(new uint64_t[1 + key % 12]);
            place[0] = i;
        }
        auto &list = lists[key % 4096];
        list.push_back(static_cast<uint32_t>(i));
        if (list.size() > 16)
            list.pop_front();
        set.insert(static_cast<uint32_t>(key));
        if (set.size() > keys / 16)
            set.erase(set.begin());
    }
    return sum + map.size() + lists.size() + set.size();
}

uint64_t texts(uint64_t lines)
{
    std::vector<std::string> words;
    std::unordered_map<std::string, std::vector<uint32_t>> index;
    std::deque<std::string> last;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < lines; i++) {
        std::string line;
        for (int w = 0; w < 8; w++) {
            line += "word" + std::to_string(next() % 20000 * 7919);
            line += ' ';
        }
        for (size_t at = 0, end; (end = line.find(' ', at)) != std::string::npos; at = end + 1) {
            std::string word = line.substr(at, end - at) + " of line and page";
            index[word].push_back(static_cast<uint32_t>(i));
            if (words.size() < 100000)
                words.push_back(word);
            else
                words[next() % words.size()] = word;
        }
        last.push_back(std::move(line));
        if (last.size() > 5000)
            last.pop_front();
        if (index.size() > 15000)
            index.clear();
    }
    for (const auto &word : words)
        sum += word.size();
    return sum + index.size() + last.size();
}

} // namespace

int main(int argc, char **argv)
{
    uint64_t percent = argc > 2 ? strtoull(argv[2], nullptr, 10) : 0;
    if (percent > 0 && strcmp(argv[1], "trees") == 0) {
        printf("%llu\n", static_cast<unsigned long long>(trees(9000 * percent)));
        return 0;
    }
    if (percent > 0 && strcmp(argv[1], "texts") == 0) {
        printf("%llu\n", static_cast<unsigned long long>(texts(1500 * percent)));
        return 0;
    }
    fprintf(stderr, "usage: bench_malloc_containers trees|texts PERCENT\n");
    return 2;
}
