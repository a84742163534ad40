#include "recipe/validate_data.h"

#include "data/formats/table.h"
#include "data/on_device/device_transforms.h"
#include "model/catalogue.h"
#include "recipe/validate.h"
#include "storage/data_files.h"

#include <algorithm>
#include <string_view>

namespace trainopt {
namespace {

using Problems = std::vector<RecipeProblem>;
using Keys = std::set<std::string>;

void check_order(const std::vector<TransformConfig>& transforms, const std::string& key, Problems& problems) {
  for (size_t i = 0; i + 1 < transforms.size(); ++i)
    if (std::holds_alternative<NormalizeConfig>(transforms[i])) {
      problems.push_back({key, "normalize must be the last transform, and there can be only one"});
      return;
    }
}

/// What the data set reads, and what the model can be evaluated on.
void check_files(const Recipe& recipe, const Keys& changed, Problems& problems) {
  const DataConfig& data = recipe.data;
  const auto name = word_of(data.dataset);
  const DataFormat& format = format_of(data.dataset);
  if (format.files) {
    if (!data.path)
      problems.push_back({"data.path", fmt::format("{} needs {}; name it with this key", name,
                                                   format.one_file ? "a file or a folder" : "a folder")});
    for (const auto& [key, paths] : {std::pair{"data.path", &data.path}, {"evaluation.path", &recipe.evaluation.path}})
      if (*paths && std::find((*paths)->all.begin(), (*paths)->all.end(), "") != (*paths)->all.end())
        problems.push_back({key, "must not be empty"});
    if (!format.remote)
      for (const auto& [key, paths] :
           {std::pair{"data.path", &data.path}, {"evaluation.path", &recipe.evaluation.path}})
        if (*paths && (*paths)->all.size() > 1)
          problems.push_back({key, fmt::format("{} reads one file or folder, and {} are named; only {} read several",
                                               name, (*paths)->all.size(), formats_with(&DataFormat::remote))});
    if (changed.contains("data.size"))
      problems.push_back(
          {"data.size", fmt::format("only {} use this, and {} has the samples in its files; remove this key",
                                    formats_with(&DataFormat::files, false), name)});
    if (format.test_file.empty() && recipe.evaluation.every_n_steps && !recipe.evaluation.path)
      problems.push_back({"evaluation.every_n_steps", fmt::format("{} needs evaluation.path for this", name)});
    return;
  }
  if (data.path)
    problems.push_back(
        {"data.path", changed.contains("data.dataset")
                          ? fmt::format("{} reads no files; remove this key", name)
                          : "needs data.dataset, the kind of data that is there, such as image_folder or tokens"});
  for (const char* key :
       {"evaluation.path", "evaluation.every_n_steps", "evaluation.batch_size", "evaluation.transforms"})
    if (changed.contains(key))
      problems.push_back({key, fmt::format("{} has nothing to evaluate on; remove this key", name)});
}

/// Whether the cache is one of remote files, whatever is in them.
bool keeps_files(const DataConfig& data) {
  return data.cache == CacheKind::disk || (data.cache == CacheKind::memory && data.path && data.path->is_remote());
}

/// Keys that only images have a use for, or only files of images.
void check_images(const Recipe& recipe, const Keys& changed, Problems& problems) {
  const DataConfig& data = recipe.data;
  const auto name = word_of(data.dataset);
  const DataFormat& format = format_of(data.dataset);
  if (!format.has_samples) {
    if (!data.transforms.empty())
      problems.push_back(
          {"data.transforms", "synthetic batches are created on the device at data.image_size; remove this key"});
    if (data.on_bad_sample == OnBadSample::substitute)
      problems.push_back({"data.on_bad_sample", "synthetic has no bad samples; remove this key"});
  } else if (changed.contains("data.image_size")) {
    problems.push_back(
        {"data.image_size",
         fmt::format("only synthetic uses this; remove it, and for {} use a resize in data.transforms", name)});
  }
  check_order(data.transforms, "data.transforms", problems);
  if (recipe.evaluation.transforms) check_order(*recipe.evaluation.transforms, "evaluation.transforms", problems);
  if (!format.caches_decoded) {
    if (data.decode != DecodeKind::exact && !format.decodes)
      problems.push_back({"data.decode", fmt::format("only {} decode files; remove this key for {}",
                                                     formats_with(&DataFormat::decodes), name)});
    if (data.cache == CacheKind::memory && !format.row_groups && !keeps_files(data))
      problems.push_back(
          {"data.cache",
           fmt::format("memory is only for {}, {} and data in object storage; {} {}; remove this key",
                       formats_with(&DataFormat::caches_decoded), formats_with(&DataFormat::row_groups), name,
                       format.decodes ? "is read through the system's cache, which keeps it in memory"
                                      : "is in memory anyway")});
  } else if (data.decode == DecodeKind::scaled && data.cache == CacheKind::memory) {
    problems.push_back(
        {"data.cache",
         "memory stores fully decoded images, which data.decode: scaled never produces; remove one of them"});
  }
  if (const auto refusal = device_dataset_refusal(data.transforms); refusal && data.cache == CacheKind::device)
    problems.push_back({"data.cache", fmt::format("device is not possible: {}", *refusal)});
  if (!format.decodes && changed.contains("data.max_pixels"))
    problems.push_back({"data.max_pixels", fmt::format("only {} decode files; remove this key for {}",
                                                       formats_with(&DataFormat::decodes), name)});
  if (data.max_bad_samples > 0 && data.on_bad_sample == OnBadSample::error)
    problems.push_back({"data.max_bad_samples", "needs data.on_bad_sample: substitute"});
}

/// Keys that have no use for text.
void check_text(const DataConfig& data, const Keys& changed, Problems& problems) {
  for (const char* key :
       {"data.image_size", "data.transforms", "data.decode", "data.max_pixels", "data.cache", "evaluation.transforms"})
    if (changed.contains(key) && !(key == std::string_view("data.cache") && keeps_files(data)))
      problems.push_back({key, "is about images, and this data is text; remove this key"});
  for (const char* key : {"data.on_bad_sample", "data.max_bad_samples"})
    if (changed.contains(key))
      problems.push_back({key, "is about images, and text that cannot be read always ends the run; remove this key"});
}

/// Keys of text, also for other data, which has no use for them.
void check_text_keys(const DataConfig& data, Problems& problems) {
  const DataFormat& format = format_of(data.dataset);
  if (data.token_bits && !format.text)
    problems.push_back(
        {"data.token_bits", fmt::format("only {} use this; remove this key", formats_with(&DataFormat::text))});
  if (data.token_bits && *data.token_bits != 16 && *data.token_bits != 32)
    problems.push_back({"data.token_bits", fmt::format("must be 16 or 32: {}", *data.token_bits)});
  if (data.padding != Padding::longest && !format.pads)
    problems.push_back({"data.padding", "only documents differ in length; remove this key"});
  if (data.warmup_largest && (!format.pads || data.padding == Padding::max))
    problems.push_back({"data.warmup_largest",
                        "has no effect where all batches have one shape; it needs data.dataset: documents and a "
                        "data.padding other than max"});
}

/// Keys of Parquet files, also for other data, which has no use for them.
void check_parquet(const DataConfig& data, const Keys& changed, Problems& problems) {
  const ParquetFilter& filter = data.parquet.filter;
  if (!format_of(data.dataset).row_groups) {
    for (const std::string& key : changed)
      if (key.starts_with("data.parquet.") || key == "data.partitions" || key == "data.shuffle_window")
        problems.push_back(
            {key, fmt::format("only {} uses this; remove this key", formats_with(&DataFormat::row_groups))});
    return;
  }
  if (!filter.column && (filter.min || filter.max))
    problems.push_back({"data.parquet.filter", "needs a column whose values are to be within the limits"});
  if (filter.column && !filter.min && !filter.max)
    problems.push_back({"data.parquet.filter", "needs min, max or both"});
  if (filter.min && filter.max && *filter.min > *filter.max)
    problems.push_back(
        {"data.parquet.filter", fmt::format("min must not be above max: {} and {}", *filter.min, *filter.max)});
  if (!data.shuffle)
    for (const char* key : {"data.partitions", "data.shuffle_window"})
      if (changed.contains(key)) problems.push_back({key, "needs data.shuffle: true"});
}

/// Keys of object storage, for data that is in local files only.
void check_storage(const Recipe& recipe, const Keys& changed, Problems& problems) {
  const auto is_there = [](const std::optional<DataPaths>& paths) { return paths && paths->is_remote(); };
  if (is_there(recipe.data.path) || is_there(recipe.evaluation.path)) return;
  if (recipe.data.cache == CacheKind::disk)
    problems.push_back({"data.cache",
                        "disk is only for data in object storage (s3://bucket/key); local files need no "
                        "copies; remove this key"});
  for (const std::string& key : changed)
    if (key.starts_with("data.storage."))
      problems.push_back({key, "is only for a data.path in object storage (s3://bucket/key); remove this key"});
}

}  // namespace

void check_data(const Recipe& recipe, const Keys& changed, Problems& problems) {
  const DataConfig& data = recipe.data;
  const auto name = word_of(data.dataset), model = word_of(recipe.model.name);
  const bool language = predicts_text(recipe);
  const DataFormat& format = format_of(data.dataset);
  if (format.text && !language)
    problems.push_back({"data.dataset", fmt::format("{} is text, which the {} cannot read; use a language model or "
                                                    "images",
                                                    name, model)});
  if (language && !format.text && format.has_samples)
    problems.push_back({"data.dataset", fmt::format("{} reads text ({}) or synthetic, not {}", model,
                                                    formats_with(&DataFormat::text), name)});
  check_files(recipe, changed, problems);
  if (language || format.text)
    check_text(data, changed, problems);
  else
    check_images(recipe, changed, problems);
  check_text_keys(data, problems);
  check_parquet(data, changed, problems);
  check_storage(recipe, changed, problems);
  if (data.non_blocking && !data.pin_memory) problems.push_back({"data.non_blocking", "needs data.pin_memory: true"});
}

}  // namespace trainopt
