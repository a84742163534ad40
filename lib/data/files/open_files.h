// Opens the files of a data set: remote ones several at a time, because each takes a few round trips to the server.
#pragma once

#include "base/error.h"
#include "base/threads.h"
#include "storage/data_files.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

/// What `open` makes of the DataFile of each name, in order. Throws the exception of the first file that fails; if
/// several local files fail, it says how many.
template <class Open>
auto open_files(DataFiles& files, const std::vector<std::string>& names, Open open) {
  constexpr size_t kThreads = 16;
  std::vector<decltype(open(files.open(names.front())))> opened(names.size());
  std::vector<std::exception_ptr> failures(names.size());
  std::atomic<size_t> next{0};
  const bool are_remote = is_remote(names.front());
  std::atomic<bool> has_failed{false};
  const auto work = [&] {
    for (size_t i = next++; i < names.size() && !(are_remote && has_failed); i = next++) try {
        opened[i] = open(files.open(names[i]));
      } catch (...) {
        failures[i] = std::current_exception();
        has_failed = true;
      }
  };
  with_helping_threads(are_remote && names.size() > 1 ? std::min(kThreads, names.size()) - 1 : 0, work);
  const auto failed = std::count_if(failures.begin(), failures.end(), [](const auto& each) { return each != nullptr; });
  const auto first = std::find_if(failures.begin(), failures.end(), [](const auto& each) { return each != nullptr; });
  if (failed == 0) return opened;
  try {
    std::rethrow_exception(*first);
  } catch (const UserError& error) {
    if (failed == 1 || are_remote) throw;
    throw UserError(fmt::format("{}; {} of {} files cannot be read", error.what(), failed, names.size()), error.code());
  }
}

}  // namespace trainopt
