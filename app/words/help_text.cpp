#include "app/words/help_text.h"

#include "app/arguments.h"
#include "config/tree.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>

namespace trainopt {
namespace {

constexpr size_t kColumns = 80;

struct Example {
  std::string_view command, line;
};
constexpr std::array kExamples = {
    Example{"trainopt", "trainopt run quickstart"},
    Example{"trainopt run", "trainopt run quickstart data.batch_size=128 train.max_time=90s"},
    Example{"trainopt plan", "trainopt plan quickstart --assume gpus=8,arch=sm_90,memory_gib=80"},
    Example{"trainopt check", "trainopt check configs/*.yaml"},
    Example{"trainopt options", "trainopt options mixed precision"},
    Example{"trainopt data", "trainopt data bench quickstart"},
    Example{"trainopt data bench", "trainopt data bench quickstart data.num_workers=4"},
    Example{"trainopt data export", "trainopt data export quickstart --steps 2 first.safetensors"},
    Example{"trainopt data pack", "trainopt data pack photos/train photos.packed --resize 256"},
    Example{"trainopt data show", "trainopt data show photos/train"},
    Example{"trainopt profile", "trainopt profile quickstart"},
    Example{"trainopt roofline", "trainopt roofline quickstart"},
    Example{"trainopt compare", "trainopt compare quickstart --with data.num_workers=1"},
    Example{"trainopt ablate", "trainopt ablate quickstart --budget 5m"},
    Example{"trainopt tune", "trainopt tune quickstart --budget 10m"},
    Example{"trainopt find", "trainopt find batch quickstart"},
    Example{"trainopt find batch", "trainopt find batch quickstart"},
    Example{"trainopt find lr", "trainopt find lr quickstart"},
    Example{"trainopt checkpoint", "trainopt checkpoint show runs/mine"},
    Example{"trainopt checkpoint verify", "trainopt checkpoint verify runs/mine"},
    Example{"trainopt checkpoint show", "trainopt checkpoint show runs/mine"},
    Example{"trainopt checkpoint diff", "trainopt checkpoint diff runs/a runs/b"},
    Example{"trainopt model", "trainopt model show net.pt2"},
    Example{"trainopt model show", "trainopt model show net.pt2"},
    Example{"trainopt model save", "trainopt model save runs/mine trained.pt2"},
    Example{"trainopt launch", "trainopt launch -n 2 -- run two_ranks"},
    Example{"trainopt trace", "trainopt trace trace.json"},
    Example{"trainopt report", "trainopt report runs/a runs/b"},
    Example{"trainopt env", "trainopt env --json"},
    Example{"trainopt completion", "source <(trainopt completion bash)"},
    Example{"trainopt help", "trainopt help compare"},
};

constexpr std::string_view kExitCodes =
    "Exit codes: 0 done, 1 bug, 2 usage or recipe, 3 data, 4 checkpoint, 5 out of memory, 6 diverged, 7 peer lost or "
    "hung, 8 storage, 9 suspected hardware fault, 10 a gate found a cost, 128+n stopped by signal n.";

/// The columns of a line of UTF-8.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

/// The line in pieces of at most 80 columns, broken between words. Pieces after the first begin where the descriptions
/// of options do, in the column `indent`.
std::string wrapped(const std::string& line, size_t indent) {
  const bool has_columns = line.size() > indent && indent > 0 && line[indent - 1] == ' ';
  const size_t begin = has_columns ? indent : std::min(line.find_first_not_of(' '), line.size());
  std::string text, piece = line.substr(0, begin);
  bool is_first = true;
  std::istringstream words(line.substr(begin));
  for (std::string word; words >> word; is_first = false) {
    if (!is_first && width_of(piece) + 1 + width_of(word) > kColumns) {
      text += piece + "\n";
      piece = std::string(indent, ' ');
      is_first = true;
    }
    piece += (is_first ? "" : " ") + word;
  }
  return text + piece + "\n";
}

class WrappedFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::istringstream lines(CLI::Formatter::make_help(app, std::move(name), mode));
    std::string text;
    for (std::string line; std::getline(lines, line);)
      text += wrapped(line, line.starts_with("  ") ? get_column_width() : 0);
    if (mode == CLI::AppFormatMode::Sub) return text;
    while (text.ends_with("\n\n")) text.pop_back();
    const std::string command = full_name(*app);
    for (const auto& [of, example] : kExamples)
      if (of == command) text += fmt::format("\nExample:\n  {}\n", example);
    return text + "\n" + wrapped(std::string(kExitCodes), 2);
  }
};

void shape(CLI::App& app, const std::shared_ptr<WrappedFormatter>& formatter) {
  app.formatter(formatter);
  for (CLI::App* command : app.get_subcommands({})) shape(*command, formatter);
}

}  // namespace

void shape_help(CLI::App& program) { shape(program, std::make_shared<WrappedFormatter>()); }

}  // namespace trainopt
