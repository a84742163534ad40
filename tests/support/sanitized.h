// Whether a sanitizer is in this build: code is several times larger and slower then, and memory is kept back.
#pragma once

namespace trainopt {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace trainopt
