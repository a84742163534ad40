// What a plan is made for: this machine, or one described on the command line (`plan --assume
// gpus=8,arch=sm_90,memory_gib=80`).
#pragma once

#include "comm/rank_position.h"

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace trainopt {

struct Machine {
  std::string cpu;  ///< model name
  int cores = 1;    ///< that this process may use
  int gpus = 0;
  std::string gpu;  ///< name of the one that facts are about
  int sm = 0;       ///< its compute capability, 90 for sm_90; 0 without a GPU
  int64_t gpu_memory_bytes = 0;
  bool assumed = false;  ///< described, not detected: nothing can be allocated on it
};

/// With the facts of its first GPU, if there is one.
Machine detect_machine();
/// The same machine with the facts of this GPU; unchanged for the CPU.
Machine with_gpu_of(Machine machine, c10::Device device);

/// A machine and the first of the ranks on it.
struct AssumedJob {
  Machine machine;
  RankPosition position;
};
/// `machine` with the assumptions "gpus=8,ranks=8,arch=sm_90,memory_gib=80,cores=64" put in; without `ranks` one on
/// each GPU. Throws UserError for other words.
AssumedJob assume(Machine machine, const std::string& assumptions);

}  // namespace trainopt
