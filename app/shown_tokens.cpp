#include "app/shown_tokens.h"

#include "base/files.h"
#include "base/print.h"
#include "base/units.h"
#include "data/formats/cifar10_file.h"
#include "data/formats/text/document_ends.h"
#include "data/formats/text/token_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>

namespace trainopt {
namespace {

constexpr std::string_view kTokensEnding = ".bin";

int64_t largest_token(const TokenFile& file) {
  constexpr int64_t kAtOnce = 1 << 20;
  int64_t largest = 0;
  std::vector<int64_t> tokens(kAtOnce);
  for (int64_t first = 0; first < file.size(); first += kAtOnce) {
    const std::span part(tokens.data(), static_cast<size_t>(std::min(kAtOnce, file.size() - first)));
    file.read(first, part, std::numeric_limits<int64_t>::max());
    largest = std::max(largest, *std::max_element(part.begin(), part.end()));
  }
  return largest;
}

std::optional<int64_t> documents_of(const TokenFile& file) {
  if (is_remote(file.name())) return {};
  const auto path = ends_path(file.name());
  if (!std::filesystem::exists(path)) return {};
  return static_cast<int64_t>(document_ends(read_file(path, ExitCode::data), file.size(), path.string()).size());
}

}  // namespace

bool is_tokens(const std::string& path, DataFiles& files) {
  const auto fits = [](const std::filesystem::path& file) {
    return file.extension() == kTokensEnding && !has_cifar10_name(file);
  };
  // The path of a file that is not there may name a folder of images, whose reader says so.
  if (!is_remote(path) && !std::filesystem::is_directory(path)) return fits(path);
  const auto names = files.find(kTokensEnding, path);
  return std::any_of(names.begin(), names.end(), fits);
}

Json tokens_json(const std::string& path, int64_t rows, std::optional<int64_t> bits, DataFiles& files) {
  Json all = Json::array();
  for (const auto& name : files.ending_in(kTokensEnding, path)) {
    const TokenFile file(files.open(name), bits);
    std::vector<int64_t> first(static_cast<size_t>(std::min(rows, file.size())));
    file.read(0, first, std::numeric_limits<int64_t>::max());
    const auto documents = documents_of(file);
    all.push_back({{"name", name},
                   {"tokens", file.size()},
                   {"bits", file.bits()},
                   {"largest", largest_token(file)},
                   {"documents", documents ? Json(*documents) : Json()},
                   {"first", first}});
  }
  return {{"schema_version", 1}, {"kind", "tokens"}, {"files", std::move(all)}};
}

void print_tokens(const Json& shown) {
  for (const Json& file : shown["files"]) {
    const auto text = [](int64_t number, const char* noun) { return counted(number, noun); };
    const std::string documents =
        file["documents"].is_null() ? "" : fmt::format(", {}", text(file["documents"], "document"));
    print_out("{}: {} of {} bits, the largest {}{}\n", file["name"].get<std::string>(), text(file["tokens"], "token"),
              file["bits"].get<long>(), with_commas(file["largest"]), documents);
    if (!file["first"].empty())
      print_out("  {} ...\n", fmt::format("{}", fmt::join(file["first"].get<std::vector<int64_t>>(), " ")));
  }
}

}  // namespace trainopt
