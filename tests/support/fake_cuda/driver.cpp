// libcuda.so.1 as far as the CUDA runtime needs it to count GPUs. The environment says what it plays:
//   FAKE_CUDA_VERSION  the version it reports, 13000 for 13.0 (the default)
//   FAKE_CUDA_INIT     the result of cuInit(), by default CUDA_ERROR_NO_DEVICE (100)
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

constexpr int kNotSupported = 801, kNoDevice = 100;

int from_environment(const char* name, int otherwise) {
  const char* const value = std::getenv(name);
  return value ? std::atoi(value) : otherwise;
}

int not_supported() { return kNotSupported; }

}  // namespace

extern "C" {

int cuInit(unsigned) { return from_environment("FAKE_CUDA_INIT", kNoDevice); }

int cuDriverGetVersion(int* version) {
  *version = from_environment("FAKE_CUDA_VERSION", 13000);
  return 0;
}

int cuGetExportTable(const void** table, const void*) {
  *table = nullptr;
  return kNotSupported;
}

int cuGetProcAddress_v2(const char* symbol, void** function, int, uint64_t, void*) {
  const std::string_view name(symbol);
  *function = name == "cuInit"               ? reinterpret_cast<void*>(cuInit)
              : name == "cuDriverGetVersion" ? reinterpret_cast<void*>(cuDriverGetVersion)
              : name == "cuGetExportTable"   ? reinterpret_cast<void*>(cuGetExportTable)
              : name == "cuGetProcAddress"   ? reinterpret_cast<void*>(cuGetProcAddress_v2)
                                             : reinterpret_cast<void*>(not_supported);
  return 0;
}
}
