// Programs of torch.export. An input that begins with PK is an archive; any other is parts of one, with zero bytes
// between them: the graph, the description of the weights, and the weights. Every value that an accepted graph uses is
// defined, and every tensor can be read.
#include "model/program/inlined.h"
#include "support.h"

#include "base/error.h"

#include <zlib.h>

#include <algorithm>
#include <vector>

using namespace trainopt;

namespace {

void append(std::string& to, uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) to += static_cast<char>(number >> (8 * i) & 0xff);
}

/// A ZIP archive whose members are stored.
std::string zipped(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string archive, directory;
  for (const auto& [name, content] : members) {
    std::string common;
    append(common, 20, 2), append(common, 0, 2), append(common, 0, 2), append(common, 0, 4);
    append(common, ::crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())), 4);
    append(common, content.size(), 4), append(common, content.size(), 4), append(common, name.size(), 2);
    append(common, 0, 2);
    directory += "PK\1\2";
    append(directory, 20, 2);
    directory += common;
    append(directory, 0, 2), append(directory, 0, 2), append(directory, 0, 2), append(directory, 0, 4);
    append(directory, archive.size(), 4);
    directory += name;
    archive += "PK\3\4" + common + name + content;
  }
  const size_t at = archive.size();
  archive += directory + "PK\5\6";
  append(archive, 0, 4), append(archive, members.size(), 2), append(archive, members.size(), 2);
  append(archive, directory.size(), 4), append(archive, at, 4), append(archive, 0, 2);
  return archive;
}

std::string archive_of(std::string_view input) {
  if (input.starts_with("PK")) return std::string(input);
  std::vector<std::string> parts;
  for (int part = 0; part < 2; ++part) {
    const size_t end = std::min(input.find('\0'), input.size());
    parts.emplace_back(input.substr(0, end));
    input.remove_prefix(std::min(end + 1, input.size()));
  }
  return zipped({{"a/archive_format", "pt2"},
                 {"a/models/m.json", parts[0]},
                 {"a/data/weights/m_weights_config.json", parts[1]},
                 {"a/data/weights/w", std::string(input)},
                 {"a/data/constants/m_constants_config.json", "{\"config\":{}}"}});
}

void check(const ProgramGraph& graph) {
  std::vector<bool> defined(graph.values.size());
  for (const ProgramValue& input : graph.inputs) defined.at(static_cast<size_t>(input.index)) = true;
  const auto use = [&](const ProgramItem& item) {
    if (const auto* value = std::get_if<ProgramValue>(&item))
      FUZZ_CHECK(value->index >= 0 && defined.at(static_cast<size_t>(value->index)));
  };
  for (const ProgramNode& node : graph.nodes) {
    for (const auto& input : node.inputs) {
      FUZZ_CHECK(input.argument.is_list || input.argument.items.size() == 1);
      for (const ProgramItem& item : input.argument.items) use(item);
    }
    for (const auto& output : node.outputs)
      for (const ProgramValue& value : output.values)
        if (value.index >= 0) defined.at(static_cast<size_t>(value.index)) = true;
  }
  for (const ProgramItem& output : graph.outputs) use(output);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile input(archive_of(as_text(data, size)));
  try {
    const Program program = open_program(input.path(), {});
    check(inlined(program.graph()));
    for (const ProgramInput& each : program.inputs()) {
      if (each.kind == ProgramInput::Kind::user) continue;
      const StoredTensor& tensor = program.stored(each.name);
      std::vector<uint8_t> bytes(program.archive().size_of(tensor.member));
      program.archive().read(tensor.member, bytes);
      int64_t last = tensor.offset;
      for (size_t i = 0; i < tensor.sizes.size(); ++i) last += (tensor.sizes[i] - 1) * tensor.strides[i];
      const bool empty = std::find(tensor.sizes.begin(), tensor.sizes.end(), 0) != tensor.sizes.end();
      FUZZ_CHECK(empty || static_cast<size_t>((last + 1) * bytes_of(tensor.type)) <= bytes.size());
    }
  } catch (const UserError& error) {
    FUZZ_CHECK(error.code() == ExitCode::checkpoint && std::string_view(error.what()).size() < 2000);
  }
  return 0;
}
