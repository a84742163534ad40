#include "data/data_spec.h"

#include "base/error.h"
#include "data/formats/text/text_dataset.h"
#include "data/stream_order.h"

#include <algorithm>

namespace trainopt {

BatchSchedule DataSpec::schedule() const {
  return BatchSchedule({.samples = samples(),
                        .batch_size = batch_size,
                        .ranks = ranks,
                        .rank = rank,
                        .accumulation = accumulation,
                        .drop_last = drop_last,
                        .last_batch = last_batch});
}

Sampler DataSpec::sampler() const {
  const auto runs = dataset ? dataset->runs() : std::span<const int64_t>();
  if (!shuffle || runs.empty()) return Sampler(samples(), seed, shuffle);
  return Sampler(StreamLayout{.runs = {runs.begin(), runs.end()},
                              .partitions = partitions,
                              .window = shuffle_window,
                              .step_samples = ranks * accumulation * batch_size},
                 seed);
}

DataIdentity DataSpec::identity() const {
  if (dataset) return dataset->identity();
  return {.kind = std::string(word_of(kind)),
          .samples = synthetic.samples,
          .classes = is_text() ? synthetic.vocabulary : synthetic.num_classes,
          .content = ""};
}

const ImageDataset* DataSpec::images() const { return dynamic_cast<const ImageDataset*>(dataset.get()); }

std::shared_ptr<const TextDataset> DataSpec::text() const {
  return std::dynamic_pointer_cast<const TextDataset>(dataset);
}

ImageSize DataSpec::image_size() const {
  TRAINOPT_CHECK(!is_text());
  return dataset ? output_size(Pipeline(transforms), *images()) : ImageSize{synthetic.side, synthetic.side};
}

DataSpec open_data(const DataConfig& data, const ModelNeeds& model, uint64_t seed, const Variables& variables) {
  DataSpec spec;
  spec.kind = data.dataset;
  spec.files = data_files(data, variables);
  spec.dataset = open_training_data(data, model, seed, spec.files);
  spec.synthetic = {
      .samples = data.size, .side = data.image_size, .num_classes = model.num_classes, .vocabulary = model.vocabulary};
  spec.context = model.context;
  spec.padding = data.padding;
  spec.warmup_largest = data.warmup_largest;
  spec.transforms = data.transforms;
  spec.batch_size = data.batch_size;
  spec.shuffle = data.shuffle;
  spec.partitions = data.partitions;
  spec.shuffle_window = data.shuffle_window;
  spec.drop_last = data.drop_last;
  spec.seed = seed;
  spec.bad_samples = {.substitute = data.on_bad_sample == OnBadSample::substitute, .budget = data.max_bad_samples};
  return spec;
}

ImageSize output_size(const Pipeline& pipeline, const ImageDataset& dataset) {
  if (const auto size = pipeline.output_size(dataset.uniform_size())) return *size;
  LoadScratch scratch;
  std::string problem;
  for (int64_t sample = 0; sample < std::min<int64_t>(dataset.size(), 100); ++sample) {
    try {
      return pipeline.output_size(dataset.size_of(sample, scratch)).value();
    } catch (const BadSample& bad) {
      if (problem.empty()) problem = fmt::format("{}: {}", dataset.name_of(sample), bad.what());
    }
  }
  throw UserError(
      fmt::format("cannot determine the image size because none of the first images can be read: {}", problem),
      ExitCode::data);
}

int64_t largest_width(const DataSpec& data) {
  const auto text = data.text();
  return text ? padded_width(data.padding, text->longest(), data.context) : data.context;
}

}  // namespace trainopt
