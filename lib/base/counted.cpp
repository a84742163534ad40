#include "base/counted.h"

namespace trainopt {

std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    text.insert(static_cast<size_t>(at), ",");
  return text;
}

std::string counted(int64_t number, std::string_view noun, std::string_view plural) {
  return with_commas(number) + " " + std::string(noun) + (number == 1 ? std::string() : std::string(plural));
}

}  // namespace trainopt
