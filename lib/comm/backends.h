// The libraries that carry collectives, each in a file of its own.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>

namespace trainopt {

/// `address`: of this machine, by which the other ranks reach it. Meets them: every rank must call it.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks, const std::string& address, double timeout_s);

}  // namespace trainopt
