/* A library whose function is probed, with C frames between it and its callers. */
int probed(int argument);
int probed_by_wrapper(int argument);
int probed_call_back(int (*callback)(int), int argument);

static volatile int sink;

__attribute__((noinline)) int probed(int argument)
{
    sink += argument;
    return sink;
}

__attribute__((noinline)) int probed_by_wrapper(int argument)
{
    int r = probed(argument);
    sink++;
    return r;
}

__attribute__((noinline)) int probed_call_back(int (*callback)(int), int argument)
{
    int r = callback(argument);
    sink++;
    return r;
}
