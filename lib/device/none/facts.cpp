#include "device/facts.h"

#include "base/error.h"

namespace trainopt {

DeviceFacts gpu_facts(int index) {
  throw UserError(fmt::format("this build has no GPU support, so cuda:{} cannot be used", index));
}

const CudaStart& start_cuda() {
  static const CudaStart start;
  return start;
}

}  // namespace trainopt
