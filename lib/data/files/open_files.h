// Opens the files of a data set: remote ones several at a time, because each takes a few round trips to the server.
#pragma once

#include "base/threads.h"
#include "storage/data_files.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

/// What `open` makes of the DataFile of each name, in order. Throws the exception of the first file that fails.
template <class Open>
auto open_files(DataFiles& files, const std::vector<std::string>& names, Open open) {
  constexpr size_t kThreads = 16;
  std::vector<decltype(open(files.open(names.front())))> opened(names.size());
  std::vector<std::exception_ptr> failures(names.size());
  std::atomic<size_t> next{0};
  std::atomic<bool> has_failed{false};
  const auto work = [&] {
    for (size_t i = next++; i < names.size() && !has_failed; i = next++) try {
        opened[i] = open(files.open(names[i]));
      } catch (...) {
        failures[i] = std::current_exception();
        has_failed = true;
      }
  };
  with_helping_threads(is_remote(names.front()) && names.size() > 1 ? std::min(kThreads, names.size()) - 1 : 0, work);
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return opened;
}

}  // namespace trainopt
