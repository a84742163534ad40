#include "data/schedule.h"

#include "base/error.h"
#include "support/catch.h"

#include <vector>

using namespace trainopt;

namespace {
BatchSchedule::Shape shape(int64_t samples, int64_t batch_size, int64_t ranks, int64_t rank, int64_t accumulation,
                           bool drop_last) {
  return {samples, batch_size, ranks, rank, accumulation, drop_last};
}
const char* word(LastBatch last) {
  return last == LastBatch::keep ? "keep" : last == LastBatch::drop ? "drop" : "merge";
}
}  // namespace

TEST_CASE("every sample is visited once per epoch, and the ranks agree on the steps") {
  for (const int64_t samples : {1, 2, 7, 24, 25, 47, 48, 49, 100})
    for (const int64_t batch : {1, 2, 3, 8})
      for (const int64_t ranks : {1, 2, 3})
        for (const int64_t accumulation : {1, 2, 3})
          for (const bool drop_last : {true, false}) {
            const int64_t global = batch * ranks * accumulation;
            if (drop_last && samples < global) continue;
            const BatchSchedule any(shape(samples, batch, ranks, 0, accumulation, drop_last));
            REQUIRE(any.steps_per_epoch() == (drop_last ? samples / global : (samples + global - 1) / global));
            std::vector<int64_t> visited;
            for (int64_t step = any.steps_per_epoch(); step < 2 * any.steps_per_epoch(); ++step) {
              double weight = 0;
              int64_t items = 0;
              for (int64_t micro = 0; micro < any.micros_in_step(step); ++micro)
                for (int64_t rank = 0; rank < ranks; ++rank) {
                  const BatchSchedule schedule(shape(samples, batch, ranks, rank, accumulation, drop_last));
                  REQUIRE(schedule.micros_in_step(step) == any.micros_in_step(step));
                  const MicroBatch b = schedule.at(step, micro);
                  REQUIRE(b.epoch == 1);
                  REQUIRE(b.is_last == (micro == any.micros_in_step(step) - 1));
                  // s·G + m·(W·B) + r·B
                  if (b.items > 0)
                    REQUIRE(b.first == (step - any.steps_per_epoch()) * global + micro * ranks * batch + rank * batch);
                  for (int64_t i = 0; i < b.items; ++i) visited.push_back(b.first + i);
                  weight += b.weight();
                  items += b.items;
                  REQUIRE(b.step_items <= global);
                }
              REQUIRE(weight == Approx(1));
              REQUIRE(items == any.at(step, 0).step_items);
            }
            REQUIRE(static_cast<int64_t>(visited.size()) == (drop_last ? samples / global * global : samples));
            for (size_t i = 0; i < visited.size(); ++i)
              REQUIRE(visited[i] == static_cast<int64_t>(i));  // in order, without duplicates
          }
}

TEST_CASE("a short last batch is dropped, joins the batch before, or is shared by the ranks") {
  struct Case {
    int64_t samples, batch, ranks, accumulation;
    LastBatch last;
    int64_t steps, visited, last_step_items;
    std::vector<int64_t> of_ranks;  ///< items of each rank in the last micro-batch
  };
  const std::vector<Case> cases{
      {97, 8, 1, 1, LastBatch::keep, 13, 97, 1, {1}},        {97, 8, 1, 1, LastBatch::drop, 12, 96, 8, {8}},
      {97, 8, 1, 1, LastBatch::merge, 12, 97, 9, {9}},       {101, 4, 1, 2, LastBatch::drop, 13, 100, 4, {4}},
      {101, 4, 1, 2, LastBatch::merge, 13, 101, 5, {5}},     {97, 4, 1, 2, LastBatch::merge, 12, 97, 9, {5}},
      {21, 4, 2, 1, LastBatch::merge, 3, 21, 5, {3, 2}},     {21, 4, 2, 1, LastBatch::drop, 2, 16, 8, {4, 4}},
      {34, 4, 3, 1, LastBatch::merge, 3, 34, 10, {4, 3, 3}},
  };
  for (const Case& c : cases) {
    INFO(c.samples << " samples, batches of " << c.batch << ", " << c.ranks << " ranks, " << word(c.last));
    const auto of_rank = [&](int64_t rank) {
      BatchSchedule::Shape of = shape(c.samples, c.batch, c.ranks, rank, c.accumulation, false);
      of.last_batch = c.last;
      return BatchSchedule(of);
    };
    const BatchSchedule any = of_rank(0);
    REQUIRE(any.steps_per_epoch() == c.steps);
    std::vector<int64_t> visited;
    for (int64_t step = 0; step < c.steps; ++step) {
      double weight = 0;
      for (int64_t micro = 0; micro < any.micros_in_step(step); ++micro)
        for (int64_t rank = 0; rank < c.ranks; ++rank) {
          const MicroBatch b = of_rank(rank).at(step, micro);
          CHECK(b.items <= any.largest_items());
          CHECK(b.step_items == any.at(step, 0).step_items);
          weight += b.weight();
          for (int64_t i = 0; i < b.items; ++i) visited.push_back(b.first + i);
          if (step == c.steps - 1 && b.is_last) CHECK(b.items == c.of_ranks[static_cast<size_t>(rank)]);
        }
      CHECK(weight == Approx(1));
    }
    CHECK(any.at(c.steps - 1, 0).step_items == c.last_step_items);
    REQUIRE(std::ssize(visited) == c.visited);
    for (size_t i = 0; i < visited.size(); ++i) CHECK(visited[i] == static_cast<int64_t>(i));
    const int64_t sequence = any.sequence_of(c.steps);
    CHECK(any.at_sequence(sequence).epoch == 1);
    CHECK(any.at_sequence(sequence - 1).is_last);
  }
  BatchSchedule::Shape alone = shape(1, 8, 1, 0, 1, false);
  for (const LastBatch last : {LastBatch::drop, LastBatch::merge}) {
    alone.last_batch = last;
    CHECK_THROWS_WITH(BatchSchedule(alone), ContainsSubstring("the short batch is the only one"));
  }
}

TEST_CASE("the count of micro-batches over all steps agrees with the count of steps") {
  const BatchSchedule schedule(shape(23, 2, 2, 1, 3, false));  // steps of 12 and 11 samples: 3 micro-batches each
  const BatchSchedule shorter(shape(14, 2, 2, 1, 3, false));   // 12 and 2: 3 and 1
  REQUIRE(shorter.micros_per_epoch() == 4);
  for (const auto& s : {schedule, shorter}) {
    int64_t sequence = 0;
    for (int64_t step = 0; step < 5; ++step) {
      REQUIRE(s.sequence_of(step) == sequence);
      for (int64_t micro = 0; micro < s.micros_in_step(step); ++micro, ++sequence) {
        REQUIRE(s.at_sequence(sequence).step == step);
        REQUIRE(s.at_sequence(sequence).micro == micro);
      }
    }
  }
  REQUIRE(shorter.at(1, 0).items == 0);  // rank 1 in a last step of two samples, both of which go to rank 0
}

TEST_CASE("an epoch without steps is refused with the numbers") {
  try {
    BatchSchedule(shape(63, 8, 2, 0, 4, true));
    FAIL("accepted");
  } catch (const UserError& error) {
    REQUIRE(error.code() == ExitCode::data);
    REQUIRE_THAT(error.what(), ContainsSubstring("63 samples, 64 a step (ranks 2 × accumulation 4 × batch_size 8)"));
  }
  REQUIRE(BatchSchedule(shape(63, 8, 2, 0, 4, false)).steps_per_epoch() == 1);
}
