// The machine that a plan is for: this one, or one described on the command line (`plan --assume
// gpus=8,arch=sm_90,memory_gib=80`).
#pragma once

#include "comm/config.h"
#include "metrics/hardware/gpu_trouble.h"
#include "roofline/roofline.h"
#include "storage/config.h"

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

namespace trainopt {

struct Machine {
  std::string cpu;           ///< model name
  int cores = 1;             ///< cores that this process may use
  int64_t memory_bytes = 0;  ///< the machine's memory, or a smaller limit of this process; 0: not known
  int gpus = 0;
  std::string gpu;  ///< name of the GPU described below
  int sm = 0;       ///< its compute capability, 90 for sm_90; 0 without a GPU
  int64_t gpu_memory_bytes = 0;
  std::string gpu_uuid;
  std::string gpu_trouble;  ///< why no GPU, or not the one described here, can be used (metrics/hardware/gpu_trouble.h)
  std::string gpu_caution;  ///< what a user of the GPU described here should know
  GpuEvidence evidence;     ///< what these sentences come from
  Variables variables;      ///< environment variables AWS_… and HOME, for data in object storage
  bool assumed = false;     ///< described, not detected; nothing can be allocated on it
};

/// This machine, with the facts of its first GPU if there is one. `visible_devices`: CUDA_VISIBLE_DEVICES.
Machine detect_machine(const std::optional<std::string>& visible_devices = {});
/// `machine` with the facts of the GPU `device`; unchanged if `device` is the CPU.
Machine with_gpu_of(Machine machine, c10::Device device);

/// A machine and the position of its first rank.
struct AssumedJob {
  Machine machine;
  RankPosition position;
};
/// `machine` changed by assumptions such as "gpus=8,machines=2,ranks=16,arch=sm_90,memory_gib=80,cores=64"; memory_gib
/// is the memory of the GPU and of the machine, whichever trains. Without `ranks` there is one rank per GPU of each
/// machine. Throws UserError for unknown keys or invalid values.
AssumedJob assume(Machine machine, const std::string& assumptions);

// How fast a job's devices multiply at best, as measured by `trainopt roofline`.

struct PeakSpeed {
  double flops_per_s = 0;               ///< peak of all the job's devices, for products of its type; 0: not known
  std::string type;                     ///< the products' type, such as "float32"
  std::string unknown;                  ///< why it is not known
  std::optional<double> by_data_sheet;  ///< the measured rate as a share of the data sheet's; null: none is known

  std::optional<double> operation_us;      ///< the host's time for a small operation
  std::optional<Roofline> measured;        ///< all peaks of this machine; null: not measured
  std::optional<double> memory_bound_pct;  ///< memory-bound share of the model's least time by roofline; null: unknown

  /// Time of a step with these multiplications; null if the peak is not known.
  std::optional<double> least_ms(double flops) const {
    return flops_per_s > 0 ? std::optional(1e3 * flops / flops_per_s) : std::nullopt;
  }
};

}  // namespace trainopt
