#include "base/files.h"
#include "device/tensor.h"
#include "model/model.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace trainopt;

namespace {

const ModelConfig kSmall{.name = ModelKind::mlp, .num_classes = 3, .hidden = {4}};
const InputShape kImage{1, 2, 2};

std::string refusal(Model& model, const std::filesystem::path& path) {
  try {
    model.load_weights(path);
    return "";
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::checkpoint);
    return error.what();
  }
}

}  // namespace

TEST_CASE("tensors of every type and layout are loaded from a file as contiguous copies") {
  const TemporaryFolder folder;
  NamedTensors tensors;
  for (const auto type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar,
                          at::kByte, at::kBool})
    tensors.emplace_back(at::toString(type),
                         (at::arange(24, at::TensorOptions(at::kFloat)).reshape({1, 2, 3, 4}) - 3).abs().to(type));
  tensors.emplace_back("channels_last", tensors[1].second.contiguous(at::MemoryFormat::ChannelsLast));
  tensors.emplace_back("transposed", tensors[1].second.transpose(1, 3));
  tensors.emplace_back("scalar", at::tensor(5, at::kLong).squeeze());
  tensors.emplace_back("empty", at::empty({0, 3}));
  tensors.emplace_back("parameter", at::ones({2}).set_requires_grad(true));
  save_tensors(folder.path() / "t.safetensors", tensors, {{"format", "pt"}});
  std::map<std::string, at::Tensor> loaded;
  for (const auto& [name, tensor] : load_tensors(folder.path() / "t.safetensors")) loaded[name] = tensor;
  REQUIRE(loaded.size() == tensors.size());
  for (const auto& [name, tensor] : tensors) {
    INFO(name);
    CHECK(loaded[name].scalar_type() == tensor.scalar_type());
    CHECK(loaded[name].is_contiguous());
    CHECK(at::equal(loaded[name], tensor.detach()));
  }
}

TEST_CASE("loading with a hash refuses a file that has changed since it was saved") {
  const TemporaryFolder folder;
  const TensorEntries saved = tensor_entries({{"w", at::arange(12).to(at::kHalf).reshape({3, 4}).t()}});
  File file = File::create(folder / "t");
  const uint64_t hash = append_safetensors(file, saved.entries).value();
  file.close();
  CHECK(at::equal(load_tensors(folder / "t", hash)[0].second, saved.storage[0]));
  std::string bytes = read_file(folder / "t", ExitCode::bug);
  for (const size_t changed : {bytes.size() - 1, bytes.find("  ") + 1}) {  // a byte of a tensor; a space in the header
    std::string bad = bytes;
    bad[changed] = static_cast<char>(bad[changed] == ' ' ? '\n' : bad[changed] ^ 1);
    write_file(folder / "t", bad);
    CHECK_NOTHROW(load_tensors(folder / "t"));
    CHECK_THROWS_WITH(load_tensors(folder / "t", hash),
                      ContainsSubstring((folder / "t").string() + " was changed since it was saved"));
  }
}

TEST_CASE("weights saved by one model load into another") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "w.safetensors";
  Model from = make_model({}, {3, 32, 32}, at::kCPU, 1), to = make_model({}, {3, 32, 32}, at::kCPU, 2);
  from.forward(at::randn({2, 3, 64, 64}), {.training = true});  // changes the running statistics
  from.to_memory_format(at::MemoryFormat::ChannelsLast);
  from.save_weights(path);
  const auto before = to.state();
  to.load_weights(path);
  const auto expected = from.state(), got = to.state();
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(got[i].first);
    CHECK(at::equal(got[i].second, expected[i].second));
    CHECK(got[i].second.is_same(before[i].second));
    CHECK(got[i].second.requires_grad() == expected[i].second.requires_grad());
  }
  ModelConfig config;
  config.weights = path.string();
  CHECK(at::equal(make_model(config, {3, 32, 32}, at::kCPU, 3).state()[0].second, expected[0].second));
  CHECK_NOTHROW(make_model(config, {3, 32, 32}, at::kMeta, 3));
}

TEST_CASE("num_batches_tracked may be absent") {
  const TemporaryFolder folder;
  Model model = make_model({}, {3, 32, 32}, at::kCPU, 1);
  NamedTensors without;
  for (const auto& [name, tensor] : model.state())
    if (!name.ends_with("num_batches_tracked")) without.emplace_back(name, tensor);
  save_tensors(folder.path() / "w", without);
  CHECK(refusal(model, folder.path() / "w") == "");
}

TEST_CASE("weights that do not fit are refused with the first ten differences, and the model is unchanged") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "w.safetensors";
  Model model = make_model(kSmall, kImage, at::kCPU, 1);
  const at::Tensor first = model.state()[0].second.detach().clone();

  NamedTensors tensors{{"layers.0.weight", at::zeros({4, 4})},
                       {"layers.0.bias", at::zeros({4}, at::kHalf)},
                       {"layers.1.bias", at::zeros({2})},
                       {"extra", at::zeros({1})}};
  save_tensors(path, tensors);
  CHECK(refusal(model, path) == "the weights in " + path.string() +
                                    " do not fit the model, 4 differences: layers.0.bias is Half [4] and not Float "
                                    "[4]; layers.1.weight is missing; "
                                    "layers.1.bias is Float [2] and not Float [3]; extra is unexpected");
  CHECK(at::equal(model.state()[0].second, first));

  NamedTensors many;
  for (int i = 0; i < 30; ++i) many.emplace_back(fmt::format("unknown.{:02}", i), at::zeros({1}));
  save_tensors(path, many);
  const std::string sentence = refusal(model, path);
  CHECK_THAT(sentence, ContainsSubstring("34 differences: layers.0.weight is missing"));
  CHECK_THAT(sentence, ContainsSubstring("unknown.05 is unexpected; and 24 more"));
  CHECK_THAT(sentence, !ContainsSubstring("unknown.06"));
}
