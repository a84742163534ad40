// What the parts in the slots are made from.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <optional>

namespace trainopt {

class Communicator;
class Model;
class ParameterStore;
struct Plan;

struct BuildContext {
  const Plan& plan;
  at::Device device;
  std::filesystem::path run_dir;         ///< where a part may write; empty if the run keeps nothing
  Communicator* communicator = nullptr;  ///< of the job's ranks; one rank has one too
  Model* model = nullptr;                ///< built, on `device`
  ParameterStore* parameters = nullptr;  ///< null while the store itself is being built
  const int64_t* steps_done =
      nullptr;  ///< of the run, also before it was resumed; one less than the step that is running
  std::optional<at::Generator> generator = std::nullopt;  ///< what the model draws from
};

}  // namespace trainopt
