#include "device/facts.h"

#include "base/error.h"

namespace trainopt {

DeviceFacts gpu_facts(int index) {
  throw UserError(fmt::format("this build has no GPU support, so cuda:{} cannot be used", index));
}

std::string gpu_trouble() { return {}; }

}  // namespace trainopt
