#include "data/sample_loader.h"

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/log.h"
#include "base/units.h"

#include <fmt/ranges.h>

namespace trainopt {
namespace {

std::string with_reason(const RefusedSample& sample) { return fmt::format("{}: {}", sample.name, sample.reason); }

std::string first_ten(const std::map<int64_t, RefusedSample>& bad) {
  std::vector<std::string> first;
  for (auto one = bad.begin(); one != bad.end() && first.size() < 10; ++one) first.push_back(with_reason(one->second));
  return fmt::format("{}", fmt::join(first, "; "));
}

}  // namespace

SampleLoader::SampleLoader(std::shared_ptr<const Dataset> dataset, Pipeline pipeline, Sampler sampler, uint64_t seed,
                           BadSamplePolicy policy, const std::vector<RefusedSample>& refused)
    : dataset_(std::move(dataset)), pipeline_(std::move(pipeline)), sampler_(sampler), keys_(seed), policy_(policy) {
  TRAINOPT_CHECK_EQUAL(sampler_.size(), dataset_->size());
  for (const auto& one : refused) bad_.emplace(one.sample, one);
}

int64_t SampleLoader::load(int64_t epoch, int64_t position, const SamplePlace& place, Scratch& scratch) {
  if (scratch.epoch != epoch) {
    scratch.order = sampler_.order(epoch);
    scratch.epoch = epoch;
  }
  int64_t sample = scratch.order(position);
  PhiloxStream substitutes = keys_.substitutes(epoch, position);
  while (true) {
    try {
      dataset_->write(sample, keys_.augmentation(epoch, sample), pipeline_, place, scratch.load);
      require_mapped_files_whole();
      return sample;
    } catch (const SizeMismatch& other) {
      if (policy_.one_size)
        throw UserError(fmt::format("data.cache: device needs images of one size before the random transforms; put a "
                                    "resize to [height, width] first or remove data.cache; {}: {}",
                                    dataset_->name_of(sample), other.what()),
                        ExitCode::data);
      record_bad(sample, other.what());
    } catch (const BadSample& bad) {
      record_bad(sample, bad.what());
    }
    sample = static_cast<int64_t>(substitutes.next_below(static_cast<uint64_t>(dataset_->size())));
  }
}

void SampleLoader::record_bad(int64_t sample, const char* reason) {
  require_mapped_files_whole();  // else the file is bad, not the sample
  const RefusedSample refused{sample, dataset_->name_of(sample), reason};
  const std::string what = with_reason(refused);
  const std::lock_guard lock(mutex_);
  const bool is_new = bad_.emplace(sample, refused).second;
  if (!policy_.substitute)
    throw UserError(
        fmt::format("cannot use the sample {} (data.on_bad_sample: substitute with data.max_bad_samples goes "
                    "on without it)",
                    what),
        ExitCode::data);
  require_within_budget();
  if (!is_new) return;
  log_warning("{} {}", policy_.leaves_out ? "the evaluation leaves out" : "another sample takes the place of", what);
}

/// Called with the lock, and for known samples too: threads that load ahead may have found one too many before a
/// checkpoint was saved, and the run that resumes from it must end as well.
void SampleLoader::require_within_budget() const {
  const auto count = static_cast<int64_t>(bad_.size());
  if (count == dataset_->size())
    throw UserError(fmt::format("none of the {} can be used; the first: {}", counted(count, "sample"), first_ten(bad_)),
                    ExitCode::data);
  if (count > policy_.budget)
    throw UserError(fmt::format("more bad samples than data.max_bad_samples allows ({}); {} so far, the first: {}",
                                policy_.budget, count, first_ten(bad_)),
                    ExitCode::data);
}

std::vector<RefusedSample> SampleLoader::bad_samples() const {
  const std::lock_guard lock(mutex_);
  std::vector<RefusedSample> all;
  for (const auto& [sample, refused] : bad_) all.push_back(refused);
  return all;
}

}  // namespace trainopt
