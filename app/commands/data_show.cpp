// trainopt data show: what a data set contains.

#include "app/commands.h"
#include "base/files/files.h"
#include "base/files/mapped_file.h"
#include "base/print.h"
#include "base/units.h"
#include "data/dataset.h"
#include "data/formats/cifar10_file.h"
#include "data/formats/parquet/parquet_file.h"
#include "data/formats/shards.h"
#include "data/formats/text/document_ends.h"
#include "data/formats/text/token_file.h"
#include "data/files/found_files.h"
#include "data/image/png.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>

namespace trainopt {
namespace {

/// A contact sheet's rows and columns, and the side of each image in it in pixels.
constexpr int64_t kSheetRows = 8, kSheetColumns = 12, kSheetSide = 96;
/// Classes in the printed histogram, and the characters of its longest bar.
constexpr size_t kShownClasses = 20, kBar = 40;

std::string class_name(const ImageDataset& images, int64_t label) {
  const auto& names = images.class_names();
  return names.empty() ? std::to_string(label) : names[static_cast<size_t>(label)];
}

/// The images of each class, and those without a label.
struct ClassCounts {
  std::vector<int64_t> of_class;
  int64_t unlabelled = 0;
};

ClassCounts count_classes(const ImageDataset& images) {
  ClassCounts counts{.of_class = std::vector<int64_t>(static_cast<size_t>(images.num_classes()))};
  for (int64_t sample = 0; sample < images.size(); ++sample)
    ++(images.has_label(sample) ? counts.of_class[static_cast<size_t>(images.label(sample))] : counts.unlabelled);
  return counts;
}

struct Row {
  std::string name;
  std::optional<int64_t> label;   ///< null if it has none
  std::optional<ImageSize> size;  ///< null if the image cannot be read, for this `reason`
  std::string reason;
};

Row row_of(const ImageDataset& images, int64_t sample, LoadScratch& scratch) {
  Row row{.name = images.name_of(sample), .label = {}, .size = {}, .reason = ""};
  if (images.has_label(sample)) row.label = images.label(sample);
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

void print_left_out(const LeftOut& left_out) {
  if (!left_out.empty()) print_out("left out: {}\n", left_out.text());
}

Json to_json(const ImageDataset& images, const std::vector<Row>& rows) {
  Json classes = Json::array(), first = Json::array();
  const ClassCounts counts = count_classes(images);
  for (size_t label = 0; label < counts.of_class.size(); ++label)
    classes.push_back({{"name", class_name(images, static_cast<int64_t>(label))}, {"images", counts.of_class[label]}});
  for (const Row& row : rows)
    first.push_back({{"name", row.name},
                     {"label", row.label ? Json(*row.label) : Json()},
                     {"size", row.size ? Json{row.size->height, row.size->width} : Json()},
                     {"problem", row.size ? Json() : Json(row.reason)}});
  const DataIdentity identity = images.identity();
  const auto size = images.uniform_size();
  Json shown = {{"schema_version", 1},           {"kind", identity.kind},
                {"images", images.size()},       {"size", size ? Json{size->height, size->width} : Json()},
                {"content", identity.content},   {"unlabelled", counts.unlabelled},
                {"classes", std::move(classes)}, {"first", std::move(first)}};
  shown["left_out"] = images.left_out().json();
  return shown;
}

void print_classes(const ImageDataset& images) {
  const auto [counts, unlabelled] = count_classes(images);
  const int64_t most = std::max<int64_t>(1, *std::max_element(counts.begin(), counts.end()));
  if (unlabelled > 0) print_out("\n{} without a label (missing, negative or too large)\n", counted(unlabelled, "row"));
  print_text("\nimages of each class\n");
  for (size_t label = 0; label < std::min(counts.size(), kShownClasses); ++label) {
    std::string bar;
    for (int64_t i = 0; i < counts[label] * static_cast<int64_t>(kBar) / most; ++i) bar += "█";
    print_out("  {:<20} {:>10} {}\n", class_name(images, static_cast<int64_t>(label)), with_commas(counts[label]), bar);
  }
  if (counts.size() > kShownClasses)
    print_out("  and {} more; the smallest class has {}\n", counts.size() - kShownClasses,
              counted(*std::min_element(counts.begin(), counts.end()), "image"));
}

void print(const ImageDataset& images, const std::vector<Row>& rows) {
  const auto size = images.uniform_size();
  print_out("{}: {} of {}, {}\n", images.identity().kind, counted(images.size(), "image"),
            counted(images.num_classes(), "class", "es"),
            size ? fmt::format("{}x{} pixels (height x width)", size->height, size->width) : "JPEG and PNG files");
  print_left_out(images.left_out());
  if (!rows.empty()) print_text("\nfirst images\n");
  for (const Row& row : rows)
    print_out("  {}: {}, {}\n", row.name,
              row.label ? fmt::format("class {}", class_name(images, *row.label)) : "no label",
              row.size ? fmt::format("{}x{}", row.size->height, row.size->width) : row.reason);
  print_classes(images);
}

/// Each Parquet file's rows, row groups and columns.
Json parquet_json(const std::string& path, const ParquetConfig& columns_used, DataFiles& files) {
  Json all = Json::array();
  for (const auto& name : find_files(files, path, std::array{kParquetEnding}).files) {
    const ParquetFile file(files.open(name), columns_used, std::numeric_limits<int64_t>::max());
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
    print_out("{}: {} in {}; {}\n", file["name"].get<std::string>(), counted(file["rows"], "row"),
              counted(file["row_groups"], "row group"), fmt::format("{}", fmt::join(columns, ", ")));
  }
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
  if (is_remote(file.name())) return {};
  const auto path = ends_path(file.name());
  if (!std::filesystem::exists(path)) return {};
  return static_cast<int64_t>(document_ends(read_file(path, ExitCode::data), file.size(), path.string()).size());
}

/// Whether `path` is a token file, or a folder of them, here or in object storage.
bool is_tokens(const std::string& path, DataFiles& files) {
  const auto fits = [](const std::string& file) { return has_ending(file, kTokenEndings) && !has_cifar10_name(file); };
  // The path of a file that is not there may name a folder of images, whose reader says so.
  const std::vector<std::string> names = names_at(files, path, kTokenEndings);
  const auto is_folder = [](const std::string& name) { return name.ends_with('/'); };
  const bool has_tokens = std::any_of(names.begin(), names.end(), fits);
  // Arrays of NumPy may also lie beside the folders of classes.
  return has_tokens && (std::none_of(names.begin(), names.end(), is_folder) ||
                        std::any_of(names.begin(), names.end(),
                                    [&](const std::string& name) { return fits(name) && has_ending(name, ".bin"); }));
}

/// Each file's number of tokens, largest token, documents (null without a file of their ends, and for a remote file,
/// whose ends are not read) and first `rows` tokens. `bits`: a token's size in files without llm.c's header; null: 16.
/// Throws UserError(data).
Json tokens_json(const std::string& path, int64_t rows, std::optional<int64_t> bits, DataFiles& files) {
  Json all = Json::array();
  const FoundFiles found = find_files(files, path, kTokenEndings);
  for (const auto& name : found.files) {
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
  Json shown = {{"schema_version", 1}, {"kind", "tokens"}, {"files", std::move(all)}};
  shown["left_out"] = found.left_out.json();
  return shown;
}

void print_tokens(const Json& shown) {
  print_left_out(left_out_from(shown["left_out"]));
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

struct ShowOptions {
  std::string path, sheet;
  int64_t rows = 5;
  bool json = false;
  ParquetConfig columns;
  std::optional<int64_t> token_bits;
};

void show_tokens(const ShowOptions& options, DataFiles& files) {
  if (!options.sheet.empty())
    throw UserError(fmt::format("only images have a contact sheet (--sheet): {}", options.path));
  if (options.columns.image || options.columns.label)
    throw UserError(fmt::format("only Parquet files have columns to name (--image, --label): {}", options.path));
  const Json shown = tokens_json(options.path, options.rows, options.token_bits, files);
  options.json ? print_json(shown) : print_tokens(shown);
}

void show_images(const ShowOptions& options, const std::shared_ptr<DataFiles>& files) {
  if (options.token_bits)
    throw UserError(fmt::format("only token files have tokens of so many bits (--token-bits): {}", options.path));
  const auto images = open_images(options.path, files, options.columns);
  const auto first = first_rows(*images, options.rows);
  require_mapped_files_whole();
  const bool is_parquet = images->identity().kind == "parquet";
  const Json parquet = is_parquet ? parquet_json(options.path, options.columns, *files) : Json();
  if (options.json) {
    Json shown = to_json(*images, first);
    if (is_parquet) shown["files"] = parquet;
    print_json(shown);
  } else {
    if (is_parquet) print_parquet(parquet);
    print(*images, first);
  }
  if (!options.sheet.empty()) {
    const auto file = contact_sheet(*images);
    require_mapped_files_whole();
    write_file(options.sheet, {reinterpret_cast<const char*>(file.data()), file.size()});
  }
}

}  // namespace

Command add_data_show(CLI::App& data) {
  CLI::App* command = data.add_subcommand(
      "show", "Print what a data set contains: number, size, first samples, images of each class, largest token");
  const auto options = std::make_shared<ShowOptions>();
  command
      ->add_option("PATH", options->path, "Images or tokens in any format of data.dataset (trainopt options data.path)")
      ->required();
  command->add_option("--rows", options->rows, "First images, or tokens of each file, to list")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--sheet", options->sheet, "Also write a PNG file with small pictures of up to 96 images");
  add_columns(*command, options->columns);
  command
      ->add_option("--token-bits", options->token_bits,
                   "Bits of a token in files without llm.c's header: 16, which is assumed, or 32")
      ->check(CLI::IsMember({16, 32}));
  command->add_flag("--json", options->json, "Print one JSON object");
  return [=](const CommandContext& context) {
    refuse_several_ranks(context.environment, "data show");
    if (!options->sheet.empty() && std::filesystem::path(options->sheet).extension() != ".png")
      throw UserError(fmt::format("the contact sheet (--sheet) must end in .png: {}", options->sheet));
    const auto files = data_files(DataConfig(), this_machine(context.environment).variables);
    if (is_tokens(options->path, *files))
      show_tokens(*options, *files);
    else
      show_images(*options, files);
    return 0;
  };
}

}  // namespace trainopt
