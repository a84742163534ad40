#include "comm/launch/local_ranks.h"

#include "base/clock.h"
#include "base/error.h"
#include "comm/launch/rank_process.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <random>
#include <set>
#include <utility>

namespace trainopt {
namespace {

constexpr double kReaderTimeoutS = 1;

struct Ending {
  int rank, status;  // status: from waitpid()
  int exit_code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : static_cast<int>(ExitCode::peer); }
  /// The signal that killed it or, by its exit code, stopped it; 0: none.
  int signal() const { return WIFSIGNALED(status) ? WTERMSIG(status) : std::max(0, WEXITSTATUS(status) - 128); }
  std::string text() const {
    if (WIFEXITED(status)) return fmt::format("rank {} ended with exit code {}", rank, WEXITSTATUS(status));
    return fmt::format("rank {} was killed by signal {} ({})", rank, WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  }
  /// Sorts failures found at the same moment, likely causes first: killed by a signal, failed by itself, lost a peer.
  int order() const { return WIFSIGNALED(status) ? 0 : exit_code() != static_cast<int>(ExitCode::peer) ? 1 : 2; }
};

/// Supervises the ranks of one attempt from their start until the last one has ended.
class Supervisor {
 public:
  Supervisor(const LocalRanks& spec, QueuedSignals& signals) : spec_(spec), signals_(signals) {
    ranks_.reserve(static_cast<size_t>(spec.count));
    for (int local = 0; local < spec.count; ++local) ranks_.emplace_back(spec, local, signals_.mask_before());
  }

  int run() {
    while (std::any_of(ranks_.begin(), ranks_.end(), [](const RankProcess& rank) { return rank.running(); })) {
      wait();
      pass_on_signals();
      pump();
      look_for_ended();
      end_the_others();
    }
    // Do not wait for end of file: processes that a rank left behind may hold its pipes open.
    while (!pump()) {
      wait();
      pass_on_signals();
    }
    for (LineRelay* relay : relays()) relay->finish();
    while (!pump()) {
      wait();
      pass_on_signals();
    }
    if (failed_) {
      const char* others = spec_.count == 1     ? ""
                           : others_were_ended_ ? "; the others were ended"
                                                : "; the others ended too";
      const std::string then =
          restarts() ? fmt::format("; restart {} of {}", spec_.restarts + 1, spec_.max_restarts) : "";
      std::fprintf(stderr, "trainopt: %s%s%s\n", failed_->text().c_str(), others, then.c_str());
      return failed_->exit_code();
    }
    return stopped_by_ == 0 ? 0 : 128 + stopped_by_;
  }

  /// Whether to start all ranks again after run().
  bool restarts() const {
    return failed_ && failed_->exit_code() == static_cast<int>(ExitCode::peer) && !stop_sent_at_ &&
           spec_.restarts < spec_.max_restarts;
  }

 private:
  std::vector<LineRelay*> relays() {
    std::vector<LineRelay*> all;
    for (auto& rank : ranks_) all.insert(all.end(), {&rank.output(), &rank.errors()});
    return all;
  }
  /// Returns whether nothing is left for now. A reader that does not read blocks the ranks, as it would without a
  /// launcher, but not their exit: once they were asked to stop, output that nobody reads is dropped.
  bool pump() {
    bool done = true;
    for (LineRelay* relay : relays()) {
      done &= relay->pump();
      if (relay->stalled() && stop_sent_at_ && seconds_since(*stop_sent_at_) > kReaderTimeoutS) relay->drop();
    }
    return done;
  }

  void wait() {
    std::vector<pollfd> sources{{signals_.descriptor(), POLLIN, 0}};
    for (const LineRelay* relay : relays())
      sources.push_back(relay->stalled() ? pollfd{relay->stream(), POLLOUT, 0}
                                         : pollfd{relay->descriptor(), POLLIN, 0});
    int timeout_ms = -1;
    if (deadline_) {
      timeout_ms = static_cast<int>(std::clamp(1 + milliseconds_between(Clock::now(), *deadline_), 0.0, 3.6e6));
    }
    if (stop_sent_at_)
      timeout_ms = timeout_ms < 0 ? 200 : std::min(timeout_ms, 200);  // a stalled reader causes no event
    ::poll(sources.data(), sources.size(), timeout_ms);
  }

  void pass_on_signals() {
    while (const auto number = signals_.next()) {
      if (*number == SIGCHLD) continue;
      passed_on_.insert(*number);
      if (*number != SIGUSR2) stop_sent_at_ = Clock::now();  // USR2 requests a checkpoint, not a stop
      for (const auto& rank : ranks_) rank.signal(*number);
    }
  }

  void look_for_ended() {
    std::vector<Ending> failures;
    for (auto& rank : ranks_) {
      const auto status = rank.reap();
      if (!status || *status == 0) continue;
      const Ending ending{rank.rank(), *status};
      if (!passed_on_.contains(ending.signal())) {
        failures.push_back(ending);
        continue;
      }
      if (stopped_by_ == 0) stopped_by_ = ending.signal();  // no deadline for the others: rank 0 may be saving
      missing_at_start_ |= WIFSIGNALED(*status);
    }
    if (failed_ || failures.empty() || missing_at_start_) return;
    failed_ = *std::min_element(failures.begin(), failures.end(),
                                [](const Ending& a, const Ending& b) { return a.order() < b.order(); });
    deadline_ = after(spec_.term_delay_s);
  }

  /// Acts after the deadline, which gives the ranks time to notice the lost peer and report it themselves.
  void end_the_others() {
    if (missing_at_start_)
      for (const auto& rank : ranks_) rank.signal_group(SIGKILL);
    if (!deadline_ || Clock::now() < *deadline_) return;
    for (const auto& rank : ranks_) {
      others_were_ended_ |= rank.running();
      rank.signal_group(asked_to_end_ ? SIGKILL : SIGTERM);
    }
    deadline_.reset();
    if (!asked_to_end_) deadline_ = after(spec_.grace_s);
    asked_to_end_ = true;
  }

  const LocalRanks& spec_;
  QueuedSignals& signals_;
  std::vector<RankProcess> ranks_;
  std::set<int> passed_on_;
  std::optional<Clock::time_point> stop_sent_at_;
  std::optional<Ending> failed_;
  int stopped_by_ = 0;
  bool asked_to_end_ = false, others_were_ended_ = false;
  /// Whether a signal that was passed on has killed a rank, which therefore did not handle it yet. The others would
  /// wait in vain to meet that rank, and have nothing to save.
  bool missing_at_start_ = false;
  std::optional<Clock::time_point> deadline_;  // when the next step of ending the others is due
};

/// The port if it is free; 0 means any free port. Otherwise the negative error number.
int try_port(int wanted) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(wanted));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const bool found =
      descriptor >= 0 && ::bind(descriptor, generic, size) == 0 && ::getsockname(descriptor, generic, &size) == 0;
  const int reason = errno;
  if (descriptor >= 0) ::close(descriptor);
  return found ? ntohs(address.sin_port) : -reason;
}

}  // namespace

int run_local_ranks(const LocalRanks& spec) {
  TRAINOPT_CHECK(spec.count > 0 && spec.nodes > 0 && spec.node_rank >= 0 && spec.node_rank < spec.nodes &&
                 !spec.command.empty());
  TRAINOPT_CHECK(spec.nodes == 1 || !spec.master_address.empty());
  std::fflush(stdout);    // the ranks' lines bypass stdio
  QueuedSignals signals;  // before the ranks and between attempts, so that none is missed
  LocalRanks attempt = spec;
  for (attempt.restarts = 0;; ++attempt.restarts) {
    const bool chosen_here = spec.master_address.empty();
    if (chosen_here) attempt.master_address = "127.0.0.1";
    attempt.master_port = chosen_here ? free_local_port() : spec.master_port + attempt.restarts;
    Supervisor supervisor(attempt, signals);
    const int code = supervisor.run();
    if (!supervisor.restarts()) return code;
  }
}

int free_local_port() {
  // Below 32768, where Linux's range for outgoing connections begins: a port of that range may be given to another
  // process before rank 0 listens on it.
  std::random_device random;
  std::uniform_int_distribution<int> below_outgoing(10'000, 31'999);
  for (int attempt = 0; attempt < 20; ++attempt)
    if (const int port = try_port(below_outgoing(random)); port > 0) return port;
  const int port = try_port(0);
  if (port > 0) return port;
  throw UserError(fmt::format("cannot find a free port on 127.0.0.1 for rank 0; set one with --rendezvous: {}",
                              std::strerror(-port)),
                  ExitCode::peer);
}

namespace {

// Lines are buffered until complete; longer ones than this are forwarded in pieces.
constexpr size_t kMaxLineBytes = 1 << 20;

}  // namespace

LineRelay::LineRelay(LineRelay&& other) noexcept
    : from_(std::exchange(other.from_, -1)),
      to_(other.to_),
      prefix_(std::move(other.prefix_)),
      partial_(std::move(other.partial_)),
      queued_(std::move(other.queued_)) {}

LineRelay::~LineRelay() {
  if (from_ >= 0) ::close(from_);
}

void LineRelay::queue_lines(bool all) {
  size_t begin = 0;
  for (size_t end; (end = partial_.find('\n', begin)) != std::string::npos; begin = end + 1)
    queued_.append(prefix_).append(partial_, begin, end + 1 - begin);
  partial_.erase(0, begin);
  if (!partial_.empty() && (all || partial_.size() >= kMaxLineBytes)) {
    queued_.append(prefix_).append(partial_).append("\n");
    partial_.clear();
  }
  write_queued();
}

/// Writes as much as possible without blocking. A writable pipe accepts PIPE_BUF bytes at once.
void LineRelay::write_queued() {
  size_t written = 0;
  while (written < queued_.size()) {
    pollfd writable{to_, POLLOUT, 0};
    if (::poll(&writable, 1, 0) <= 0) break;
    const ssize_t count = ::write(to_, queued_.data() + written, std::min<size_t>(queued_.size() - written, PIPE_BUF));
    if (count >= 0)
      written += static_cast<size_t>(count);
    else if (errno == EAGAIN)
      break;
    else if (errno != EINTR)
      written = queued_.size();  // the reader is gone: drop its lines, training continues
  }
  queued_.erase(0, written);
}

bool LineRelay::pump() {
  char piece[65536];
  write_queued();
  // Read a limited amount: a rank that never stops writing must not delay the others or a signal.
  for (int pieces = 0; pieces < 4 && from_ >= 0 && !stalled(); ++pieces) {
    const ssize_t count = ::read(from_, piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return true;
    if (count <= 0) {
      finish();
      break;
    }
    partial_.append(piece, static_cast<size_t>(count));
    queue_lines(false);
  }
  return from_ < 0 && !stalled();
}

void LineRelay::finish() {
  if (from_ < 0) return;
  queue_lines(true);
  ::close(std::exchange(from_, -1));
}

}  // namespace trainopt
