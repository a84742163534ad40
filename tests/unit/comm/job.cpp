// Ranks that join, differ, fail and fall silent. Here ranks are threads; in tests/cli they are processes.
#include "comm/communicator.h"
#include "device/device.h"
#include "support/catch.h"
#include "support/cuda_without_driver.h"
#include "support/ranks.h"

#include <condition_variable>
#include <mutex>

using namespace trainopt;

namespace {

struct Ended {
  std::string message;
  ExitCode code = ExitCode::done;
};

/// Runs `work(rank, job)` as ranks 0 … come−1 of a job of `ranks` (come < 0: all) and returns how each ended.
std::vector<Ended> ends_of(int64_t ranks, const std::function<RankFacts(int64_t)>& facts,
                           const std::function<void(int64_t, Job&)>& work, double timeout_s = 30, int64_t come = -1) {
  const TemporaryFolder folder;
  std::vector<Ended> ends(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < (come < 0 ? ranks : come); ++rank)
    threads.emplace_back([&, rank] {
      Ended& end = ends[static_cast<size_t>(rank)];
      try {
        Job job(rendezvous_of_thread(folder, rank, ranks, timeout_s), facts(rank));
        work(rank, job);
      } catch (const UserError& error) {
        end = {error.what(), error.code()};
      } catch (const std::exception& error) {
        end = {error.what(), ExitCode::bug};
      }
    });
  for (auto& thread : threads) thread.join();
  return ends;
}

RankFacts same(int64_t) { return {.recipe = "r", .build = "b", .host = "h", .cpus = {0, 1, 2, 3}}; }

}  // namespace

TEST_CASE("if one rank's recipe or build differs, all ranks end with code 2 and name it") {
  const auto differing = [](int64_t rank) {
    RankFacts facts = same(rank);
    if (rank == 2) facts.recipe = "another";
    return facts;
  };
  for (const Ended& end : ends_of(3, differing, [](int64_t, Job&) {})) {
    CHECK(end.code == ExitCode::recipe);
    CHECK(end.message == "all ranks must have the same recipe: rank 2 differs from rank 0");
  }
  const auto other_build = [](int64_t rank) {
    RankFacts facts = same(rank);
    if (rank > 0) facts.build = "another";
    return facts;
  };
  for (const Ended& end : ends_of(3, other_build, [](int64_t, Job&) {}))
    CHECK_THAT(end.message, ContainsSubstring("ranks 1, 2 differ from rank 0"));
}

TEST_CASE("a rank that does not join in time is named") {
  const auto ends = ends_of(
      3, same, [](int64_t, Job&) {}, 12.0, 2);
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK(ends[rank].code == ExitCode::peer);
    CHECK(ends[rank].message == "rank 2 of 3 did not join within 12 s (parallel.timeout)");
  }
}

TEST_CASE("ranks on one machine divide the cores that they share; a rank with its own cores keeps them") {
  std::vector<int64_t> shares(3);
  const auto keep = [&](int64_t rank, Job& job) { shares[static_cast<size_t>(rank)] = job.cores(); };
  ends_of(3, same, keep);
  CHECK(shares == std::vector<int64_t>{1, 1, 1});
  const auto alone = [](int64_t rank) {
    RankFacts facts = same(rank);
    facts.cpus = {static_cast<int>(4 * rank), static_cast<int>(4 * rank + 1)};
    return facts;
  };
  ends_of(3, alone, keep);
  CHECK(shares == std::vector<int64_t>{2, 2, 2});
  const auto other_machine = [](int64_t rank) {
    RankFacts facts = same(rank);
    if (rank == 2) facts.host = "other";
    return facts;
  };
  ends_of(3, other_machine, keep);
  CHECK(shares == std::vector<int64_t>{2, 2, 4});
}

TEST_CASE("a failure that one rank reports ends the others with its exit code and name") {
  const auto ends = ends_of(3, same, [](int64_t rank, Job& job) {
    if (rank == 1) {
      job.report_failure(ExitCode::data, "the image is torn");
      throw UserError("the image is torn", ExitCode::data);
    }
    job.explain(LostRank("connection closed"));
  });
  for (const Ended& end : ends) CHECK(end.code == ExitCode::data);
  CHECK(ends[0].message == "rank 1 failed: the image is torn");
  CHECK(ends[2].message == "rank 1 failed: the image is torn");
}

TEST_CASE("a rank that leaves without a report is named") {
  std::mutex mutex;
  std::condition_variable gone;
  bool left = false;
  const auto ends = ends_of(3, same, [&](int64_t rank, Job& job) {
    job.at("forward and backward", 4);
    std::unique_lock lock(mutex);
    if (rank == 2) {
      left = true;
      gone.notify_all();
      return;  // its heartbeat stops
    }
    gone.wait(lock, [&] { return left; });
    lock.unlock();
    job.explain(LostRank("connection closed"));
  });
  int notified = 0;
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK(ends[rank].code == ExitCode::peer);
    CHECK_THAT(ends[rank].message, ContainsSubstring("rank 2 is gone or stopped"));
    CHECK_THAT(ends[rank].message, ContainsSubstring("rank 0 after step 4, forward and backward"));
    notified += 1;
  }
  CHECK(notified == 2);
}

TEST_CASE("a text put by one rank reaches every rank") {
  std::vector<std::string> read(3);
  ends_of(3, same, [&](int64_t rank, Job& job) {
    if (rank == 0) job.put("run_dir", "runs/a b");
    read[static_cast<size_t>(rank)] = job.get("run_dir");
  });
  CHECK(read == std::vector<std::string>(3, "runs/a b"));
}

TEST_CASE("a collective with a rank that is gone throws LostRank in time") {
  std::vector<Ended> ends(2);
  CHECK_THROWS_AS(as_ranks(
                      2,
                      [](Job&, Communicator& communicator) {
                        if (communicator.rank() == 1) throw std::runtime_error("gone");
                        at::Tensor data = at::ones({10});
                        communicator.all_reduce(data)->wait();
                      },
                      15.0),
                  LostRank);
}

TEST_CASE("a fault of this rank's own GPU is not taken for a lost rank") {
  const auto collective = [](const std::string& message) { or_lost_rank([&] { throw std::runtime_error(message); }); };
  CHECK_THROWS_AS(collective("Connection closed by peer"), LostRank);
  if (!cuda_is_open()) return;
  CHECK_THROWS_WITH(collective("ncclUnhandledCudaError: Cuda failure 700 'an illegal memory access was encountered'"),
                    ContainsSubstring("Cuda failure 700"));
}

TEST_CASE("a failure reported with code 0 is a failure") {
  const auto ends = ends_of(2, same, [](int64_t rank, Job& job) {
    if (rank == 1) return void(job.report_failure(ExitCode::done, "says that all is well"));
    job.explain(LostRank("test"));
  });
  CHECK(ends[0].code == ExitCode::peer);
  CHECK_THAT(ends[0].message, ContainsSubstring("says that all is well"));
}
