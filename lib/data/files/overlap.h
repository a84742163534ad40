// Finds evaluation data that is trained on.
#pragma once

#include "data/dataset.h"

#include <string>

namespace trainopt {

/// "2 of its 5 files are training files"; empty if the two data sets have no file in common, and the
/// evaluation data is no copy of the training data.
std::string trained_on(const Dataset& training, const Dataset& evaluation);

}  // namespace trainopt
