#include "base/files/files.h"
#include "base/json.h"
#include "device/tensor.h"
#include "model/model.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace trainopt;

namespace {

const ModelConfig kSmallMlp{.name = ModelKind::mlp, .num_classes = 3, .hidden = {4}};
const InputShape kMlpImage{1, 2, 2};
const ModelConfig kVit{.name = ModelKind::vit, .patch = 4, .layers = 1, .heads = 2, .width = 8};

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
  Model model = make_model(kSmallMlp, kMlpImage, at::kCPU, 1);
  const at::Tensor first = model.state()[0].second.detach().clone();

  NamedTensors tensors{{"layers.0.weight", at::zeros({4, 4})},
                       {"layers.0.bias", at::zeros({4}, at::kDouble)},
                       {"layers.1.bias", at::zeros({2})},
                       {"extra", at::zeros({1})}};
  save_tensors(path, tensors);
  CHECK(refusal(model, path) == "the weights in " + path.string() +
                                    " do not fit the model, 4 differences: layers.0.bias is Double [4] and not Float "
                                    "[4]; layers.1.weight is missing; "
                                    "layers.1.bias is Float [2] and not Float [3]; extra is unexpected");
  CHECK(at::equal(model.state()[0].second, first));

  NamedTensors many;
  for (int i = 0; i < 30; ++i) many.emplace_back(fmt::format("unknown.{:02}", i), at::zeros({1}));
  save_tensors(path, many);
  const std::string sentence = refusal(model, path);
  CHECK_THAT(sentence,
             ContainsSubstring("the model has layers.0.bias, layers.0.weight, layers.1.bias, layers.1.weight;"));
  CHECK_THAT(sentence, ContainsSubstring("unknown.09 and 20 more"));
  CHECK_THAT(sentence, !ContainsSubstring("unknown.10"));
  many.emplace_back("layers.0.bias", at::zeros({4}));
  save_tensors(path, many);
  const std::string differences = refusal(model, path);
  CHECK_THAT(differences, ContainsSubstring("33 differences: layers.0.weight is missing"));
  CHECK_THAT(differences, ContainsSubstring("unknown.09 is unexpected; and 20 more"));
  CHECK_THAT(differences, !ContainsSubstring("unknown.10"));
}

TEST_CASE("replace_head takes all weights but the last layer's, which may have any size") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "w";
  const auto differing = [&](const ModelConfig& config, const InputShape& image) {
    make_model(config, image, at::kCPU, 1).save_weights(path);
    ModelConfig other = config;
    other.num_classes = 7;
    Model model = make_model(other, image, at::kCPU, 2);
    const std::string sentence = refusal(model, path);
    CHECK_THAT(sentence, ContainsSubstring("2 differences") &&
                             ContainsSubstring("model.replace_head: true starts with a new last layer"));
    other.weights = path.string();
    other.replace_head = true;
    const Model replaced = make_model(other, image, at::kCPU, 2), from = make_model(config, image, at::kCPU, 1);
    std::vector<std::string> names;
    const auto got = replaced.state(), initial = model.state(), file = from.state();
    for (size_t i = 0; i < got.size(); ++i) {
      const bool in_file = got[i].second.sizes() == file[i].second.sizes() && at::equal(got[i].second, file[i].second);
      if (in_file) continue;
      names.push_back(got[i].first);
      CHECK(at::equal(got[i].second, initial[i].second));
    }
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(differing({}, {3, 32, 32}) == Names{"fc.weight", "fc.bias"});
  CHECK(differing(kVit, {3, 8, 8}) == Names{"heads.head.weight", "heads.head.bias"});
  CHECK(differing(kSmallMlp, kMlpImage) == Names{"layers.1.weight", "layers.1.bias"});
  // A last layer is replaced even if it would fit, and the file need not have one.
  ModelConfig same = kSmallMlp;
  make_model(kSmallMlp, kMlpImage, at::kCPU, 1).save_weights(path);
  same.weights = path.string();
  same.replace_head = true;
  CHECK(at::equal(make_model(same, kMlpImage, at::kCPU, 2).state()[2].second,
                  make_model(kSmallMlp, kMlpImage, at::kCPU, 2).state()[2].second));
  save_tensors(path, {{"layers.0.weight", at::ones({4, 4})}, {"layers.0.bias", at::ones({4})}});
  CHECK(make_model(same, kMlpImage, at::kCPU, 2).state()[0].second.eq(1).all().item<bool>());
  save_tensors(path, {{"layers.0.weight", at::ones({4, 4})}});
  CHECK_THROWS_WITH(make_model(same, kMlpImage, at::kCPU, 2),
                    ContainsSubstring("1 difference: layers.0.bias is missing"));
}

TEST_CASE("a vit's weights for images of another size are refused with both numbers of patches") {
  const TemporaryFolder folder;
  make_model(kVit, {3, 16, 16}, at::kCPU, 1).save_weights(folder / "w");
  Model model = make_model(kVit, {3, 8, 8}, at::kCPU, 1);
  CHECK_THAT(refusal(model, folder / "w"),
             ContainsSubstring("1 difference: encoder.pos_embedding is Float [1, 17, 8] and not Float [1, 5, 8] (the "
                               "file is for images of 16 patches, and those of the data have 4)") &&
                 !ContainsSubstring("replace_head"));
}

TEST_CASE("a vit's weights load with the names of torchvision 0.12") {
  const TemporaryFolder folder;
  const Model from = make_model(kVit, {3, 8, 8}, at::kCPU, 1);
  NamedTensors old;
  for (auto [name, tensor] : from.state()) {
    for (const auto& [now, before] : {std::pair{".mlp.0.", ".mlp.linear_1."}, std::pair{".mlp.3.", ".mlp.linear_2."}})
      if (const size_t at = name.find(now); at != std::string::npos) name.replace(at, 7, before);
    old.emplace_back(name, tensor);
  }
  CHECK(old[12].first == "encoder.layers.encoder_layer_0.mlp.linear_1.weight");
  save_tensors(folder / "w", old);
  Model to = make_model(kVit, {3, 8, 8}, at::kCPU, 2);
  CHECK(refusal(to, folder / "w") == "");
  const auto got = to.state(), expected = from.state();
  for (size_t i = 0; i < got.size(); ++i) CHECK(at::equal(got[i].second, expected[i].second));
}

TEST_CASE("a mask of zeros and minus infinity is no weight that has diverged") {
  const at::Tensor mask = at::full({4, 4}, -std::numeric_limits<float>::infinity()).triu_(1);
  CHECK_FALSE(first_not_finite({{"mask", mask}}));
  CHECK(first_not_finite({{"bias", at::ones({4})}, {"weight", mask + 1}}) == "weight");
  CHECK(first_not_finite({{"weight", -mask}}) == "weight");
  CHECK(first_not_finite({{"weight", mask - 1 / at::zeros({1})}}) == "weight");  // −∞ alone
  CHECK(first_not_finite({{"weight", at::full({1}, std::numeric_limits<float>::quiet_NaN())}}) == "weight");
}

namespace {

NamedTensors renamed(const NamedTensors& tensors, const std::function<std::string(const std::string&)>& name) {
  NamedTensors all;
  for (const auto& [own, tensor] : tensors) all.emplace_back(name(own), tensor);
  return all;
}

void check_loads(const ModelConfig& config, const InputShape& input, const std::filesystem::path& path,
                 const std::string& note) {
  const Model from = make_model(config, input, at::kCPU, 1);
  Model to = make_model(config, input, at::kCPU, 2);
  const auto notes = make_model(config, input, at::kMeta, 0).fit_weights(path);
  CHECK(notes.size() == (note.empty() ? 0 : 1));
  if (!note.empty() && !notes.empty()) CHECK_THAT(notes.front(), ContainsSubstring(note));
  to.load_weights(path);
  const auto wanted = from.state(), got = to.state();
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(got[i].first);
    CHECK(at::equal(got[i].second, wanted[i].second));
  }
}

}  // namespace

TEST_CASE("what wrappers put before names is left out, in any order") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "w.safetensors";
  for (const char* prefix : {"module.", "_orig_mod.", "model.", "module._orig_mod.", "_orig_mod.module.",
                             "model._orig_mod.module.", "net.", "module.net."}) {
    const auto wrapped = [&](const std::string& name) { return prefix + name; };
    for (const auto& [config, input] :
         {std::pair{ModelConfig{}, InputShape{3, 32, 32}}, {kSmallMlp, kMlpImage}, {kVit, InputShape{3, 8, 8}}}) {
      save_tensors(path, renamed(make_model(config, input, at::kCPU, 1).state(), wrapped));
      check_loads(config, input, path, fmt::format("have '{}', which is left out", prefix));
    }
  }
}

TEST_CASE("what wrappers put within names is left out") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "w.safetensors";
  for (const std::string inner : {"_orig_mod.", "_checkpoint_wrapped_module."}) {
    const auto wrapped = [&](std::string name) { return name.insert(name.rfind('.') + 1, inner); };
    save_tensors(path, renamed(make_model(kSmallMlp, kMlpImage, at::kCPU, 1).state(), wrapped));
    check_loads(kSmallMlp, kMlpImage, path, fmt::format("have '{}', which is left out", inner));
  }
}

TEST_CASE("a vit reads timm's names") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "timm.safetensors";
  const auto of_timm = [](std::string name) {
    const std::vector<std::pair<std::string, std::string>> parts{{"class_token", "cls_token"},
                                                                 {"encoder.pos_embedding", "pos_embed"},
                                                                 {"conv_proj.", "patch_embed.proj."},
                                                                 {"encoder.layers.encoder_layer_", "blocks."},
                                                                 {"encoder.ln.", "norm."},
                                                                 {"heads.head.", "head."},
                                                                 {".ln_1.", ".norm1."},
                                                                 {".ln_2.", ".norm2."},
                                                                 {".self_attention.in_proj_", ".attn.qkv."},
                                                                 {".self_attention.out_proj.", ".attn.proj."},
                                                                 {".mlp.0.", ".mlp.fc1."},
                                                                 {".mlp.3.", ".mlp.fc2."}};
    for (const auto& [ours, theirs] : parts)
      if (const size_t at = name.find(ours); at != std::string::npos) name.replace(at, ours.size(), theirs);
    return name;
  };
  const NamedTensors own = make_model(kVit, {3, 8, 8}, at::kCPU, 1).state();
  const NamedTensors theirs = renamed(own, of_timm);
  CHECK(std::find_if(theirs.begin(), theirs.end(),
                     [](const auto& each) { return each.first == "blocks.0.attn.qkv.weight"; }) != theirs.end());
  save_tensors(path, theirs);
  check_loads(kVit, {3, 8, 8}, path, "");
  save_tensors(path, renamed(theirs, [](const std::string& name) { return "module." + name; }));
  check_loads(kVit, {3, 8, 8}, path, "'module.'");
}

TEST_CASE("weights in several files are read by their index, and a folder's by its usual files") {
  const TemporaryFolder folder;
  const NamedTensors all = make_model(kSmallMlp, kMlpImage, at::kCPU, 1).state();
  const auto index = folder / "model.safetensors.index.json";
  const auto part = [&](int number) { return fmt::format("model-0000{}-of-00002.safetensors", number); };
  Json map = Json::object();
  for (size_t i = 0; i < all.size(); ++i) map[all[i].first] = part(i < 2 ? 1 : 2);
  save_tensors(folder / part(1), {all.begin(), all.begin() + 2});
  save_tensors(folder / part(2), {all.begin() + 2, all.end()});
  write_file(index, json_text(Json{{"metadata", Json::object()}, {"weight_map", map}}));
  check_loads(kSmallMlp, kMlpImage, index, "");
  check_loads(kSmallMlp, kMlpImage, folder.path(), "");

  Model model = make_model(kSmallMlp, kMlpImage, at::kCPU, 1);
  CHECK_THAT(refusal(model, folder / part(1)), ContainsSubstring("is one of several parts: name their folder"));
  std::filesystem::remove(folder / part(2));
  CHECK_THAT(refusal(model, folder.path()),
             ContainsSubstring("there is no such file, which") && ContainsSubstring(part(2)));
  for (const char* bad : {"[]", "{", "{}", R"({"weight_map": {}})", R"({"weight_map": []})"}) {
    write_file(index, bad);
    CHECK_THAT(refusal(model, index), ContainsSubstring("it has no weight_map"));
  }
  for (const char* bad : {"../w.safetensors", "/w", "..", ""}) {
    write_file(index, json_text(Json{{"weight_map", {{"layers.0.weight", bad}}}}));
    CHECK_THAT(refusal(model, index), ContainsSubstring("names a file that is not in its folder"));
  }
  std::filesystem::remove(index);
  check_loads(
      kSmallMlp, kMlpImage,
      [&] {
        save_tensors(folder / "weights.safetensors", all);
        return folder.path();
      }(),
      "");
  std::filesystem::remove(folder / "weights.safetensors");
  save_tensors(folder / "b.safetensors", all);
  CHECK_THAT(refusal(model, folder.path()), ContainsSubstring("several safetensors files and no index") &&
                                                ContainsSubstring("b.safetensors, " + part(1)));
  const TemporaryFolder empty;
  write_file(empty / "pytorch_model.bin", "x");
  CHECK_THAT(refusal(model, empty.path()), ContainsSubstring("no file here ends in .safetensors; save the weights"));
}

TEST_CASE("differences name a tensor as the file does, too") {
  const TemporaryFolder folder;
  const auto path = folder / "w";
  NamedTensors all = make_model(kSmallMlp, kMlpImage, at::kCPU, 1).state();
  all[1].second = at::zeros({9});
  save_tensors(path, renamed(all, [](const std::string& name) { return "module." + name; }));
  Model model = make_model(kSmallMlp, kMlpImage, at::kCPU, 1);
  CHECK_THAT(refusal(model, path),
             ContainsSubstring("layers.0.bias, in the file module.layers.0.bias, is Float [9] and not Float [4]"));
}
