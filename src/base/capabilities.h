/* capabilities.h: giving up capabilities. */
#pragma once

/* Give up all of this process's capabilities, and see that it has none left. 0 or -errno. */
int capabilities_drop(void);
