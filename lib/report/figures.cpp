#include "report/figures.h"

#include "base/units.h"
#include "report/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

namespace {

/// Width of the narrowest bin as a share of its place: several ranges, so that bins hold about as many of them.
constexpr double kFinest = 0.005;

double edge(size_t range) {
  return TimeHistogram::kLeast * std::pow(10.0, static_cast<double>(range) / TimeHistogram::kPerDecade);
}

}  // namespace

void TimeHistogram::add(double value) {
  if (!(value >= kLeast && value < kGreatest)) {
    ++outside_;
    return;
  }
  const auto range = static_cast<size_t>(std::log10(value / kLeast) * kPerDecade);
  ++counts_[std::min(range, kRanges - 1)];
  ++count_;
}

TimeHistogram::Drawn TimeHistogram::drawn(size_t bins) const {
  Drawn result;
  if (count_ == 0) return result;
  const auto first = static_cast<size_t>(std::find_if(counts_.begin(), counts_.end(), [](int64_t n) { return n > 0; }) -
                                         counts_.begin());
  const auto enough = static_cast<int64_t>(std::ceil(0.999 * static_cast<double>(count_)));
  size_t end = first;
  for (int64_t seen = 0; seen < enough; ++end) seen += counts_[end];
  const double low = edge(first), high = edge(end);
  const double width = std::max((high - low) / static_cast<double>(bins), kFinest * high);
  for (double from = low; from < high; from += width) result.bins.push_back({from, from + width, 0});
  int64_t drawn = 0;
  for (size_t range = first; range < end; ++range) {
    const auto bin = static_cast<size_t>((edge(range) - low) / width);
    result.bins[std::min(bin, result.bins.size() - 1)].count += counts_[range];
    drawn += counts_[range];
  }
  result.beyond = count_ - drawn;
  return result;
}

}  // namespace trainopt::report
