#include "train/archive.h"
#include "base/error.h"
#include "support/catch.h"

#include <ATen/ATen.h>
#include <unistd.h>

using namespace trainopt;

TEST_CASE("an archive gives back what was put in, and refuses what does not fit") {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("trainopt-archive-{}", ::getpid());
  const at::Tensor weight = at::randn({3, 4}), count = at::full({}, 7, at::kDouble);
  ArchiveWriter writer;
  writer.tensor("weight", weight);
  writer.tensor("count", count);
  writer.value("step", 12);
  writer.write(folder);

  const ArchiveReader reader(folder);
  at::Tensor read = at::zeros({3, 4}), read_count = at::zeros({}, at::kDouble);
  reader.tensor("weight", read);
  reader.tensor("count", read_count);
  CHECK(read.equal(weight));
  CHECK(read_count.item<double>() == 7);
  CHECK(reader.value("step") == 12);
  at::Tensor other_shape = at::zeros({4, 3}), other_type = at::zeros({3, 4}, at::kDouble);
  CHECK_THROWS_WITH(reader.tensor("weight", other_shape), ContainsSubstring("another shape"));
  CHECK_THROWS_WITH(reader.tensor("weight", other_type), ContainsSubstring("another shape or type"));
  CHECK_THROWS_WITH(reader.tensor("bias", read), ContainsSubstring("no tensor bias"));
  CHECK_THROWS_AS(reader.value("epoch"), UserError);
  std::filesystem::remove(folder / "state.json");
  CHECK_THROWS_AS(ArchiveReader(folder), UserError);
  std::filesystem::remove_all(folder);
}
