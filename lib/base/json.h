// JSON whose objects keep their keys in insertion order.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

// The class is compiled once, in json.cpp; Json::parse() and Json::dump(), which are templates, are functions here.
extern template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace trainopt {
using Json = nlohmann::ordered_json;

/// Throws Json::parse_error; without exceptions, returns a value for which is_discarded() is true.
Json parse_json(std::string_view text, bool allow_exceptions = true);
/// Bytes that are not UTF-8 are replaced. `indent`: spaces per level; -1: on one line.
std::string json_text(const Json& json, int indent = -1);

/// What is wrong, without the library's own identifiers: "key 'ratio' not found", "parse error at line 1, column 2".
std::string json_problem(const Json::exception& error);

/// Appends those `items` that the array `list` does not contain yet.
void append_new(Json& list, const Json& items);
}  // namespace trainopt
