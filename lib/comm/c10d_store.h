// libtorch's key-value stores, by which ranks find each other. Its headers carry no promise, so they are included here
// only.
#pragma once

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
