#include "data/formats/text/text_dataset.h"

#include "data/token_counts.h"

#include <algorithm>

namespace trainopt {

void TextDataset::write(int64_t sample, uint64_t, const Pipeline&, const SamplePlace& place,
                        LoadScratch& scratch) const {
  const StageTimer timer(scratch.image.times.read_ns);
  const auto targets = static_cast<size_t>(target_tokens(sample)), width = static_cast<size_t>(place.width);
  scratch.tokens.resize(targets + 1);
  read(sample, scratch.tokens);
  std::copy_n(scratch.tokens.begin(), targets, place.tokens);
  std::copy_n(scratch.tokens.begin() + 1, targets, place.target);
  std::fill(place.tokens + targets, place.tokens + width, 0);
  std::fill(place.target + targets, place.target + width, kNoTarget);
}

}  // namespace trainopt
