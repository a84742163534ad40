// Opens the files of a data set: remote ones several at a time, because each takes a few round trips to the server.
#pragma once

#include "storage/data_files.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

namespace trainopt {

/// The files with this ending in `path`, or `path` itself, in order: each is what `open` makes of a DataFile. Throws
/// what `open` throws for the first file that it throws for.
template <class Open>
auto open_files(DataFiles& files, std::string_view ending, const std::string& path, Open open) {
  constexpr size_t kThreads = 16;
  const std::vector<std::string> names = files.ending_in(ending, path);
  std::vector<decltype(open(files.open(path)))> opened(names.size());
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
  {
    std::vector<std::jthread> threads;  // joined at the end
    try {
      for (size_t i = 1; i < std::min(kThreads, names.size()) && is_remote(path); ++i) threads.emplace_back(work);
    } catch (const std::system_error&) {  // named recovery: those that there are do the work
    }
    work();
  }
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return opened;
}

}  // namespace trainopt
