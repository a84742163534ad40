// The figures of a JSON document: what a page shows of summary.json under data-key="steps" and so on.
#pragma once

#include "report/charts.h"
#include "report/html.h"
#include "report/number_text.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt::report {

using NumberText = std::string (*)(double);

/// Reads numbers by their paths, "step_ms.p50". Does not own the document.
class Figures {
 public:
  /// `prefix` comes before each data-key: on a page with several runs "2." for the second.
  Figures(Json&&, std::string) = delete;
  Figures(const Json& json, std::string prefix) : json_(&json), prefix_(std::move(prefix)) {}

  /// Null or absent is kMissing.
  Html number(std::string_view path, NumberText in_words) const;
  Html text(std::string_view path) const;
  /// number(), but empty if there is none: a row that a fact_table() leaves out.
  Html known(std::string_view path, NumberText in_words) const;
  Html known_text(std::string_view path) const;  ///< text(), but empty if there is none
  /// The value in these words.
  Html worded(std::string_view path, std::string_view words) const;
  /// "low … high" with a figure for each end; empty if the interval is null.
  Html interval(std::string_view path, NumberText in_words) const;

  std::optional<double> value(std::string_view path) const;
  /// "": the document itself.
  const Json& json(std::string_view path = {}) const;
  const std::string& prefix() const { return prefix_; }
  /// The figures of the object at `path`, whose keys begin with it.
  Figures of(std::string_view path) const;

 private:
  const Json* json_;
  std::string prefix_;
};

// Pieces that page.css describes.

/// A large value with what it is, its unit and a note, both of which may be empty.
Html key_figure(std::string_view label, const Html& value, std::string_view unit, const Html& note);
/// An item of the list of advice.
Html advice_item(const Html& what, const Html& evidence, std::string_view command);
/// Lists from files are cut here, so that a page stays small whatever it is made from.
inline constexpr size_t kMostItems = 200;
inline size_t shown_of(const Json& list) { return std::min(list.size(), kMostItems); }
/// "and 12 more"; empty if all are shown.
Html more_of(const Json& list);
/// Charts in a grid.
Html cards(const Html& charts);
/// A paragraph for each text of the list.
Html warnings(const Json& list);

/// A table of two columns, for facts that have a name each. Rows whose value is empty are left out.
Html fact_table(std::string_view caption, const std::vector<std::pair<std::string, Html>>& facts);

// The distribution of positive values, counted in ranges of equal ratio: any number of values in bounded memory.

class TimeHistogram {
 public:
  /// Values outside [kLeast, kGreatest) and values that are not finite are only counted.
  static constexpr double kLeast = 1e-3, kGreatest = 1e7;
  static constexpr int64_t kPerDecade = 2000;  ///< a range is 0.12 % wide

  void add(double value);
  int64_t count() const { return count_; }
  int64_t outside() const { return outside_; }
  /// At most `bins` bins of equal width from the first value to the 99.9th percentile; the values above are `beyond`.
  struct Drawn {
    std::vector<Histogram::Bin> bins;
    int64_t beyond = 0;
  };
  Drawn drawn(size_t bins) const;

 private:
  static constexpr size_t kRanges = 10 * kPerDecade;
  std::vector<int64_t> counts_ = std::vector<int64_t>(kRanges);
  int64_t count_ = 0, outside_ = 0;
};

}  // namespace trainopt::report
