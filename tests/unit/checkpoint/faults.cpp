// Makes every call to the file system fail once, in every way. A complete checkpoint must always remain, and the next
// attempt must succeed.
#include "some_checkpoint.h"
#include "support/file_faults.h"

#include <spdlog/spdlog.h>

#include <array>
#include <tuple>

using namespace trainopt;
using namespace trainopt::test;

namespace {

constexpr std::array<std::tuple<FaultKind, int>, 9> kFailures{{{FaultKind::once, ENOSPC},
                                                               {FaultKind::once, EIO},
                                                               {FaultKind::once, EDQUOT},
                                                               {FaultKind::once, EROFS},
                                                               {FaultKind::once, EINVAL},
                                                               {FaultKind::from_then_on, ENOSPC},
                                                               {FaultKind::from_then_on, EROFS},
                                                               {FaultKind::short_write, ENOSPC},
                                                               {FaultKind::once, EINTR}}};
constexpr std::array<Survival, 5> kSurvivals{
    {{true, true}, {true, false}, {false, true}, {false, false}, {true, true, true}}};

/// Requires that every folder with a checkpoint's name is complete, `latest` points to one of them, and nothing else is
/// left.
void require_complete(const std::filesystem::path& root) {
  spdlog::set_level(spdlog::level::err);  // otherwise it logs thousands of lines
  remove_drafts(root);
  for (const auto& checkpoint : list_checkpoints(root)) verify_checkpoint(checkpoint.folder);
  verify_checkpoint(root / kLatest);
  const auto names = names_in(root);
  const auto abandoned =
      std::count_if(names.begin(), names.end(), [](const std::string& name) { return name.starts_with("abandoned-"); });
  REQUIRE(names.size() == list_checkpoints(root).size() + 1 + static_cast<size_t>(abandoned));
}

/// A file system that cannot exchange two folders, with another fault in addition.
class WithoutExchange : public FaultAt {
 public:
  using FaultAt::FaultAt;
  int before(FileCall call, const std::filesystem::path& path, size_t& bytes) override {
    const int error = FaultAt::before(call, path, bytes);
    return error == 0 && call == FileCall::exchange ? ENOSYS : error;
  }
};

/// One change to a folder of checkpoints: the state before, the work, and checks of the state afterwards.
struct Change {
  std::function<void(const std::filesystem::path&root)> prepare, work;
  std::function<void(const std::filesystem::path& root)> check;  ///< holds after a fault
  std::function<void(const std::filesystem::path& root)> done;   ///< holds after the work succeeded
  bool all_storage = true;                                       ///< whether all its errors have the code `storage`
  bool always_complete =
      true;  ///< whether `latest` points to a complete checkpoint at every moment, even before remove_drafts()
};

template <class Faults>
int64_t count_calls(const Change& change) {
  const MemoryFolder folder;
  change.prepare(folder.path());
  Faults faults;
  const ScopedFileFaults scope(faults);
  change.work(folder.path());
  return faults.calls();
}

void finish(const Change& change, const std::filesystem::path& root) {
  require_complete(root);
  change.check(root);
  change.work(root);
  require_complete(root);
  change.done(root);
}

template <class Faults = FaultAt>
void fail_each_call(const Change& change) {
  const int64_t calls = count_calls<Faults>(change);
  REQUIRE(calls > 3);
  for (const auto& [kind, error] : kFailures)
    for (int64_t at = 1; at <= calls; ++at) {
      INFO("call " << at << " of " << calls << ", errno " << error << ", kind " << static_cast<int>(kind));
      const MemoryFolder folder;
      const auto root = folder.path();
      change.prepare(root);
      bool failed = false;
      try {
        Faults faults(at, kind, error);
        const ScopedFileFaults scope(faults);
        change.work(root);
      } catch (const UserError& problem) {
        failed = true;
        if (change.all_storage) REQUIRE(problem.code() == ExitCode::storage);
        REQUIRE_THAT(problem.what(), ContainsSubstring(root.string()));
      }
      if (error == EINTR) REQUIRE_FALSE(failed);
      if (!failed) {
        require_complete(root);
        change.done(root);
      }
      finish(change, root);
    }
}

template <class Faults = FaultAt>
void kill_each_call(const Change& change) {
  const int64_t calls = count_calls<Faults>(change);
  for (const FaultKind kind : {FaultKind::kill, FaultKind::short_kill})
    for (int64_t at = 1; at <= calls; ++at) {
      INFO("killed at call " << at << " of " << calls << ", kind " << static_cast<int>(kind));
      const MemoryFolder folder;
      change.prepare(folder.path());
      const bool ended = killed<Faults>([&] { return Faults(at, kind); }, [&] { change.work(folder.path()); });
      REQUIRE((ended || at == calls));  // a kill after a short write in the last call comes too late
      if (change.always_complete) verify_checkpoint(folder.path() / kLatest);
      finish(change, folder.path());
    }
}

void cut_power_at_each_call(const Change& change) {
  const int64_t calls = count_calls<FaultAt>(change);
  for (const Survival survival : kSurvivals)
    for (int64_t at = 1; at <= calls; ++at) {
      INFO("no power at call " << at << " of " << calls << ", survives: " << survival.synced_names_in_root
                               << survival.synced_names_below << survival.all_links);
      const MemoryFolder folder;
      const auto before = folder / "before", after = folder / "after";
      std::filesystem::create_directory(before);
      change.prepare(before);
      REQUIRE(killed<PowerFailure>([&] { return PowerFailure(before, after, survival, at); },
                                   [&] { change.work(before); }));
      finish(change, after);
    }
}

void fault_each_call(const Change& change) {
  SECTION("errors") { fail_each_call(change); }
  SECTION("kills") { kill_each_call(change); }
  SECTION("power failures") { cut_power_at_each_call(change); }
}

bool holds(const std::filesystem::path& root, int64_t step) {
  const auto all = steps(root);
  return std::find(all.begin(), all.end(), step) != all.end();
}

const Change kSecond{.prepare = [](const auto& root) { save(root, 1); },
                     .work = [](const auto& root) { save(root, 2); },
                     .check = [](const auto& root) { REQUIRE(holds(root, 1)); },
                     .done =
                         [](const auto& root) {
                           REQUIRE(steps(root) == std::vector<int64_t>{2, 1});
                           REQUIRE(open_checkpoint(root / kLatest).step == 2);
                         }};

bool can_exchange() {
  const MemoryFolder folder;
  make_folder(folder / "a");
  make_folder(folder / "b");
  return exchange_paths(folder / "a", folder / "b");
}

Change replacement(bool exchanges) {
  return {.prepare = [](const auto& root) { save(root, 1, 1); },
          .work = [](const auto& root) { save(root, 1, 2); },
          .check = [](const auto& root) { REQUIRE(holds(root, 1)); },
          .done =
              [](const auto& root) {
                const MemoryFolder other;
                save(other.path(), 1, 2);
                REQUIRE(open_checkpoint(root / kLatest) == open_checkpoint(other / "latest"));
              },
          .always_complete = exchanges};
}

const Change kPruning{.prepare =
                          [](const auto& root) {
                            for (int64_t step = 1; step <= 4; ++step) save(root, step);
                          },
                      .work = [](const auto& root) { prune_checkpoints(root, 1, {3}); },
                      .check = [](const auto& root) { REQUIRE((holds(root, 4) && holds(root, 3))); },
                      .done =
                          [](const auto& root) {
                            REQUIRE(steps(root) == std::vector<int64_t>{4, 3});
                          },
                      .all_storage = false};

const Change kRewind{.prepare =
                         [](const auto& root) {
                           for (int64_t step = 1; step <= 4; ++step) save(root, step);
                         },
                     .work = [](const auto& root) { abandon_newer(root, 2); },
                     .check = [](const auto& root) { REQUIRE((holds(root, 2) && holds(root, 1))); },
                     .done =
                         [](const auto& root) {
                           REQUIRE(steps(root) == std::vector<int64_t>{2, 1});
                           REQUIRE(open_checkpoint(root / kLatest).step == 2);
                           for (const char* name : {"abandoned-step-00000003", "abandoned-step-00000004"})
                             verify_checkpoint(root / name);
                         },
                     .all_storage = false};

}  // namespace

TEST_CASE("a second checkpoint is complete or absent, whichever call fails") { fault_each_call(kSecond); }

TEST_CASE("replacing a checkpoint leaves the old or the new one, whichever call fails") {
  fault_each_call(replacement(can_exchange()));
}

TEST_CASE("replacing a checkpoint survives faults on file systems that cannot exchange two folders") {
  SECTION("errors") { fail_each_call<WithoutExchange>(replacement(false)); }
  SECTION("kills") { kill_each_call<WithoutExchange>(replacement(false)); }
}

TEST_CASE("setting newer checkpoints aside damages and loses none, whichever call fails") { fault_each_call(kRewind); }

TEST_CASE("pruning leaves only complete checkpoints, whichever call fails") { fault_each_call(kPruning); }

TEST_CASE("a replaced checkpoint keeps its files until its old name is gone from the disk, even if an fsync fails") {
  const Change change = replacement(false);
  for (int64_t failing_sync = 1; failing_sync <= 8; ++failing_sync)
    for (int64_t at = 1; at <= 60; ++at) {
      INFO("fsync " << failing_sync << " fails, no power at call " << at);
      const MemoryFolder folder;
      const auto before = folder / "before", after = folder / "after";
      std::filesystem::create_directory(before);
      change.prepare(before);
      const auto work = [&] {
        try {
          change.work(before);
        } catch (const UserError&) {  // expected; the power fails later
        }
      };
      if (killed<PowerFailure>([&] { return PowerFailure(before, after, {true, false}, at, failing_sync); }, work))
        finish(change, after);
      else
        break;
    }
}

TEST_CASE("leftovers of a killed run are removed, and the removal may be interrupted too") {
  const Change removal{.prepare =
                           [](const auto& root) {
                             save(root, 1);
                             save(root, 2);
                             std::filesystem::rename(root / checkpoint_name(2), root / ".step-00000002.1.00000000");
                             point_link(root / kLatest, checkpoint_name(1));
                             std::filesystem::rename(root / checkpoint_name(1), root / ".replaced.step-00000001");
                           },
                       .work = [](const auto& root) { remove_drafts(root); },
                       .check = [](const auto& root) { REQUIRE(holds(root, 1)); },
                       .done = [](const auto& root) { REQUIRE(steps(root) == std::vector<int64_t>{1}); },
                       .always_complete = false};
  fault_each_call(removal);
}

TEST_CASE("a checkpoint exchanged right before a kill keeps its files until its old name is gone from the disk") {
  if (!can_exchange()) return;
  const auto hidden = ".step-00000001.1.00000000";
  const Change change{.prepare =
                          [&](const auto& root) {
                            save(root, 1, 1);
                            std::filesystem::rename(root / checkpoint_name(1), root / hidden);
                            save(root, 1, 2);
                          },
                      .work =
                          [&](const auto& root) {
                            if (std::filesystem::exists(root / hidden))
                              exchange_paths(root / hidden, root / checkpoint_name(1));
                            remove_drafts(root);
                          },
                      .check = [](const auto& root) { REQUIRE(holds(root, 1)); },
                      .done = [](const auto& root) { REQUIRE(steps(root) == std::vector<int64_t>{1}); }};
  fault_each_call(change);
}
