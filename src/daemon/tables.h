/* Tables of memoird that live beside their source. */
#pragma once

/* Make them known to the query core, before there are threads. 0; -EEXIST the second time. */
int tables_register(void);
