// What this machine can do, measured: how fast it multiplies, copies, exchanges and reads. Every rate is the best of
// several repetitions, because a peak is what nothing else disturbed.
#pragma once

#include "base/json.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

/// Peaks are valid for this machine and these versions only.
struct RooflineKey {
  std::string device;     ///< "AMD EPYC 9V74, 2 cores"; "NVIDIA H100 80GB HBM3, GPU-5b0c…"
  std::string libraries;  ///< "trainopt 1.0.0, libtorch 2.11.0, AVX2, CUDA 13.0"

  bool operator==(const RooflineKey&) const = default;
};

/// Square matrix products of one element type.
struct ProductPeak {
  double flops_per_s = 0;  ///< a multiply-add counts as two
  int64_t size = 0;        ///< rows and columns of the product with this rate
};

/// An exchange between all ranks of a job.
struct ExchangePeak {
  std::string collective;  ///< one of kCollectiveNames (comm/communicator.h)
  int64_t bytes = 0;       ///< the full tensor's bytes
  double seconds = 0;
  double sent_bytes_per_s = 0;  ///< bytes sent by each rank: the bus bandwidth of nccl-tests
};

/// The products of float32 whose factors are rounded to TF32.
inline constexpr const char* kRoundedFloat32 = "TF32";

struct Roofline {
  RooflineKey key;
  std::map<std::string, ProductPeak> products;      ///< peaks by element type: "float32", "TF32", "bfloat16", "float16"
  std::map<std::string, std::string> no_products;   ///< types that were not measured, and why
  std::optional<double> memory_bytes_per_s;         ///< a copy in the device's memory; bytes read and bytes written
  std::optional<double> pageable_copy_bytes_per_s;  ///< a copy from host to device; null on a CPU
  std::optional<double> pinned_copy_bytes_per_s;    ///< a copy from page-locked memory to device; null on a CPU
  std::optional<double> disk_read_bytes_per_s;      ///< one file, sequentially, not from the page cache
  std::optional<double> disk_write_bytes_per_s;     ///< including fsync
  std::string disk_folder;                          ///< where the disk was measured
  std::optional<double> operation_us;               ///< the host's time for a small operation of libtorch
  /// Time that one thread of the host takes to map a page that is used for the first time, and to unmap it.
  std::optional<double> page_fault_us;
  std::map<std::string, std::vector<ExchangePeak>> exchanges;  ///< peaks by job: "gloo, 2 ranks on 1 machine"
  double wall_s = 0;                                           ///< duration of the measurement
  /// Load by other processes meanwhile, in % of the cores; null: unknown.
  std::optional<double> other_load_pct;
};

/// What makes the peaks too low; empty if the machine was quiet, or if that is not known.
std::string disturbance(const Roofline& roofline);

Json to_json(const Roofline& roofline);
/// A table for people.
std::string roofline_text(const Roofline& roofline);

/// Where the measurement for `key` is kept. `cache`: the user's folder of caches, such as ~/.cache.
std::filesystem::path roofline_file(const std::filesystem::path& cache, const RooflineKey& key);
/// Null if nothing was measured for `key`, or if the file cannot be read.
std::optional<Roofline> stored_roofline(const std::filesystem::path& cache, const RooflineKey& key);
/// Replaces the file. Throws UserError(storage).
void store(const std::filesystem::path& cache, const Roofline& roofline);

// Peaks that vendors state.

/// FLOP/s of dense products of this element type ("float32", "TF32", "bfloat16", "float16") on the device with exactly
/// this name; null for any other. From NVIDIA's data sheets, whose figures with sparsity are halved.
std::optional<double> data_sheet_flops_per_s(std::string_view device, std::string_view type);

}  // namespace trainopt
