// Finds accesses to the same memory that nothing puts in order: a happens-before analysis with one vector clock per
// queue (Lamport 1978; Mattern 1989). The host counts as one queue: a wait in one of its threads orders what the others
// queue later, too, so a missing wait can hide behind another thread's. Locks between threads are ThreadSanitizer's
// subject. What a queue does is ordered after all that the host knew when it was queued.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trainopt::test {

using Queue = int64_t;
inline constexpr Queue kHost = -1;

/// Bytes [begin, end) of memory.
struct Range {
  uintptr_t begin = 0, end = 0;
};

class HappensBefore {
 public:
  /// `queue` reads and then writes memory. Adds to problems() if an earlier access that touches the same bytes may
  /// still be running, unless both only read.
  void access(Queue queue, const std::string& what, const std::vector<Range>& reads, const std::vector<Range>& writes);

  /// These bytes now belong to something else, which earlier accesses do not concern.
  void forget(const Range& range);

  using Clock = std::map<Queue, int64_t>;  ///< by queue: how much of its work is known to be done
  /// What is done once all that is queued on `queue` until now is done.
  Clock now(Queue queue) const;
  /// Whatever `queue` does from now on comes after `event`.
  void wait(Queue queue, const Clock& event);
  /// Whether the host has waited for all of `event`.
  bool host_knows(const Clock& event) const;

  /// One sentence for each pair of accesses without an order.
  const std::vector<std::string>& problems() const { return problems_; }
  int64_t accesses() const { return count_; }

 private:
  struct Access {
    Queue queue;
    int64_t at;  ///< the queue's clock
    bool writes;
    std::string what;
    Range range;
  };
  void compare(const Access& mine);

  std::map<Queue, Clock> clocks_;
  std::vector<Access> past_;
  std::vector<std::string> problems_;
  int64_t count_ = 0;
};

}  // namespace trainopt::test
