// JSON whose keys keep the order they were written in.
#pragma once

#include <nlohmann/json.hpp>

namespace trainopt {
using Json = nlohmann::ordered_json;
}
