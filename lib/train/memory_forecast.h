// The memory of a training step, known before the step and without its machine: the plan's own parts go through two
// steps on the meta device, where tensors have shapes but no memory.
#pragma once

#include "base/error.h"
#include "train/observe/memory_recorder.h"

#include <cstdint>
#include <string>
#include <vector>

namespace trainopt {

struct Plan;

/// An imported program has an operation whose shapes libtorch knows in Python only.
class NoForecast : public UserError {
 public:
  using UserError::UserError;
};

/// The peak of live tensors on one rank's device, with what is live then. Allocates no tensors and takes about a tenth
/// of a second. Included are copies, casts and gradients of activations as autograd creates and frees them, the
/// loader's slots if batches are read in place, and cuBLAS's work space. Not included: temporary memory within
/// libraries (oneDNN, cuDNN), recorded CUDA graphs, evaluation. Throws NoForecast.
MemoryPeak forecast_memory(const Plan& plan);

/// Bytes that tensors of one rank can take on the plan's device: the GPU's memory, or this rank's share of the
/// machine's. 0: not known.
int64_t memory_capacity(const Plan& plan);

/// A forecast held against the device.
struct MemoryForecast {
  MemoryPeak peak;
  int64_t capacity_bytes = 0;         ///< 0: not known
  std::vector<std::string> remedies;  ///< if it leaves no room: changes of the recipe with which it does

  bool fits() const { return takes_at_most(1); }
  /// Whether a tenth of the memory is left for the program, its libraries and other programs; a forecast may also be a
  /// few percent too low.
  bool leaves_room() const { return takes_at_most(kUsableShare); }

  static constexpr double kUsableShare = 0.9;

 private:
  bool takes_at_most(double share) const {
    return capacity_bytes == 0 ||
           static_cast<double>(peak.breakdown.total()) <= share * static_cast<double>(capacity_bytes);
  }
};

}  // namespace trainopt
