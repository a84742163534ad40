#include "config/help.h"

#include "config/leads.h"
#include "config/suggest.h"
#include "config/write.h"

#include <algorithm>
#include <map>

namespace trainopt {
namespace {

std::string limits_of(const Option& option) { return bounds_text(option.bounds); }

std::string default_of(const Option& option) {
  switch (option.kind) {
    case Option::Kind::value:
      return flow_text(option.write());
    case Option::Kind::toggle:
      return *option.on ? "true" : "false";
    case Option::Kind::variant:
      return option.alternatives[option.current()].name;
    case Option::Kind::section:
      return "";
  }
  return "";
}

std::string type_of(const Option& option) {
  if (option.kind == Option::Kind::toggle) return option.options.empty() ? "true | false" : "true | false | map";
  return option.kind == Option::Kind::variant ? joined(alternative_names(option), " | ") : option.type;
}

using Names = std::vector<std::string>;

/// By our keys, what others call them, without words that belong to one of their sections.
std::map<std::string, Names> names_by_key() {
  std::map<std::string, Names> names;
  for (const Lead& lead : all_leads())
    if (lead.theirs.find_first_of(".*=") == std::string::npos)
      for (const std::string& ours : lead.paths) names[ours.substr(0, ours.find(": "))].push_back(lead.theirs);
  return names;
}

Names names_elsewhere(const std::string& path) {
  static const auto all = names_by_key();  // made once: plans ask for the options of a recipe again and again
  const auto found = all.find(path);
  return found == all.end() ? Names() : found->second;
}

OptionHelp help_of(const Option& option, const std::string& path) {
  return {.path = path,
          .type = type_of(option),
          .default_text = default_of(option),
          .bounds = limits_of(option),
          .aliases = option.aliases,
          .elsewhere = names_elsewhere(path),
          .help = option.help,
          .only_for = ""};
}

bool mentions(const OptionHelp& option, const std::string& folded_word) {
  const auto has = [&](const std::string& text) { return folded(text).find(folded_word) != std::string::npos; };
  return has(option.path) || has(option.type) || has(option.help) ||
         std::any_of(option.aliases.begin(), option.aliases.end(), has) ||
         std::any_of(option.elsewhere.begin(), option.elsewhere.end(), has);
}

void collect(const Outline& outline, const std::string& section, std::vector<OptionHelp>& all);

/// Lists an option once if several alternatives share it word for word.
void collect_alternatives(const Option& variant, const std::string& section, std::vector<OptionHelp>& all) {
  const std::string prefix = join_path(section, variant.name) + " ";
  const size_t begin = all.size();
  for (const auto& alternative : variant.alternatives) {
    std::vector<OptionHelp> own;
    collect(alternative.options, section, own);
    for (OptionHelp& option : own) {
      const auto same =
          std::find_if(all.begin() + static_cast<std::ptrdiff_t>(begin), all.end(), [&](const OptionHelp& other) {
            return other.path == option.path && other.default_text == option.default_text &&
                   other.bounds == option.bounds && other.help == option.help;
          });
      if (same != all.end()) {
        same->only_for += ", " + alternative.name;
      } else {
        option.only_for = prefix + alternative.name;
        all.push_back(std::move(option));
      }
    }
  }
  const std::string everyone = prefix + joined(alternative_names(variant), ", ");
  for (size_t i = begin; i < all.size(); ++i)
    if (all[i].only_for == everyone) all[i].only_for.clear();
}

void collect(const Outline& outline, const std::string& section, std::vector<OptionHelp>& all) {
  for (const Option& option : outline) {
    const std::string path = join_path(section, option.name);
    if (option.kind != Option::Kind::section) all.push_back(help_of(option, path));
    collect(option.options, path, all);
    if (option.kind == Option::Kind::variant) collect_alternatives(option, section, all);
  }
}

/// Writes one option per line, with the comments in one column. Every line starts with `prefix`, such as "  # ".
class DocumentedYaml {
 public:
  void write(const Outline& outline, const std::string& prefix) {
    for (const Option& option : outline) write_option(option, prefix);
  }
  std::string take() { return std::move(text_); }

 private:
  void write_option(const Option& option, const std::string& prefix) {
    switch (option.kind) {
      case Option::Kind::section:
        if (prefix.empty()) text_ += "\n";
        line(prefix + option.name + ":" + (option.options.empty() ? " {}" : ""), option.help);
        return write(option.options, prefix + "  ");
      case Option::Kind::toggle:
        line(prefix + option.name + ": " + default_of(option),
             comment_of(option) + (option.options.empty() ? "" : " (or true, or a map of:)"));
        return write(option.options, prefix + "#   ");
      case Option::Kind::value:
        return line(prefix + option.name + ": " + default_of(option), comment_of(option));
      case Option::Kind::variant:
        line(prefix + option.name + ": " + default_of(option), comment_of(option));
        write(option.select(option.current()), prefix);
        for (size_t i = 0; i < option.alternatives.size(); ++i) {
          if (i == option.current()) continue;
          text_ += prefix + "# with " + option.name + ": " + option.alternatives[i].name + "\n";
          write(option.alternatives[i].options, prefix + "#   ");
        }
    }
  }

  static std::string comment_of(const Option& option) {
    const bool says_type = option.kind == Option::Kind::variant ||
                           (option.kind == Option::Kind::value && option.schema().contains("enum"));
    std::string more = says_type ? type_of(option) : "";
    if (const auto limits = limits_of(option); !limits.empty()) more += (more.empty() ? "" : "; ") + limits;
    return option.help + (more.empty() ? "" : " (" + more + ")");
  }

  void line(const std::string& code, const std::string& comment) {
    constexpr size_t kCommentColumn = 32;
    text_ += code + std::string(code.size() < kCommentColumn ? kCommentColumn - code.size() : 1, ' ') + "# " + comment +
             "\n";
  }

  std::string text_;
};

}  // namespace

std::vector<OptionHelp> help_of(const Outline& outline) {
  std::vector<OptionHelp> all;
  collect(outline, "", all);
  return all;
}

std::vector<OptionHelp> options_under(const std::vector<OptionHelp>& options, const std::string& key) {
  std::vector<OptionHelp> found;
  for (const OptionHelp& option : options) {
    const bool is_alias = std::find(option.aliases.begin(), option.aliases.end(), key) != option.aliases.end();
    if (option.path == key || option.path.starts_with(key + ".") || option.path.ends_with("." + key) || is_alias)
      found.push_back(option);
  }
  return found;
}

std::vector<OptionHelp> options_with_words(const std::vector<OptionHelp>& options, const std::string& words) {
  std::vector<OptionHelp> found;
  const auto is_elsewhere = [&](const std::string& name) { return folded(name) == folded(words); };
  std::copy_if(options.begin(), options.end(), std::back_inserter(found), [&](const OptionHelp& option) {
    return std::any_of(option.elsewhere.begin(), option.elsewhere.end(), is_elsewhere);
  });
  if (!found.empty()) return found;
  const std::string wanted = words.starts_with("torch.") ? words.substr(6) : words;  // torch.compile
  if (wanted.find('.') == std::string::npos)
    std::copy_if(options.begin(), options.end(), std::back_inserter(found),
                 [word = folded(wanted)](const OptionHelp& option) { return mentions(option, word); });
  return found;
}

std::string nearest_name(const std::vector<OptionHelp>& options, const std::string& key) {
  std::vector<std::string_view> names;
  for (const OptionHelp& option : options) {
    names.push_back(option.path);
    if (option.path.find('.') != std::string::npos)
      names.push_back(std::string_view(option.path).substr(0, option.path.find('.')));
  }
  return closest_match(key, names);
}

std::string documented_yaml_of(const Outline& outline) {
  DocumentedYaml yaml;
  yaml.write(outline, "");
  return "# Every option with its default.\n" + yaml.take();
}

}  // namespace trainopt
