#include "report/charts/frame.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt::report {
namespace {

/// Classes of the i-th part of a bar: its colour; its pattern is `hatch(i)`.
std::string part_classes(size_t i) { return fmt::format("c{}", i % 7); }

}  // namespace

Html draw(const Frame& frame) {
  const Html unit = frame.unit.empty() ? "" : " " + element("span", {{"class", "unit"}}, escape(frame.unit));
  const Html numbers = frame.numbers.empty()
                           ? ""
                           : element("details", {{"class", "numbers"}}, element("summary", "Numbers") + frame.numbers);
  return element("figure",
                 {{"class", "chart card " + frame.kind + "-chart"},
                  {"id", "chart-" + frame.key},
                  {"data-kind", frame.kind},
                  {"data-chart", frame.key}},
                 element("figcaption", element("span", {{"class", "title"}}, escape(frame.title)) + unit) +
                     frame.legend + frame.plot + frame.data + numbers) +
         "\n";
}

Html draw_empty(const std::string& kind, const std::string& key, const std::string& title, const std::string& unit) {
  return draw(Frame{.kind = kind,
                    .key = key,
                    .title = title,
                    .unit = unit,
                    .legend = {},
                    .plot = element("p", {{"class", "empty"}}, "Nothing was measured."),
                    .data = {},
                    .numbers = {}});
}

std::string series_classes(size_t i) { return fmt::format("c{} d{}", i % 7, i % 5); }

Html rectangle(double from, double to, double y, double height, size_t part, const std::string& title) {
  const std::string place = fmt::format("x=\"{}\" y=\"{:g}\" width=\"{}\" height=\"{:g}\"", percent(std::min(from, to)),
                                        y, percent(std::abs(to - from)), height);
  const Html hatch =
      part % 7 == 0 ? "" : fmt::format("<rect class=\"hatch\" fill=\"url(#hatch-{})\" {}/>", part % 7, place);
  const Html name = title.empty() ? "" : "<title>" + escape(title) + "</title>";
  return fmt::format("<g class=\"part {}\">{}<rect class=\"area\" {}/>{}</g>", part_classes(part), name, place, hatch);
}

Html swatch(Swatch kind, size_t i) {
  const Html inner = kind == Swatch::line ? fmt::format("<path class=\"line {}\" d=\"M1 6h26\"/>", series_classes(i))
                                          : rectangle(0, 1, 1, 10, i, "");
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"swatch\" width=\"{}\" height=\"12\" "
      "aria-hidden=\"true\">{}</svg>",
      kind == Swatch::line ? 28 : 14, inner);
}

Html legend(Swatch kind, const std::vector<std::string>& names) {
  Html items;
  for (size_t i = 0; i < names.size(); ++i) items += element("li", swatch(kind, i) + escape(names[i]));
  return element("ul", {{"class", "legend"}}, items);
}

Html plot_box(const std::string& label, double left, const Html& content) {
  return element("div",
                 {{"class", "plot"},
                  {"tabindex", "0"},
                  {"role", "group"},
                  {"aria-label", label},
                  {"style", fmt::format("padding-left:{:.0f}px", left)}},
                 content);
}

Html y_axis(const std::vector<Tick>& ticks, const Range& range, double top) {
  Html out;
  for (const auto& tick : ticks) {
    const double y = top + kPlotHeight * (1 - range.share(tick.at));
    out += horizontal_line(y, tick.at == 0 ? "grid zero" : "grid") + svg_text(0, y + 4, "end", tick.text, "label", -8);
  }
  return element("g", {{"class", "y-axis"}}, out);
}

Html x_axis(const std::vector<Tick>& ticks, const Range& range, double top, double height, const std::string& title) {
  Html out = horizontal_line(top + height, "base");
  for (const auto& tick : ticks) {
    const double share = range.share(tick.at);
    out += vertical_line(share, top + height, top + height + 4, "base") +
           svg_text(share, top + height + 18, "middle", tick.text, "label");
  }
  out += svg_text(1, top + height + 32, "end", title, "label axis-title");
  return element("g", {{"class", "x-axis"}}, out);
}

int labels_that_fit(const Range& range, bool whole) {
  int wanted = 6;
  while (wanted > 1) {
    const auto made = ticks(range, wanted, whole);
    if (static_cast<double>(made.size()) * (label_width(made) + 16) <= 290) break;
    --wanted;
  }
  return wanted;
}

double marks_height(const std::vector<Mark>& marks) {
  return marks.empty() || marks.size() > 4 ? 0 : 15 * static_cast<double>(marks.size());
}

Html draw_marks(const std::vector<Mark>& marks, const Range& x, double top, double height) {
  Html out;
  const bool named = marks_height(marks) > 0;
  double y = 11;
  for (const auto& mark : marks) {
    if (!(mark.x >= x.low && mark.x <= x.high)) continue;
    const double share = x.share(mark.x);
    Html one =
        "<title>" + escape(mark.text) + "</title>" + vertical_line(share, named ? y - 9 : top, top + height, "mark");
    if (named) one += svg_text(share, y, share > 0.55 ? "end" : "start", mark.text, "label", share > 0.55 ? -5 : 5);
    out += element("g", one);
    y += 15;
  }
  return element("g", {{"class", "marks"}}, out);
}

Html row_table(const std::string& caption, const std::vector<RowDrawing>& rows, const Html& axis) {
  Html body;
  for (const auto& row : rows)
    body +=
        element("tr", {{"class", row.classes}},
                element("th", {{"scope", "row"}}, escape(row.name)) +
                    element("td", {{"class", "drawing"}}, row.drawing) + element("td", {{"class", "text"}}, row.text)) +
        "\n";
  if (!axis.empty())
    body += element("tr", {{"class", "axis"}, {"aria-hidden", "true"}},
                    "<td></td>" + element("td", {{"class", "drawing"}}, axis) + "<td></td>");
  return element("table", {{"class", "rows"}}, element("caption", escape(caption)) + element("tbody", body));
}

Html row_svg(const std::vector<Tick>& ticks, const Share& share, const Html& content, double strong) {
  Html grid;
  for (const auto& tick : ticks)
    grid += vertical_line(share(tick.at), 0, kRowHeight, tick.at == strong ? "grid zero" : "grid");
  return svg(kRowHeight, "row", grid + content);
}

Html axis_svg(const std::vector<Tick>& ticks, const Share& share) {
  Html labels;
  for (const auto& tick : ticks) labels += svg_text(share(tick.at), 12, anchor_at(share(tick.at)), tick.text, "label");
  return svg(16, "axis", labels);
}

}  // namespace trainopt::report
