// Tests the order of samples in runs: a permutation that draws equally from all partitions, needs few runs at a time,
// and gives each rank runs of its own.
#include "data/stream_order.h"
#include "data/schedule.h"

#include "support/catch.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

using namespace trainopt;

namespace {

/// 300 runs of 40 to 60 samples.
StreamLayout layout_of_300(int64_t step_samples = 64) {
  StreamLayout layout{.runs = {}, .partitions = 8, .window = 1024, .step_samples = step_samples};
  for (int64_t i = 0; i < 300; ++i) layout.runs.push_back(40 + i * 7 % 21);
  return layout;
}

std::vector<int64_t> run_of_samples(const StreamLayout& layout) {
  std::vector<int64_t> runs;
  for (size_t run = 0; run < layout.runs.size(); ++run)
    runs.insert(runs.end(), static_cast<size_t>(layout.runs[run]), static_cast<int64_t>(run));
  return runs;
}

/// First and last position at which each of a rank's runs is used.
struct Use {
  int64_t first, last;
};
using Uses = std::map<int64_t, Use>;

Uses uses_of_rank(const StreamLayout& layout, const BatchSchedule& schedule) {
  const StreamOrder order(layout, 5);
  const auto runs = run_of_samples(layout);
  Uses uses;
  for (int64_t sequence = 0; sequence < schedule.micros_per_epoch(); ++sequence) {
    const MicroBatch batch = schedule.at_sequence(sequence);
    for (int64_t position = batch.first; position < batch.first + batch.items; ++position) {
      const auto [use, is_new] = uses.try_emplace(runs[static_cast<size_t>(order(position))], Use{position, position});
      use->second.last = position;
    }
  }
  return uses;
}

}  // namespace

TEST_CASE("an order in runs is a permutation") {
  const std::vector<std::vector<int64_t>> all_runs{{1},          {5},     {1, 1, 1}, {3, 1, 4, 1, 5, 9, 2, 6},
                                                   {100, 1, 50}, {64, 64}};
  for (const auto& runs : all_runs)
    for (const int64_t partitions : {1, 2, 3, 8, 200})
      for (const int64_t window : {1, 10, 1000})
        for (const int64_t step_samples : {1, 4, 7, 64, 1000}) {
          const StreamLayout layout{
              .runs = runs, .partitions = partitions, .window = window, .step_samples = step_samples};
          const StreamOrder order(layout, 3);
          std::set<int64_t> seen;
          for (int64_t position = 0; position < layout.samples(); ++position) seen.insert(order(position));
          REQUIRE(static_cast<int64_t>(seen.size()) == layout.samples());
          REQUIRE(*seen.begin() == 0);
          REQUIRE(*seen.rbegin() == layout.samples() - 1);
        }
}

TEST_CASE("an order in runs depends on seed and epoch only, for threads too") {
  const auto first = [](uint64_t seed, int64_t epoch) {
    const Sampler sampler(layout_of_300(), seed);
    const EpochOrder order = sampler.order(epoch);
    std::vector<int64_t> all(200);
    for (size_t i = 0; i < all.size(); ++i) all[i] = order(static_cast<int64_t>(i));
    return all;
  };
  CHECK(first(1, 0) == first(1, 0));
  CHECK(first(1, 0) != first(1, 1));
  CHECK(first(1, 0) != first(2, 0));
  const Sampler sampler(layout_of_300(), 1);
  const EpochOrder of_epoch_0 = sampler.order(0);
  sampler.order(1);
  CHECK(of_epoch_0(17) == first(1, 0)[17]);
}

TEST_CASE("each step draws equally from all partitions") {
  const StreamLayout layout = layout_of_300();
  const StreamOrder order(layout, 5);
  const auto runs = run_of_samples(layout);
  for (int64_t step = 0; step < 50; ++step) {
    std::set<int64_t> used;
    for (int64_t i = 0; i < 64; ++i) used.insert(runs[static_cast<size_t>(order(step * 64 + i))]);
    // Eight samples of each partition's window of three runs: more than one run of each, as a rule.
    CHECK(used.size() >= 12);
    CHECK(used.size() <= 32);
  }
}

TEST_CASE("the draws of an epoch are as even as its samples allow") {
  // Runs of one sample in an order of their own: with a window of one, the n-th draw from a partition is its n-th
  // place.
  StreamLayout layout{.runs = std::vector<int64_t>(1003, 1), .partitions = 8, .window = 1, .step_samples = 20};
  const StreamOrder in_steps(layout, 5);
  layout.partitions = 1;
  layout.step_samples = 1003;
  const StreamOrder line(layout, 5);
  std::map<int64_t, int64_t> place_of;
  for (int64_t place = 0; place < 1003; ++place) place_of[line(place)] = place;
  for (int64_t begin = 0; begin < 1003; begin += 20) {
    std::map<int64_t, int64_t> drawn;
    const int64_t end = std::min<int64_t>(1003, begin + 20);
    for (int64_t position = begin; position < end; ++position) {
      // The first three partitions have 126 places, the others 125.
      const int64_t place = place_of[in_steps(position)];
      ++drawn[place < 378 ? place / 126 : 3 + (place - 378) / 125];
    }
    for (int64_t partition = 0; partition < 8; ++partition) {
      CHECK(drawn[partition] >= (end - begin) / 8);
      CHECK(drawn[partition] <= (end - begin) / 8 + 1);
    }
  }
}

TEST_CASE("ranks read runs of their own, and few at a time") {
  const StreamLayout layout = layout_of_300();
  const int64_t samples = layout.samples();
  for (const int64_t accumulation : {1, 2})
    for (const int64_t ranks : {1, 2, 4}) {
      std::vector<std::vector<int64_t>> reads;
      int64_t read = 0;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const BatchSchedule schedule({.samples = samples,
                                      .batch_size = 64 / ranks / accumulation,
                                      .ranks = ranks,
                                      .rank = rank,
                                      .accumulation = accumulation,
                                      .drop_last = true});
        const Uses uses = uses_of_rank(layout, schedule);
        int64_t most = 0;
        for (const auto& [run, use] : uses) {
          read += layout.runs[static_cast<size_t>(run)];
          int64_t open = 0;  // when this run is first used
          for (const auto& [other, other_use] : uses)
            open += other_use.first <= use.first && other_use.last >= use.first;
          most = std::max(most, open);
        }
        // Windows of 128 samples have three runs of at least 40, and one more where they are cut.
        CHECK(most <= 8 / ranks * 5);
      }
      CHECK(read <= samples * 105 / 100);
    }
}

TEST_CASE("partitions need new runs at different times") {
  StreamLayout layout{.runs = std::vector<int64_t>(64, 32), .partitions = 8, .window = 1024, .step_samples = 64};
  const StreamOrder order(layout, 5);
  std::set<int64_t> seen;
  int64_t most_new = 0;
  for (int64_t step = 2; step < layout.samples() / 64; ++step) {
    int64_t fresh = 0;
    for (int64_t i = 0; i < 64; ++i) fresh += seen.insert(order(step * 64 + i) / 32).second;
    most_new = std::max(most_new, fresh);
  }
  CHECK(most_new <= 24);  // of 32 runs that eight windows of four have
}
