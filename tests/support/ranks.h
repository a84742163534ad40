// Ranks as threads of this process, with the same job, store and Gloo as between processes.
#pragma once

#include "comm/job.h"
#include "device/backend_settings.h"
#include "support/temporary_folder.h"

#include <cstdlib>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace trainopt {

/// c10d's flight recorder is shared by the process and does not lock one of its maps, so it must be off when ranks are
/// threads.
inline const int kNoFlightRecorder = ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);

inline RendezvousOptions rendezvous_of_thread(const TemporaryFolder& folder, int64_t rank, int64_t ranks,
                                              double timeout_s = 60, int64_t machines = 1) {
  const int64_t on_each = ranks / machines;
  RendezvousOptions options;
  options.position = {.rank = rank, .ranks = ranks, .local_rank = rank % on_each, .local_ranks = on_each};
  options.job = "test";
  options.port_folder = folder.path();
  options.timeout_s = timeout_s;
  return options;
}

/// Runs `work` on every rank of a job, whose ranks believe to be on so many machines. Once all have ended, rethrows the
/// exception of the lowest rank that threw one.
inline void as_ranks(int64_t ranks, const std::function<void(Job&, Communicator&)>& work, double timeout_s = 60,
                     int64_t machines = 1) {
  const TemporaryFolder folder;
  const BackendGuard settings({});  // of the process: while one rank changes them, no other may read them
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        Job job(rendezvous_of_thread(folder, rank, ranks, timeout_s, machines),
                {.recipe = "r", .build = "b", .host = "h", .cpus = {0, 1}});
        const auto communicator = job.make_communicator();
        work(job, *communicator);
        // No rank leaves while another still connects or reads from it. Gloo does not wait for an empty tensor.
        communicator->gather(std::vector<double>{0});
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace trainopt
