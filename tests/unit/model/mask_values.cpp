#include "model/imported/mask_values.h"

#include "model/imported/instruction.h"
#include "model/imported/source.h"
#include "support/catch.h"

using namespace trainopt;

namespace {

/// What the first mask of a program hides, after `change`.
Hidden hidden_after(MaskForm form, int64_t tokens,
                    const std::function<void(ProgramSource&, ProgramNode& equal)>& change) {
  ModelConfig config;
  config.name = ModelKind::exported;
  config.path = std::string(MODEL_FILES) + "/written.pt2";  // its mask: a lower triangle of ones, where it is 0
  ProgramSource source(config);
  const auto first = [&](std::string_view target) {
    for (size_t at = 0; at < source.graph.nodes.size(); ++at)
      if (source.graph.nodes[at].target == target) return at;
    FAIL("no " << target);
    return size_t{0};
  };
  change(source, source.graph.nodes[first("torch.ops.aten.eq.Scalar")]);
  const AliasSets aliases(source.graph);
  ProgramNodes nodes(source.graph.nodes.begin(), source.graph.nodes.end());
  const std::vector<NodeRange> whole{{.first = 0, .end = nodes.size(), .name = {}, .input = {}, .output = {}}};
  const LayerSearch search{
      .graph = source.graph, .aliases = aliases, .names = source.names, .units = whole, .constant = [&](int64_t value) {
        return source.constant(value);
      }};
  const size_t user = first("torch.ops.aten.masked_fill.Scalar");
  return hidden_by(LayerView(nodes, search), *value_argument(*nodes[user], "mask"), form, tokens, user);
}

void keep(ProgramSource&, ProgramNode&) {}

void set(ProgramNode& node, const std::string& name, const ProgramItem& item) {
  for (auto& input : node.inputs)
    if (input.name == name) input.argument.items = {item};
}

}  // namespace

TEST_CASE("a triangle of constants hides later tokens, if it is of their number and means that") {
  CHECK(hidden_after(MaskForm::hides, 8, keep) == Hidden::later);
  CHECK(hidden_after(MaskForm::keeps, 8, keep) == Hidden::others);
  CHECK(hidden_after(MaskForm::added, 8, keep) == Hidden::others);
  CHECK(hidden_after(MaskForm::hides, 7, keep) == Hidden::others);
  CHECK(hidden_after(MaskForm::hides, 8, [](ProgramSource&, ProgramNode& equal) { set(equal, "other", int64_t{5}); }) ==
        Hidden::none);
}

TEST_CASE("a mask that follows from data, parameters or changed buffers is not known") {
  CHECK(hidden_after(MaskForm::hides, 8, [](ProgramSource& source, ProgramNode& equal) {
          set(equal, "self", source.division.input);
        }) == Hidden::unknown);
  CHECK(hidden_after(MaskForm::hides, 8, [](ProgramSource& source, ProgramNode& equal) {
          set(equal, "self", ProgramValue{*source.division.trained.begin()});
        }) == Hidden::unknown);
  CHECK(hidden_after(MaskForm::hides, 8, [](ProgramSource& source, ProgramNode&) {
          for (const auto& [value, name] : source.names) source.changed.insert(value);
        }) == Hidden::unknown);
}
