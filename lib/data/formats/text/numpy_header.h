// The header of an array that NumPy saved (.npy):
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trainopt {

inline constexpr std::string_view kNumpyMagic = "\x93NUMPY";

/// An array of integers with one dimension.
struct NumpyArray {
  int64_t bits = 16;
  bool is_signed = false;
  int64_t count = 0;        ///< how many integers
  int64_t data_offset = 0;  ///< bytes before the first one
};

/// `start`: a file's first bytes, which begin with kNumpyMagic. Throws UserError(data), naming the file, for a header
/// that is damaged or longer than `start`, and for an array of other types, of another byte order or of other
/// dimensions.
NumpyArray numpy_array(std::string_view start, const std::string& name);

}  // namespace trainopt
