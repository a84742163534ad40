#include "base/json.h"

namespace trainopt {

Json parse_json(std::string_view text, bool allow_exceptions) { return Json::parse(text, nullptr, allow_exceptions); }

std::string json_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace trainopt
