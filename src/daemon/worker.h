/* Moved to base, so that others than the daemon can use it. */
#pragma once

#include "base/worker.h"
