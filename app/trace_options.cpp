#include "app/trace_options.h"

#include "base/error.h"
#include "base/units.h"

#include <CLI/CLI.hpp>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace trainopt {
namespace {

const std::map<std::string, trace::SortBy> kSortings = {{"cpu_self", trace::SortBy::cpu_self},
                                                        {"cpu_total", trace::SortBy::cpu_total},
                                                        {"device_self", trace::SortBy::device_self},
                                                        {"device_total", trace::SortBy::device_total},
                                                        {"calls", trace::SortBy::calls}};
const std::map<std::string, trace::GroupBy> kGroupings = {
    {"name", trace::GroupBy::name}, {"shape", trace::GroupBy::shape}, {"unit", trace::GroupBy::unit}};

/// Refuses a word that is not a key of `choices`, and names these.
template <class Value>
CLI::Option* add_choice(CLI::App& command, const char* option, const std::map<std::string, Value>& choices,
                        const std::function<void(Value)>& set, const char* help) {
  std::vector<std::string> words;
  for (const auto& [word, value] : choices) words.push_back(word);
  return command
      .add_option_function<std::string>(
          option, [&choices, set](const std::string& word) { set(choices.at(word)); }, help)
      ->check(CLI::IsMember(words))
      ->type_name("WORD");
}

int64_t bytes_from(const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes || bytes->count <= 0)
    throw UserError(fmt::format("--max-json must be a size such as 4GiB: {}", text), ExitCode::recipe);
  return bytes->count;
}

}  // namespace

void TraceOptions::add_to(CLI::App& command) {
  add_choice<trace::SortBy>(
      command, "--sort", kSortings, [this](trace::SortBy by) { view.sort = by; },
      "Order of the operations (default: device_self with a device, otherwise cpu_self)");
  command
      .add_option_function<size_t>(
          "--top", [this](size_t top) { view.top = top; },
          "Rows of operations, kernels and units (default: 15 in the text, otherwise all)")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  add_choice<trace::GroupBy>(
      command, "--group-by", kGroupings, [this](trace::GroupBy by) { analysis.group_by = by; },
      "What distinguishes operations besides the name: nothing, the input shapes or the unit of the model");
  command
      .add_option_function<int64_t>(
          "--step", [this](int64_t step) { analysis.step = step; }, "Only this step")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000'000'000}))
      ->type_name("N");
  command
      .add_option_function<std::string>(
          "--max-json", [this](const std::string& text) { analysis.most_bytes = bytes_from(text); },
          "Most JSON to read from a trace, unpacked")
      ->default_str("4GiB")
      ->type_name("SIZE");
}

}  // namespace trainopt
