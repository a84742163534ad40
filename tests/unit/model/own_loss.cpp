// Programs that compute their own loss, and programs with a new last layer.
#include "device/device.h"
#include "device/tensor.h"
#include "model/imported/head.h"
#include "model/imported/imported.h"
#include "model/imported/save.h"
#include "model/imported/source.h"
#include "model/model.h"
#include "model/program/archive_copy.h"
#include "model/task.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace own_loss_tests {

using namespace trainopt;
using Catch::Matchers::Contains;

namespace {

ModelConfig program(const std::string& name) {
  return {.name = ModelKind::exported, .path = std::string(MODEL_FILES) + "/" + name + ".pt2"};
}

Model model_of(const ModelConfig& config) {
  return make_model(config, program_facts(config).input, at::kCPU, /*seed=*/4);
}

at::Tensor images(int64_t count) { return at::arange(count * 192, at::kFloat).mul(0.37).sin().view({count, 3, 8, 8}); }

ForwardContext in_training() { return {.training = true, .generator = make_generator(at::kCPU, 5)}; }

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const UserError& error) {
    return error.what();
  }
  return "not refused";
}

std::string refusal_of(const ModelConfig& config) {
  return refusal([&] { program_facts(config); });
}

at::Tensor tensor_of(const Model& model, const std::string& name) {
  for (const auto& [each, tensor] : model.state())
    if (each == name) return tensor;
  throw BrokenInvariant("no tensor " + name);
}

}  // namespace

TEST_CASE("a program's task follows from what it takes and returns") {
  CHECK(program_facts(program("net")).task == ModelTask::classification);
  CHECK(program_facts(program("text")).task == ModelTask::language_model);
  const ProgramFacts both = program_facts(program("own-loss")), alone = program_facts(program("only-loss"));
  CHECK(both.task == ModelTask::loss);
  CHECK(both.classes == 10);
  CHECK(alone.task == ModelTask::loss);
  CHECK(alone.classes == 0);

  ModelConfig config = program("net");
  config.task = ModelTask::language_model;
  CHECK_THAT(refusal_of(config), Contains("takes images, and model.task: language_model is for tokens"));
  config.task = ModelTask::loss;
  CHECK_THAT(refusal_of(config), Contains("takes 1 input; a program that computes its own loss takes two"));
  config = program("own-loss");
  config.task = ModelTask::classification;
  CHECK_THAT(refusal_of(config), Contains("it takes 2 inputs; it must take one"));
}

TEST_CASE("a program computes its own loss, and returns the logits that it is computed from") {
  const at::Tensor input = images(6), target = at::tensor({3, 1, 4, 1, 5, 9}, at::kLong);
  for (const char* name : {"own-loss", "only-loss"}) {
    const bool has_logits = name == std::string("own-loss");
    Model model = model_of(program(name));
    const ProgramLossTask task(has_logits);
    const TaskOutput trained = task.loss(model, input, target, in_training());
    CHECK(trained.loss.dim() == 0);
    trained.loss.backward();
    for (const auto& [parameter, tensor] : model.parameters()) CHECK(tensor.grad().defined());
    CHECK_FALSE(trained.outputs.requires_grad());
    CHECK(task.metrics() == (has_logits ? Metrics::accuracy : Metrics::none));

    const at::NoGradGuard no_grad;
    const TaskOutput evaluated = task.evaluation_loss(model, input, target, {});
    if (!has_logits) {
      CHECK(evaluated.outputs.dim() == 0);
      continue;
    }
    REQUIRE(evaluated.outputs.sizes() == at::IntArrayRef({6, 10}));
    const at::Tensor expected = at::cross_entropy_loss(evaluated.outputs, target, {}, at::Reduction::Mean, -100, 0.1) +
                                0.01 * evaluated.outputs.square().mean() +
                                0.01 * tensor_of(model, "stem.weight").square().sum();
    CHECK(evaluated.loss.item<double>() == Approx(expected.item<double>()).epsilon(1e-6));
    const at::Tensor correct = task.correct(evaluated.outputs, target);
    CHECK(correct[0].item<int64_t>() == evaluated.outputs.argmax(1).eq(target).sum().item<int64_t>());
  }
}

TEST_CASE("a class that a program's own loss does not know is told from other errors") {
  Model model = model_of(program("only-loss"));
  const ProgramLossTask task(/*has_logits=*/false);
  const at::Tensor target = at::tensor({3, 12}, at::kLong);
  CHECK_THAT(refusal([&] { task.loss(model, images(2), target, in_training()); }),
             Contains("does not know a class or token of the data, where the largest of the batch is 12"));
}

TEST_CASE("a classifier's last layer is replaced by one for other classes") {
  ModelConfig config = program("net");
  const Model before = model_of(config);
  config.replace_head = true;
  config.num_classes = 7;
  CHECK(program_facts(config).classes == 7);
  const Model after = model_of(config);
  for (const auto& [name, tensor] : after.state()) {
    INFO(name);
    if (name.starts_with("head.")) {
      CHECK(tensor.size(0) == 7);
      CHECK(tensor.requires_grad());
      CHECK(tensor.abs().max().item<double>() <= 1 / std::sqrt(8.0));  // as nn.Linear(8, 7) draws them
      CHECK(tensor.abs().max().item<double>() > 0);
    } else {
      CHECK(at::equal(tensor, tensor_of(before, name)));
    }
  }
  Model copy = model_of(config);
  CHECK(copy.forward(images(2), in_training()).sizes() == at::IntArrayRef({2, 7}));

  for (const auto& [name, why] : {std::pair{"text", "model.replace_head is for classifiers"},
                                  {"own-loss", "model.replace_head is for classifiers"},
                                  {"noisy", "not refused"},
                                  {"effects", "not refused"}}) {
    ModelConfig other = program(name);
    other.replace_head = true;
    CHECK_THAT(refusal_of(other), Contains(why));
  }
}

TEST_CASE("weights of the program's names are loaded, also with a wrapper's name before them") {
  const TemporaryFolder folder;
  const Model from = model_of(program("net"));
  const auto path = folder / "w.safetensors";
  for (const char* wrapper : {"", "module.", "_orig_mod.", "_orig_mod.module.", "network."}) {
    NamedTensors wrapped;
    for (const auto& [name, tensor] : from.state()) wrapped.emplace_back(wrapper + name, tensor.detach() + 1);
    save_tensors(path, wrapped);
    ModelConfig config = program("net");
    config.weights = path.string();
    const Model loaded = model_of(config);
    for (const auto& [name, tensor] : loaded.state()) CHECK(at::equal(tensor, tensor_of(from, name) + 1));
  }
  save_tensors(path, {{"other.a", at::ones({1})}, {"b", at::ones({1})}});
  ModelConfig config = program("net");
  config.weights = path.string();
  const std::string why = refusal([&] { model_of(config); });
  CHECK_THAT(why, Contains("no name is in both"));
  CHECK_THAT(why, Contains("are not of this model") && Contains("the model has blocks.0.bn.bias, ") &&
                      Contains(" and 6 more; the file has b, other.a"));
}

TEST_CASE("trained weights are put back into the program, with a new last layer") {
  const TemporaryFolder folder;
  for (const int64_t classes : {10, 7}) {
    ModelConfig config = program("net");
    config.replace_head = classes != 10;
    config.num_classes = classes;
    Model trained = model_of(config);
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : trained.state()) at::Tensor(tensor).add_(1);
    const auto out = folder / fmt::format("{}.pt2", classes);
    config.num_classes = AutoOr<int64_t>();  // as the recipe may have it
    save_program(config, trained.state(), out);
    Model saved = model_of({.name = ModelKind::exported, .path = out.string()});
    REQUIRE(saved.state().size() == trained.state().size());
    for (const auto& [name, tensor] : saved.state()) CHECK(at::equal(tensor, tensor_of(trained, name)));
    CHECK(at::equal(saved.forward(images(3), {}), trained.forward(images(3), {})));
    CHECK_THAT(refusal([&] { save_program(config, trained.state(), out); }), Contains("exists; name a new file"));
  }
  const auto out = folder / "other.pt2";
  CHECK_THAT(refusal([&] {
               save_program(program("net"), {{"absent", at::ones({1})}}, out);
             }),
             Contains("it has no absent, which the run has"));
  CHECK_THAT(refusal([&] {
               save_program(program("net"), {{"head.bias", at::ones({3})}}, out);
             }),
             Contains("its head.bias is [10], and that of the run [3]"));
  CHECK_FALSE(std::filesystem::exists(out));
  CHECK_THAT(refusal([&] {
               save_program(program("net"), {{"head.bias", at::ones({10})}}, out);
             }),
             Contains("the run has no stem.weight, so this is not the program that it trained"));
  CHECK_THAT(refusal([&] { save_program(program("net"), {}, folder / "absent" / "other.pt2"); }),
             Contains("its folder does not exist"));
}

TEST_CASE("an archive is copied with other bytes in some members") {
  const TemporaryFolder folder;
  const ProgramArchive archive(std::string(MODEL_FILES) + "/net.pt2");
  copy_archive(archive, folder / "copy.pt2", {{"data/weights/weight_1", "other"}});
  const ProgramArchive copy(folder / "copy.pt2");
  for (const char* name : {"data/weights/weight_0", "models/model.json", "byteorder"})
    CHECK(copy.text_of(name) == archive.text_of(name));
  CHECK(copy.text_of("data/weights/weight_1") == "other");
}

}  // namespace own_loss_tests
