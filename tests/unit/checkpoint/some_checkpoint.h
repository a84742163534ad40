// Small checkpoints for tests.
#pragma once

#include "checkpoint/draft.h"
#include "checkpoint/store.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <array>

namespace trainopt::test {

/// Saves two files whose bytes depend on `step` and `seed`.
inline std::filesystem::path save(const std::filesystem::path& root, int64_t step, int64_t seed = 0) {
  const std::array<int64_t, 3> values{step, seed, 7};
  CheckpointDraft draft(root, step, 64);
  draft.add_tensors("tensors.safetensors", {{"w", "I64", {3}, values.data(), sizeof(values)}});
  draft.add("state.json", fmt::format("{{\"step\": {}, \"seed\": {}}}\n", step, seed));
  return draft.commit(1, {{"trainopt", "0.1.0"}});
}

inline std::vector<int64_t> steps(const std::filesystem::path& root) {
  std::vector<int64_t> steps;
  for (const auto& checkpoint : list_checkpoints(root)) steps.push_back(checkpoint.step);
  return steps;
}

/// The message of the UserError that `call` throws, checked to have `code`; "" if it throws none.
template <class Call>
std::string error_of(ExitCode code, const Call& call) {
  try {
    call();
  } catch (const UserError& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "";
}

inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  return names_in_folder(folder, ExitCode::bug);
}

}  // namespace trainopt::test
