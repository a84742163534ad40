// A folder with a complete comparison, portable to other machines: recipes, plans, receipts, environment, every turn.
#pragma once

#include "compare/comparison.h"
#include "metrics/environment.h"

#include <filesystem>
#include <string>

namespace trainopt {

/// Writes result.json, report.md, turns.csv and environment.json into `folder`, where the arms have already written a/
/// and b/ with recipe.yaml and records. environment.json includes the hash (XXH3, 128 bits) of the program.
void write_bundle(const std::filesystem::path& folder, const Comparison& comparison, const ProgramVersion& version);

/// Reads it back; the verdict is recomputed from the turns. Throws UserError(data) naming the file.
Comparison read_bundle(const std::filesystem::path& folder);

/// The JSON in a result.json. Throws UserError(data) naming the file.
Json read_result(const std::filesystem::path& path);

/// Whether the folder is an ablation's. Throws UserError(data) if it has no readable result.json.
bool is_ablation(const std::filesystem::path& folder);

/// environment() and, as program_xxh3, the XXH3-128 of this program's file in hexadecimal.
Json measured_environment(const ProgramVersion& version);

}  // namespace trainopt
