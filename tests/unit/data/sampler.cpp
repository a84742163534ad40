#include "data/sampler.h"

#include "support/catch.h"

#include <cmath>
#include <map>
#include <numeric>
#include <set>

using namespace trainopt;

TEST_CASE("the order is a permutation for every size") {
  std::vector<int64_t> sizes(300);
  std::iota(sizes.begin(), sizes.end(), 1);
  for (const int64_t size : {1000, 1023, 1024, 1025, 10000, 50000}) sizes.push_back(size);
  for (const int64_t size : sizes) {
    const auto order = Sampler(size, 7, true).order(3);
    std::vector<bool> seen(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      const int64_t sample = order(i);
      REQUIRE(sample >= 0);
      REQUIRE(sample < size);
      REQUIRE_FALSE(seen[static_cast<size_t>(sample)]);
      seen[static_cast<size_t>(sample)] = true;
    }
  }
}

TEST_CASE("without shuffling, the order is index order") {
  const Sampler sampler(10, 7, false);
  for (int64_t i = 0; i < 10; ++i) REQUIRE(sampler.sample_at(5, i) == i);
}

TEST_CASE("the order depends only on seed and epoch") {
  const auto order = [](uint64_t seed, int64_t epoch) {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < 100; ++i) all.push_back(Sampler(100, seed, true).sample_at(epoch, i));
    return all;
  };
  REQUIRE(order(1, 0) == order(1, 0));
  REQUIRE(order(1, 0) != order(1, 1));
  REQUIRE(order(1, 0) != order(2, 0));
}

TEST_CASE("all orders of a small data set are equally likely") {
  for (const int64_t size : {2, 3, 4, 5}) {
    const int64_t epochs = 12000;
    const Sampler sampler(size, 11, true);
    std::map<std::vector<int64_t>, int64_t> count;
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      const auto order = sampler.order(epoch);
      std::vector<int64_t> all;
      for (int64_t i = 0; i < size; ++i) all.push_back(order(i));
      ++count[all];
    }
    const double orders = std::tgamma(static_cast<double>(size) + 1), expected = static_cast<double>(epochs) / orders;
    REQUIRE(static_cast<double>(count.size()) == orders);
    double chi_square = 0;
    for (const auto& [order, n] : count) chi_square += std::pow(static_cast<double>(n) - expected, 2) / expected;
    CHECK(chi_square < orders - 1 + 5 * std::sqrt(2 * (orders - 1)));  // five standard deviations above the mean
  }
}

TEST_CASE("the order of a large data set is well mixed") {
  const int64_t size = 10000;
  const auto order = Sampler(size, 3, true).order(0);
  // Each tenth of the epoch draws about evenly from each tenth of the samples: 100 cells of 100 expected.
  std::vector<double> cells(100);
  int64_t neighbours = 0;
  for (int64_t i = 0; i < size; ++i) {
    ++cells[static_cast<size_t>(i / 1000 * 10 + order(i) / 1000)];
    if (i > 0 && std::abs(order(i) - order(i - 1)) == 1) ++neighbours;
  }
  double chi_square = 0;
  for (const double n : cells) chi_square += (n - 100) * (n - 100) / 100;
  CHECK(chi_square < 81 + 5 * std::sqrt(2 * 81.0));
  CHECK(neighbours < 20);  // 2 expected
}
