#include "statistics/sign_patterns.h"

#include "base/philox.h"

namespace trainopt {

size_t pattern_column(size_t element, size_t bits, uint64_t key) {
  if (element < bits) return size_t{1} << element;
  return 1 + PhiloxStream(key, element).next_below((uint64_t{1} << bits) - 1);
}

void walsh_hadamard(std::vector<double>& values) {
  for (size_t half = 1; half < values.size(); half *= 2)
    for (size_t begin = 0; begin < values.size(); begin += 2 * half)
      for (size_t i = begin; i < begin + half; ++i) {
        const double even = values[i], odd = values[i + half];
        values[i] = even + odd;
        values[i + half] = even - odd;
      }
}

}  // namespace trainopt
