#include "comm/local_address.h"

#include "base/error.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

namespace trainopt {

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
