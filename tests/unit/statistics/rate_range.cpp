#include "statistics/rate_range.h"

#include "support/catch.h"

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

using namespace trainopt;

namespace {

/// 101 rates from 1e-6 to 10.
std::vector<RatePoint> points_of(const std::function<double(double rate)>& loss) {
  std::vector<RatePoint> points;
  for (int i = 0; i <= 100; ++i) {
    const double rate = std::pow(10.0, -6 + 0.07 * i);
    points.push_back({rate, loss(rate)});
  }
  return points;
}

RateRange read_sgd(const std::vector<RatePoint>& points) { return read_rate_range(points, UpdateLength::gradient); }

/// Falls from 2.3 to 0.8 around 1e-3, and rises from 0.1 on.
double usual(double rate) { return 2.3 - 1.5 / (1 + 1e-3 / rate) + 40 * std::max(0.0, rate - 0.1); }

}  // namespace

TEST_CASE("the suggested rate is well below that of the lowest loss") {
  const RateRange range = read_sgd(points_of(usual));
  const double lowest = points_of(usual)[range.lowest].rate;
  CHECK(lowest > 0.04);
  CHECK(lowest < 0.11);
  REQUIRE(range.suggestion);
  // 70 % of the way from 2.3 to about 0.82, smoothed over neighbours.
  const double steep = points_of(usual)[range.steep].rate;
  CHECK(steep > 0.0018);
  CHECK(steep < 0.003);
  CHECK(*range.suggestion == steep / 3);
  REQUIRE(range.failed);
  CHECK(points_of(usual)[*range.failed].rate < 0.3);
  CHECK(range.smoothed.size() == *range.failed + 1);
  CHECK_THAT(range.reason, ContainsSubstring("a third of") && ContainsSubstring("70 % of its fall; lowest at") &&
                               ContainsSubstring("failed at"));
  CHECK(*read_rate_range(points_of(usual), UpdateLength::fixed).suggestion == steep);
  const RateRange of_weights = read_rate_range(points_of(usual), UpdateLength::weights);
  CHECK(*of_weights.suggestion == steep / 4);
  CHECK_THAT(of_weights.reason, ContainsSubstring("a quarter of"));
}

TEST_CASE("where the loss is flat after its fall, noise does not move the suggestion") {
  const auto flat = [](double lowest_at) {
    return [=](double rate) { return usual(rate) - (std::abs(std::log(rate / lowest_at)) < 0.3 ? 0.4 : 0); };
  };
  const RateRange early = read_sgd(points_of(flat(0.01))), late = read_sgd(points_of(flat(0.08)));
  CHECK(points_of(usual)[late.lowest].rate > 3 * points_of(usual)[early.lowest].rate);
  CHECK(*late.suggestion < 1.5 * *early.suggestion);
}

TEST_CASE("noise of single steps does not decide") {
  int step = 0;
  const RateRange calm = read_sgd(points_of(usual)),
                  noisy = read_sgd(points_of([&](double rate) { return usual(rate) + 0.1 * std::sin(37.0 * ++step); }));
  REQUIRE(noisy.suggestion);
  CHECK(std::abs(std::log(*noisy.suggestion / *calm.suggestion)) < 0.5);
}

TEST_CASE("a loss that is not finite ends the test, however early") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto points = points_of([&](double rate) { return rate < 0.05 ? usual(rate) : nan; });
  const RateRange range = read_sgd(points);
  REQUIRE(range.failed);
  CHECK(points[*range.failed].rate == Approx(0.05).epsilon(0.2));
  REQUIRE(range.suggestion);
  CHECK(*range.suggestion < 0.0126);
  const RateRange at_once = read_sgd(points_of([&](double) { return nan; }));
  CHECK_FALSE(at_once.suggestion);
  CHECK(at_once.smoothed.empty());
  CHECK_THAT(at_once.reason, ContainsSubstring("not finite from 1e-06 on"));
}

TEST_CASE("without a fall or a rise there is no suggestion, and the reason says why") {
  const RateRange flat = read_sgd(points_of([](double) { return 2.3; }));
  CHECK_FALSE(flat.suggestion);
  CHECK_THAT(flat.reason, ContainsSubstring("fell at no rate"));
  const RateRange falling = read_sgd(points_of([](double rate) { return 2.3 - 1.5 / (1 + 1 / rate); }));
  CHECK_FALSE(falling.suggestion);
  CHECK_THAT(falling.reason, ContainsSubstring("still falls at the highest rate, 10"));
}
