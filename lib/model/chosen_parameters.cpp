#include "model/chosen_parameters.h"

#include "base/error.h"
#include "model/model.h"

#include <fmt/ranges.h>

namespace trainopt {
namespace {

bool fits(const std::string& word, const std::string& name, ParameterKind kind) {
  if (word == "norm") return kind == ParameterKind::norm;
  if (word == "embedding") return kind == ParameterKind::embedding;
  if (word == "bias") return name.ends_with("bias");
  return name == word || name.starts_with(word + ".");
}

/// The names of the parameters of the unit called `word`; empty if there is no such unit.
std::set<std::string> names_in_unit(const std::string& word, const Model& model) {
  std::set<std::string> names;
  for (size_t unit = 0; unit < model.units().size(); ++unit)
    if (model.units()[unit]->name() == word)
      for (const auto& [name, parameter] : model.unit_parameters(unit)) names.insert(name);
  return names;
}

}  // namespace

std::set<std::string> chosen_parameters(const Model& model, const std::vector<std::string>& words,
                                        const std::string& key) {
  const NamedTensors parameters = model.parameters();
  const std::vector<ParameterKind> kinds = model.parameter_kinds();
  std::set<std::string> chosen;
  for (const std::string& word : words) {
    const std::set<std::string> in_unit = names_in_unit(word, model);
    bool found = false;
    for (size_t i = 0; i < kinds.size(); ++i) {
      const std::string& name = parameters[i].first;
      if (!fits(word, name, kinds[i]) && !in_unit.contains(name)) continue;
      found = true;
      chosen.insert(name);
    }
    if (found) continue;
    std::vector<std::string> units;
    for (const auto& unit : model.units()) units.push_back(unit->name());
    throw UserError(
        fmt::format("{}: the model has no such unit or parameter; use norm, bias, embedding, a parameter such as {} or "
                    "one of the units {}: {}",
                    key, parameters.back().first, fmt::join(units, ", "), word));
  }
  return chosen;
}

}  // namespace trainopt
