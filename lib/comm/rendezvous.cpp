#include "comm/rendezvous.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/sha256.h"
#include "comm/port_file.h"
#include "comm/sealed_store.h"
#include "comm/with_timeout.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cerrno>
#include <cstring>
#include <thread>

namespace trainopt {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(20);
constexpr const char* kLocalAddress = "127.0.0.1";
constexpr const char* kServed = "served";  ///< rank 0's mark in its store
constexpr double kAnswerTimeoutS = 2;      ///< of a port that may be another program's

[[noreturn]] void fail(const std::string& sentence) { throw UserError(sentence, ExitCode::peer); }

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

uint16_t port_of(int socket) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

/// A socket that listens on 127.0.0.1 alone; c10d's own would listen on all of the machine's addresses.
int listen_locally(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd >= 0 && ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
      ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 && ::listen(fd, SOMAXCONN) == 0)
    return fd;
  const int reason = errno;
  if (fd >= 0) ::close(fd);
  fail(reason == EADDRINUSE
           ? fmt::format("the port is in use; set another MASTER_PORT: {}", port)
           : fmt::format("rank 0 cannot listen at {}:{}: {}", kLocalAddress, port, std::strerror(reason)));
}

c10::intrusive_ptr<c10d::TCPStore> serve(const std::string& address, int port, bool locally, double timeout_s) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = milliseconds(timeout_s);
  if (locally) {
    options.masterListenFd = listen_locally(port);  // closed by c10d
    options.port = port_of(*options.masterListenFd);
  }
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
  } catch (const std::exception& error) {  // named recovery: c10d has no specific exception type
    if (is_out_of_threads(error)) throw;
    fail(
        fmt::format("rank 0 could not be reached within {:g} s; check that it runs and that MASTER_ADDR and "
                    "MASTER_PORT are right: {}:{}",
                    timeout_s, address, port));
  }
}

/// The job's part of the store. Its values are sealed if the job has a key.
c10::intrusive_ptr<c10d::Store> part_of(c10::intrusive_ptr<c10d::Store> store, const RendezvousOptions& options,
                                        const std::string& key) {
  if (!key.empty()) store = sealed_store(std::move(store), key);
  return c10::make_intrusive<c10d::PrefixStore>("trainopt/" + options.job, std::move(store));
}

/// Rank 0 listens on a free port and publishes it, with a key of its own if the job has none.
Rendezvous publish(const RendezvousOptions& options, const PortFile& file) {
  const std::string key = options.key.empty() ? random_key() : options.key;
  const auto tcp = serve(kLocalAddress, 0, /*locally=*/true, options.timeout_s);
  Rendezvous mine{part_of(tcp, options, key), kLocalAddress, tcp->getPort(), key, file.path()};
  mine.store->set(kServed, "1");
  file.write({mine.port, options.key.empty() ? key : ""});
  return mine;
}

bool can_connect(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool connected = fd >= 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (fd >= 0) ::close(fd);
  return connected;
}

/// The store at the port that the file names; null unless this job's rank 0 serves it. The file may be an earlier
/// job's, and another program may listen at its port by now.
std::optional<Rendezvous> try_published(const PortFile::Contents& found, const RendezvousOptions& options) {
  if (!can_connect(found.port)) return std::nullopt;
  const std::string key = options.key.empty() ? found.key : options.key;
  try {
    auto store = part_of(join(kLocalAddress, found.port, kAnswerTimeoutS), options, key);
    if (!with_timeout(kAnswerTimeoutS, [store] { return store->check({kServed}); })) return std::nullopt;
    store->setTimeout(milliseconds(options.timeout_s));
    return Rendezvous{std::move(store), kLocalAddress, found.port, key, {}};
  } catch (const std::exception& error) {  // named recovery: the file is read again
    log_debug("port {}: {}", found.port, error.what());
    return std::nullopt;
  }
}

Rendezvous join_published(const RendezvousOptions& options, const PortFile& file) {
  std::optional<PortFile::Contents> found;
  for (const auto began = Clock::now(); seconds_since(began) < options.timeout_s;
       std::this_thread::sleep_for(kPollInterval)) {
    found = file.read();
    if (!found) continue;
    if (auto joined = try_published(*found, options)) return *std::move(joined);
  }
  fail(fmt::format("rank 0 did not appear within {:g} s; check that it runs on this machine: {}", options.timeout_s,
                   found ? fmt::format("{} names the port {}, where no rank 0 of this job answers",
                                       file.path().string(), found->port)
                         : fmt::format("no file {}", file.path().string())));
}

}  // namespace

Rendezvous join_rendezvous(const RendezvousOptions& options) {
  if (!options.address) {
    const PortFile file(options.port_folder, options.job);
    return options.position.is_first() ? publish(options, file) : join_published(options, file);
  }
  // Launchers give the machine's own name even if all ranks are on it.
  const bool here = options.position.one_machine() && !options.external_store;
  const std::string address = here ? kLocalAddress : *options.address;
  const auto store = options.position.is_first() && !options.external_store
                         ? serve(address, options.port, here, options.timeout_s)
                         : join(address, options.port, options.timeout_s);
  return {part_of(store, options, options.key), address, store->getPort(), options.key, {}};
}

}  // namespace trainopt
