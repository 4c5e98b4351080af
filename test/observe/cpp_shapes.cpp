// C++ frames between the test and its leaf: virtual calls, lambdas, destructors, the standard library, exceptions on the way.
#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" int cpp_shapes(int depth, int (*leaf)(void *), void *context);

namespace {

struct Shape {
    virtual ~Shape() = default;
    virtual int go(int depth, int (*leaf)(void *), void *context) = 0;
};

int onward(int depth, int (*leaf)(void *), void *context)
{
    return depth == 0 ? leaf(context) : cpp_shapes(depth - 1, leaf, context);
}

struct Plain : Shape {
    std::string name = "a name that is too long for the short form";
    int go(int depth, int (*leaf)(void *), void *context) override
    {
        int r = onward(depth, leaf, context);
        return r + (name.empty() ? 1 : 0);
    }
};

struct Lambda : Shape {
    int go(int depth, int (*leaf)(void *), void *context) override
    {
        std::vector<int> values{1};
        std::function<int(int)> f = [&](int v) { return onward(depth, leaf, context) + v - v; };
        int r = 0;
        std::for_each(values.begin(), values.end(), [&](int v) { r = f(v); });
        return r;
    }
};

struct Guard {
    std::function<void()> at_end;
    ~Guard() { at_end(); }
};

struct Destructor : Shape {
    int go(int depth, int (*leaf)(void *), void *context) override
    {
        int r = 0;
        {
            Guard guard{[&] { r = onward(depth, leaf, context); }};
        }
        return r;
    }
};

struct Catch : Shape {
    int go(int depth, int (*leaf)(void *), void *context) override
    {
        try {
            throw std::runtime_error("on the way");
        } catch (const std::exception &e) {
            return onward(depth, leaf, context) + (e.what() ? 0 : 1);
        }
    }
};

} // namespace

extern "C" int cpp_shapes(int depth, int (*leaf)(void *), void *context)
{
    std::unique_ptr<Shape> shape;
    switch (depth % 4) {
    case 0:
        shape = std::make_unique<Plain>();
        break;
    case 1:
        shape = std::make_unique<Lambda>();
        break;
    case 2:
        shape = std::make_unique<Destructor>();
        break;
    default:
        shape = std::make_unique<Catch>();
    }
    return shape->go(depth, leaf, context);
}
