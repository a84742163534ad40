// The task of a stage that is not the last.
#pragma once

#include "model/task.h"

#include <memory>

namespace trainopt::pipeline_stages {

/// Its loss is 0, with a backward through the later stages; the last stage's ranks have the whole loss.
std::unique_ptr<Task> make_stage_task(std::unique_ptr<Task> inner);

}  // namespace trainopt::pipeline_stages
