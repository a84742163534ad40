// JSON Schema of a recipe, for editors. Draft 7, because Red Hat's extension for YAML documents no newer one.
#pragma once

#include "config/outline.h"

namespace trainopt {

Json schema_of_outline(const Outline& outline, const std::string& title);
/// The schema of one map, without $schema and title.
Json map_schema(const Outline& outline);

}  // namespace trainopt
