#include "base/print.h"

#include "support/catch.h"

using namespace trainopt;

TEST_CASE("what a terminal would obey is shown instead") {
  CHECK(printable("plain, tab\t, line\n, ünï, 日本, 😀") == "plain, tab\t, line\n, ünï, 日本, 😀");
  CHECK(printable("\x1b]0;title\a\x1b[31mred\r\b\x7f") == "\\x1b]0;title\\x07\\x1b[31mred\\x0d\\x08\\x7f");
  CHECK(printable("\xc2\x9b"
                  "31m") == "\\xc2\\x9b31m");  // U+009B introduces a command as ESC [ does
  CHECK(printable("\xc2\xa0\xc3\xa9") == "\xc2\xa0\xc3\xa9");
  // Not UTF-8: cut off, overlong, a surrogate, beyond U+10FFFF, a lone continuation.
  for (const char* bytes : {"\xe6\x97", "\xc0\x9b", "\xe0\x80\x9b", "\xed\xa0\x80", "\xf0\x80\x80\x9b",
                            "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\x9b", "\xff"})
    CHECK(printable(bytes).starts_with("\\x"));
  CHECK(printable(std::string_view("\0a", 2)) == "\\x00a");
}
