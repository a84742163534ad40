// Where the words of other trainers lead: keys, sections and values that a recipe does not have, and what to write
// instead. leads.txt is the table.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

struct Lead {
  std::string theirs;              ///< "warmup_epochs", "checkpoint.interval", "wandb_*", "train.max_steps=-1"
  std::vector<std::string> paths;  ///< full keys or sections here; one may have a value: "average.name: ema"
  std::string value;               ///< for a value: what to write in its place; empty: no equivalent
  std::string note;                ///< what to note, or why there is no equivalent
};
/// The whole table, in its order.
const std::vector<Lead>& all_leads();

/// `word` in lower case, with _ for - and space.
std::string folded(std::string_view word);

/// Where the unknown `key` of a section leads; null: the table has no such word. A word with the section, of which only
/// the last part counts, goes before the key alone, and that before the beginning of keys.
const Lead* lead_of_key(const std::string& section, std::string_view key);
/// What to write for `value` at the full key `path`; null: the table has no such value.
const Lead* lead_of_value(const std::string& path, std::string_view value);

/// A trainer by whose names a whole recipe is written, and the recipe to start from here.
struct OtherTool {
  std::string name, start;
  std::vector<std::string> words;
};
/// `unknown`: the full paths of a recipe's unknown keys. Null unless at least two of them are a tool's words.
const OtherTool* tool_of(const std::vector<std::string>& unknown);

}  // namespace trainopt
