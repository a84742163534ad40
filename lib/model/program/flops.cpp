#include "model/program/flops.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace trainopt {
namespace {

/// Reads expressions as sympy's srepr() writes them: Mul(Integer(4), Symbol('s77', integer=True)).
class Expression {
 public:
  Expression(std::string_view text, const SymbolValues& symbols) : text_(text), symbols_(symbols) {}

  std::optional<int64_t> value() {
    const auto all = term(0);
    return at_ == text_.size() ? all : std::nullopt;
  }

 private:
  using Value = std::optional<int64_t>;

  bool take(char wanted) {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  std::string_view name() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' || text_[at_] == '.'))
      ++at_;
    const std::string_view whole = text_.substr(begin, at_ - begin);
    return whole.substr(whole.rfind('.') + 1);  // npos + 1 is 0
  }

  Value term(int depth) {
    if (depth > 50) return std::nullopt;
    const std::string_view function = name();
    if (!take('(')) return std::nullopt;
    if (function == "Symbol") {
      const auto known = symbols_.find(symbol_of(std::string(text_.substr(at_))));
      at_ = std::min(text_.find(')', at_), text_.size());
      if (!take(')')) return std::nullopt;
      return known == symbols_.end() ? 1 : known->second;
    }
    if (function == "Integer") {
      const Value number = integer();
      return take(')') ? number : std::nullopt;
    }
    Value all = term(depth + 1);
    while (all && take(',')) {
      const Value next = term(depth + 1);
      if (!next) return std::nullopt;
      all = combined(function, *all, *next);
    }
    return take(')') ? all : std::nullopt;
  }

  Value integer() {
    const bool negative = take('-');
    int64_t value = 0;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_)
      if (__builtin_mul_overflow(value, int64_t{10}, &value) || __builtin_add_overflow(value, text_[at_] - '0', &value))
        return std::nullopt;
    return negative ? -value : value;
  }

  static Value combined(std::string_view function, int64_t left, int64_t right) {
    int64_t result = 0;
    if (function == "Add") return __builtin_add_overflow(left, right, &result) ? Value() : Value(result);
    if (function == "Mul") return __builtin_mul_overflow(left, right, &result) ? Value() : Value(result);
    if (function == "Max") return std::max(left, right);
    if (function == "Min") return std::min(left, right);
    if (right <= 0 || left < 0) return std::nullopt;
    if (function.ends_with("FloorDiv")) return left / right;
    if (function.ends_with("Mod")) return left % right;
    return std::nullopt;
  }

  std::string_view text_;
  const SymbolValues& symbols_;
  size_t at_ = 0;
};

using Sizes = std::vector<double>;

std::optional<Sizes> sizes_of(const ProgramGraph& graph, const ProgramValue& value, const SymbolValues& symbols) {
  if (value.index < 0) return std::nullopt;
  const auto& tensor = graph.values[static_cast<size_t>(value.index)].tensor;
  if (!tensor) return std::nullopt;
  Sizes sizes;
  for (const ProgramSize& size : tensor->sizes) {
    const auto number = for_one_sample(size, symbols);
    if (!number) return std::nullopt;
    sizes.push_back(static_cast<double>(*number));
  }
  return sizes;
}

double elements(const Sizes& sizes) {
  double all = 1;
  for (const double size : sizes) all *= size;
  return all;
}

/// The sizes of a product's inputs that are tensors, in order, and of its result.
using Count = double (*)(const std::vector<Sizes>& inputs, const Sizes& result);

/// A weight is out × in ÷ groups × kernel.
double convolution(const std::vector<Sizes>& inputs, const Sizes& result) {
  const Sizes& weight = inputs.at(1);
  return 2 * elements(result) * elements(weight) / std::max(1.0, weight.at(0));
}
double product(const std::vector<Sizes>& inputs, const Sizes& result) {
  return 2 * elements(result) * inputs.at(0).back();
}
double added_product(const std::vector<Sizes>& inputs, const Sizes& result) {
  return 2 * elements(result) * inputs.at(1).back();
}
double attention(const std::vector<Sizes>& inputs, const Sizes& result) {
  const Sizes& key = inputs.at(1);
  return 2 * key.at(key.size() - 2) * (elements(inputs.at(0)) + elements(result));
}

struct Row {
  std::string_view name;
  Count count = nullptr;  ///< null: FLOPs that are not counted
  size_t inputs = 2;
};
constexpr std::array kProducts = {
    Row{"conv1d", convolution},
    Row{"conv2d", convolution},
    Row{"conv3d", convolution},
    Row{"convolution", convolution},
    Row{"linear", product},
    Row{"mm", product},
    Row{"bmm", product},
    Row{"matmul", product},
    Row{"addmm", added_product, 3},
    Row{"baddbmm", added_product, 3},
    Row{"scaled_dot_product_attention", attention},
    Row{"einsum"},
    Row{"tensordot"},
    Row{"bilinear"},
    Row{"lstm"},
    Row{"gru"},
    Row{"rnn_tanh"},
    Row{"rnn_relu"},
    Row{"conv_transpose1d"},
    Row{"conv_transpose2d"},
    Row{"conv_transpose3d"},
    Row{"addbmm"},
    Row{"addmv"},
    Row{"mv"},
    Row{"dot"},
    Row{"vdot"},
    Row{"inner"},
    Row{"outer"},
    Row{"cdist"},
    Row{"lstm_cell"},
    Row{"gru_cell"},
    Row{"_grouped_mm"},
    Row{"chain_matmul"},
    Row{"linalg_multi_dot"},
};

}  // namespace

std::optional<int64_t> for_one_sample(const ProgramSize& size, const SymbolValues& symbols) {
  if (const auto* number = std::get_if<int64_t>(&size)) return *number;
  return Expression(std::get<std::string>(size), symbols).value();
}

std::string symbol_of(const ProgramSize& size) {
  const auto* text = std::get_if<std::string>(&size);
  if (text == nullptr) return {};
  const size_t prefix = text->starts_with("Symbol(") ? 7 : 0;
  const size_t end = text->find('\'', prefix + 1);
  return end == std::string::npos || (*text)[prefix] != '\'' ? std::string()
                                                             : text->substr(prefix + 1, end - prefix - 1);
}

std::string_view aten_name(const std::string& target) {
  constexpr std::string_view kPrefix = "torch.ops.aten.";
  if (!target.starts_with(kPrefix)) return {};
  const std::string_view rest = std::string_view(target).substr(kPrefix.size());
  return rest.substr(0, rest.find('.'));
}

std::optional<double> flops_of(const ProgramNode& node, const ProgramGraph& graph, const SymbolValues& symbols) {
  const std::string_view name = aten_name(node.target);
  const auto row = std::find_if(kProducts.begin(), kProducts.end(), [&](const Row& each) { return each.name == name; });
  if (row == kProducts.end()) return 0;
  if (row->count == nullptr || node.outputs.empty() || node.outputs.front().values.empty()) return std::nullopt;
  std::vector<Sizes> inputs;
  for (const auto& input : node.inputs)
    for (const ProgramItem& item : input.argument.items)
      if (const auto* value = std::get_if<ProgramValue>(&item); value && inputs.size() < row->inputs) {
        auto sizes = sizes_of(graph, *value, symbols);
        if (!sizes || sizes->empty()) return std::nullopt;
        inputs.push_back(*std::move(sizes));
      }
  const auto result = sizes_of(graph, node.outputs.front().values.front(), symbols);
  if (!result || inputs.size() < row->inputs) return std::nullopt;
  if (row->count == attention && inputs[1].size() < 2) return std::nullopt;
  return row->count(inputs, *result);
}

}  // namespace trainopt
