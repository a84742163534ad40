#include "comm/rendezvous.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "comm/with_timeout.h"

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
    return with_timeout(timeout_s,
                        [address, options] { return c10::make_intrusive<c10d::TCPStore>(address, options); });
  } catch (const std::exception&) {  // named recovery: c10d has no specific exception type
    fail(
        fmt::format("rank 0 could not be reached within {:g} s; check that it runs and that MASTER_ADDR and "
                    "MASTER_PORT are right: {}:{}",
                    timeout_s, address, port));
  }
}

std::filesystem::path port_file(const RendezvousOptions& options) {
  return options.port_folder / fmt::format("trainopt-port-{}", options.job);
}

/// Rank 0 listens on a free port and writes its number to a file.
c10::intrusive_ptr<c10d::TCPStore> join_by_port_file(const RendezvousOptions& options) {
  const auto file = port_file(options);
  if (options.position.is_first()) {
    auto store = serve(kLocalAddress, 0, options.timeout_s);
    write_file(file, fmt::format("{}\n", store->getPort()));
    return store;
  }
  const auto began = Clock::now();
  for (; seconds_since(began) < options.timeout_s; std::this_thread::sleep_for(kPollInterval)) {
    if (!std::filesystem::exists(file)) continue;
    const int port = std::atoi(read_file(file, ExitCode::peer).c_str());
    if (port > 0) return join(kLocalAddress, port, options.timeout_s - seconds_since(began));
  }
  fail(fmt::format("rank 0 did not appear within {:g} s; check that it runs on this machine: no file {}",
                   options.timeout_s, file.string()));
}

}  // namespace

Rendezvous join_rendezvous(const RendezvousOptions& options) {
  c10::intrusive_ptr<c10d::TCPStore> store;
  if (!options.address)
    store = join_by_port_file(options);
  else if (options.position.is_first() && !options.external_store)
    store = serve(*options.address, options.port, options.timeout_s);
  else
    store = join(*options.address, options.port, options.timeout_s);
  return {.store = c10::make_intrusive<c10d::PrefixStore>("trainopt/" + options.job, store),
          .address = options.address.value_or(kLocalAddress),
          .port = store->getPort()};
}

}  // namespace trainopt
