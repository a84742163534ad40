#include "report/figures.h"

#include "report/run_folder.h"

#include "base/counted.h"

#include <fmt/format.h>

namespace trainopt::report {

const Json& Figures::json(std::string_view path) const { return path.empty() ? *json_ : at(*json_, path); }

std::optional<double> Figures::value(std::string_view path) const {
  const Json& value = json(path);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

Html Figures::number(std::string_view path, NumberText in_words) const {
  const auto number = value(path);
  return figure(prefix_ + std::string(path), json(path), number ? in_words(*number) : std::string(kMissing));
}

Html Figures::known(std::string_view path, NumberText in_words) const {
  return value(path) ? number(path, in_words) : Html();
}

Html Figures::known_text(std::string_view path) const { return json(path).is_null() ? Html() : text(path); }

Html Figures::text(std::string_view path) const {
  const std::string words = value_text(json(path));
  return figure(prefix_ + std::string(path), json(path).is_string() ? Json(words) : json(path), words);
}

Html Figures::worded(std::string_view path, std::string_view words) const {
  return figure(prefix_ + std::string(path), json(path), words);
}

Html Figures::interval(std::string_view path, NumberText in_words) const {
  const Json& ends = json(path);
  if (!ends.is_array() || ends.size() != 2 || !ends[0].is_number() || !ends[1].is_number()) return {};
  const auto end = [&](size_t index) {
    return figure(fmt::format("{}{}.{}", prefix_, path, index), ends[index], in_words(ends[index].get<double>()));
  };
  return end(0) + " … " + end(1);
}

Figures Figures::of(std::string_view path) const { return {json(path), fmt::format("{}{}.", prefix_, path)}; }

Html key_figure(std::string_view label, const Html& value, std::string_view unit, const Html& note) {
  return element("div", {{"class", "key-figure"}},
                 element("span", {{"class", "label"}}, escape(label)) +
                     element("span", {{"class", "value"}},
                             value + (unit.empty() ? Html() : " " + element("small", escape(unit)))) +
                     (note.empty() ? Html() : element("span", {{"class", "note"}}, note)));
}

Html advice_item(const Html& what, const Html& evidence, std::string_view command) {
  return element("li", element("strong", what) + (evidence.empty() ? Html() : " " + element("p", evidence)) +
                           (command.empty() ? Html() : " " + element("code", escape(command))));
}

Html cards(const Html& charts) { return charts.empty() ? Html() : element("div", {{"class", "cards"}}, charts); }

Html more_of(const Json& list) {
  if (list.size() <= kMostItems) return {};
  return element("p", {{"class", "muted"}},
                 escape(fmt::format("and {} more", with_commas(static_cast<int64_t>(list.size() - kMostItems)))));
}

Html warnings(const Json& list) {
  Html all;
  for (size_t i = 0; list.is_array() && i < shown_of(list); ++i)
    all += element("p", {{"class", "warning"}}, escape(value_text(list[i])));
  return all + more_of(list);
}

Html fact_table(std::string_view caption, const std::vector<std::pair<std::string, Html>>& facts) {
  Table table{.caption = std::string(caption), .columns = {{"what"}, {"value"}}, .rows = {}};
  for (const auto& [name, value] : facts)
    if (!value.empty()) table.rows.push_back({escape(name), value});
  return table.rows.empty() ? Html() : element("div", {{"class", "facts"}}, draw(table));
}

}  // namespace trainopt::report
