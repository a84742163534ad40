// Ranks that come, differ, fail and fall silent; as threads here, as processes in tests/cli.
#include "support/catch.h"
#include "support/ranks.h"

#include <condition_variable>
#include <mutex>

using namespace trainopt;

namespace {

struct Ended {
  std::string message;
  ExitCode code = ExitCode::done;
};

/// Every rank's way to its end; `facts(rank)` and `work(rank, job, communicator)`.
std::vector<Ended> ends_of(int64_t ranks, const std::function<RankFacts(int64_t)>& facts,
                           const std::function<void(int64_t, Job&)>& work, double timeout_s = 30, int64_t come = -1) {
  const TemporaryFolder folder;
  std::vector<Ended> ends(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < (come < 0 ? ranks : come); ++rank)
    threads.emplace_back([&, rank] {
      Ended& end = ends[static_cast<size_t>(rank)];
      try {
        Job job(meeting_point_of_thread(folder, rank, ranks, timeout_s), facts(rank));
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

TEST_CASE("ranks that differ end with code 2 and the rank's name, all of them") {
  const auto differing = [](int64_t rank) {
    RankFacts facts = same(rank);
    if (rank == 2) facts.recipe = "another";
    return facts;
  };
  for (const Ended& end : ends_of(3, differing, [](int64_t, Job&) {})) {
    CHECK(end.code == ExitCode::recipe);
    CHECK(end.message == "all ranks must have the same recipe: rank 2 has another than rank 0");
  }
  const auto other_build = [](int64_t rank) {
    RankFacts facts = same(rank);
    if (rank > 0) facts.build = "another";
    return facts;
  };
  for (const Ended& end : ends_of(3, other_build, [](int64_t, Job&) {}))
    CHECK_THAT(end.message, ContainsSubstring("ranks 1, 2 have another"));
}

TEST_CASE("a rank that does not come is named when time is up") {
  const auto ends = ends_of(
      3, same, [](int64_t, Job&) {}, 12.0, 2);
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK(ends[rank].code == ExitCode::peer);
    CHECK(ends[rank].message == "rank 2 of 3 did not come within 12 s (parallel.timeout)");
  }
}

TEST_CASE("cores are divided among ranks that share them and left to those who have them alone") {
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

TEST_CASE("a failure that a rank tells ends the others with its code and name") {
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

TEST_CASE("a rank that has gone without a word is named") {
  std::mutex mutex;
  std::condition_variable gone;
  bool left = false;
  const auto ends = ends_of(3, same, [&](int64_t rank, Job& job) {
    job.at("forward and backward", 4);
    std::unique_lock lock(mutex);
    if (rank == 2) {
      left = true;
      gone.notify_all();
      return;  // its beat ends with it
    }
    gone.wait(lock, [&] { return left; });
    lock.unlock();
    job.explain(LostRank("connection closed"));
  });
  int told = 0;
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK(ends[rank].code == ExitCode::peer);
    CHECK_THAT(ends[rank].message, ContainsSubstring("rank 2 is gone or stopped"));
    CHECK_THAT(ends[rank].message, ContainsSubstring("rank 0 after step 4, forward and backward"));
    told += 1;
  }
  CHECK(told == 2);
}

TEST_CASE("texts reach every rank") {
  std::vector<std::string> read(3);
  ends_of(3, same, [&](int64_t rank, Job& job) {
    if (rank == 0) job.put("run_dir", "runs/a b");
    read[static_cast<size_t>(rank)] = job.get("run_dir");
  });
  CHECK(read == std::vector<std::string>(3, "runs/a b"));
}

TEST_CASE("an exchange with a rank that is gone throws LostRank in time") {
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
