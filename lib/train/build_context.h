// The inputs from which the parts in the slots are built.
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
class RankGroups;
struct Plan;

struct BuildContext {
  const Plan& plan;
  at::Device device;
  std::filesystem::path run_dir = {};    ///< where a part may write; empty if the run has no folder
  Communicator* communicator = nullptr;  ///< between the job's ranks; also set with one rank
  Model* model = nullptr;                ///< already built, on `device`
  ParameterStore* parameters = nullptr;  ///< null while the store itself is being built
  const int64_t* steps_done = nullptr;   ///< of the run, including before a resume; the running step's number minus 1
  std::optional<at::Generator> generator = std::nullopt;  ///< for the model's random numbers
  Communicator* replicas = nullptr;  ///< between the ranks that hold the same parameters; without a pipeline all ranks
  RankGroups* groups = nullptr;      ///< with the communicators of a pipeline
};

}  // namespace trainopt
