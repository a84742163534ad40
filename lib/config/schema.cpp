#include "config/schema.h"

#include "config/write.h"

namespace trainopt {
namespace {

Json schema_of(const Option& option) {
  Json schema;
  switch (option.kind) {
    case Option::Kind::value:
      schema = option.schema();
      schema["default"] = json_of(option.write());
      break;
    case Option::Kind::section:
      schema = map_schema(option.options);
      break;
    case Option::Kind::toggle:
      schema = {{"anyOf", Json::array({Json{{"type", "boolean"}}, map_schema(option.options)})},
                {"default", *option.on}};
      break;
    case Option::Kind::variant:
      schema = {{"enum", alternative_names(option)}};
      break;
  }
  schema["description"] = option.help;
  return schema;
}

void add_properties(const Outline& outline, Json& properties) {
  for (const Option& option : outline) {
    const Json schema = schema_of(option);
    properties[option.name] = schema;
    for (const auto& alias : option.aliases) {
      properties[alias] = schema;
      properties[alias]["description"] = "Alias of " + option.name + ". " + option.help;
      // An editor offers and shows names that are marked so last; validators pass over the two words.
      properties[alias]["deprecated"] = true;
      properties[alias]["deprecationMessage"] = "another name of " + option.name;
    }
  }
}

Json closed_map(const Json& properties) {
  return {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
}

}  // namespace

Json map_schema(const Outline& outline) {
  Json shared = Json::object();
  add_properties(outline, shared);
  const Option* variant = nullptr;
  for (const Option& option : outline)
    if (option.kind == Option::Kind::variant) {
      TRAINOPT_CHECK(variant ==
                     nullptr);  // one variant per map; two would need a schema for every pair of alternatives
      variant = &option;
    }
  if (!variant) return closed_map(shared);

  Json alternatives = Json::array();
  for (size_t i = 0; i < variant->alternatives.size(); ++i) {
    const auto& alternative = variant->alternatives[i];
    Json properties = shared;
    properties[variant->name] = {{"const", alternative.name}, {"description", variant->help}};
    add_properties(alternative.options, properties);
    Json map = closed_map(properties);
    if (i != variant->current()) map["required"] = Json::array({variant->name});  // the default needs no name
    alternatives.push_back(std::move(map));
  }
  return {{"oneOf", alternatives}};
}

Json schema_of_outline(const Outline& outline, const std::string& title) {
  Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", title}};
  schema.update(map_schema(outline));
  return schema;
}

}  // namespace trainopt
