#include "comm/rendezvous.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/files/files.h"
#include "base/log.h"
#include "base/sha256.h"
#include "comm/c10d_store.h"
#include "comm/meeting_wait.h"
#include "comm/store.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <fcntl.h>
#include <netdb.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <sstream>
#include <thread>

namespace trainopt {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(20);
constexpr const char* kLocalAddress = "127.0.0.1";
constexpr double kAnswerTimeoutS = 2;  ///< the time to answer for a port that may be another program's

[[noreturn]] void fail(const std::string& sentence) { throw UserError(sentence, ExitCode::peer); }

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

[[noreturn]] void cannot_listen(const std::string& host, int port, bool in_use) {
  fail(in_use ? fmt::format("the port is in use; set another MASTER_PORT: {}", port)
              : fmt::format(
                    "rank 0 cannot listen at MASTER_ADDR and MASTER_PORT; check that they name this machine: {}:{}",
                    host, port));
}

uint16_t port_of(int socket) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

/// A socket that listens at this address alone; c10d's own would listen at all of the machine's addresses.
int listen_at(const std::string& host, int port) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const std::string service = std::to_string(port);
  const bool resolved = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &list) == 0;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(resolved ? list : nullptr, &::freeaddrinfo);
  int reason = 0;
  for (const addrinfo* each = owned.get(); each; each = each->ai_next) {
    const int fd = ::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    if (fd >= 0 && ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        ::bind(fd, each->ai_addr, each->ai_addrlen) == 0 && ::listen(fd, SOMAXCONN) == 0)
      return fd;
    reason = errno;
    if (fd >= 0) ::close(fd);
  }
  cannot_listen(host, port, reason == EADDRINUSE);
}

c10::intrusive_ptr<c10d::TCPStore> serve(const std::string& address, int port, bool locally, double timeout_s) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = milliseconds(timeout_s);
  if (locally) {
    options.masterListenFd = listen_at(address, port);  // closed by c10d
    if (port == 0) options.port = port_of(*options.masterListenFd);
  }
  try {
    return c10::make_intrusive<c10d::TCPStore>(address, options);
  } catch (const std::exception& error) {  // named recovery: c10d has no specific exception type
    if (is_out_of_threads(error)) throw;
    const std::string words = error.what();
    cannot_listen(address, port,
                  words.find("EADDRINUSE") != std::string::npos || words.find("in use") != std::string::npos);
  }
}

constexpr const char* kRank0 = "rank 0";

/// True if the user asked for a stop during a wait. A wait that took too long is a UserError as well, a LostRank.
bool is_stop(const std::exception& error) {
  return dynamic_cast<const UserError*>(&error) && !dynamic_cast<const LostRank*>(&error);
}

/// serve(), which may wait for name servers, so that it says so and can be stopped.
c10::intrusive_ptr<c10d::TCPStore> serve_patiently(const RendezvousOptions& rendezvous, bool locally) {
  MeetingWait wait(rendezvous);
  const std::string address = *rendezvous.address;
  const int port = rendezvous.port;
  try {
    return with_timeout(
        rendezvous.timeout_s,
        [address, port, locally, timeout_s = rendezvous.timeout_s] { return serve(address, port, locally, timeout_s); },
        [&] { wait.still(fmt::format("this machine to answer to the name {} (MASTER_ADDR)", address)); });
  } catch (const LostRank&) {
    fail(fmt::format("rank 0 could not listen within {:g} s (parallel.timeout) at {}:{}{}", rendezvous.timeout_s,
                     address, port, wait.variables()));
  }
}

c10::intrusive_ptr<c10d::TCPStore> join(const std::string& address, int port, const RendezvousOptions& rendezvous) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = milliseconds(rendezvous.timeout_s);
  MeetingWait wait(rendezvous);
  try {
    // c10d's own timeout does not cover a server that accepts the connection and then stays silent.
    return with_timeout(
        rendezvous.timeout_s, [address, options] { return c10::make_intrusive<c10d::TCPStore>(address, options); },
        [&] { wait.still(fmt::format("{} at {}:{}", kRank0, address, port)); });
  } catch (const std::exception& error) {  // named recovery: c10d has no specific exception type
    if (is_out_of_threads(error) || is_stop(error)) throw;
    fail(
        fmt::format("rank 0 could not be reached within {:g} s (parallel.timeout); check that it runs and that "
                    "MASTER_ADDR and MASTER_PORT are right: {}:{}{}",
                    rendezvous.timeout_s, address, port, wait.variables()));
  }
}

c10::intrusive_ptr<c10d::Store> sealed_part(c10::intrusive_ptr<c10d::Store> store, const std::string& prefix,
                                            const std::string& key) {
  if (!key.empty()) store = sealed_store(std::move(store), key);
  return c10::make_intrusive<c10d::PrefixStore>(prefix, std::move(store));
}

/// What rank 0 says in the open before all else: a number used once, and a proof that it has the same key.
std::string said_by_rank_0(const c10::intrusive_ptr<c10d::Store>& store, const std::string& name,
                           const RendezvousOptions& options) {
  MeetingWait wait(options);
  try {
    return with_timeout(
        options.timeout_s, [store, name] { return store->get_to_str(name); }, [&] { wait.still(kRank0); });
  } catch (const std::exception& error) {  // named recovery: c10d has no specific exception type
    if (is_out_of_threads(error) || is_stop(error)) throw;
    fail(fmt::format("rank 0 did not answer within {:g} s (parallel.timeout){}", options.timeout_s, wait.variables()));
  }
}

/// The job's part of the store. If the job has a key, its values are sealed by one that is made of it for this attempt
/// alone, so that nothing of another job with the same key is believed.
StorePart part_of(c10::intrusive_ptr<c10d::Store> store, const RendezvousOptions& options, const std::string& key) {
  const std::string prefix = "trainopt/" + options.job, name = prefix + "/sealed";
  if (options.made_key) return {sealed_part(std::move(store), prefix, key), key};
  const auto proof = [&](const std::string& number) {
    return key.empty() ? std::string("none") : in_hex(hmac_sha256(key, "proof " + number));
  };
  std::string number = random_key();
  if (options.position.is_first()) {
    store->set(name, number + " " + proof(number));
  } else {
    const std::string said = said_by_rank_0(store, name, options);
    number = said.substr(0, said.find(' '));
    if (said != number + " " + proof(number))
      throw UserError(
          fmt::format("TRAINOPT_JOB_KEY differs between rank 0 and rank {}; give all ranks the same or none",
                      options.position.rank),
          ExitCode::recipe);
  }
  const std::string made = key.empty() ? "" : in_hex(hmac_sha256(key, "seal " + number));
  return {sealed_part(std::move(store), prefix, made), made};
}

/// Rank 0 listens on a free port and publishes it, with a key of its own if the job has none.
Rendezvous publish(const RendezvousOptions& options, const PortFile& file) {
  const std::string key = options.key.empty() ? random_key() : options.key;
  const auto tcp = serve(kLocalAddress, 0, /*locally=*/true, options.timeout_s);
  Rendezvous mine{part_of(tcp, options, key), kLocalAddress, tcp->getPort(), file.path()};
  file.write({mine.port, options.key.empty() ? key : ""});
  return mine;
}

/// Asked first, because c10d tries for seconds to reach a port at which nobody listens.
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
    RendezvousOptions soon = options;
    soon.timeout_s = kAnswerTimeoutS;
    StorePart part = part_of(join(kLocalAddress, found.port, soon), soon, key);
    part.store->setTimeout(milliseconds(options.timeout_s));
    return Rendezvous{std::move(part), kLocalAddress, found.port, {}};
  } catch (const std::exception& error) {  // named recovery: the file is read again
    log_debug("port {}: {}", found.port, error.what());
    return std::nullopt;
  }
}

Rendezvous join_published(const RendezvousOptions& options, const PortFile& file) {
  std::optional<PortFile::Contents> found;
  MeetingWait wait(options);
  for (; wait.seconds() < options.timeout_s; std::this_thread::sleep_for(kPollInterval)) {
    wait.still(kRank0);
    found = file.read();
    if (!found) continue;
    if (auto joined = try_published(*found, options)) return *std::move(joined);
  }
  fail(fmt::format("rank 0 did not appear within {:g} s (parallel.timeout); check that it runs on this machine: {}{}",
                   options.timeout_s,
                   found ? fmt::format("{} names the port {}, where no rank 0 of this job answers",
                                       file.path().string(), found->port)
                         : fmt::format("no file {}", file.path().string()),
                   wait.variables()));
}

}  // namespace

Rendezvous join_rendezvous(const RendezvousOptions& options) {
  if (!options.address) {
    const PortFile file(options.port_folder, options.job);
    return options.position.is_first() ? publish(options, file) : join_published(options, file);
  }
  const bool locally = options.position.one_machine();
  const auto store = options.position.is_first() && !options.external_store
                         ? serve_patiently(options, locally)
                         : join(*options.address, options.port, options);
  return {part_of(store, options, options.key), *options.address, store->getPort(), {}};
}

namespace fs = std::filesystem;
namespace {

/// Throws if another user could read or replace files in the folder.
void require_own(const fs::path& folder) {
  struct stat status {};
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw FileError("create the folder", folder, errno, ExitCode::storage);
  if (::lstat(folder.c_str(), &status) != 0) throw FileError("read", folder, errno, ExitCode::storage);
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 077) != 0)
    throw UserError(
        fmt::format("the ranks cannot meet, because {} is not a folder that only this user may open; remove "
                    "it or set TMPDIR",
                    folder.string()),
        ExitCode::storage);
}

}  // namespace

PortFile::PortFile(const fs::path& folder, const std::string& job) {
  if (kind_of(folder) != PathKind::folder)
    throw UserError(fmt::format("the ranks cannot meet, because TMPDIR is not a folder: {}", folder.string()),
                    ExitCode::storage);
  const fs::path own = folder / fmt::format("trainopt-{}", ::geteuid());
  require_own(own);
  path_ = own / fmt::format("port-{}", job);
}

void PortFile::write(const Contents& contents) const {
  const auto text = fmt::format("{} {}\n", contents.port, contents.key);
  replace_file(path_, [&](File& file) {
    ::chmod(file.path().c_str(), 0600);  // before it has contents
    file.append(text.data(), text.size());
  });
}

std::optional<PortFile::Contents> PortFile::read() const {
  struct stat status {};
  if (::lstat(path_.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != ::geteuid())
    return std::nullopt;
  Contents contents;
  try {
    constexpr int64_t kMaxBytes = 4096;
    std::istringstream(read_file(path_, ExitCode::peer, kMaxBytes)) >> contents.port >> contents.key;
  } catch (const UserError&) {  // named recovery: rank 0 may be replacing the file, and is asked for again
    return std::nullopt;
  }
  return contents.port > 0 && contents.port < 65536 ? std::optional(contents) : std::nullopt;
}

std::string local_address_towards(const std::string& host, int port) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_DGRAM;  // connecting a datagram socket only selects a route
  const int problem = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (problem != 0)
    throw UserError(fmt::format("cannot resolve MASTER_ADDR: {}; {}", host, ::gai_strerror(problem)), ExitCode::peer);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(list, &::freeaddrinfo);
  for (const addrinfo* entry = list; entry; entry = entry->ai_next) {
    const int fd = ::socket(entry->ai_family, entry->ai_socktype | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    char text[NI_MAXHOST];
    const bool found =
        ::connect(fd, entry->ai_addr, entry->ai_addrlen) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0;
    ::close(fd);
    if (found) return text;
  }
  throw UserError(fmt::format("MASTER_ADDR cannot be reached from this machine: {}:{}", host, port), ExitCode::peer);
}

}  // namespace trainopt
