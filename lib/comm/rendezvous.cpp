#include "comm/rendezvous.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "comm/within.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <thread>

namespace trainopt {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(20);
constexpr const char* kLocalAddress = "127.0.0.1";

[[noreturn]] void fail(const std::string& sentence) { throw UserError(sentence, ExitCode::peer); }

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

c10::intrusive_ptr<c10d::TCPStore> serve(const std::string& address, int port, double timeout_s) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = milliseconds(timeout_s);
  try {
    return c10::make_intrusive<c10d::TCPStore>(address, options);
  } catch (const std::exception& error) {  // named recovery: c10d has no specific exception type
    const std::string words = error.what();
    fail(words.find("EADDRINUSE") != std::string::npos || words.find("in use") != std::string::npos
             ? fmt::format("the port is in use; set another MASTER_PORT: {}", port)
             : fmt::format(
                   "rank 0 cannot listen at MASTER_ADDR and MASTER_PORT; check that they name this machine: {}:{}",
                   address, port));
  }
}

c10::intrusive_ptr<c10d::TCPStore> join(const std::string& address, int port, double timeout_s) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = milliseconds(timeout_s);
  try {
    // c10d's own timeout does not cover a server that accepts the connection and then stays silent.
    return within(timeout_s, [address, options] { return c10::make_intrusive<c10d::TCPStore>(address, options); });
  } catch (const std::exception&) {  // named recovery: c10d has no specific exception type
    fail(
        fmt::format("rank 0 could not be reached within {:g} s; check that it runs and that MASTER_ADDR and "
                    "MASTER_PORT are right: {}:{}",
                    timeout_s, address, port));
  }
}

std::filesystem::path port_file(const MeetingPoint& where) {
  return where.port_folder / fmt::format("trainopt-port-{}", where.job);
}

/// Rank 0 listens on a free port and writes its number to a file.
c10::intrusive_ptr<c10d::TCPStore> meet_by_file(const MeetingPoint& where) {
  const auto file = port_file(where);
  if (where.position.is_first()) {
    auto store = serve(kLocalAddress, 0, where.timeout_s);
    write_file(file, fmt::format("{}\n", store->getPort()));
    return store;
  }
  const auto began = Clock::now();
  for (; seconds_since(began) < where.timeout_s; std::this_thread::sleep_for(kPollInterval)) {
    if (!std::filesystem::exists(file)) continue;
    const int port = std::atoi(read_file(file, ExitCode::peer).c_str());
    if (port > 0) return join(kLocalAddress, port, where.timeout_s - seconds_since(began));
  }
  fail(fmt::format("rank 0 did not appear within {:g} s; check that it runs on this machine: no file {}",
                   where.timeout_s, file.string()));
}

}  // namespace

c10::intrusive_ptr<c10d::Store> meet(const MeetingPoint& where) {
  c10::intrusive_ptr<c10d::Store> store;
  if (!where.address)
    store = meet_by_file(where);
  else if (where.position.is_first() && !where.served_elsewhere)
    store = serve(*where.address, where.port, where.timeout_s);
  else
    store = join(*where.address, where.port, where.timeout_s);
  return c10::make_intrusive<c10d::PrefixStore>("trainopt/" + where.job, store);
}

}  // namespace trainopt
