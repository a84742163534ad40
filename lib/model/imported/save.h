// Trained weights, put back into the program that they were trained in.
#pragma once

#include "model/config.h"
#include "model/weights_file.h"

#include <filesystem>

namespace trainopt {

/// Writes a copy of the program `config.path` to `to`, with these values of its parameters and buffers; with
/// config.replace_head also with its new last layer. torch.export.load reads it. `weights`: of a run of this program,
/// by its names. Throws UserError: checkpoint if they are not of this program, storage if `to` exists or cannot be
/// written.
void save_program(const ModelConfig& config, const NamedTensors& weights, const std::filesystem::path& to);

}  // namespace trainopt
