#include "compare/arms/ranked_arms.h"

#include "comm/communicator.h"
#include "recipe/recipe_io.h"
#include "scripted_arm.h"
#include "support/catch.h"
#include "support/ranks.h"
#include "support/temporary_folder.h"

#include <map>
#include <mutex>

using namespace trainopt;
using namespace trainopt::test;

namespace {

constexpr int64_t kJobRanks = 3;

/// Makes arms that note what their rank was asked to do.
class NotedArms : public ArmFactory {
 public:
  NotedArms(int64_t rank, std::optional<int64_t> fails_after) : rank_(rank), fails_after_(fails_after) {}

  std::shared_ptr<Arm> make(const ArmSpec& spec, ArmHost) override {
    specs.push_back(spec);
    auto arm = std::make_shared<ScriptedArm>(std::make_shared<SimulatedMachine>(7, 0.0),
                                             0.01 * static_cast<double>(1 + rank_ % 2));
    arm->fails_after = fails_after_;
    return arm;
  }
  Plan plan(const ArmSpec& spec) const override { return arm_plan(spec, {}); }

  std::vector<ArmSpec> specs;

 private:
  int64_t rank_;
  std::optional<int64_t> fails_after_;
};

RankDuties duties(Job& job) {
  return {.rendezvous =
              [&job](const std::string& name) {
                const auto options = job.rendezvous_of(name);
                return ArmRendezvous{.host = *options.address, .port = options.port, .job = options.job};
              },
          .explain = explain_plainly};
}

ArmSpec spec_in(const TemporaryFolder& folder) {
  ArmSpec spec;
  spec.recipe = load_recipe({.files = {}, .overrides = {"name=measured", "parallel.timeout=1m"}}).recipe;
  spec.folder = folder / "arm";
  spec.without = Ceiling::logging;
  spec.batch_seed = 11;
  spec.perturbed = 2;
  spec.faults = {"slow@3:1"};
  return spec;
}

/// Runs `measure` on rank 0 while the other ranks serve; rank 1's arms fail after that many turns.
void on_ranks(const std::function<int(RankedArms&)>& measure,
              const std::function<void(int64_t rank, const NotedArms&, int code)>& check = {},
              std::optional<int64_t> fails_after = {}) {
  as_ranks(kJobRanks, [&](Job& job, Communicator& communicator) {
    const int64_t rank = communicator.rank();
    NotedArms mine(rank, rank == 1 ? fails_after : std::nullopt);
    const std::shared_ptr<Communicator> channel = job.make_communicator();
    int code = 0;
    if (rank == 0) {
      RankedArms arms(channel, mine, duties(job));
      code = measure(arms);
      arms.finish(code);
    } else {
      code = serve_arms(channel, mine, duties(job));
    }
    static std::mutex one_at_a_time;  // Catch's checks are not for several threads
    const std::lock_guard lock(one_at_a_time);
    if (check) check(rank, mine, code);
  });
}

}  // namespace

TEST_CASE("every rank makes the arm of the same specification, in a folder of its own") {
  const TemporaryFolder folder;
  const ArmSpec spec = spec_in(folder);
  on_ranks(
      [&](RankedArms& arms) {
        arms.make(spec, ArmHost::own_process);
        arms.make(spec, ArmHost::own_process);
        return 10;
      },
      [&](int64_t rank, const NotedArms& made, int code) {
        CHECK(code == 10);
        REQUIRE(made.specs.size() == 2);
        const ArmSpec& mine = made.specs.front();
        CHECK(recipe_yaml(mine.recipe) == recipe_yaml(spec.recipe));
        CHECK(mine.folder == (rank == 0 ? spec.folder : spec.folder / fmt::format("rank-{}", rank)));
        CHECK(mine.without == spec.without);
        CHECK(mine.batch_seed == spec.batch_seed);
        CHECK(mine.perturbed == 2);
        CHECK(mine.faults == spec.faults);
        REQUIRE(mine.rendezvous);
        CHECK(mine.rendezvous->port > 0);
        CHECK(mine.rendezvous->job != made.specs.back().rendezvous->job);
      });
}

TEST_CASE("a turn of several ranks takes as long as the slowest of them") {
  const TemporaryFolder folder;
  on_ranks([&](RankedArms& arms) {
    const auto arm = arms.make(spec_in(folder), ArmHost::this_process);
    const Turn turn = arm->turn(5);
    CHECK(turn.steps == 5);
    CHECK(turn.samples == 160);
    CHECK(turn.seconds == Approx(0.1));  // rank 1's steps take twice as long
    CHECK(turn.step_ms == std::vector<double>(5, 20.0));
    CHECK(arm->steps_taken() == 5);
    CHECK(arm->facts().step_samples == 32);
    return 0;
  });
}

TEST_CASE("CPU time of other ranks counts where they share rank 0's CPUs") {
  Turn turn;
  turn.seconds = 1;
  turn.cpu_s = 2;
  turn.step_ms = {1, 5};
  Turn slow = turn;
  slow.seconds = 3;
  slow.data_wait_s = 0.5;
  slow.step_ms = {2, 4};
  const Turn merged = merged_turn({turn, slow, turn}, {true, true, false});
  CHECK(merged.seconds == 3);
  CHECK(merged.data_wait_s == 0.5);
  CHECK(merged.step_ms == std::vector<double>{2, 4});  // both steps end with the rank that is last
  CHECK(merged.cpu_s == 4);
  CHECK(merged.cpu_outside_s == 2);
}

TEST_CASE("an arm with its own processes fails on one rank, and the measurement goes on") {
  const TemporaryFolder folder;
  on_ranks(
      [&](RankedArms& arms) {
        {
          const auto arm = arms.make(spec_in(folder), ArmHost::own_process);
          CHECK(arm->turn(1).steps == 1);
          try {
            arm->turn(1);
            FAIL("rank 1's part has failed");
          } catch (const UserError& error) {
            CHECK(std::string(error.what()) == "rank 1: out of memory; lower data.batch_size");
            CHECK(error.code() == ExitCode::memory);
          }
        }
        arms.require_sound();
        CHECK(arms.make(spec_in(folder), ArmHost::own_process)->turn(1).steps == 1);
        return 0;
      },
      {}, 1);
}

TEST_CASE("a rank that fails in a process that the arms share ends the measurement") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(as_ranks(
                      2,
                      [&](Job& job, Communicator& communicator) {
                        NotedArms mine(communicator.rank(), communicator.rank() == 1 ? std::optional(0) : std::nullopt);
                        std::shared_ptr<Communicator> channel = job.make_communicator();
                        if (communicator.rank() == 1) {
                          serve_arms(std::move(channel), mine, duties(job));
                          return;
                        }
                        RankedArms arms(channel, mine, duties(job));
                        const auto arm = arms.make(spec_in(folder), ArmHost::this_process);
                        std::string first;
                        try {
                          arm->turn(1);
                        } catch (const UserError& error) {
                          first = error.what();
                        }
                        if (first.empty()) throw std::logic_error("rank 1 has failed");
                        try {
                          arms.require_sound();
                        } catch (const UserError& error) {
                          if (error.what() != first) throw std::logic_error("another failure than the first");
                          throw;
                        }
                      },
                      5),
                  UserError);
}

TEST_CASE("a signal to any rank reaches rank 0") {
  const TemporaryFolder folder;
  as_ranks(2, [&](Job& job, Communicator& communicator) {
    NotedArms mine(communicator.rank(), {});
    const std::shared_ptr<Communicator> channel = job.make_communicator();
    RankDuties of_rank = duties(job);
    if (communicator.rank() == 1) {
      of_rank.stop_signal = [] { return 15; };
      serve_arms(channel, mine, of_rank);
      return;
    }
    int heard = 0;
    of_rank.stopped_elsewhere = [&](int signal) { heard = signal; };
    RankedArms arms(channel, mine, of_rank);
    arms.make(spec_in(folder), ArmHost::this_process);
    arms.finish(0);
    if (heard != 15) throw std::logic_error("rank 0 did not hear of the signal");
  });
}
