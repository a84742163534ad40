#include "model/imported/instruction.h"

#include "base/error.h"
#include "device/autocast.h"
#include "device/process.h"
#include "device/tensor.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/_safe_softmax.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

namespace trainopt {
namespace {

[[noreturn]] void refuse(const InstructionSite& site, const ProgramNode& node, const std::string& why) {
  throw UserError(fmt::format("{}: {} {}", site.path, node.place(), why), ExitCode::checkpoint);
}

// The format's codes of types, layouts and memory formats: torch/_export/serde/schema.py.

at::ScalarType scalar_type(int64_t code) {
  constexpr std::array kTypes = {
      at::ScalarType::Undefined,   at::ScalarType::Byte,         at::ScalarType::Char,
      at::ScalarType::Short,       at::ScalarType::Int,          at::ScalarType::Long,
      at::ScalarType::Half,        at::ScalarType::Float,        at::ScalarType::Double,
      at::ScalarType::ComplexHalf, at::ScalarType::ComplexFloat, at::ScalarType::ComplexDouble,
      at::ScalarType::Bool,        at::ScalarType::BFloat16};
  const bool known = code > 0 && code < static_cast<int64_t>(kTypes.size());
  return known ? kTypes[static_cast<size_t>(code)] : at::ScalarType::Undefined;
}

c10::IValue memory_format(int64_t code) {
  constexpr std::array kFormats = {at::MemoryFormat::Contiguous, at::MemoryFormat::Contiguous,
                                   at::MemoryFormat::ChannelsLast, at::MemoryFormat::ChannelsLast3d,
                                   at::MemoryFormat::Preserve};
  const bool known = code > 0 && code < static_cast<int64_t>(kFormats.size());
  return known ? c10::IValue(kFormats[static_cast<size_t>(code)]) : c10::IValue();
}

/// An argument: a constant, a value, or made of values and constants.
struct Operand {
  int64_t value = -1;
  c10::IValue constant = {};
  std::function<c10::IValue(const ProgramValues&)> make = {};

  c10::IValue get(const ProgramValues& values) const {
    if (value >= 0) return values[static_cast<size_t>(value)];
    return make ? make(values) : constant;
  }
  bool is_constant() const { return value < 0 && !make; }
};

/// As Python passes a number where an operation takes a tensor: it does not take part in the promotion of types.
at::Tensor wrapped(const c10::IValue& number) { return at::native::wrapped_scalar_tensor(number.toScalar()); }

class Operands {
 public:
  Operands(const ProgramNode& node, const ProgramGraph& graph, const InstructionSite& site)
      : node_(node), graph_(graph), site_(site) {}

  Operand of(const ProgramArgument& argument, const c10::Argument& as) const {
    c10::TypePtr type = as.type();
    if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    if (const auto list = type->cast<c10::ListType>()) {
      if (argument.is_list) return list_of(argument.items, list->getElementType());
      if (!std::holds_alternative<std::monostate>(argument.items.front()))  // one number for all dimensions
        return list_of(std::vector<ProgramItem>(static_cast<size_t>(as.N().value_or(1)), argument.items.front()),
                       list->getElementType());
    }
    return item_of(argument.items.front(), type);
  }

 private:
  Operand item_of(const ProgramItem& item, const c10::TypePtr& type) const {
    const bool wants_tensor = type->kind() == c10::TypeKind::TensorType;
    if (const auto* value = std::get_if<ProgramValue>(&item)) {
      if (const auto known = site_.tensors.find(value->index); known != site_.tensors.end())
        return {.constant = known->second};
      const int64_t index = value->index;
      const bool is_number = !graph_.values[static_cast<size_t>(index)].tensor;
      if (is_number && wants_tensor)
        return {
            .make = [index](const ProgramValues& v) -> c10::IValue { return wrapped(v[static_cast<size_t>(index)]); }};
      if (is_number && type->kind() == c10::TypeKind::FloatType)
        return {.make = [index](const ProgramValues& v) -> c10::IValue {
          return v[static_cast<size_t>(index)].toScalar().toDouble();
        }};
      return {.value = index};
    }
    c10::IValue constant = constant_of(item);
    if (wants_tensor && constant.isScalar()) constant = wrapped(constant);
    if (type->kind() == c10::TypeKind::FloatType && constant.isInt()) constant = static_cast<double>(constant.toInt());
    return {.constant = std::move(constant)};
  }

  c10::IValue constant_of(const ProgramItem& item) const {
    if (const auto* number = std::get_if<int64_t>(&item)) return *number;
    if (const auto* number = std::get_if<double>(&item)) return *number;
    if (const auto* truth = std::get_if<bool>(&item)) return *truth;
    if (const auto* text = std::get_if<std::string>(&item)) return *text;
    if (const auto* type = std::get_if<ScalarTypeCode>(&item)) return static_cast<int64_t>(scalar_type(type->code));
    if (const auto* format = std::get_if<MemoryFormatCode>(&item)) return memory_format(format->code);
    if (std::holds_alternative<LayoutCode>(item)) return static_cast<int64_t>(at::Layout::Strided);
    if (std::holds_alternative<DeviceName>(item)) return site_.device;  // not the exporting machine's
    if (std::holds_alternative<std::shared_ptr<ProgramGraph>>(item)) refuse(site_, node_, "has a graph as an argument");
    return {};
  }

  Operand list_of(const std::vector<ProgramItem>& items, const c10::TypePtr& type) const {
    const auto optional = type->cast<c10::OptionalType>();
    const c10::TypePtr element = optional ? optional->getElementType() : type;
    std::vector<Operand> operands;
    for (const ProgramItem& item : items) operands.push_back(item_of(item, element));
    const c10::TypeKind kind = element->kind();
    const bool optional_tensors = optional && kind == c10::TypeKind::TensorType;
    auto make = [operands, kind, optional_tensors](const ProgramValues& values) -> c10::IValue {
      const auto list = [&]<class T>(c10::List<T> all, auto convert) -> c10::IValue {
        for (const Operand& each : operands) all.push_back(convert(each.get(values)));
        return all;
      };
      if (optional_tensors)
        return list(c10::List<std::optional<at::Tensor>>(), [](const c10::IValue& v) {
          return v.isNone() ? std::optional<at::Tensor>() : std::optional(v.toTensor());
        });
      if (kind == c10::TypeKind::TensorType)
        return list(c10::List<at::Tensor>(), [](const c10::IValue& v) { return v.toTensor(); });
      if (kind == c10::TypeKind::FloatType)
        return list(c10::List<double>(), [](const c10::IValue& v) { return v.toScalar().toDouble(); });
      if (kind == c10::TypeKind::BoolType)
        return list(c10::List<bool>(), [](const c10::IValue& v) { return v.toBool(); });
      return list(c10::List<int64_t>(), [](const c10::IValue& v) { return v.toInt(); });
    };
    // A list of tensors is made anew each time: who is given it may keep it.
    const bool fixed = kind != c10::TypeKind::TensorType &&
                       std::all_of(operands.begin(), operands.end(), [](const Operand& o) { return o.is_constant(); });
    if (fixed) return {.constant = make({})};
    return {.make = std::move(make)};
  }

  const ProgramNode& node_;
  const ProgramGraph& graph_;
  const InstructionSite& site_;
};

using Outputs = std::vector<ProgramNode::Output>;

void store(const Outputs& outputs, std::vector<c10::IValue>& results, ProgramValues& values) {
  for (size_t i = 0; i < outputs.size() && i < results.size(); ++i) {
    const auto& [is_list, into] = outputs[i];
    const auto put = [&](const ProgramValue& where, c10::IValue value) {
      if (where.index >= 0) values[static_cast<size_t>(where.index)] = std::move(value);
    };
    if (!is_list) {
      put(into.front(), std::move(results[i]));
      continue;
    }
    const auto tensors = results[i].toTensorVector();
    for (size_t each = 0; each < into.size() && each < tensors.size(); ++each) put(into[each], tensors[each]);
  }
}

// Numbers that a program computes from sizes.

using Number = std::function<c10::Scalar(const std::vector<c10::Scalar>&)>;

[[noreturn]] void refuse_number(const char* why) {
  throw UserError(fmt::format("the program computes a size and {}", why), ExitCode::checkpoint);
}

int64_t floor_quotient(int64_t a, int64_t b) {
  if (b == 0 || (b == -1 && a == std::numeric_limits<int64_t>::min())) refuse_number("divides by zero");
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)) ? 1 : 0);
}

int64_t whole(double number) {
  if (!(std::abs(number) < 0x1p62)) refuse_number("its value is out of range");
  return static_cast<int64_t>(number);
}

struct Plus {
  static bool overflows(int64_t a, int64_t b, int64_t& result) { return __builtin_add_overflow(a, b, &result); }
  static double of(double a, double b) { return a + b; }
};
struct Minus {
  static bool overflows(int64_t a, int64_t b, int64_t& result) { return __builtin_sub_overflow(a, b, &result); }
  static double of(double a, double b) { return a - b; }
};
struct Times {
  static bool overflows(int64_t a, int64_t b, int64_t& result) { return __builtin_mul_overflow(a, b, &result); }
  static double of(double a, double b) { return a * b; }
};

bool are_whole(const std::vector<c10::Scalar>& n) { return n.at(0).isIntegral(true) && n.at(1).isIntegral(true); }

/// An operation on two numbers that is whole if both are.
template <class Operation>
c10::Scalar arithmetic(const std::vector<c10::Scalar>& n) {
  if (!are_whole(n)) return Operation::of(n[0].toDouble(), n[1].toDouble());
  int64_t result = 0;
  if (Operation::overflows(n[0].toLong(), n[1].toLong(), result)) refuse_number("its value is out of range");
  return result;
}

template <class Operation>
Number comparison(Operation operation) {
  return [operation](const std::vector<c10::Scalar>& n) -> c10::Scalar {
    if (are_whole(n)) return operation(n[0].toLong(), n[1].toLong());
    return operation(n[0].toDouble(), n[1].toDouble());
  };
}

/// Powers of whole numbers are whole.
c10::Scalar power(const std::vector<c10::Scalar>& n) {
  const double result = std::pow(n.at(0).toDouble(), n.at(1).toDouble());
  if (are_whole(n) && n[1].toLong() >= 0) return whole(result);
  return result;
}
c10::Scalar floor_division(const std::vector<c10::Scalar>& n) {
  if (are_whole(n)) return floor_quotient(n[0].toLong(), n[1].toLong());
  return std::floor(n[0].toDouble() / n[1].toDouble());
}
c10::Scalar remainder(const std::vector<c10::Scalar>& n) {
  if (are_whole(n)) return n[0].toLong() - floor_quotient(n[0].toLong(), n[1].toLong()) * n[1].toLong();
  return n[0].toDouble() - std::floor(n[0].toDouble() / n[1].toDouble()) * n[1].toDouble();
}
c10::Scalar negative(const std::vector<c10::Scalar>& n) {
  return n.at(0).isIntegral(true) ? arithmetic<Minus>({int64_t{0}, n[0]}) : c10::Scalar(-n[0].toDouble());
}

/// An operation on one number, as a double.
template <class Operation>
Number of_one(Operation operation) {
  return [operation](const std::vector<c10::Scalar>& n) -> c10::Scalar { return operation(n.at(0).toDouble()); };
}

const std::map<std::string, Number>& number_operations() {
  static const std::map<std::string, Number> all = {
      {"_operator.add", arithmetic<Plus>},
      {"_operator.sub", arithmetic<Minus>},
      {"_operator.mul", arithmetic<Times>},
      {"_operator.eq", comparison([](auto a, auto b) { return a == b; })},
      {"_operator.ne", comparison([](auto a, auto b) { return a != b; })},
      {"_operator.lt", comparison([](auto a, auto b) { return a < b; })},
      {"_operator.le", comparison([](auto a, auto b) { return a <= b; })},
      {"_operator.gt", comparison([](auto a, auto b) { return a > b; })},
      {"_operator.ge", comparison([](auto a, auto b) { return a >= b; })},
      {"torch.sym_max", comparison([](auto a, auto b) { return std::max(a, b); })},
      {"torch.sym_min", comparison([](auto a, auto b) { return std::min(a, b); })},
      {"_operator.truediv", [](const auto& n) -> c10::Scalar { return n.at(0).toDouble() / n.at(1).toDouble(); }},
      {"_operator.pow", power},
      {"_operator.floordiv", floor_division},
      {"_operator.mod", remainder},
      {"_operator.neg", negative},
      {"torch.sym_float", of_one([](double n) { return n; })},
      {"torch.sym_sqrt", of_one([](double n) { return std::sqrt(n); })},
      {"torch.sym_int", of_one([](double n) { return whole(n); })},
      {"math.trunc", of_one([](double n) { return whole(n); })},
      {"math.floor", of_one([](double n) { return whole(std::floor(n)); })},
      {"math.ceil", of_one([](double n) { return whole(std::ceil(n)); })},
  };
  return all;
}

Instruction make_number_instruction(const ProgramNode& node, const ProgramGraph& graph, const InstructionSite& site,
                                    const Number& number) {
  const Operands operands(node, graph, site);
  const c10::Argument plain("", c10::NumberType::get());
  std::vector<Operand> inputs;
  for (const auto& input : node.inputs) inputs.push_back(operands.of(input.argument, plain));
  return {.run = [inputs, number, outputs = node.outputs](ProgramValues& values, const auto&) {
    std::vector<c10::Scalar> numbers;
    for (const Operand& input : inputs) numbers.push_back(input.get(values).toScalar());
    std::vector<c10::IValue> results{number(numbers)};
    store(outputs, results, values);
  }};
}

// Operations that draw.

/// The dropout of whole channels (nn.Dropout2d): one draw for each sample and channel.
at::Tensor noise_like(const at::Tensor& input, double rate, bool channels, const ForwardContext& context) {
  at::Tensor noise;
  if (channels) {
    std::vector<int64_t> sizes(static_cast<size_t>(input.dim()), 1);
    for (size_t i = 0; i < std::min<size_t>(2, sizes.size()); ++i) sizes[i] = input.size(static_cast<int64_t>(i));
    noise = at::empty(sizes, input.options());
  } else {
    noise = at::empty_like(input);
  }
  if (rate == 1) return noise.zero_();
  return noise.bernoulli_(1 - rate, context.generator).div_(1 - rate);
}

/// Dropout by the trainer's generator. Inputs by name: input, p.
std::function<void(ProgramValues&, const ForwardContext&)> dropout_of(const Operand& input, double rate, bool in_place,
                                                                      bool channels, const Outputs& outputs) {
  return [=](ProgramValues& values, const ForwardContext& context) {
    at::Tensor tensor = input.get(values).toTensor();
    at::Tensor result = in_place   ? tensor.mul_(noise_like(tensor, rate, channels, context))
                        : channels ? tensor * noise_like(tensor, rate, channels, context)
                                   : dropout(tensor, rate, context);
    std::vector<c10::IValue> results{std::move(result)};
    store(outputs, results, values);
  };
}

/// Attention whose weights drop out. Computed by one operation after the other, because libtorch's implementations draw
/// from its own generator.
at::Tensor attention_with_dropout(const std::vector<c10::IValue>& inputs, double rate, const ForwardContext& context) {
  const at::Tensor query = inputs[0].toTensor();
  at::Tensor key = inputs[1].toTensor(), value = inputs[2].toTensor();
  if (inputs[7].toBool()) {  // groups of heads share keys and values
    key = key.repeat_interleave(query.size(-3) / key.size(-3), -3);
    value = value.repeat_interleave(query.size(-3) / value.size(-3), -3);
  }
  const bool causal = inputs[5].toBool();
  const double scale =
      inputs[6].isNone() ? 1 / std::sqrt(static_cast<double>(query.size(-1))) : inputs[6].toScalar().toDouble();
  at::Tensor scores = at::matmul(query * scale, key.transpose(-2, -1));
  if (causal) {
    const at::Tensor seen = at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).tril();
    scores = scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
  }
  if (!inputs[3].isNone()) {
    const at::Tensor mask = inputs[3].toTensor();
    scores = mask.scalar_type() == at::kBool
                 ? scores.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity())
                 : scores + mask;
  }
  // A row that sees nothing is zero, as in libtorch's own attention.
  return at::matmul(dropout(at::_safe_softmax(scores, -1), rate, context), value);
}

/// The overload of an operation that takes a generator besides its arguments; null: there is none.
std::optional<c10::OperatorHandle> with_generator(const c10::OperatorHandle& operation) {
  const c10::OperatorName& name = operation.schema().operator_name();
  const std::string own = name.overload_name;
  for (const std::string& overload : {std::string("generator"), own + "_generator", std::string("generator_") + own}) {
    const auto found = c10::Dispatcher::singleton().findSchema({name.name, overload});
    if (found && found->schema().arguments().size() == operation.schema().arguments().size() + 1) return found;
  }
  return std::nullopt;
}

bool takes_generator(const c10::OperatorHandle& operation) {
  const auto& arguments = operation.schema().arguments();
  return std::any_of(arguments.begin(), arguments.end(), [](const auto& a) { return a.name() == "generator"; });
}

const ProgramArgument* find_argument(const ProgramNode& node, std::string_view name) {
  for (const auto& input : node.inputs)
    if (input.name == name) return &input.argument;
  return nullptr;
}

double rate_of(const ProgramNode& node, std::string_view name) {
  const ProgramItem* rate = constant_argument(node, name);
  if (rate == nullptr) return 0;
  if (const auto* number = std::get_if<double>(rate)) return *number;
  if (const auto* number = std::get_if<int64_t>(rate)) return static_cast<double>(*number);
  return 0;
}

constexpr std::string_view kAttention = "scaled_dot_product_attention";

bool is_dropout(std::string_view name) {
  return name == "dropout" || name == "dropout_" || name == "feature_dropout" || name == "feature_dropout_";
}
bool is_recurrent(std::string_view name) {
  return name == "lstm" || name == "gru" || name == "rnn_tanh" || name == "rnn_relu";
}
bool is_true(const ProgramNode& node, std::string_view argument) {
  const ProgramItem* item = constant_argument(node, argument);
  const bool* truth = item == nullptr ? nullptr : std::get_if<bool>(item);
  return truth != nullptr && *truth;
}
bool is_alpha_dropout(std::string_view name) {
  return name == "alpha_dropout" || name == "alpha_dropout_" || name == "feature_alpha_dropout" ||
         name == "feature_alpha_dropout_";
}

/// The node's operation of the dispatcher. Throws UserError(checkpoint).
c10::OperatorHandle operation_of(const ProgramNode& node, const InstructionSite& site) {
  constexpr std::string_view kPrefix = "torch.ops.";
  const std::string& target = node.target;
  if (!target.starts_with(kPrefix)) refuse(site, node, "is no operation that this build knows");
  const std::string rest = target.substr(kPrefix.size());
  const size_t space = rest.find('.'), last = rest.rfind('.');
  if (rest.starts_with("higher_order.")) refuse(site, node, "is control flow, which is not supported");
  if (space == std::string::npos || last <= space) refuse(site, node, "is no operation that this build knows");
  const std::string name = rest.substr(0, space) + "::" + rest.substr(space + 1, last - space - 1);
  std::string overload = rest.substr(last + 1);
  if (overload == "default") overload.clear();
  if (!rest.starts_with("aten."))
    refuse(site, node, "is an operation of another library than ATen; only those are run");
  if (name == "aten::from_file") refuse(site, node, "reads and writes files, which a program may not");
  const auto found = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!found) refuse(site, node, fmt::format("is not in this build's libtorch, {}", libtorch_version()));
  return *found;
}

/// The node's operation, in the form that takes a generator if it draws and no code here draws for it.
c10::OperatorHandle seeded_operation_of(const ProgramNode& node, const InstructionSite& site) {
  c10::OperatorHandle operation = operation_of(node, site);
  const std::string_view name = aten_name(node.target);
  const bool own_draw = is_dropout(name) || name == kAttention;
  if (!draws(node) || own_draw || takes_generator(operation)) return operation;
  const auto other = with_generator(operation);
  if (!other) refuse(site, node, "draws random numbers that no seed of this program determines");
  return *other;
}

/// One operand for each argument of the operation, in its order.
std::vector<Operand> operands_of(const ProgramNode& node, const c10::OperatorHandle& operation,
                                 const ProgramGraph& graph, const InstructionSite& site) {
  const Operands operands(node, graph, site);
  std::vector<Operand> inputs;
  for (const c10::Argument& argument : operation.schema().arguments()) {
    const ProgramArgument* given = find_argument(node, argument.name());
    if (given != nullptr)
      inputs.push_back(operands.of(*given, argument));
    else if (argument.default_value())
      inputs.push_back({.constant = *argument.default_value()});
    else if (argument.name() == "generator")
      inputs.push_back({});
    else
      refuse(site, node, fmt::format("lacks its argument {}", argument.name()));
    // False in a program that was exported without a GPU.
    if (argument.name() == "cudnn_enabled" || argument.name() == "cudnn_enable") inputs.back() = {.constant = true};
    if (argument.name() == "pin_memory") inputs.back() = {};
  }
  return inputs;
}

}  // namespace

const ProgramItem* constant_argument(const ProgramNode& node, std::string_view name) {
  const ProgramArgument* argument = find_argument(node, name);
  if (argument == nullptr || argument->is_list || std::holds_alternative<ProgramValue>(argument->items.front()))
    return nullptr;
  return &argument->items.front();
}

std::optional<ProgramValue> value_argument(const ProgramNode& node, std::string_view name) {
  const ProgramArgument* argument = find_argument(node, name);
  if (argument == nullptr || argument->is_list) return std::nullopt;
  const auto* value = std::get_if<ProgramValue>(&argument->items.front());
  return value == nullptr ? std::nullopt : std::optional(*value);
}

bool draws(const ProgramNode& node) {
  const std::string_view name = aten_name(node.target);
  if (name.empty()) return false;
  if (is_dropout(name) || is_alpha_dropout(name)) {
    return is_true(node, "train") && rate_of(node, "p") > 0;
  }
  if (is_recurrent(name))
    return is_true(node, "train") && rate_of(node, "dropout") > 0 && rate_of(node, "num_layers") > 1;
  if (name.starts_with("rrelu")) return is_true(node, "training");
  if (name == kAttention) return rate_of(node, "dropout_p") > 0;
  std::string overload = node.target.substr(node.target.rfind('.') + 1);
  if (overload == "default") overload.clear();
  const auto found = c10::Dispatcher::singleton().findSchema({"aten::" + std::string(name), overload});
  return found && found->hasTag(at::Tag::nondeterministic_seeded);
}

void require_two_values(const at::Tensor& input) {
  if (input.dim() < 2 || input.numel() > input.size(1)) return;
  throw UserError(
      "a batch-norm of the program has one value of each channel, and its variance would be 0: use larger batches or "
      "images, and data.drop_last for a short last batch");
}

namespace {

/// Runs under torch.no_grad or without autocast where the program did.
std::function<void(ProgramValues&, const ForwardContext&)> guarded(
    const ProgramNode& node, at::Device device, std::function<void(ProgramValues&, const ForwardContext&)> run) {
  if (!node.no_gradients && !node.no_autocast) return run;
  return [=, no_gradients = node.no_gradients, no_autocast = node.no_autocast](ProgramValues& values,
                                                                               const ForwardContext& context) {
    std::optional<at::NoGradGuard> without_gradients;
    if (no_gradients) without_gradients.emplace();
    std::optional<WithoutAutocast> without_autocast;
    if (no_autocast) without_autocast.emplace(device.type());
    run(values, context);
  };
}

}  // namespace

Instruction make_instruction(const ProgramNode& node, const ProgramGraph& graph, const InstructionSite& site) {
  if (node.target.starts_with("layer.")) return make_layer_instruction(node, graph, site);
  const auto& numbers = number_operations();
  if (const auto number = numbers.find(node.target); number != numbers.end())
    return make_number_instruction(node, graph, site, number->second);

  const c10::OperatorHandle operation = seeded_operation_of(node, site);
  const std::vector<Operand> inputs = operands_of(node, operation, graph, site);
  const bool random = draws(node);
  const std::string_view name = aten_name(node.target);
  const Outputs outputs = node.outputs;
  if (random && is_dropout(name) && !(rate_of(node, "p") <= 1)) refuse(site, node, "has a rate above 1");
  if (random && is_dropout(name))
    return {.run = guarded(node, site.device,
                           dropout_of(inputs.front(), rate_of(node, "p"), name.ends_with('_'),
                                      name.starts_with("feature"), outputs))};
  const auto gather = [inputs](const ProgramValues& values) {
    std::vector<c10::IValue> stack;
    stack.reserve(inputs.size());
    for (const Operand& input : inputs) stack.push_back(input.get(values));
    return stack;
  };
  if (random && name == kAttention)
    return {.run = guarded(node, site.device,
                           [gather, outputs, rate = rate_of(node, "dropout_p")](ProgramValues& values,
                                                                                const ForwardContext& context) {
                             std::vector<c10::IValue> results{attention_with_dropout(gather(values), rate, context)};
                             store(outputs, results, values);
                           })};
  const auto& arguments = operation.schema().arguments();
  const auto generator =
      std::find_if(arguments.begin(), arguments.end(), [](const auto& a) { return a.name() == "generator"; }) -
      arguments.begin();
  const bool seeded = random && takes_generator(operation);
  const bool normalises = name == "batch_norm" && is_true(node, "training");
  return {.run = guarded(node, site.device,
                         [=, keeps_type = node.keeps_type](ProgramValues& values, const ForwardContext& context) {
                           std::vector<c10::IValue> stack = gather(values);
                           if (normalises) require_two_values(stack.front().toTensor());
                           if (seeded && context.generator) stack[static_cast<size_t>(generator)] = *context.generator;
                           const auto type = keeps_type ? stack.front().toTensor().scalar_type() : at::kFloat;
                           operation.callBoxed(stack);
                           if (keeps_type) stack.front() = stack.front().toTensor().to(type);
                           store(outputs, stack, values);
                         })};
}

}  // namespace trainopt
