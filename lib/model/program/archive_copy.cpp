#include "model/program/archive_copy.h"

#include "base/error.h"

#include <zip.h>

#include <memory>
#include <set>

namespace trainopt {
namespace {

struct Discard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
using Zip = std::unique_ptr<zip_t, Discard>;

[[noreturn]] void fail(const std::filesystem::path& to, const std::string& why) {
  throw UserError(fmt::format("cannot write {}: {}", to.string(), why), ExitCode::storage);
}

/// libzip's words for its error code.
std::string words_of(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  std::string words = zip_error_strerror(&error);
  zip_error_fini(&error);
  return words;
}

}  // namespace

void copy_archive(const ProgramArchive& from, const std::filesystem::path& to,
                  const std::map<std::string, std::string>& changed) {
  int code = 0;
  const Zip source(zip_open(from.path().c_str(), ZIP_RDONLY, &code));
  if (!source) from.refuse("it cannot be read");
  Zip copy(zip_open(to.c_str(), ZIP_CREATE | ZIP_EXCL, &code));
  if (!copy) fail(to, words_of(code));
  std::set<std::string> written;
  const zip_int64_t count = zip_get_num_entries(source.get(), 0);
  for (zip_int64_t index = 0; index < count; ++index) {
    const auto member = static_cast<zip_uint64_t>(index);
    const std::string name = zip_get_name(source.get(), member, 0);
    const size_t folder = name.find('/');
    const auto other = changed.find(folder == std::string::npos ? name : name.substr(folder + 1));
    zip_source_t* bytes = other == changed.end()
                              ? zip_source_zip(copy.get(), source.get(), member, 0, 0, -1)
                              : zip_source_buffer(copy.get(), other->second.data(), other->second.size(), 0);
    const zip_int64_t added = bytes == nullptr ? -1 : zip_file_add(copy.get(), name.c_str(), bytes, ZIP_FL_ENC_UTF_8);
    if (added < 0 && bytes != nullptr) zip_source_free(bytes);
    if (added < 0 || zip_set_file_compression(copy.get(), static_cast<zip_uint64_t>(added), ZIP_CM_STORE, 0) != 0)
      fail(to, zip_strerror(copy.get()));
    if (other != changed.end()) written.insert(other->first);
  }
  TRAINOPT_CHECK_EQUAL(written.size(), changed.size());
  if (zip_close(copy.get()) != 0) fail(to, zip_strerror(copy.get()));
  copy.release();
}

}  // namespace trainopt
