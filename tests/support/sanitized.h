// Whether this build has a sanitizer, which makes code several times larger and slower and delays the reuse of memory.
#pragma once

namespace trainopt {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace trainopt
