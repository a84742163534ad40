// A program of torch.export: a graph of ATen operations, and the weights it computes with. Read from the archive
// without libtorch, and checked: every name that the graph uses is defined before, and every tensor of the weights lies
// within its member of the archive. Format: torch/_export/serde/schema.py, schema version 8.
#pragma once

#include "model/program/archive.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace trainopt {

/// A size of a tensor: a number, or an expression of symbols as sympy's srepr() writes it.
using ProgramSize = std::variant<int64_t, std::string>;

/// The types of elements, with the codes of the format.
enum class ProgramType : int8_t {
  uint8 = 1,
  int8 = 2,
  int16 = 3,
  int32 = 4,
  int64 = 5,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  boolean = 12,
  bfloat16 = 13
};
int64_t bytes_of(ProgramType type);
bool is_floating(ProgramType type);

/// What the exporting machine saw of a tensor.
struct ProgramTensor {
  std::optional<ProgramType> type;  ///< null: one that no weight may have, such as a complex one
  std::vector<ProgramSize> sizes;
};

/// A value that the graph computes or is given: an index into ProgramGraph::values.
struct ProgramValue {
  int64_t index = -1;
  bool operator==(const ProgramValue&) const = default;
};

struct ProgramGraph;
struct ScalarTypeCode {
  int64_t code;
};
struct LayoutCode {
  int64_t code;
};
struct MemoryFormatCode {
  int64_t code;
};
struct DeviceName {
  std::string type;
};

/// One argument, or an element of a list of arguments. monostate: None.
using ProgramItem = std::variant<std::monostate, ProgramValue, int64_t, double, bool, std::string, ScalarTypeCode,
                                 LayoutCode, MemoryFormatCode, DeviceName, std::shared_ptr<ProgramGraph>>;
struct ProgramArgument {
  bool is_list = false;
  std::vector<ProgramItem> items;  ///< one, if this is no list
};

struct ProgramNode {
  std::string target;  ///< "torch.ops.aten.conv2d.default", "_operator.mul"
  struct Input {
    std::string name;  ///< the operation's parameter; empty: by place
    ProgramArgument argument;
  };
  std::vector<Input> inputs;
  struct Output {
    bool is_list = false;
    std::vector<ProgramValue> values;  ///< an index of −1: unused
  };
  std::vector<Output> outputs;
  bool no_gradients = false;  ///< runs under torch.no_grad
  bool no_autocast = false;   ///< runs under torch.autocast(enabled=False)
  bool keeps_type = false;    ///< the result has the first input's type, as in place
  /// The modules that the node belongs to, from the outermost in; the model itself is left out.
  std::vector<std::string> modules;
  /// "torch.ops.aten.add.Tensor in layer1.0", for messages.
  std::string place() const;
};

struct ProgramGraph {
  struct Value {
    std::string name;
    std::optional<ProgramTensor> tensor;  ///< null: a number or a truth value
  };
  std::vector<Value> values;
  std::vector<ProgramValue> inputs;
  std::vector<ProgramItem> outputs;
  std::vector<ProgramNode> nodes;
};

/// A tensor in the archive. Its elements lie within the member, as bytes_of(type), `sizes` and `strides` say.
struct StoredTensor {
  std::string member;
  ProgramType type;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;  ///< in elements
  bool requires_gradient = false;
  bool is_new = false;  ///< not in the archive: Program::replace()
};

/// What an input of the graph is.
struct ProgramInput {
  enum class Kind { parameter, buffer, constant, user };
  Kind kind;
  std::string name;  ///< "layer1.0.conv1.weight"; of a user's input its name in the graph
  bool persistent = true;
};

class Program {
 public:
  /// Reads the graph, not the weights. `name`: which of the archive's programs; null: its only one. Throws
  /// UserError(checkpoint).
  Program(std::shared_ptr<const ProgramArchive> archive, const std::optional<std::string>& name);

  const ProgramArchive& archive() const { return *archive_; }
  const ProgramGraph& graph() const { return graph_; }
  const std::vector<ProgramInput>& inputs() const { return inputs_; }  ///< one for each of graph().inputs
  const StoredTensor& stored(const std::string& name) const;           ///< a parameter's, buffer's or constant's tensor
  const std::string& torch_version() const { return torch_version_; }
  const std::string& name() const { return name_; }  ///< which of the archive's programs it is
  /// Gives a parameter other sizes; it then has no values.
  void replace(const std::string& name, std::vector<int64_t> sizes);
  /// The least and the largest value that the program allows a symbol; it has none of either if it allows all.
  struct Range {
    std::optional<int64_t> least, largest;
  };
  Range range_of(const std::string& symbol) const;

 private:
  void require_stored(size_t input) const;

  std::shared_ptr<const ProgramArchive> archive_;
  ProgramGraph graph_;
  std::vector<ProgramInput> inputs_;
  std::map<std::string, StoredTensor> stored_;
  std::map<std::string, Range> ranges_;
  std::string name_, torch_version_;
};

/// Opens the archive and reads its program.
Program open_program(const std::filesystem::path& path, const std::optional<std::string>& name);

}  // namespace trainopt
