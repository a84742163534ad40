#include "data/sample_loader.h"

#include "base/error.h"
#include "base/philox.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <span>

namespace trainopt {

SampleLoader::SampleLoader(std::shared_ptr<const Dataset> dataset, Pipeline pipeline, Sampler sampler, uint64_t seed,
                           BadSamplePolicy policy)
    : dataset_(std::move(dataset)),
      pipeline_(std::move(pipeline)),
      sampler_(sampler),
      augmentation_key_(mix_key(seed, "augmentation")),
      substitute_key_(mix_key(seed, "substitute")),
      policy_(policy) {
  TRAINOPT_CHECK_EQUAL(sampler_.size(), dataset_->size());
}

SampleLoader::Loaded SampleLoader::load(int64_t epoch, int64_t position, const Destination& destination, Scratch& scratch) {
  if (scratch.epoch != epoch) {
    scratch.order = sampler_.order(epoch);
    scratch.epoch = epoch;
  }
  int64_t sample = scratch.order(position);
  const uint64_t epoch_key = mix_key(augmentation_key_, static_cast<uint64_t>(epoch));
  PhiloxStream substitutes(mix_key(substitute_key_, static_cast<uint64_t>(epoch)), static_cast<uint64_t>(position));
  while (true) {
    try {
      dataset_->load(sample, mix_key(epoch_key, static_cast<uint64_t>(sample)), pipeline_, destination, scratch.load);
      return {sample, dataset_->label(sample)};
    } catch (const BadSample& bad) {
      note_bad(sample, bad.what());
    }
    sample = static_cast<int64_t>(substitutes.next_below(static_cast<uint64_t>(dataset_->size())));
  }
}

void SampleLoader::note_bad(int64_t sample, const char* reason) {
  const auto text = fmt::format("{}: {}", dataset_->name_of(sample), reason);
  if (!policy_.substitute) throw UserError(fmt::format("cannot use the sample {}", text), ExitCode::data);
  const std::lock_guard lock(mutex_);
  if (bad_.insert(sample).second) {
    bad_texts_.push_back(text);
    if (static_cast<int64_t>(bad_.size()) <= policy_.budget) spdlog::warn("another sample takes the place of {}", text);
  }
  if (static_cast<int64_t>(bad_.size()) > policy_.budget || static_cast<int64_t>(bad_.size()) == dataset_->size())
    throw UserError(
        fmt::format("more bad samples than data.max_bad_samples allows ({}); {} so far, the first: {}", policy_.budget,
                    bad_.size(), fmt::join(std::span(bad_texts_).first(std::min<size_t>(bad_texts_.size(), 10)), "; ")),
        ExitCode::data);
}

std::vector<std::string> SampleLoader::bad_samples() const {
  const std::lock_guard lock(mutex_);
  return bad_texts_;
}

}  // namespace trainopt
