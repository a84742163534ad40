#include "model/imported/layer_view.h"

#include "model/imported/found_layers.h"
#include "model/imported/instruction.h"

#include <algorithm>
#include <set>

namespace trainopt {
namespace {

/// Operations that pass values on, perhaps in another order or shape, without computing with them.
bool moves_values(std::string_view name) {
  static const std::set<std::string_view> all = {
      "view",   "reshape", "flatten", "unflatten", "permute", "transpose",    "contiguous",      "expand",
      "slice",  "select",  "squeeze", "unsqueeze", "roll",    "pad",          "chunk",           "split",
      "unbind", "dropout", "t",       "clone",     "narrow",  "_unsafe_view", "constant_pad_nd", "dropout_"};
  return all.contains(name);
}
/// Operations that autocast runs in 16 bits, whatever the type of their inputs.
bool is_product(std::string_view target) {
  static const std::set<std::string_view> all = {
      "conv1d", "conv2d", "conv3d", "matmul",  "mm",
      "bmm",    "addmm",  "linear", "baddbmm", "scaled_dot_product_attention"};
  return target.starts_with("layer.") ? target == kLinearLayer || target == kLinearGeluLayer ||
                                            target == kAttentionLayer || target == kConvolutionLayer
                                      : all.contains(aten_name(std::string(target)));
}

}  // namespace

LayerView::LayerView(ProgramNodes& nodes, const LayerSearch& search) : nodes_(nodes), search_(search) {
  unit_of_.assign(nodes.size(), kNoNode);
  for (size_t unit = 0; unit < search.units.size(); ++unit)
    std::fill(unit_of_.begin() + static_cast<std::ptrdiff_t>(search.units[unit].first),
              unit_of_.begin() + static_cast<std::ptrdiff_t>(search.units[unit].end), unit);
  index();
}

void LayerView::index() {
  made_by_.clear();
  users_.clear();
  for (size_t at = 0; at < nodes_.size(); ++at) {
    if (!nodes_[at]) continue;
    for_each_output(*nodes_[at], [&](int64_t value) { made_by_[value] = at; });
    for_each_input(*nodes_[at], [&](int64_t value) { users_[value].push_back(at); });
  }
  for (const NodeRange& unit : search_.units) users_[unit.output.index].push_back(kNoNode);
}

const ProgramTensor* LayerView::tensor_of(int64_t value) const {
  if (value < 0) return nullptr;  // an output that is not used
  const auto& tensor = search_.graph.values[static_cast<size_t>(value)].tensor;
  return tensor ? &*tensor : nullptr;
}
bool LayerView::same_sizes(int64_t a, int64_t b) const {
  return tensor_of(a) != nullptr && tensor_of(b) != nullptr && tensor_of(a)->sizes == tensor_of(b)->sizes;
}
std::optional<ProgramValue> LayerView::stored(const ProgramNode& node, std::string_view name) const {
  const auto value = value_argument(node, name);
  return value && search_.names.contains(value->index) && tensor_of(value->index) != nullptr ? value : std::nullopt;
}
std::optional<size_t> LayerView::only_user(const ProgramValue& value, size_t at) const {
  const auto users = users_.find(value.index);
  if (users == users_.end() || users->second.size() != 1 || users->second.front() == kNoNode) return std::nullopt;
  const size_t user = users->second.front();
  return nodes_[user] && unit_of_[user] == unit_of_[at] && is_usual(*nodes_[user]) ? std::optional(user) : std::nullopt;
}
std::optional<size_t> LayerView::maker(const ProgramValue& value, size_t at) const {
  const auto made = made_by_.find(value.index);
  const bool here = made != made_by_.end() && nodes_[made->second] && unit_of_[made->second] == unit_of_[at];
  return here && is_usual(*nodes_[made->second]) ? std::optional(made->second) : std::nullopt;
}
bool LayerView::is_used_beside(const ProgramValue& value, size_t of) const {
  const int64_t set = search_.aliases.set_of(value.index);
  const NodeRange& unit = search_.units[unit_of_[of]];
  for (size_t at = unit.first; at < unit.end; ++at) {
    if (at == of || !nodes_[at]) continue;
    bool uses = false;
    for_each_input(*nodes_[at], [&](int64_t used) { uses = uses || search_.aliases.set_of(used) == set; });
    if (uses) return true;
  }
  return false;
}
bool LayerView::is_written_between(const ProgramValue& value, size_t first, size_t last) const {
  const int64_t set = search_.aliases.set_of(value.index);
  for (size_t at = first + 1; at < last; ++at)
    if (nodes_[at])
      for (const int64_t written : written_values(*nodes_[at]))
        if (search_.aliases.set_of(written) == set) return true;
  return false;
}
bool LayerView::is(size_t at, std::string_view name, std::string_view in_place) const {
  const std::string_view own = aten_name(nodes_[at]->target);
  return own == name || (!in_place.empty() && own == in_place);
}
void LayerView::put(size_t at, std::string_view target, std::vector<ProgramNode::Input> inputs,
                    std::vector<ProgramNode::Output> outputs) {
  ProgramNode node{.target = std::string(target), .inputs = std::move(inputs), .outputs = std::move(outputs)};
  node.modules = nodes_[at]->modules;
  nodes_[at] = std::move(node);
}

size_t LayerView::dimensions(int64_t value) const {
  const ProgramTensor* tensor = tensor_of(value);
  return tensor == nullptr ? 0 : tensor->sizes.size();
}

const std::vector<size_t>& LayerView::users(int64_t value) const {
  static const std::vector<size_t> none;
  const auto found = users_.find(value);
  return found == users_.end() ? none : found->second;
}

size_t LayerView::made_at(int64_t value) const {
  const auto made = made_by_.find(value);
  return made == made_by_.end() || !nodes_[made->second] ? kNoNode : made->second;
}

size_t LayerView::next_of(const ProgramValue& value) const {
  std::set<size_t> all(users(value.index).begin(), users(value.index).end());
  all.erase(kNoNode);
  return all.size() == 1 && nodes_[*all.begin()] ? *all.begin() : kNoNode;
}

bool LayerView::is_cast(int64_t value) const {
  const std::vector<size_t>& all_users = users(value);
  return !all_users.empty() && std::ranges::all_of(all_users, [&](size_t user) {
    if (user == kNoNode || !nodes_[user] || !is_usual(*nodes_[user])) return false;
    if (is_product(nodes_[user]->target)) return true;
    if (!moves_values(aten_name(nodes_[user]->target))) return false;
    bool all = true;
    for_each_output(*nodes_[user], [&](int64_t moved) { all = all && is_cast(moved); });
    return all;
  });
}

}  // namespace trainopt
