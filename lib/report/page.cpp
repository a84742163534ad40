#include "report/page.h"

#include <fmt/format.h>

namespace trainopt::embedded {
extern const std::string_view kStyle, kScript, kScriptSha256;  // the files *.css and *.js of this folder
}  // namespace trainopt::embedded

namespace trainopt::report {

using embedded::kScript, embedded::kScriptSha256, embedded::kStyle;

namespace {

std::string base64_of_hex(std::string_view hex) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < hex.size(); i += 6) {  // three bytes become four characters
    const std::string group(hex.substr(i, 6));
    const size_t bytes = group.size() / 2;
    const unsigned long bits = std::stoul(group, nullptr, 16) << 8 * (3 - bytes);
    for (size_t digit = 0; digit < 4; ++digit) out += digit <= bytes ? kDigits[bits >> 6 * (3 - digit) & 63] : '=';
  }
  return out;
}

/// Nothing can be loaded, and no script but ours can run, even if text slipped through unescaped.
Html policy() {
  return fmt::format(
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; base-uri 'none'; form-action 'none'; "
      "img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{}'\">\n",
      base64_of_hex(kScriptSha256));
}

/// What distinguishes parts of bars without colour.
constexpr std::string_view kHatches = R"(<svg class="hatches" width="0" height="0" aria-hidden="true"><defs>
<pattern id="hatch-1" width="6" height="6" patternUnits="userSpaceOnUse">
  <path d="M-1 7L7-1M-1 1L1-1M5 7L7 5"/></pattern>
<pattern id="hatch-2" width="5" height="5" patternUnits="userSpaceOnUse"><circle cx="2.5" cy="2.5" r="1.1"/></pattern>
<pattern id="hatch-3" width="6" height="6" patternUnits="userSpaceOnUse">
  <path d="M-1-1L7 7M5-1L7 1M-1 5L1 7"/></pattern>
<pattern id="hatch-4" width="4" height="4" patternUnits="userSpaceOnUse"><path d="M0 2h4"/></pattern>
<pattern id="hatch-5" width="4" height="4" patternUnits="userSpaceOnUse"><path d="M2 0v4"/></pattern>
<pattern id="hatch-6" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 3h6M3 0v6"/></pattern>
</defs></svg>
)";

Html head_of(const Page& page) {
  std::string reload;
  if (page.reload_s)
    reload = fmt::format("<noscript><meta http-equiv=\"refresh\" content=\"{}\"></noscript>\n", *page.reload_s);
  return "<meta charset=\"utf-8\">\n" + policy() +
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"generator\" content=\"trainopt\">\n" +
         reload + element("title", escape(page.title)) + "\n<style>\n" + Html(kStyle) + "</style>\n<script>" +
         Html(kScript) + "</script>\n";
}

Html navigation(const Page& page) {
  Html links;
  for (const auto& section : page.sections)
    links += element("li", element("a", {{"href", "#" + section.id}}, escape(section.title)));
  return element("nav", {{"aria-label", "Sections"}}, element("ul", links)) + "\n";
}

}  // namespace

std::string draw(const Page& page) {
  Html sections;
  for (const auto& section : page.sections)
    sections +=
        element("section", {{"id", section.id}, {"aria-labelledby", section.id + "-title"}},
                "\n" + element("h2", {{"id", section.id + "-title"}}, escape(section.title)) + "\n" + section.content) +
        "\n";
  const std::string live = page.reload_s ? fmt::format(" data-reload-s=\"{}\"", *page.reload_s) : "";
  return "<!doctype html>\n<html lang=\"en\"" + live + ">\n" + element("head", "\n" + head_of(page)) +
         "\n<body>\n<a class=\"skip\" href=\"#content\">Skip to the content</a>\n" + Html(kHatches) +
         element("header", {{"class", "top"}},
                 element("span", {{"class", "program"}}, "trainopt") + element("span", {{"class", "tools"}}, "")) +
         "\n" +
         element(
             "div", {{"class", "frame"}},
             navigation(page) + element("main", {{"id", "content"}, {"tabindex", "-1"}},
                                        "\n" + element("h1", escape(page.title)) + "\n" +
                                            element("div", {{"class", "headline"}}, page.headline) + "\n" + sections)) +
         "\n" + element("footer", escape(page.footer)) + "\n</body>\n</html>\n";
}

}  // namespace trainopt::report
