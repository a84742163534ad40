#include "base/sha256.h"

#include "base/error.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

namespace trainopt {

Sha256 sha256(std::string_view bytes) {
  Sha256 digest;
  unsigned int length = 0;
  TRAINOPT_CHECK(EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr) == 1);
  return digest;
}

Sha256 hmac_sha256(std::string_view key, std::string_view bytes) {
  Sha256 digest;
  unsigned int length = 0;
  TRAINOPT_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data(),
                      &length) != nullptr);
  return digest;
}

std::string in_hex(const Sha256& digest) {
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

bool equal_in_constant_time(std::string_view one, std::string_view other) {
  return one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

std::string random_key() {
  std::array<unsigned char, 16> bits{};
  if (RAND_bytes(bits.data(), static_cast<int>(bits.size())) != 1)
    throw UserError("the system has no random numbers for the ranks' key", ExitCode::bug);
  std::string text;
  for (const unsigned char byte : bits) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace trainopt
