/* What dlclose_lost.c loads and unloads: keeps a pointer in a variable of its own. */
void keep(void *p);

static void *kept;

__attribute__((visibility("default"))) void keep(void *p)
{
    kept = p;
}
