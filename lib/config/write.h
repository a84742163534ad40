// Writes a config as text: the resolved recipe, which loads to an equal config.
#pragma once

#include "config/outline.h"

namespace trainopt {

Value value_of(const Outline& outline);
std::string yaml_text(const Value& map);
/// `value` on one line: [a, {b: c}].
std::string flow_text(const Value& value);
/// Plain scalars become booleans and numbers; quoted ones become strings.
Json json_of(const Value& value);

}  // namespace trainopt
