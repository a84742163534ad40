#include "base/error.h"

namespace trainopt {

void broken_invariant(const char* file, int line, const std::string& what) {
  throw BrokenInvariant(fmt::format("{}:{}: broken invariant: {}", file, line, what));
}

}  // namespace trainopt
