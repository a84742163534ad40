#include "base/error.h"
#include "device/process.h"

#include <string>

namespace trainopt {

void require_x86_64_v3() {
  std::string missing;
  const auto require = [&](bool supported, const char* name) {
    if (!supported) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  require(__builtin_cpu_supports("avx"), "AVX");
  require(__builtin_cpu_supports("avx2"), "AVX2");
  require(__builtin_cpu_supports("fma"), "FMA");
  require(__builtin_cpu_supports("bmi"), "BMI1");
  require(__builtin_cpu_supports("bmi2"), "BMI2");
  require(__builtin_cpu_supports("f16c"), "F16C");
  require(__builtin_cpu_supports("lzcnt"), "LZCNT");
  require(__builtin_cpu_supports("movbe"), "MOVBE");
  if (!missing.empty())
    throw UserError("this build needs an x86-64-v3 CPU (2013 or later, with AVX2), but this CPU lacks " + missing);
}

}  // namespace trainopt
