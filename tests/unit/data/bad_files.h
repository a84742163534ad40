// Files of any bytes, and what is said of bad ones.
#pragma once

#include "base/error.h"
#include "support/catch.h"

#include <filesystem>
#include <fstream>
#include <string>

namespace trainopt::test {

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

/// The message of the UserError(data) that `f` throws.
template <class F>
std::string data_error(F f) {
  try {
    f();
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::data);
    return error.what();
  }
  return "no error";
}

}  // namespace trainopt::test
