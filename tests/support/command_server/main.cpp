// The program for command-line tests that do not ask about loading, environment at load, or memory: a process that has
// loaded libtorch once and forks for every command, so that a command does not pay for loading.
//
//   command_server --serve SOCKET     serves until its standard input is closed, also by the death of who holds it
//   command_server ARGUMENT...        is the program: jobs of several processes start /proc/self/exe again
//
// A client connects and sends one message: two open files as SCM_RIGHTS (standard output, standard error) and texts
// that each end with a zero byte: the folder, the number of arguments, the arguments, the variables of the environment
// (NAME=value). It gets two 32-bit integers back: at once the process id, and at the end the status as wait() gives it.
#include "app/program.h"
#include "base/error.h"
#include "device/cuda_library.h"
#include "run/version.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {
namespace {

struct Request {
  int connection;
  std::array<int, 2> streams;  // standard output, standard error
  std::string folder;
  std::vector<std::string> arguments, variables;
};

/// All bytes that the client sends before it shuts its side down; the first message carries the open files.
Request receive(int connection) {
  Request request{connection, {-1, -1}, "", {}, {}};
  std::string text;
  for (;;) {
    char part[65536], control[CMSG_SPACE(sizeof request.streams)];
    iovec bytes{part, sizeof part};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t count = ::recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    TRAINOPT_CHECK(count >= 0);
    if (count == 0) break;
    if (const cmsghdr* header = CMSG_FIRSTHDR(&message))
      std::memcpy(request.streams.data(), CMSG_DATA(header), sizeof request.streams);
    text.append(part, static_cast<size_t>(count));
  }
  std::vector<std::string> words;
  for (size_t at = 0, end; (end = text.find('\0', at)) != text.npos; at = end + 1)
    words.push_back(text.substr(at, end - at));
  TRAINOPT_CHECK(words.size() >= 2 && request.streams[1] >= 0);
  request.folder = words[0];
  const auto first = words.begin() + 2, last = first + std::stol(words[1]);
  request.arguments.assign(first, last);
  request.variables.assign(last, words.end());
  return request;
}

/// Null-terminated pointers to the texts, as main() and environ have them.
std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

/// Becomes the command: what fork() leaves different from a new process is set here.
[[noreturn]] void serve_as_child(Request& request) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  ::dup2(request.streams[0], STDOUT_FILENO);
  ::dup2(request.streams[1], STDERR_FILENO);
  for (int file = 3; file < 64; ++file) ::close(file);
  if (::chdir(request.folder.c_str()) != 0) std::_Exit(127);
  static std::vector<char*> variables = pointers(request.variables);
  environ = variables.data();
  std::vector<char*> arguments = pointers(request.arguments);
  const int code = run_program(static_cast<int>(arguments.size()) - 1, arguments.data());
  std::_Exit(code);
}

void send_number(int connection, int32_t number) {
  (void)!::send(connection, &number, sizeof number, MSG_NOSIGNAL);  // the client may have given up
}

long threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

int open_socket(const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  TRAINOPT_CHECK(std::strlen(path) < sizeof address.sun_path);
  std::strcpy(address.sun_path, path);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  TRAINOPT_CHECK(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  TRAINOPT_CHECK(::listen(socket, 64) == 0);
  return socket;
}

[[noreturn]] void serve(const char* path) {
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &child, nullptr);
  open_cuda_library(kBuild.cuda_library);
  const int ended = ::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK), socket = open_socket(path);
  std::map<pid_t, int> connections;  // of the commands that run
  for (;;) {
    std::array<pollfd, 3> waits{{{socket, POLLIN, 0}, {ended, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}}};
    if (::poll(waits.data(), waits.size(), -1) < 0) continue;
    if (waits[2].revents) std::_Exit(0);
    if (waits[0].revents) {
      Request request = receive(::accept4(socket, nullptr, nullptr, SOCK_CLOEXEC));
      TRAINOPT_CHECK(threads() == 1);  // fork() would leave the others behind, with their locks held
      const pid_t process = ::fork();
      TRAINOPT_CHECK(process >= 0);
      if (process == 0) serve_as_child(request);
      for (const int stream : request.streams) ::close(stream);
      send_number(request.connection, process);
      connections[process] = request.connection;
    }
    signalfd_siginfo ignored;
    while (::read(ended, &ignored, sizeof ignored) > 0) continue;
    int status;
    for (pid_t process; (process = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      send_number(connections[process], status);
      ::close(connections[process]);
      connections.erase(process);
    }
  }
}

}  // namespace
}  // namespace trainopt

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--serve") trainopt::serve(argv[2]);
  return trainopt::run_program(argc, argv);
}
