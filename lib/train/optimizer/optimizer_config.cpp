#include "train/optimizer/optimizer_config.h"

#include "config/load.h"
#include "config/schema.h"
#include "config/write.h"

namespace trainopt {

std::string Form<ParameterGroup>::type_text() { return "{parameters: [...], lr, weight_decay}"; }

Json Form<ParameterGroup>::schema(const Bounds&) {
  ParameterGroup group;
  Json map = map_schema(outline_of(group));
  map["required"] = Json::array({"parameters"});
  return map;
}

std::optional<ParameterGroup> Form<ParameterGroup>::read(const Value& value, const Location& location) {
  if (!value.is_map()) {
    location.problem(value, fmt::format("must be {}: {}", type_text(), display_text(value)));
    return std::nullopt;
  }
  const size_t problems_before = location.problems->size();
  ParameterGroup group;
  const Outline outline = outline_of(group);
  read_map(value, outline, location.key, {outline, *location.problems});
  if (location.problems->size() != problems_before) return std::nullopt;
  if (group.parameters.empty()) {
    location.problem(value, "needs parameters: the words that choose them, such as [bias]");
    return std::nullopt;
  }
  if (!group.lr && !group.weight_decay) {
    location.problem(value, "changes nothing: give lr, weight_decay or both");
    return std::nullopt;
  }
  return group;
}

Value Form<ParameterGroup>::write(const ParameterGroup& group) {
  ParameterGroup copy = group;
  return value_of(outline_of(copy));
}

}  // namespace trainopt
