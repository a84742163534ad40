#include "data/parquet/parquet_library.h"

#include "base/error.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <utility>

namespace trainopt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libtrainopt_parquet.so";

/// In `lib` beside the program's folder or above it: so in an installation, a package and a build folder. Its plain
/// name if it is not there: the system's loader looks for it.
std::string find_library() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  for (fs::path folder = program.parent_path(); folder.has_relative_path(); folder = folder.parent_path())
    if (const fs::path found = folder / "lib" / kLibrary; fs::exists(found, error)) return found.string();
  return kLibrary;
}

template <class Function>
Function* load(const char* name) {
  // Local: Arrow's symbols must not replace those of libtorch. Never closed, because Arrow has threads.
  if (void* library = ::dlopen(find_library().c_str(), RTLD_NOW | RTLD_LOCAL))
    if (void* function = ::dlsym(library, name)) return reinterpret_cast<Function*>(function);
  throw UserError(fmt::format("Parquet files are read by Arrow, which cannot be loaded; install it with pip install "
                              "pyarrow==26.0.1, or put its folder into LD_LIBRARY_PATH: {}",
                              ::dlerror()),
                  ExitCode::data);
}

}  // namespace

std::unique_ptr<ParquetReader> open_parquet_reader(std::shared_ptr<const DataFile> file, int64_t memory_limit) {
  static OpenParquet* const open = load<OpenParquet>(kOpenParquet);
  const std::string name = file->name();
  try {
    return open(std::move(file), memory_limit);
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    throw UserError(fmt::format("this is no Parquet file, or it is damaged: {}: {}", name, error.what()),
                    ExitCode::data);
  }
}

std::unique_ptr<ParquetOutput> create_parquet(ParquetSink sink) {
  static CreateParquet* const create = load<CreateParquet>(kCreateParquet);
  return create(std::move(sink));
}

}  // namespace trainopt
