// A program of tt-metal's, scripted: reads commands from standard input and answers each with "done" or what
// it asks for. `hold` in it must not be touched by anybody: it compares what the real functions saw.
//
//   buffer NAME DEVICE TYPE SIZE    make one; DEVICE is 0..3, "mesh" (1 and 2); TYPE 0..4
//   hooked NAME DEVICE SIZE         one that takes no memory (a capture without dispatch)
//   free NAME
//   threads N COUNT                 N threads make COUNT buffers of 100 bytes each on device 0, free all but one each
//   churn N KEEP                    hold N more buffers of 10 bytes on device 0, then give back all but KEEP at random
//   program NAME BASE CORES K,K.. C,C..   a program with kernels and circular buffers of these sizes
//   run NAME DEVICE                 compile, and lay out its circular buffers
//   drop NAME                       destroy the program
//   throw                           make a buffer, lay out and compile while the real functions throw
//   fork                            a child makes a buffer of 777 bytes, drops one of the parent's, and waits
//   counts                          what the real functions saw
//   end                             leave main with everything alive
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <iostream>
#include <map>
#include <random>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "tt_metal.hpp"

using namespace tt::tt_metal;

static Device devices[4] = {Device(0), Device(1), Device(2), Device(3)};
static std::map<std::string, std::shared_ptr<Buffer>> buffers;
static std::map<std::string, std::shared_ptr<detail::ProgramImpl>> programs;

static IDevice *device_of(const std::string &name)
{
    static distributed::MeshDevice mesh({&devices[1], &devices[2]});
    return name == "mesh" ? static_cast<IDevice *>(&mesh) : &devices[std::stoi(name)];
}

template <class T> static std::vector<T> list_of(const std::string &text)
{
    std::vector<T> list;
    std::istringstream in(text);
    for (std::string word; std::getline(in, word, ',');)
        if (std::stoull(word))
            list.push_back(std::stoull(word));
    return list;
}

// Not inlined: the test looks for it among the call sites.
__attribute__((noinline)) std::shared_ptr<Buffer> application_makes_a_buffer(IDevice *device, std::uint64_t size,
                                                                             BufferType type, bool hooked)
{
    auto buffer = Buffer::create(device, size, size, type, hooked);
    asm volatile("" ::: "memory");
    return buffer;
}

static void threads_run(int n, int count)
{
    static std::vector<std::shared_ptr<Buffer>> kept;
    std::vector<std::thread> threads;
    kept.resize(n);
    for (int i = 0; i < n; i++)
        threads.emplace_back([i, count] {
            for (int k = 0; k < count; k++)
                kept[i] = application_makes_a_buffer(&devices[0], 100, BufferType::DRAM, false);
        });
    for (auto &thread : threads)
        thread.join();
}

static void churn(std::size_t n, std::size_t keep)
{
    static std::vector<std::shared_ptr<Buffer>> held;
    static std::minstd_rand random(1);
    for (std::size_t i = 0; i < n; i++)
        held.push_back(application_makes_a_buffer(&devices[0], 10, BufferType::DRAM, false));
    while (held.size() > keep) {
        std::swap(held[random() % held.size()], held.back());
        held.pop_back();
    }
}

static int throw_through()
{
    GraphTracker &tracker = GraphTracker::instance();
    int caught = 0;
    auto attempt = [&](auto &&what) {
        try {
            what();
        } catch (const std::runtime_error &) {
            caught++;
        }
    };
    detail::ProgramImpl program({10}, {64}, 0x1000, 1);
    tracker.throws = true;
    attempt([] { application_makes_a_buffer(&devices[3], 5, BufferType::DRAM, false); });
    attempt([&] { program.allocate_circular_buffers(&devices[3]); });
    attempt([&] { program.compile(&devices[3]); });
    tracker.throws = false;
    return caught;
}

static void fork_child()
{
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        buffers.begin()->second.reset(); // the parent's
        buffers["child"] = application_makes_a_buffer(&devices[0], 777, BufferType::L1, false);
        std::cout << "child " << getpid() << std::endl;
        pause();
        _exit(0);
    }
}

static std::string answer(const std::string &word, std::istringstream &in)
{
    std::string name, device, kernels, cbs;
    std::uint64_t size = 0, base = 0;
    int type = 0, n = 0, count = 0;
    if (word == "buffer" && in >> name >> device >> type >> size)
        buffers[name] = application_makes_a_buffer(device_of(device), size, static_cast<BufferType>(type), false);
    else if (word == "hooked" && in >> name >> device >> size)
        buffers[name] = application_makes_a_buffer(device_of(device), size, BufferType::DRAM, true);
    else if (word == "free" && in >> name)
        buffers.erase(name);
    else if (word == "threads" && in >> n >> count)
        threads_run(n, count);
    else if (word == "churn" && in >> n >> count)
        churn(n, count);
    else if (word == "program" && in >> name >> base >> n >> kernels >> cbs)
        programs[name] = std::make_shared<detail::ProgramImpl>(list_of<std::size_t>(kernels),
                                                               list_of<std::uint64_t>(cbs), base, n);
    else if (word == "run" && in >> name >> device) {
        programs[name]->compile(device_of(device));
        programs[name]->allocate_circular_buffers(device_of(device));
    } else if (word == "drop" && in >> name)
        programs.erase(name);
    else if (word == "throw")
        return "caught " + std::to_string(throw_through());
    else if (word == "fork") {
        fork_child();
        return "forked";
    } else if (word == "counts") {
        GraphTracker &t = GraphTracker::instance();
        std::ostringstream out;
        out << "counts " << t.allocated << ' ' << t.freed << ' ' << t.cbs << ' ' << t.cb_frees << ' ' << t.compiled
            << ' ' << t.destroyed;
        return out.str();
    }
    return "done";
}

// In a library that a host loads privately, as Python does, this is no main.
#ifdef TT_MAIN
extern "C" int TT_MAIN()
#else
int main()
#endif
{
    std::cout << "ready " << getpid() << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream in(line);
        std::string word;
        in >> word;
        if (word == "end")
            break;
        std::cout << answer(word, in) << std::endl;
    }
    return 0;
}
