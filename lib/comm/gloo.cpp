// Gloo: collectives over TCP for CPU tensors. libtorch ships the library but not its headers, which come from the
// system.
#include "comm/process_groups.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace trainopt {

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                            const std::string& address, double timeout_s) {
  auto options =
      c10d::ProcessGroupGloo::Options::create(std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1e3)));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, ranks, options);
}

}  // namespace trainopt
