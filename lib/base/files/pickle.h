// Writes values in Python's pickle format, for files that Python programs read. Nothing here reads pickles.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trainopt {

/// Protocol 2 (PEP 307), which every Python 3 reads. Values are written in order; a list or a dictionary is open
/// between its begin and its end, and in a dictionary keys and values alternate.
class PickleWriter {
 public:
  PickleWriter();
  void none() { bytes_ += 'N'; }
  void boolean(bool value) { bytes_ += value ? "\x88" : "\x89"; }
  void integer(int64_t value);
  void text(std::string_view value);
  void begin_list() { bytes_ += "]("; }
  void end_list() { bytes_ += 'e'; }
  void begin_dictionary() { bytes_ += "}("; }
  void end_dictionary() { bytes_ += 'u'; }
  /// The finished pickle.
  std::string finish();

 private:
  void append_little_endian(uint64_t value, int bytes);

  std::string bytes_;
};

}  // namespace trainopt
