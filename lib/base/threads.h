// Several threads for one piece of work, for a moment.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace trainopt {

/// Calls `work` on this thread and at the same time on `more` others, or on fewer if the system starts no more. Returns
/// when all have returned. `work` takes its share until nothing is left, and must not throw.
template <class Work>
void with_helping_threads(size_t more, const Work& work) {
  std::vector<std::jthread> threads;
  try {
    for (size_t i = 0; i < more; ++i) threads.emplace_back([&] { work(); });
  } catch (const std::system_error&) {  // named recovery: those that there are do the work
  }
  work();
}

// What the system says when it starts no more threads.

/// Whether the error is that of std::thread or std::async for want of threads.
bool is_out_of_threads(const std::exception& error);
/// One sentence with the limits of this user and of this control group.
std::string out_of_threads_text();

}  // namespace trainopt
