// A folder with a complete comparison, portable to other machines: recipes, plans, receipts, environment, every turn.
#pragma once

#include "compare/against.h"
#include "compare/comparison.h"
#include "metrics/hardware/environment.h"

#include <filesystem>

namespace trainopt {

/// Writes result.json, report.md, turns.csv and environment.json into `folder`, where the arms have already written a/
/// and b/, or arm-1/, arm-2/, …, with recipe.yaml and records. environment.json includes the hash (XXH3, 128 bits) of
/// the program.
void write_bundle(const std::filesystem::path& folder, const Comparison& comparison, const ProgramVersion& version);
/// Writes the files of a measurement held against a stored one, whose arm has written b/.
void write_bundle(const std::filesystem::path& folder, const Against& against, const ProgramVersion& version);

/// Reads it back; the verdict is recomputed from the turns. Throws UserError(data) naming the file.
Comparison read_bundle(const std::filesystem::path& folder);
Against read_against(const std::filesystem::path& folder);
/// The JSON object in a result.json, whose kind, if any, is a string. Throws UserError(data) naming the file.
Json read_result(const std::filesystem::path& path);

/// Whether the folder is an ablation's, one of --against or one of --until. Throws
/// UserError(data) if it has no readable result.json.
bool is_ablation(const std::filesystem::path& folder);
bool is_against(const std::filesystem::path& folder);
bool is_until(const std::filesystem::path& folder);

/// environment() and, as program_xxh3, the XXH3-128 of this program's file in hexadecimal.
Json measured_environment(const ProgramVersion& version);

}  // namespace trainopt
