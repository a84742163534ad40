// What the system says when it starts no more threads.
#pragma once

#include <exception>
#include <string>

namespace trainopt {

/// Whether the error is that of std::thread or std::async for want of threads.
bool is_out_of_threads(const std::exception& error);
/// One sentence with the limits of this user and of this control group.
std::string out_of_threads_text();

}  // namespace trainopt
