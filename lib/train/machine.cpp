#include "train/machine.h"

#include "base/error.h"
#include "device/device.h"
#include "device/process.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <sstream>

namespace trainopt {

Machine detect_machine(const std::optional<std::string>& visible_devices) {
  Machine machine;
  machine.cpu = device_facts(at::kCPU).name;
  machine.cores = allowed_cores();
  machine.memory_bytes = allowed_memory_bytes();
  machine.gpus = cuda_count();
  machine.evidence = gpu_evidence(visible_devices);
  // libtorch keeps the facts of each GPU, so that they can be reported after a fault too.
  for (int index = 0; index < machine.gpus; ++index)
    device_facts(at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index)));
  if (machine.gpus > 0) return with_gpu_of(machine, at::Device(at::kCUDA, 0));
  machine.gpu_trouble = gpu_trouble(machine.evidence);
  return machine;
}

Machine with_gpu_of(Machine machine, at::Device device) {
  if (!device.is_cuda()) return machine;
  const auto facts = device_facts(device);
  machine.gpu = facts.name;
  machine.sm = facts.sm_major * 10 + facts.sm_minor;
  machine.gpu_uuid = facts.uuid;
  machine.gpu_memory_bytes = facts.memory_bytes;
  machine.gpu_trouble = trouble_with(facts, machine.evidence);
  machine.gpu_caution = caution_about(facts, machine.evidence);
  return machine;
}

namespace {
int64_t whole_number(const std::string& assumption, std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number > 1000000)
    throw UserError(fmt::format("--assume needs a whole number from 0 to 1000000: {}", assumption));
  return number;
}
int64_t at_least_one(const std::string& assumption, std::string_view text) {
  const int64_t number = whole_number(assumption, text);
  if (number == 0) throw UserError(fmt::format("--assume needs at least 1: {}", assumption));
  return number;
}
/// Bytes in that many GiB.
int64_t gibibytes(const std::string& assumption, std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !(number > 0 && number <= 1e6))
    throw UserError(
        fmt::format("--assume needs a number above 0 and at most 1000000, such as 80 or 7.5: {}", assumption));
  return std::llround(std::ldexp(number, 30));
}
}  // namespace

AssumedJob assume(Machine machine, const std::string& assumptions) {
  machine.assumed = true;
  machine.gpu_trouble.clear();  // it describes this machine's GPUs
  machine.gpu_caution.clear();
  std::optional<int64_t> ranks;
  int64_t machines = 1;
  std::set<std::string> given;
  std::istringstream parts(assumptions);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t equals = part.find('=');
    const std::string key = part.substr(0, equals), value = equals == std::string::npos ? "" : part.substr(equals + 1);
    if (!given.insert(key).second) throw UserError(fmt::format("--assume has a key twice: {}", key));
    if (key == "gpus") {
      machine.gpus = static_cast<int>(whole_number(part, value));
    } else if (key == "arch") {
      machine.sm =
          static_cast<int>(at_least_one(part, value.starts_with("sm_") ? std::string_view(value).substr(3) : value));
    } else if (key == "memory_gib") {
      machine.gpu_memory_bytes = machine.memory_bytes = gibibytes(part, value);  // whichever trains
    } else if (key == "ranks") {
      ranks = at_least_one(part, value);
    } else if (key == "machines") {
      machines = at_least_one(part, value);
    } else if (key == "cores") {
      machine.cores = static_cast<int>(at_least_one(part, value));
    } else {
      throw UserError(fmt::format(
          "--assume knows gpus, ranks, machines, arch, memory_gib and cores, as in gpus=8,arch=sm_90,memory_gib=80: {}",
          part));
    }
  }
  const int64_t all = ranks.value_or(machines * std::max(1, machine.gpus));  // one per GPU
  if (all % machines != 0)
    throw UserError(fmt::format("--assume needs as many ranks on every machine: {} ranks, {} machines", all, machines));
  if (machine.gpus == 0) {
    machine.sm = 0;
    machine.gpu_memory_bytes = 0;
  } else {
    if (machine.sm == 0) machine.sm = 90;
    if (machine.gpu_memory_bytes == 0) machine.gpu_memory_bytes = int64_t{80} << 30;
    if (machine.gpu.empty()) machine.gpu = "GPU";
  }
  return {machine, {.rank = 0, .ranks = all, .local_rank = 0, .local_ranks = all / machines}};
}

}  // namespace trainopt
