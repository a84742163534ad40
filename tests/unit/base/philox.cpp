#include "base/philox.h"
#include "support/catch.h"

using namespace trainopt;

TEST_CASE("philox matches the known answers of Random123") {
  // kat_vectors of the Random123 distribution, philox4x32 with 10 rounds.
  CHECK(philox(0, 0, 0) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox(~0ull, ~0ull, ~0ull) == PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88) ==
        PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("draws stay in their range and cover it") {
  PhiloxStream stream(mix_key(1, "test"));
  std::vector<int> seen(7);
  double sum = 0, squares = 0;
  for (int i = 0; i < 70000; ++i) {
    const double unit = stream.next_unit();
    REQUIRE((unit >= 0 && unit < 1));
    ++seen[stream.next_below(7)];
    const double normal = stream.next_normal();
    sum += normal;
    squares += normal * normal;
  }
  for (const int count : seen) CHECK(std::abs(count - 10000) < 500);
  CHECK(sum / 70000 == Approx(0).margin(0.02));
  CHECK(squares / 70000 == Approx(1).margin(0.03));
}

TEST_CASE("a mixed key depends on the order of its words and on every letter of a name") {
  CHECK(mix_key(1, 2) != mix_key(2, 1));
  CHECK(mix_key(0, "conv1.weight") != mix_key(0, "conv1.weigh"));
}
