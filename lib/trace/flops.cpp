#include "trace/flops.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace trainopt::trace {
namespace {

using Shape = std::vector<int64_t>;

/// The numbers of each list at depth two: "[[4, 3], [], [[5]]]" gives {4, 3}, {} and {5}.
std::vector<Shape> parse_shapes(std::string_view text) {
  std::vector<Shape> shapes;
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '[' && ++depth == 2) shapes.emplace_back();
    if (c == ']') --depth;
    if (c < '0' || c > '9' || shapes.empty()) continue;
    int64_t number = 0;
    const auto end = std::from_chars(text.data() + at, text.data() + text.size(), number).ptr;
    at = static_cast<size_t>(end - text.data()) - 1;
    shapes.back().push_back(number);
  }
  return shapes;
}

/// The two numbers of "[1, 2]"; "[1]" stands for both, as libtorch's C++ functions take it.
std::optional<std::array<int64_t, 2>> pair_of(std::string_view text) {
  const auto lists = parse_shapes("[" + std::string(text) + "]");
  if (lists.size() != 1 || lists[0].empty() || lists[0].size() > 2) return {};
  return std::array{lists[0].front(), lists[0].back()};
}

int64_t product(const Shape& shape) {
  int64_t all = 1;
  for (const int64_t size : shape) all *= size;
  return all;
}

/// 2·m·n·k: `left` is m × k and `right` is k × n or n × k, both after `batch_dimensions` equal dimensions.
int64_t matrix_product(const Shape& left, const Shape& right, size_t batch_dimensions) {
  if (left.size() < batch_dimensions + 1 || right.size() < batch_dimensions + 1) return -1;
  int64_t shared = left.back();
  for (size_t i = 0; i < batch_dimensions; ++i) shared *= left[i];
  if (shared == 0) return 0;
  return 2 * (product(left) / shared) * product(right);
}

int64_t convolution(const std::vector<Shape>& shapes, const std::vector<std::string>& values) {
  if (shapes.size() < 2 || shapes[0].size() != 4 || shapes[1].size() != 4 || values.size() < 7) return -1;
  const auto stride = pair_of(values[3]), padding = pair_of(values[4]), dilation = pair_of(values[5]);
  int64_t groups = 0;
  std::from_chars(values[6].data(), values[6].data() + values[6].size(), groups);
  if (!stride || !padding || !dilation || groups < 1 || (*stride)[0] * (*stride)[1] == 0) return -1;
  const Shape &input = shapes[0], &weight = shapes[1];
  int64_t outputs = 1;
  for (size_t i = 0; i < 2; ++i)
    outputs *= (input[2 + i] + 2 * (*padding)[i] - (*dilation)[i] * (weight[2 + i] - 1) - 1) / (*stride)[i] + 1;
  return 2 * input[0] * outputs * weight[2] * weight[3] * input[1] * weight[0] / groups;
}

}  // namespace

bool has_flops(std::string_view operation) {
  constexpr std::array<std::string_view, 8> kKnown = {
      "aten::conv2d",  "aten::mm",  "aten::addmm", "aten::bmm",
      "aten::baddbmm", "aten::mul", "aten::add",   "mkldnn::_linear_pointwise"};
  return std::find(kKnown.begin(), kKnown.end(), operation) != kKnown.end();
}

int64_t flops_of(std::string_view operation, std::string_view shapes_text, const std::vector<std::string>& values) {
  if (!has_flops(operation)) return -1;
  const auto shapes = parse_shapes(shapes_text);
  if (shapes.empty()) return -1;
  if (operation == "aten::conv2d") return convolution(shapes, values);
  if (operation == "aten::mul" || operation == "aten::add") return product(shapes[0]);
  // In addmm and baddbmm the matrices follow the tensor that is added.
  const size_t left = operation == "aten::addmm" || operation == "aten::baddbmm" ? 1 : 0;
  if (shapes.size() < left + 2) return -1;
  const bool batched = operation == "aten::bmm" || operation == "aten::baddbmm";
  return matrix_product(shapes[left], shapes[left + 1], batched ? 1 : 0);
}

}  // namespace trainopt::trace
