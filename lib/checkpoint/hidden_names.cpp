#include "checkpoint/hidden_names.h"

#include "checkpoint/store.h"

#include <unistd.h>

#include <charconv>
#include <random>

namespace trainopt {
namespace {
constexpr std::string_view kStep = "step-", kReplaced = ".replaced.";
}

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:08}", kStep, step); }

std::optional<int64_t> step_of_name(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  int64_t step = -1;
  std::from_chars(name.data() + kStep.size(), name.data() + name.size(), step);
  if (step < 0 || checkpoint_name(step) != name) return std::nullopt;
  return step;
}

std::string hidden_name(int64_t step) {
  std::random_device random;
  return fmt::format(".{}.{}.{:08x}", checkpoint_name(step), ::getpid(), random());
}

bool is_hidden_name(std::string_view name) {
  if (!name.starts_with('.')) return false;
  name.remove_prefix(1);
  const size_t end = name.find('.');
  return end != name.npos && step_of_name(name.substr(0, end)).has_value();
}

std::string replaced_name(int64_t step) { return std::string(kReplaced) + checkpoint_name(step); }

std::optional<int64_t> step_of_replaced_name(std::string_view name) {
  if (!name.starts_with(kReplaced)) return std::nullopt;
  return step_of_name(name.substr(kReplaced.size()));
}

bool is_temporary_link(std::string_view name) {
  return name.starts_with(fmt::format(".{}.", kLatest)) && name.ends_with(".tmp");
}

}  // namespace trainopt
