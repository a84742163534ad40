// A server of one folder for bench_storage.py: GET and HEAD of files, whole or by range, as S3 answers them without
// credentials. Each answer waits for the time that a round trip to a distant server takes; many wait at once, a thread
// for each connection.
//
//   range_server FOLDER DELAY_MS      prints its port on 127.0.0.1, and ends with its standard input
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

bool send_all(int socket, const std::string& text) {
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t count = ::send(socket, text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_MORE);
    if (count <= 0) return false;
    sent += static_cast<size_t>(count);
  }
  return true;
}

bool send_file(int socket, int file, off_t begin, int64_t bytes) {
  for (int64_t sent = 0; sent < bytes;) {
    const ssize_t count = ::sendfile(socket, file, &begin, static_cast<size_t>(bytes - sent));
    if (count <= 0) return false;
    sent += count;
  }
  return true;
}

/// Answers one request; false if the connection is to be closed.
bool answer(int socket, const std::string& request, const std::string& folder) {
  const size_t space = request.find(' '), end = request.find_first_of(" ?", space + 1);
  const std::string path = folder + request.substr(space + 1, end - space - 1);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file < 0 || ::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    if (file >= 0) ::close(file);
    return send_all(socket, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
  }
  int64_t first = 0, last = status.st_size - 1;
  const size_t range = request.find("ange: bytes=");
  const bool is_part = range != std::string::npos &&
                       std::sscanf(request.c_str() + range, "ange: bytes=%" SCNd64 "-%" SCNd64, &first, &last) == 2;
  char head[400];
  std::snprintf(head, sizeof(head),
                "HTTP/1.1 %s\r\nContent-Length: %" PRId64 "\r\nETag: \"%" PRId64 "-%" PRId64
                "\"\r\n"
                "Content-Range: bytes %" PRId64 "-%" PRId64 "/%" PRId64 "\r\nAccept-Ranges: bytes\r\n\r\n",
                is_part ? "206 Partial Content" : "200 OK", last - first + 1, int64_t{status.st_mtime},
                int64_t{status.st_size}, first, last, int64_t{status.st_size});
  bool is_sent = send_all(socket, head);
  if (request.starts_with("GET ")) is_sent = is_sent && send_file(socket, file, first, last - first + 1);
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // what is left goes out now
  ::close(file);
  return is_sent;
}

void serve(int socket, const std::string& folder, std::chrono::milliseconds delay) {
  std::string received;
  char buffer[8192];
  while (true) {
    const size_t end = received.find("\r\n\r\n");
    if (end != std::string::npos) {
      std::this_thread::sleep_for(delay);
      if (!answer(socket, received.substr(0, end), folder)) break;
      received.erase(0, end + 4);
      continue;
    }
    const ssize_t count = ::recv(socket, buffer, sizeof(buffer), 0);
    if (count <= 0) break;
    received.append(buffer, static_cast<size_t>(count));
  }
  ::close(socket);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener, 256) != 0) return 1;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  std::printf("%d\n", ntohs(address.sin_port));
  std::fflush(stdout);
  std::thread([] {
    while (std::getchar() != EOF) {
    }
    std::_Exit(0);
  }).detach();
  for (int socket = ::accept(listener, nullptr, nullptr); socket >= 0; socket = ::accept(listener, nullptr, nullptr))
    std::thread(serve, socket, std::string(arguments[1]), std::chrono::milliseconds(std::atoi(arguments[2]))).detach();
}
