// A folder that carries a comparison to another machine: recipes, plans, receipts, environment, every turn.
#pragma once

#include "compare/comparison.h"

#include <filesystem>
#include <string>

namespace trainopt {

/// Writes result.json, report.md, turns.csv and environment.json into `folder`, where the arms have left a/ and b/ with recipe.yaml and records.
/// environment.json also holds the hash (XXH3, 128 bits) of the program.
void write_bundle(const std::filesystem::path& folder, const Comparison& comparison, const std::string& trainopt_version);

/// Reads it back; the verdict is judged again from the turns. Throws UserError(data) naming the file.
Comparison read_bundle(const std::filesystem::path& folder);

/// XXH3-128 of a file, as 32 hexadecimal digits.
std::string file_hash(const std::filesystem::path& path);

}  // namespace trainopt
