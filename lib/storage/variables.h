// Environment variables, which app/ reads and passes on.
#pragma once

#include <map>
#include <string>

namespace trainopt {

using Variables = std::map<std::string, std::string>;  ///< by name

}  // namespace trainopt
