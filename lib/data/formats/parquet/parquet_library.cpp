#include "data/formats/parquet/parquet_library.h"

#include "base/error.h"
#include "base/files/program_files.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <utility>

namespace trainopt {
namespace {

constexpr const char* kLibrary = "libtrainopt_parquet.so";

template <class Function>
Function* load(const char* name) {
  const std::filesystem::path path = library_of_program(kLibrary);
  if (path.empty())
    throw UserError(fmt::format("this program was built without Parquet: it has no {}", kLibrary), ExitCode::data);
  // Local: Arrow's symbols must not replace those of libtorch. Never closed, because Arrow has threads.
  if (void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))
    if (void* function = ::dlsym(library, name)) return reinterpret_cast<Function*>(function);
  throw UserError(fmt::format("Parquet files are read by Arrow, which cannot be loaded; install it with pip install "
                              "pyarrow=={}, or put its folder into LD_LIBRARY_PATH: {}",
                              TRAINOPT_PYARROW, ::dlerror()),
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
    throw UserError(fmt::format("this is no Parquet file, or it is damaged: {}: {}", name, readable(error.what())),
                    ExitCode::data);
  }
}

std::string readable(const char* message) {
  std::string text = message;
  for (char& c : text)
    if (c < ' ' || c > '~') c = ' ';
  text.erase(text.find_last_not_of(" .:") + 1);
  return text;
}

std::unique_ptr<ParquetOutput> create_parquet(ParquetSink sink) {
  static CreateParquet* const create = load<CreateParquet>(kCreateParquet);
  return create(std::move(sink));
}

}  // namespace trainopt
