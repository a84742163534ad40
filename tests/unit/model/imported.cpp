#include "model/imported/imported.h"

#include "device/device.h"
#include "device/process.h"
#include "device/tensor.h"
#include "model/imported/division.h"
#include "model/imported/evaluation.h"
#include "model/imported/instruction.h"
#include "model/imported/order.h"
#include "model/imported/source.h"
#include "model/model.h"
#include "model/program/archive.h"
#include "model/program/flops.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <ATen/Context.h>
#include <caffe2/serialize/inline_container.h>

#include <cmath>
#include <fstream>

using namespace trainopt;
using Catch::Matchers::Contains;

namespace {

std::string file(const std::string& name) { return std::string(MODEL_FILES) + "/" + name + ".pt2"; }

ModelConfig config_of(const std::string& path) {
  ModelConfig config;
  config.name = ModelKind::exported;
  config.path = path;
  return config;
}

Model model_of(const ModelConfig& config) {
  return make_model(config, program_facts(config).input, at::kCPU, /*seed=*/0);
}

at::Tensor images(int64_t count, double scale) {
  return at::arange(count * 192, at::kFloat).mul(scale).sin().view({count, 3, 8, 8});
}

ForwardContext training(uint64_t seed) { return {.training = true, .generator = make_generator(at::kCPU, seed)}; }

std::vector<at::Tensor> gradients_of(const Model& model) {
  std::vector<at::Tensor> all;
  for (auto& [name, parameter] : model.parameters()) {
    all.push_back(parameter.grad().clone());
    at::Tensor tensor = parameter;
    tensor.mutable_grad() = at::Tensor();
  }
  return all;
}

/// The program's values before its last layer, which becomes the identity, for `samples` images of ones.
at::Tensor drawn(Model& model, const ForwardContext& context, int64_t samples) {
  const at::NoGradGuard no_grad;
  for (auto& [name, parameter] : model.parameters())
    at::Tensor(parameter).copy_(at::arange(192).unsqueeze(1).eq(at::arange(192)));
  return model.forward(at::ones({samples, 3, 8, 8}), context).to(at::kDouble).view({samples, 3, 8, 8});
}

void check_refused(const std::string& path, const std::string& why) {
  INFO(path);
  try {
    program_facts(config_of(path));
    FAIL("not refused");
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::checkpoint);
    CHECK_THAT(error.what(), Contains(why));
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

void write(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string content_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

TEST_CASE("the archive's reader finds what libtorch's reader finds") {
  for (const std::string name : {"net", "noisy", "drop"}) {
    caffe2::serialize::PyTorchStreamReader theirs(file(name));
    const ProgramArchive ours(file(name));
    const auto members = theirs.getAllRecords();
    CHECK(members.size() >= 7);
    for (const std::string& member : members) {
      const auto [data, size] = theirs.getRecord(member);
      INFO(member);
      CHECK(ours.text_of(member) == std::string(static_cast<const char*>(data.get()), size));
    }
  }
}

TEST_CASE("a program becomes a model of units with its own names") {
  const ModelConfig config = config_of(file("net"));
  const ProgramFacts facts = program_facts(config);
  CHECK(facts.input == InputShape{.channels = 3, .height = 8, .width = 8});
  CHECK(facts.classes == 10);
  const Model model = model_of(config);
  std::vector<std::string> units;
  for (const auto& unit : model.units()) units.push_back(unit->name());
  CHECK(units == std::vector<std::string>{"stem", "blocks.0", "blocks.1", "drop"});
  CHECK(model.parameter_count() == 1498);
  CHECK(model.output_shape() == SampleShape{10});
  // Twice the multiply-adds of three convolutions and a linear layer.
  CHECK(model.flops_per_sample() == 2 * (16 * 8 * 27 + 2 * 16 * 8 * 72 + 80));
  std::vector<std::string> buffers;
  for (const auto& [name, tensor] : model.buffers()) buffers.push_back(name);
  CHECK(buffers == std::vector<std::string>{"blocks.0.bn.running_mean", "blocks.0.bn.running_var",
                                            "blocks.0.bn.num_batches_tracked", "blocks.1.bn.running_mean",
                                            "blocks.1.bn.running_var", "blocks.1.bn.num_batches_tracked"});
  for (const auto& kind : model.parameter_kinds()) CHECK(kind != ParameterKind::embedding);
  CHECK(std::ranges::count(model.parameter_kinds(), ParameterKind::norm) == 4);
}

TEST_CASE("a program's weights are no views, whose memory would outlive them") {
  for (const auto& [name, tensor] : model_of(config_of(file("net"))).state()) {
    INFO(name);
    CHECK_FALSE(tensor.is_view());
    CHECK(tensor.storage().use_count() == 1);
  }
}

TEST_CASE("units are blocks, layers, or the modules of a pattern") {
  const auto count = [](const std::string& units) {
    ModelConfig config = config_of(file("net"));
    config.units = units;
    return model_of(config).units().size();
  };
  CHECK(count("layers") > count("blocks"));
  CHECK(count("blocks.1") == 3);
  CHECK(count("blocks.*") == 4);  // and what is before and after them
  CHECK_THROWS_WITH(count("block.*"),
                    "model.units: no module's name matches \"block.*\"; the outermost modules are blocks.0, blocks.1, "
                    "drop, head, stem");
}

TEST_CASE("where no cut is legal is known by unit") {
  ModelConfig config = config_of(file("net"));
  config.units = "blocks.*.conv";
  CHECK(program_notes(config).uncut ==
        std::map<std::string, std::vector<std::string>>{
            {"blocks.1.conv", {"after blocks.1.conv: relu_ and conv2d_2 are needed later"}}});
  config.units = "blocks";
  CHECK(program_notes(config).uncut.empty());  // what a residual block skips is no place to cut
}

TEST_CASE("however it is divided, a program computes the same bits") {
  std::vector<at::Tensor> outputs;
  for (const char* units : {"blocks", "layers", "head"}) {
    ModelConfig config = config_of(file("net"));
    config.units = units;
    Model model = model_of(config);
    outputs.push_back(model.forward(images(4, 0.7), training(3)));
    outputs.back().sum().backward();
    for (const at::Tensor& gradient : gradients_of(model))
      outputs.back() = at::cat({outputs.back().flatten(), gradient.flatten()});
    outputs.push_back(model.forward(images(4, 0.7), {}));
  }
  for (size_t i = 2; i < outputs.size(); ++i) CHECK(at::equal(outputs[i].flatten(), outputs[i % 2].flatten()));
}

TEST_CASE("a unit leaves its input as it was, and each micro-batch has its own side values") {
  Model model = model_of(config_of(file("net")));
  const auto one = images(2, 0.3), other = images(4, 0.9);  // sizes differ, so a shared side value would not fit
  std::vector<std::vector<at::Tensor>> alone;
  for (const at::Tensor& batch : {one, other}) {
    model.forward(batch, training(1)).square().sum().backward();
    alone.push_back(gradients_of(model));
  }
  const at::Tensor first = model.forward(one, training(1)), second = model.forward(other, training(1));
  first.square().sum().backward();
  const auto of_first = gradients_of(model);
  second.square().sum().backward();
  const auto of_second = gradients_of(model);
  for (size_t i = 0; i < of_first.size(); ++i) {
    CHECK(at::equal(of_first[i], alone[0][i]));
    CHECK(at::equal(of_second[i], alone[1][i]));
  }
}

TEST_CASE("a program leaves the loader's batch as it was, and frozen parameters are not trained") {
  Model model = model_of(config_of(file("effects")));
  const at::Tensor batch = images(2, 0.3), before = batch.clone();
  model.forward(batch, training(1));
  CHECK(at::equal(batch, before));
  CHECK(model.parameters().size() == 6);
  CHECK(model.buffers().size() == 1);
}

TEST_CASE("the turned program and the program of eval() evaluate alike") {
  ModelConfig config = config_of(file("net"));
  Model turned = model_of(config);
  config.evaluation_path = file("net-eval");
  Model other = model_of(config);
  for (Model* model : {&turned, &other}) model->forward(images(8, 0.4), training(5));  // moves the statistics
  const at::Tensor ours = turned.forward(images(3, 0.2), {}), theirs = other.forward(images(3, 0.2), {});
  CHECK(at::equal(ours, theirs));
  for (const auto& [name, buffer] : turned.buffers())
    if (name.ends_with("num_batches_tracked")) CHECK(buffer.item<int64_t>() == 1);
  config.evaluation_path = file("drop");
  CHECK_THROWS_WITH(model_of(config), Contains("it is not the model of"));
  // A program whose batch-norm is frozen looks like one of eval(): with a program for evaluation it is trained.
  ModelConfig frozen = config_of(file("net-eval"));
  frozen.evaluation_path = file("net-eval");
  Model model = model_of(frozen);
  CHECK(at::equal(model.forward(images(4, 0.7), training(3)), model.forward(images(4, 0.7), {})));
}

TEST_CASE("a program that draws in evaluation too is not evaluated") {
  CHECK(why_not_evaluated(config_of(file("net"))).empty());
  CHECK_THAT(why_not_evaluated(config_of(file("effects"))), Contains("changes mean in evaluation too"));
  CHECK_THAT(why_not_evaluated(config_of(file("noisy"))), Contains("rand_like") && Contains("draws random numbers"));
}

TEST_CASE("draws come from the trainer's generator") {
  for (const char* name : {"net", "noisy", "drop"}) {
    Model model = model_of(config_of(file(name)));
    const at::Tensor input = images(4, 0.5);
    at::manual_seed(1);  // of libtorch's own generator
    const at::Tensor once = model.forward(input, training(7));
    at::manual_seed(2);
    CHECK(at::equal(model.forward(input, training(7)), once));
    CHECK_FALSE(at::equal(model.forward(input, training(8)), once));
  }
}

TEST_CASE("dropout keeps the mean, and drops channels or values at its rate") {
  Model model = model_of(config_of(file("drop")));
  const ForwardContext context = training(11);
  constexpr int64_t kDraws = 200;
  at::Tensor sum = at::zeros({1}, at::kDouble), squares = at::zeros({1}, at::kDouble);
  for (int64_t draw = 0; draw < kDraws; ++draw) {
    const at::Tensor values = drawn(model, context, 1);
    CHECK((values.eq(0) | values.sub(8.0 / 3).abs().lt(1e-6)).all().item<bool>());
    sum += values.mean();
    squares += values.square().mean();
  }
  // A value is 8/3 with probability 3/8: mean 1, variance 5/3. A channel of 64 values is dropped as a whole.
  const double of_channels = std::sqrt((1 / 0.75 - 1) / (3.0 * kDraws) + (8.0 / 3 - 4.0 / 3) / (192.0 * kDraws));
  CHECK(std::abs(sum.item<double>() / kDraws - 1) < 4 * of_channels);
  CHECK(std::abs(squares.item<double>() / kDraws - 8.0 / 3) < 4 * (8.0 / 3) * of_channels);
}

TEST_CASE("stochastic depth drops whole samples at its rate") {
  Model model = model_of(config_of(file("depth")));
  const ForwardContext context = training(11);
  constexpr int64_t kDraws = 200, kSamples = 8;
  double kept = 0;
  for (int64_t draw = 0; draw < kDraws; ++draw) {
    const at::Tensor samples = drawn(model, context, kSamples).view({kSamples, 192});
    const at::Tensor first = samples.select(1, 0), alive = first.ne(0);
    CHECK(at::equal(samples, first.unsqueeze(1).expand({kSamples, 192})));
    CHECK((first - alive.to(at::kDouble) / 0.75).abs().max().item<double>() < 1e-6);
    kept += alive.sum().item<double>();
  }
  const double trials = kDraws * kSamples;
  CHECK(std::abs(kept / trials - 0.75) < 4 * std::sqrt(0.75 * 0.25 / trials));
}

TEST_CASE("dropout in attention keeps the mean, and has the variance of its rate") {
  Model model = model_of(config_of(file("attention")));
  const ForwardContext context = training(11);
  constexpr int64_t kDraws = 200;
  double sum = 0, squares = 0;
  for (int64_t draw = 0; draw < kDraws; ++draw) {
    // Equal tokens have equal weights, so each query returns the share of the 8 keys that was kept, divided by 3/4.
    const at::Tensor values = drawn(model, context, 1).select(-1, 0) - 1;
    sum += values.sum().item<double>();
    squares += values.square().sum().item<double>();
  }
  const double n = kDraws * 24, variance_of_key = 1 / 0.75 - 1, variance = variance_of_key / 8;
  const double fourth_of_key = 0.25 * (1 - 3 * 0.75 * 0.25) / std::pow(0.75, 3);
  const double fourth = (fourth_of_key + 3 * 7 * variance_of_key * variance_of_key) / (8 * 8 * 8);
  CHECK(std::abs(sum / n) < 4 * std::sqrt(variance / n));
  CHECK(std::abs(squares / n - variance) < 4 * std::sqrt((fourth - variance * variance) / n));
}

TEST_CASE("what is no program of torch.export is refused in one sentence") {
  const TemporaryFolder folder;
  const auto path = [&](const char* name) { return (folder / name).string(); };
  check_refused(path("absent.pt2"), "there is no such file");
  check_refused(folder.path().string(), "it is no file");
  write(path("pointer.pt2"), "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  check_refused(path("pointer.pt2"), "a Git LFS pointer");
  write(path("text.pt2"), "import torch\n");
  check_refused(path("text.pt2"), "no ZIP archive");
  const std::string whole = content_of(file("net"));
  write(path("cut.pt2"), whole.substr(0, whole.size() / 2));
  check_refused(path("cut.pt2"), "cut off or damaged");
  std::string damaged = whole;
  damaged[damaged.find("\"schema_version\"") + 3] ^= 1;
  write(path("damaged.pt2"), damaged);
  check_refused(path("damaged.pt2"), "is damaged");
  check_refused(file("fixed"), "exactly 2");
  check_refused(file("net-eval"), "exported after eval()");
}

TEST_CASE("every cut of a file is refused or is the whole") {
  const TemporaryFolder folder;
  const std::string whole = content_of(file("noisy"));
  for (size_t size = 0; size < whole.size(); size += 97) {
    write(folder / "cut.pt2", whole.substr(0, size));
    CHECK_THROWS_AS(program_facts(config_of((folder / "cut.pt2").string())), UserError);
  }
}

// Graphs made by hand: each node takes the value before it as "self" and makes the next one.
namespace {

struct HandMade {
  std::string target;
  std::map<std::string, ProgramItem> more = {};
};

ProgramGraph graph_of(const std::vector<HandMade>& nodes) {
  const ProgramTensor batch{.type = ProgramType::float32, .sizes = {std::string("Symbol('s0')"), int64_t{4}}};
  ProgramGraph graph;
  graph.values.push_back({.name = "x", .tensor = batch});
  graph.values.push_back({.name = "p", .tensor = batch});
  graph.inputs = {{0}, {1}};
  for (const HandMade& made : nodes) {
    const bool first = graph.nodes.empty();
    const auto before = static_cast<int64_t>(graph.values.size()) - 1;
    ProgramNode node{.target = "torch.ops.aten." + made.target, .inputs = {}, .outputs = {}, .modules = {}};
    node.inputs.push_back({.name = "self", .argument = {.items = {ProgramValue{first ? 0 : before}}}});
    if (first) node.inputs.push_back({.name = "other", .argument = {.items = {ProgramValue{1}}}});
    for (const auto& [name, item] : made.more) node.inputs.push_back({.name = name, .argument = {.items = {item}}});
    graph.values.push_back({.name = fmt::format("v{}", graph.values.size()), .tensor = batch});
    node.outputs.push_back({.values = {{before + 1}}});
    node.modules = {fmt::format("m{}", graph.nodes.size())};
    graph.nodes.push_back(std::move(node));
  }
  graph.outputs = {ProgramValue{static_cast<int64_t>(graph.values.size()) - 1}};
  return graph;
}

size_t units_of(ProgramGraph& graph) {
  return divide(graph, {.input = {0}, .trained = {1}, .given = {1}}, "layers").size();
}

}  // namespace

TEST_CASE("a unit's input is not changed in place, and not through a view of it") {
  ProgramGraph plain = graph_of({{"mul.Tensor"}, {"relu_.default"}, {"sigmoid.default"}});
  CHECK(units_of(plain) == 3);
  CHECK(plain.nodes[1].target == "torch.ops.aten.relu.default");
  ProgramGraph viewed = graph_of({{"mul.Tensor"}, {"t.default"}, {"relu_.default"}});
  CHECK(units_of(viewed) == 2);  // only after relu_'s input, the view, is its own unit's
  CHECK(viewed.nodes[2].target == "torch.ops.aten.relu.default");
  ProgramGraph of_user = graph_of({{"sub_.Tensor"}, {"exp.default"}});  // the loader keeps its batches
  CHECK_FALSE(divide(of_user, {.input = {0}, .trained = {1}, .given = {1}}, "layers").front().copies_input);
  CHECK(of_user.nodes[0].target == "torch.ops.aten.sub.Tensor");
  ProgramGraph through_view = graph_of({{"view_as.default"}, {"relu_.default"}});
  CHECK(divide(through_view, {.input = {0}, .trained = {1}, .given = {1}}, "layers").front().copies_input);
  ProgramGraph used_later = graph_of({{"mul.Tensor"}, {"exp.default"}, {"mul.Tensor", {{"other", ProgramValue{2}}}}});
  CHECK(units_of(used_later) == 2);  // not between exp and mul, where two tensors are alive
}

TEST_CASE("an embedding of tokens and other sizes than the batch's are no places to cut") {
  ProgramGraph graph = graph_of({{"mul.Tensor"}, {"exp.default"}, {"sigmoid.default"}});
  graph.values[2].tensor->sizes[0] = std::string("Mul(Integer(2), Symbol('s0'))");
  CHECK(units_of(graph) == 2);
}

TEST_CASE("a size that reshapes tensors of several units is no tensor that they share") {
  ProgramGraph graph = graph_of({{"mul.Tensor"}, {"reshape.default"}, {"exp.default"}, {"reshape.default"}});
  const auto size = static_cast<int64_t>(graph.values.size());
  graph.values.push_back({.name = "n", .tensor = {}});
  graph.nodes[0].outputs.push_back({.values = {{size}}});
  for (const size_t reshape : {1, 3})
    graph.nodes[reshape].inputs.push_back({.name = "shape", .argument = {.items = {ProgramValue{size}}}});
  CHECK(units_of(graph) == 4);
}

TEST_CASE("a value is freed by its last use in the unit, unless a later unit takes it") {
  const ProgramGraph graph = graph_of({{"mul.Tensor"}, {"exp.default"}, {"mul.Tensor", {{"other", ProgramValue{2}}}}});
  std::vector<const ProgramNode*> nodes;
  for (const ProgramNode& node : graph.nodes) nodes.push_back(&node);
  const auto nothing = [](const ProgramNode&) { return Instruction{}; };
  const std::vector<NodeRange> whole{{.first = 0, .end = 3, .name = {}, .input = {0}, .output = {4}}};
  const UnitProgram one = Order(nodes, whole, {1}, graph.values.size()).of(0, {0}, {4}, {0}, nothing);
  CHECK(one.instructions[0].last_uses == std::vector<int64_t>{0});
  CHECK(one.instructions[1].last_uses.empty());
  CHECK(one.instructions[2].last_uses == std::vector<int64_t>{2, 3});
  const std::vector<NodeRange> halves{{.first = 0, .end = 2, .name = {}, .input = {0}, .output = {3}},
                                      {.first = 2, .end = 3, .name = {}, .input = {3}, .output = {4}}};
  const Order order(nodes, halves, {1}, graph.values.size());
  const UnitProgram first = order.of(0, {0}, {3}, {0}, nothing), second = order.of(1, {3}, {4}, {0}, nothing);
  CHECK(first.exports == std::vector<int64_t>{2});
  CHECK(second.imports == std::vector<int64_t>{2});
  CHECK(first.instructions[1].last_uses.empty());
}

TEST_CASE("what a program takes, returns, trains and changes") {
  const ProgramSource source(config_of(file("effects")));
  CHECK(source.input_shape({}) == InputShape{.channels = 3, .height = 8, .width = 8});
  CHECK(source.classes() == 10);
  CHECK(source.division.trained.size() == 6);
  REQUIRE(source.changed.size() == 1);
  CHECK(source.names.at(*source.changed.begin()) == "mean");
}

TEST_CASE("in evaluation dropout passes its input on, and what still draws is named") {
  const ProgramGraph graph = graph_of({{"mul.Tensor"},
                                       {"alpha_dropout.default", {{"p", 0.5}, {"train", true}}},
                                       {"exp.default"},
                                       {"bernoulli.default"}});
  const EvaluationNodes found = evaluation_nodes(graph, {{1, "p"}});
  CHECK(found.nodes[0].has_value());
  CHECK_FALSE(found.nodes[1].has_value());
  CHECK(found.same_as[3] == 2);
  CHECK(std::get<ProgramValue>(found.nodes[2]->inputs[0].argument.items[0]).index == 2);
  CHECK_THAT(found.problem, Contains("bernoulli") && Contains("m3"));
}

TEST_CASE("an operation that this libtorch lacks is named, with its module and the version") {
  const ProgramGraph graph = graph_of({{"linalg_of_tomorrow.default"}});
  const InstructionSite site{.path = "net.pt2", .device = at::kCPU, .tensors = {}};
  CHECK_THROWS_WITH(make_instruction(graph.nodes[0], graph, site),
                    "net.pt2: torch.ops.aten.linalg_of_tomorrow.default in m0 is not in this build's libtorch, " +
                        libtorch_version());
}

TEST_CASE("the FLOPs of a product follow from its shapes") {
  ProgramGraph graph = graph_of({{"matmul.default"}});
  CHECK(flops_of(graph.nodes[0], graph) == 2 * 4 * 4);
  graph.values[0].tensor->sizes[0] = std::string("Add(Mul(Integer(3), Symbol('s0', integer=True)), Integer(-1))");
  CHECK(for_one_sample(graph.values[0].tensor->sizes[0]) == 2);
  CHECK(for_one_sample(graph.values[0].tensor->sizes[0], {{"s0", 5}}) == 14);
  CHECK_FALSE(for_one_sample(ProgramSize(std::string("Pow(Symbol('s0'), Integer(2))"))));
  graph.nodes[0].target = "torch.ops.aten.einsum.default";
  CHECK_FALSE(flops_of(graph.nodes[0], graph));
}
