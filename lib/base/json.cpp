#include "base/json.h"

#include <algorithm>

template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace trainopt {

Json parse_json(std::string_view text, bool allow_exceptions) { return Json::parse(text, nullptr, allow_exceptions); }

std::string json_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string json_problem(const Json::exception& error) {
  const std::string text = error.what();  // "[json.exception.out_of_range.403] key 'ratio' not found"
  const size_t end = text.find("] ");
  const std::string problem = end == std::string::npos ? text : text.substr(end + 2);
  // What follows describes the parser's state.
  return dynamic_cast<const Json::parse_error*>(&error) ? problem.substr(0, problem.find(": ")) : problem;
}

void append_new(Json& list, const Json& items) {
  for (const auto& item : items)
    if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}

}  // namespace trainopt
