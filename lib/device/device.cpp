#include "device/device.h"

#include "base/error.h"
#include "device/process.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <unistd.h>

#include <fstream>

namespace trainopt {
namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  return "unknown CPU";
}

}  // namespace

bool cuda_available() { return at::globalContext().hasCUDA(); }

int cuda_count() { return cuda_available() ? at::detail::getCUDAHooks().getNumGPUs() : 0; }

std::string why_too_old(const std::string& name, int sm) {
  return fmt::format(
      "the GPU is too old; use device: cpu or a newer GPU: {} is sm_{}, kernels exist from sm_{} (Turing)", name, sm,
      kMinSm);
}

c10::Device with_index(c10::Device device) {
  if (device.is_cpu() || device.has_index()) return device;
  return {device.type(), c10::impl::VirtualGuardImpl(device.type()).getDevice().index()};
}

DeviceFacts device_facts(c10::Device device) {
  if (device.is_cpu()) {
    DeviceFacts facts;
    facts.name = cpu_name();
    facts.memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
    facts.multiprocessors = allowed_cores();
    return facts;
  }
  const int count = cuda_count();
  if (!device.is_cuda() || count == 0 || device.index() >= count)
    throw UserError(fmt::format("device {} is not available: this process sees {} GPU{}", device.str(), count,
                                count == 1 ? "" : "s"));
  return gpu_facts(with_index(device).index());
}

at::Generator make_generator(c10::Device device, uint64_t seed) {
  if (device.is_cpu()) return at::detail::createCPUGenerator(seed);
  at::Generator generator =
      at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
  generator.set_current_seed(seed);
  return generator;
}

void use_device(c10::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).setDevice(with_index(device));
}

void synchronize(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(with_index(device).index());
}

}  // namespace trainopt
