#include "compare/ceilings.h"

#include "base/error.h"
#include "compare/arms/make_arm.h"
#include "compare/measure.h"
#include "device/gpu_error.h"
#include "device/tensor.h"

namespace trainopt {

std::vector<Ceiling> ceilings_of(int64_t ranks) {
  std::vector<Ceiling> all{Ceiling::data, Ceiling::optimizer, Ceiling::logging};
  if (ranks > 1) all.push_back(Ceiling::communication);
  return all;
}

std::vector<CeilingRow> measure_ceilings(const Recipe& recipe, int64_t ranks, const std::filesystem::path& folder,
                                         const CompareOptions& base_options, Clock::time_point until,
                                         ArmFactory& factory, const Observer& observer) {
  const std::vector<Ceiling> ceilings = ceilings_of(ranks);
  std::vector<CeilingRow> rows;
  CompareOptions options = base_options;
  options.level =
      1 - (1 - base_options.level) / static_cast<double>(ceilings.size());  // Bonferroni: all hold simultaneously
  const auto spec = [&](const char* name, std::optional<Ceiling> without) {
    return ArmSpec{.recipe = recipe, .folder = folder / name, .without = without, .batch_seed = {}};
  };
  std::optional<Baseline> baseline;
  std::string lost;  // why nothing more can be measured in these processes
  for (size_t i = 0; i < ceilings.size(); ++i) {
    Gain gain;
    gain.reason = lost;
    if (lost.empty()) try {
        if (!baseline)
          baseline = make_baseline(warm_up("the job", factory.make(spec("job", {}), ArmHost::this_process), options),
                                   {}, options, until, observer);
        const auto end = after(-seconds_since(until) / static_cast<double>(ceilings.size() - i));
        const std::string name(word_of(ceilings[i]));
        const Comparison c = compare(
            *baseline, warm_up(name, factory.make(spec(name.c_str(), ceilings[i]), ArmHost::this_process), options),
            options, end, observer);
        gain = {.ratio = c.pair().ratio,
                .interval = c.pair().interval,
                .verdict = c.pair().verdict,
                .blocks = static_cast<int64_t>(c.sampling.rounds.size()),
                .pairs = {},
                .standard_error = 0,
                .reason = {}};
      } catch (const std::exception& error) {  // named recovery: the run itself succeeded
        const std::string what = error.what();
        gain.reason = what.substr(0, what.find('\n'));
        if (is_gpu_lost(error) || !factory.is_sound()) lost = gain.reason;
      }
    rows.push_back({ceilings[i], std::move(gain)});
    if (observer.stopped()) break;
  }
  remove_first_steps(folder);
  return rows;
}

Batch ReplayedBatches::next() {
  if (source_) {
    Batch batch = source_->next();
    for (const auto field : kBatchFields)  // on the CPU they share the loader's memory
      if (at::Tensor& tensor = batch.*field; tensor.defined()) tensor = tensor.clone();
    step_.push_back(batch);
    if (batch.is_last) source_.reset();
    return batch;
  }
  return step_[next_++ % step_.size()];
}

}  // namespace trainopt
