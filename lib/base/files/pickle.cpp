#include "base/files/pickle.h"

#include <limits>
#include <utility>

namespace trainopt {

PickleWriter::PickleWriter() : bytes_("\x80\x02") {}

void PickleWriter::append_little_endian(uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xff);
}

void PickleWriter::integer(int64_t value) {
  if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max()) {
    bytes_ += 'J';
    append_little_endian(static_cast<uint64_t>(value), 4);
  } else {
    bytes_ += "\x8a\x08";  // LONG1 with eight bytes, two's complement
    append_little_endian(static_cast<uint64_t>(value), 8);
  }
}

void PickleWriter::text(std::string_view value) {
  bytes_ += 'X';
  append_little_endian(value.size(), 4);
  bytes_ += value;
}

std::string PickleWriter::finish() {
  bytes_ += '.';
  return std::exchange(bytes_, "\x80\x02");
}

}  // namespace trainopt
