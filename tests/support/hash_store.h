// libtorch's store for ranks that are threads of one process. Its header carries no promise, so tests include it here
// only.
#pragma once

#include "comm/c10d_store.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
