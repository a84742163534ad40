#include "base/error.h"
#include "device/tensor.h"
#include "support/catch.h"
#include "train/checkpoint/archive.h"

using namespace trainopt;

TEST_CASE("an archive returns what was stored and refuses wrong shapes, types and names") {
  const at::Tensor weight = at::randn({3, 4}), count = at::full({}, 7, at::kDouble);
  const ArchiveReader reader("here", {{"weight", weight}, {"count", count}}, {{"step", 12}, {"name", "x"}});
  at::Tensor read = at::zeros({3, 4}), read_count = at::zeros({}, at::kDouble);
  reader.tensor("weight", read);
  reader.tensor("count", read_count);
  CHECK(read.equal(weight));
  CHECK(read_count.item<double>() == 7);
  CHECK(reader.integer("step") == 12);
  at::Tensor other_shape = at::zeros({4, 3}), other_type = at::zeros({3, 4}, at::kDouble);
  CHECK_THROWS_WITH(reader.tensor("weight", other_shape), ContainsSubstring("wrong shape"));
  CHECK_THROWS_WITH(reader.tensor("weight", other_type), ContainsSubstring("float32 [3, 4], expected float64 [3, 4]"));
  CHECK_THROWS_WITH(reader.tensor("bias"), ContainsSubstring("no tensor bias"));
  CHECK_THROWS_AS(reader.value("epoch"), UserError);
  CHECK_THROWS_AS(reader.integer("name"), UserError);
}

TEST_CASE("another network is refused with the first ten differences") {
  ArchiveWriter expected;
  NamedTensors stored;
  for (int i = 0; i < 8; ++i) expected.tensor(fmt::format("only here {}", i), at::zeros({1}));
  for (int i = 0; i < 4; ++i) stored.emplace_back(fmt::format("only there {}", i), at::zeros({1}));
  expected.tensor("both", at::zeros({2}));
  stored.emplace_back("both", at::zeros({3}));
  stored.emplace_back("apart.x", at::zeros({3}));
  try {
    ArchiveReader("somewhere", stored, {}).require_like(expected, {"apart."});
    FAIL("it fitted");
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::checkpoint);
    const std::string text = error.what();
    CHECK_THAT(text, ContainsSubstring("somewhere") &&
                         ContainsSubstring("both is float32 [3] there but float32 [2] here") &&
                         ContainsSubstring("only here 0 is missing") && ContainsSubstring("and 3 more") &&
                         !ContainsSubstring("apart"));
  }
}
