#include "debugging/gradcheck/deviation.h"
#include "device/tensor.h"
#include "support/catch.h"

#include <cmath>
#include <limits>

using namespace trainopt;
using namespace trainopt::gradcheck;

namespace {

/// Values between 1 and 2 that differ from their neighbours.
at::Tensor images() {
  return at::arange(2 * 3 * 8 * 8, at::kDouble).mul_(0.7).remainder_(1).add_(1).view({2, 3, 8, 8});
}

}  // namespace

TEST_CASE("equal tensors do not deviate, whatever their type, and zeros equal zeros") {
  const at::Tensor wanted = images().to(at::kBFloat16).to(at::kDouble);
  CHECK(deviation(wanted.to(at::kBFloat16), wanted).relative == 0);
  CHECK(deviation(at::zeros({4, 4}, at::kFloat), at::zeros({4, 4}, at::kDouble)).relative == 0);
}

TEST_CASE("a scaled tensor deviates by the scale") {
  const Deviation found = deviation(images() * 1.01, images());
  CHECK(found.relative == Approx(0.01));
  CHECK(deviation(at::full({}, 2.02, at::kDouble), at::full({}, 2.0, at::kDouble)).relative == Approx(0.01));
}

TEST_CASE("an error in one row, column, channel or image is found and named") {
  const std::vector<std::pair<int64_t, std::string>> slices{
      {0, "[1, :, :, :]"}, {1, "[:, 1, :, :]"}, {2, "[:, :, 1, :]"}, {3, "[:, :, :, 1]"}};
  for (const auto& [dimension, name] : slices) {
    at::Tensor got = images();
    got.select(dimension, 1).mul_(1.01);
    const Deviation found = deviation(got, images());
    CHECK(found.relative == Approx(0.01).epsilon(0.01));  // one of its share of the whole, which may be more
    CHECK(found.slice == name);
  }
}

TEST_CASE("what cancels in a small slice is not an error") {
  at::Tensor wanted = at::ones({100}, at::kDouble), got = wanted.clone();
  wanted[7] = 0;
  got[7] = 1e-3;
  CHECK(deviation(got, wanted).relative == Approx(1e-3).epsilon(0.01));
}

TEST_CASE("NaN and infinity are the largest deviation") {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    at::Tensor got = images();
    got[1][2][3][4] = bad;
    const Deviation found = deviation(got, images());
    CHECK_FALSE(found.relative <= 1e300);
  }
}

TEST_CASE("rounding stays within its bound, and a hundredth more does not") {
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor twice = (images().to(type).to(at::kDouble) * 1.7).to(type);  // rounded twice
    const double bound = rounding_bound(type, 1);
    CHECK(deviation(twice, images() * 1.7).relative <= bound);
    CHECK_FALSE(deviation(twice * 1.01, images() * 1.7).relative <= bound);
  }
  CHECK(rounding_bound(at::kFloat, 1 << 20) < 0.003);  // the longest sums
}
