/* The functions are declared without their arguments: the table holds addresses. */
#include "standin/entry_table.h"

#define ENTRY(name, symbol, version) CUresult symbol(void);
#define TWIN(name, symbol, version, suffix, twin_version) \
    CUresult symbol(void);                                \
    CUresult symbol##_##suffix(void);
#include "standin/entries.h"
#undef ENTRY
#undef TWIN

const struct entry entry_table[] = {
#define ENTRY(name, symbol, version) {#name, symbol, NULL, version, 0},
#define TWIN(name, symbol, version, suffix, twin_version) \
    {#name, symbol, symbol##_##suffix, version, twin_version},
#include "standin/entries.h"
#undef ENTRY
#undef TWIN
};

const size_t entry_count = sizeof(entry_table) / sizeof(entry_table[0]);
