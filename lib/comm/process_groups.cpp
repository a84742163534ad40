#include "comm/process_groups.h"

#include "base/error.h"
#include "comm/c10d_communicator.h"
#include "comm/c10d_store.h"
#include "device/cuda_library.h"
#include "device/cuda_table.h"

namespace trainopt {

std::unique_ptr<Communicator> connect_process_groups(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const ProcessGroupOptions& options, c10::Device device) {
  const int rank = static_cast<int>(options.position.rank), ranks = static_cast<int>(options.position.ranks);
  const auto part = [&](const char* name) { return c10::make_intrusive<c10d::PrefixStore>(name, store); };
  const auto gloo = [&](const char* name) {
    return make_gloo(part(name), rank, ranks, options.address, options.timeout_s);
  };
  auto data = c10::make_intrusive<c10d::ProcessGroup>(part("data"), rank, ranks);
  const auto type = device.is_cpu() ? c10d::ProcessGroup::BackendType::GLOO : c10d::ProcessGroup::BackendType::NCCL;
  data->setBackend(device.type(), type,
                   device.is_cpu() ? gloo("data") : make_nccl(part("data"), rank, ranks, options.timeout_s));
  data->setDefaultBackend(type);
  const ConnectAmong among = [store, options, device](const std::string& name, const RankPosition& position) {
    ProcessGroupOptions of_group = options;
    of_group.position = position;
    return connect_process_groups(c10::make_intrusive<c10d::PrefixStore>("among/" + name, store), of_group, device);
  };
  return std::make_unique<C10dCommunicator>(options.position, std::move(data), gloo("host"), among);
}

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                            double timeout_s) {
  if (cuda_table()) return cuda_table()->make_nccl(store, rank, ranks, timeout_s);
  throw UserError("parallel.backend: this process has no CUDA support, so it has no NCCL; use gloo");
}

}  // namespace trainopt
