#include "metrics/step_statistics.h"

#include "support/catch.h"

using namespace trainopt;

TEST_CASE("a long series has few pieces, the same sums and the same order") {
  StepSeries series;
  Piece sum;
  for (int i = 1; i <= 10'000; ++i) {
    series.add({static_cast<double>(i % 7), static_cast<double>(i)});
    sum = {sum.samples + i % 7, sum.seconds + i};
  }
  const std::vector<Piece> pieces = series.pieces();
  CHECK(series.steps_per_piece() == 16);
  CHECK(pieces.size() == 625);
  Piece of_pieces;
  for (const Piece& piece : pieces) {
    CHECK(piece.seconds > of_pieces.seconds - sum.seconds);
    of_pieces = {of_pieces.samples + piece.samples, of_pieces.seconds + piece.seconds};
  }
  CHECK(of_pieces.samples == sum.samples);
  CHECK(of_pieces.seconds == sum.seconds);
  CHECK(pieces.front().seconds == 16 * 17 / 2);
  CHECK(pieces.back().seconds == 16 * 10'000 - 15 * 16 / 2);
}

TEST_CASE("an incomplete piece counts") {
  StepSeries series(4);
  for (int i = 0; i < 6; ++i) series.add({1, 0.5});
  REQUIRE(series.pieces().size() == 2);
  CHECK(series.pieces()[0].samples == 4);
  CHECK(series.pieces()[1].seconds == 1.0);
  CHECK(StepSeries().pieces().empty());
}
