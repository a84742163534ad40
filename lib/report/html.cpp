#include "report/html.h"

#include "config/tree.h"

#include <algorithm>

namespace trainopt::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

uint32_t code_point(std::string_view sequence) {
  const auto first = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return first;
  uint32_t code = first & (0x7Fu >> sequence.size());
  for (const char next : sequence.substr(1)) code = code << 6 | (static_cast<unsigned char>(next) & 0x3Fu);
  return code;
}

/// Controls of C0 and C1, those that reorder what follows them (bidi embeddings, overrides and isolates), and the
/// characters that XML forbids.
bool is_harmful(uint32_t code) {
  if (code == '\t' || code == '\n') return false;
  return code < 0x20 || (code >= 0x7F && code <= 0x9F) || (code >= 0x202A && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0xFFFE || code == 0xFFFF;
}

std::string escape_plain(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&#38;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Html rows_of(const Table& table, size_t begin, size_t end) {
  Html head, body;
  for (const auto& column : table.columns)
    head += column.number ? element("th", {{"scope", "col"}, {"class", "number"}}, escape(column.title))
                          : element("th", {{"scope", "col"}}, escape(column.title));
  for (size_t r = begin; r < end; ++r) {
    Html cells;
    for (size_t c = 0; c < table.rows[r].size(); ++c) {
      const bool number = c < table.columns.size() && table.columns[c].number;
      cells += number ? element("td", {{"class", "number"}}, table.rows[r][c]) : element("td", table.rows[r][c]);
    }
    body += element("tr", cells) + "\n";
  }
  const Html caption = table.caption.empty() ? "" : element("caption", escape(table.caption));
  return element("table", caption + element("thead", element("tr", head)) + element("tbody", "\n" + body));
}

Html in_box(const Table& table, const Html& rows) {
  const std::string name = table.caption.empty() ? "table" : table.caption;
  return element("div", {{"class", "table-box"}, {"tabindex", "0"}, {"role", "region"}, {"aria-label", name}}, rows);
}

}  // namespace

std::string safe_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0 || is_harmful(code_point(text.substr(0, length))))
      out += kReplacement;
    else
      out += text.substr(0, length);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

Html escape(std::string_view text) { return escape_plain(safe_text(text)); }

Html element(std::string_view tag, std::initializer_list<Attribute> attributes, const Html& inner) {
  Html out = "<";
  out += tag;
  for (const auto& [name, value] : attributes) {
    out += ' ';
    out += name;
    out += "=\"" + escape(value) + '"';
  }
  out += '>';
  out += inner;
  out += "</";
  out += tag;
  out += '>';
  return out;
}

Html element(std::string_view tag, const Html& inner) { return element(tag, {}, inner); }

Html figure(std::string_view key, const Json& value, std::string_view text) {
  const std::string written = value.is_string() ? value.get<std::string>() : json_text(value);
  const bool missing = !value.is_string() && written == "null";  // also NaN and infinities, which JSON lacks
  return element("data", {{"data-key", std::string(key)}, {"data-value", written}},
                 missing && text.empty() ? "–" : escape(text));
}

Html embedded_json(const Json& json) {
  Html out;
  for (const char c : json_text(json)) {
    switch (c) {  // these characters occur only inside strings
      case '<':
        out += "\\u003c";
        break;
      case '>':
        out += "\\u003e";
        break;
      case '&':
        out += "\\u0026";
        break;
      default:
        out += c;
    }
  }
  return "<script type=\"application/json\">" + out + "</script>";
}

Html draw(const Table& table) {
  const size_t total = table.rows.size();
  if (total <= table.shown) return in_box(table, rows_of(table, 0, total));
  const std::string more = std::to_string(total - table.shown);
  return in_box(table, rows_of(table, 0, table.shown)) +
         element("details", {{"class", "rest"}},
                 element("summary", "Show all: " + more + " more rows") +
                     in_box(table, rows_of(table, table.shown, total)));
}

}  // namespace trainopt::report
