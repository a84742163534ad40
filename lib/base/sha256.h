// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104), by OpenSSL.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace trainopt {

using Sha256 = std::array<unsigned char, 32>;

Sha256 sha256(std::string_view bytes);
Sha256 hmac_sha256(std::string_view key, std::string_view bytes);

inline std::string_view text_of(const Sha256& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}
/// 64 hexadecimal digits.
std::string in_hex(const Sha256& digest);

/// Equal texts of equal length take as long as different ones, so that time does not tell how much of one was right.
bool equal_in_constant_time(std::string_view one, std::string_view other);
/// 32 hexadecimal digits: 128 bits that nobody can guess. Throws UserError(bug) if the system has none.
std::string random_key();

}  // namespace trainopt
