// trainopt data show: what a data set contains.
#include "app/commands.h"
#include "base/counted.h"
#include "base/files.h"
#include "base/units.h"
#include "data/cifar10_file.h"
#include "data/dataset.h"
#include "data/image/png.h"
#include "data/parquet/parquet_file.h"
#include "data/shards.h"
#include "data/text/document_ends.h"
#include "data/text/token_file.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <limits>

namespace trainopt {
namespace {

/// Of a contact sheet.
constexpr int64_t kSheetRows = 8, kSheetColumns = 12, kSheetSide = 96;
/// Classes in the printed histogram, and the characters of its longest bar.
constexpr size_t kShownClasses = 20, kBar = 40;

std::string class_name(const ImageDataset& images, int64_t label) {
  const auto& names = images.class_names();
  return names.empty() ? std::to_string(label) : names[static_cast<size_t>(label)];
}

std::vector<int64_t> histogram(const ImageDataset& images) {
  std::vector<int64_t> counts(static_cast<size_t>(images.num_classes()));
  for (int64_t sample = 0; sample < images.size(); ++sample) ++counts[static_cast<size_t>(images.label(sample))];
  return counts;
}

struct Row {
  std::string name;
  int64_t label = 0;
  std::optional<ImageSize> size;  ///< null if the image cannot be read, for this `reason`
  std::string reason;
};

Row row_of(const ImageDataset& images, int64_t sample, LoadScratch& scratch) {
  Row row{.name = images.name_of(sample), .label = images.label(sample), .size = {}, .reason = ""};
  try {
    row.size = images.size_of(sample, scratch);
  } catch (const BadSample& bad) {
    row.reason = bad.what();
  }
  return row;
}

std::vector<Row> first_rows(const ImageDataset& images, int64_t count) {
  std::vector<Row> rows;
  LoadScratch scratch;
  for (int64_t sample = 0; sample < std::min(count, images.size()); ++sample)
    rows.push_back(row_of(images, sample, scratch));
  return rows;
}

/// Evenly spaced images, row by row, each the centre of the image; black where one cannot be read.
std::vector<uint8_t> contact_sheet(const ImageDataset& images) {
  const int64_t tiles = std::min(images.size(), kSheetRows * kSheetColumns),
                rows = (tiles + kSheetColumns - 1) / kSheetColumns, columns = std::min(tiles, kSheetColumns);
  ImageU8 sheet;
  sheet.set_size({rows * kSheetSide, columns * kSheetSide});
  for (int64_t y = 0; y < sheet.size().height; ++y) std::fill_n(sheet.row(y), sheet.size().width * 3, uint8_t{0});
  const Pipeline pipeline(
      {ResizeConfig{.shorter_side = kSheetSide}, CenterCropConfig{.height = kSheetSide, .width = kSheetSide}});
  std::vector<uint8_t> tile(kSheetSide * kSheetSide * 3);
  LoadScratch scratch;
  for (int64_t i = 0; i < tiles; ++i) try {
      images.load(i * images.size() / tiles, /*key=*/0, pipeline,
                  {PixelFormat::u8_hwc, tile.data(), kSheetSide, kSheetSide}, scratch);
      for (int64_t y = 0; y < kSheetSide; ++y)
        std::copy_n(tile.data() + y * kSheetSide * 3, kSheetSide * 3,
                    sheet.row(i / columns * kSheetSide + y) + i % columns * kSheetSide * 3);
    } catch (const BadSample&) {
    }
  return encode_png(sheet.view());
}

Json to_json(const ImageDataset& images, const std::vector<Row>& rows) {
  Json classes = Json::array(), first = Json::array();
  const auto counts = histogram(images);
  for (size_t label = 0; label < counts.size(); ++label)
    classes.push_back({{"name", class_name(images, static_cast<int64_t>(label))}, {"images", counts[label]}});
  for (const Row& row : rows)
    first.push_back({{"name", row.name},
                     {"label", row.label},
                     {"size", row.size ? Json{row.size->height, row.size->width} : Json()},
                     {"problem", row.size ? Json() : Json(row.reason)}});
  const DataIdentity identity = images.identity();
  const auto size = images.uniform_size();
  return {{"schema_version", 1},         {"kind", identity.kind},
          {"images", images.size()},     {"size", size ? Json{size->height, size->width} : Json()},
          {"content", identity.content}, {"classes", std::move(classes)},
          {"first", std::move(first)}};
}

void print(const ImageDataset& images, const std::vector<Row>& rows) {
  const auto size = images.uniform_size();
  std::printf(
      "%s: %s of %s, %s\n", images.identity().kind.c_str(), counted(images.size(), "image").c_str(),
      counted(images.num_classes(), "class", "es").c_str(),
      size ? fmt::format("{}x{} pixels (height x width)", size->height, size->width).c_str() : "JPEG and PNG files");
  if (!rows.empty()) std::printf("\nfirst images\n");
  for (const Row& row : rows)
    std::printf("  %s: class %s, %s\n", row.name.c_str(), class_name(images, row.label).c_str(),
                row.size ? fmt::format("{}x{}", row.size->height, row.size->width).c_str() : row.reason.c_str());
  const auto counts = histogram(images);
  const int64_t most = std::max<int64_t>(1, *std::max_element(counts.begin(), counts.end()));
  std::printf("\nimages of each class\n");
  for (size_t label = 0; label < std::min(counts.size(), kShownClasses); ++label) {
    std::string bar;
    for (int64_t i = 0; i < counts[label] * static_cast<int64_t>(kBar) / most; ++i) bar += "█";
    std::printf("  %-20s %10s %s\n", class_name(images, static_cast<int64_t>(label)).c_str(),
                with_commas(counts[label]).c_str(), bar.c_str());
  }
  if (counts.size() > kShownClasses)
    std::printf("  and %zu more; the smallest class has %s\n", counts.size() - kShownClasses,
                counted(*std::min_element(counts.begin(), counts.end()), "image").c_str());
}

/// Of each Parquet file its rows, row groups and columns.
Json parquet_json(const std::string& path, DataFiles& files) {
  Json all = Json::array();
  for (const auto& name : files.ending_in(kParquetEnding, path)) {
    const ParquetFile file(files.open(name), {}, std::numeric_limits<int64_t>::max());
    Json columns = Json::array();
    for (const auto& column : file.layout().columns) columns.push_back({{"name", column.name}, {"type", column.type}});
    all.push_back({{"name", name},
                   {"rows", file.layout().rows},
                   {"row_groups", file.groups().size()},
                   {"columns", std::move(columns)}});
  }
  return all;
}

void print_parquet(const Json& shown) {
  for (const Json& file : shown) {
    std::vector<std::string> columns;
    for (const Json& column : file["columns"])
      columns.push_back(fmt::format("{} ({})", column["name"].get<std::string>(), column["type"].get<std::string>()));
    std::printf("%s: %s in %s; %s\n", file["name"].get<std::string>().c_str(), counted(file["rows"], "row").c_str(),
                counted(file["row_groups"], "row group").c_str(), fmt::format("{}", fmt::join(columns, ", ")).c_str());
  }
}

/// Whether `path` is a token file, or a folder of them.
bool is_tokens(const std::filesystem::path& path) {
  const auto fits = [](const std::filesystem::path& file) {
    return file.extension() == ".bin" && !has_cifar10_name(file);
  };
  if (!std::filesystem::is_directory(path)) return fits(path);
  const auto names = names_in_folder(path, ExitCode::data);
  return std::any_of(names.begin(), names.end(), fits);
}

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
  const auto path = ends_path(file.name());
  if (!std::filesystem::exists(path)) return {};
  return static_cast<int64_t>(document_ends(read_file(path, ExitCode::data), file.size(), path.string()).size());
}

Json tokens_json(const std::string& path, int64_t rows, DataFiles& files) {
  Json all = Json::array();
  for (const auto& name : files.ending_in(".bin", path)) {
    const TokenFile file(files.open(name), std::nullopt);
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
    std::printf("%s: %s of %ld bits, the largest %s%s\n", file["name"].get<std::string>().c_str(),
                text(file["tokens"], "token").c_str(), file["bits"].get<long>(), with_commas(file["largest"]).c_str(),
                documents.c_str());
    if (!file["first"].empty())
      std::printf("  %s ...\n", fmt::format("{}", fmt::join(file["first"].get<std::vector<int64_t>>(), " ")).c_str());
  }
}

}  // namespace

Command add_data_show(CLI::App& data) {
  CLI::App* command = data.add_subcommand(
      "show", "Print what a data set contains: number, size, first samples, images of each class, largest token");
  const auto path = std::make_shared<std::string>(), sheet = std::make_shared<std::string>();
  const auto rows = std::make_shared<int64_t>(5);
  const auto json = std::make_shared<bool>(false);
  command
      ->add_option("PATH", *path,
                   "A folder for each class, CIFAR-10's binary files, packed, tar, Parquet or token files")
      ->required();
  command->add_option("--rows", *rows, "First images, or tokens of each file, to list")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--sheet", *sheet, "Also write a PNG file with small pictures of up to 96 images");
  command->add_flag("--json", *json, "Print one JSON object");
  return [=](const CommandContext& context) {
    refuse_several_ranks(context.environment, "data show");
    if (!sheet->empty() && std::filesystem::path(*sheet).extension() != ".png")
      throw UserError(fmt::format("the contact sheet (--sheet) must end in .png: {}", *sheet));
    const auto files = data_files(DataConfig(), this_machine(context.environment).variables);
    if (is_tokens(*path)) {
      if (!sheet->empty()) throw UserError(fmt::format("only images have a contact sheet (--sheet): {}", *path));
      const Json shown = tokens_json(*path, *rows, *files);
      *json ? print_json(shown) : print_tokens(shown);
      return 0;
    }
    const auto images = open_images(*path, files);
    const auto first = first_rows(*images, *rows);
    const Json parquet = images->identity().kind == "parquet" ? parquet_json(*path, *files) : Json();
    if (*json) {
      Json shown = to_json(*images, first);
      if (!parquet.is_null()) shown["files"] = parquet;
      print_json(shown);
    } else {
      if (!parquet.is_null()) print_parquet(parquet);
      print(*images, first);
    }
    if (!sheet->empty()) {
      const auto file = contact_sheet(*images);
      write_file(*sheet, {reinterpret_cast<const char*>(file.data()), file.size()});
    }
    return 0;
  };
}

}  // namespace trainopt
