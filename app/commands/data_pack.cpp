// trainopt data pack: writes a data set's images to packed, tar or Parquet files.
#include "app/commands.h"
#include "base/print.h"
#include "base/units.h"
#include "data/formats/shards.h"
#include "data/pack.h"

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <cstdio>

namespace trainopt {
namespace {

constexpr int64_t kMostShards = 100000, kLargestSide = 8192;  // 8192² pixels are within the decoder's limits

std::optional<PackFormat> format_of_ending(const std::filesystem::path& out) {
  const std::string ending = out.extension().string();
  if (ending == kPackEnding) return PackFormat::packed;
  if (ending == kTarEnding) return PackFormat::tar;
  if (ending == kParquetEnding) return PackFormat::parquet;
  return {};
}

/// The format of one file is that of its ending. Throws UserError if `out` does not fit the number of files.
PackFormat format_of(const std::filesystem::path& out, int64_t shards, std::optional<PackFormat> wanted) {
  const auto of_ending = format_of_ending(out);
  if (shards == 1 && !of_ending)
    throw UserError(fmt::format("the file to write must end in {}, {} or {}: {}", kPackEnding, kTarEnding,
                                kParquetEnding, out.string()));
  if (shards > 1 && of_ending)
    throw UserError(fmt::format("several files (--shards) are written to a folder, whose name cannot end in {}: {}",
                                out.extension().string(), out.string()));
  if (wanted && of_ending && *wanted != *of_ending)
    throw UserError(fmt::format("the format (--tar, --parquet) and the ending of the file contradict each other: {}",
                                out.string()));
  return of_ending ? *of_ending : wanted.value_or(PackFormat::packed);
}

/// One line that is written again and again, if a person watches.
void show_progress(const PackProgress& progress) {
  if (::isatty(STDERR_FILENO) != 1) return;
  std::fprintf(stderr, "\r%s of %s%s", with_commas(progress.images).c_str(), counted(progress.of, "image").c_str(),
               progress.images == progress.of ? "\n" : "");
}

std::string kind_text(const std::optional<ImageSize>& size, const PackOptions& options) {
  if (size) return fmt::format("as {}x{} pixels", size->height, size->width);
  return options.resize ? "as PNG files" : "as JPEG and PNG files";
}

}  // namespace

Command add_data_pack(CLI::App& data) {
  CLI::App* command = data.add_subcommand("pack",
                                          "Write a data set's images to one file, or a few, that load faster: data "
                                          "pack IN OUT.pack, OUT.tar or OUT.parquet");
  const auto in = std::make_shared<std::string>(), out = std::make_shared<std::string>();
  const auto options = std::make_shared<PackOptions>();
  const auto columns = std::make_shared<ParquetConfig>();
  const auto json = std::make_shared<bool>(false), tar = std::make_shared<bool>(false),
             parquet = std::make_shared<bool>(false);
  command->add_option("IN", *in, "Images in any format of data.dataset (trainopt options data.path)")->required();
  command->add_option("OUT", *out, "The file to write, ending in .pack, .tar or .parquet; with --shards the folder")
      ->required();
  command
      ->add_option("--resize", options->resize,
                   "Store squares with this side: the shorter side resized to it, and the centre cut out")
      ->check(CLI::Range(int64_t{1}, kLargestSide));
  add_columns(*command, *columns);
  command->add_option("--shards", options->shards, "Number of files; a call that was stopped goes on with the next one")
      ->check(CLI::Range(int64_t{1}, kMostShards))
      ->capture_default_str();
  command->add_flag("--tar", *tar, "Write tar files in WebDataset's convention, which other programs read too");
  command
      ->add_flag("--parquet", *parquet,
                 "Write Parquet files with the columns of Hugging Face's datasets, which other programs read too")
      ->excludes("--tar");
  command->add_flag("--json", *json, "Print one JSON object");
  return [=](const CommandContext& context) {
    refuse_several_ranks(context.environment, "data pack");
    options->format = format_of(*out, options->shards,
                                *tar       ? std::optional(PackFormat::tar)
                                : *parquet ? std::optional(PackFormat::parquet)
                                           : std::nullopt);
    const auto images =
        open_images(*in, data_files(DataConfig(), this_machine(context.environment).variables), *columns);
    const PackProgress done = pack(*images, *out, *options, show_progress);
    const auto packed = open_images(*out);
    const auto size = packed->uniform_size();
    if (*json) {
      print_json({{"schema_version", 1},
                  {"images", done.images},
                  {"classes", packed->num_classes()},
                  {"size", size ? Json{size->height, size->width} : Json()},
                  {"bytes", done.bytes},
                  {"files", options->shards},
                  {"files_found", done.shards_found},
                  {"left_out", images->left_out().json()}});
      return 0;
    }
    if (!images->left_out().empty()) print_out("left out: {}\n", images->left_out().text());
    const std::string found = done.shards_found > 0 ? fmt::format(" ({} there already)", done.shards_found) : "";
    print_out("{} of {}, {}: {} in {}{}; what was written was read back: {}\n", counted(done.images, "image"),
              counted(packed->num_classes(), "class", "es"), kind_text(size, *options),
              human_bytes(static_cast<double>(done.bytes)), counted(options->shards, "file"), found, out->c_str());
    return 0;
  };
}

}  // namespace trainopt
