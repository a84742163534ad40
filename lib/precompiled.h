// Headers that nearly every compute file needs, parsed once. Do not include this file by hand: each file still includes
// what it uses.
#include "base/json.h"
#include "device/tensor.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>
