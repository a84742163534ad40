#include "checkpoint/manifest.h"
#include "support/catch.h"

using namespace trainopt;

namespace {

const Manifest kManifest{1234,
                         2,
                         {{"trainopt", "0.1.0"}, {"größe", "\"1\""}},
                         {{"state.json", {12, 0xabc}}, {"w.safetensors", {1 << 20, ~uint64_t{0}}}}};

std::string refusal_of_text(const std::string& text) {
  try {
    parse_manifest(text);
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::checkpoint);
    return error.what();
  }
  return "";
}

/// The manifest's text with `from` replaced by `to`.
std::string with(const std::string& from, const std::string& to) {
  std::string text = manifest_text(kManifest);
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string refusal_of_name(const std::string& name) {
  Manifest manifest = kManifest;
  manifest.files[name] = {1, 1};
  return refusal_of_text(manifest_text(manifest));
}

}  // namespace

TEST_CASE("a manifest round-trips through its text") {
  CHECK(parse_manifest(manifest_text(kManifest)) == kManifest);
  CHECK(parse_manifest(manifest_text(Manifest{})) == Manifest{});
}

TEST_CASE("a manifest with any byte changed, missing or added is refused") {
  const std::string good = manifest_text(kManifest);
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      INFO(bad);
      CHECK(refusal_of_text(bad) != "");
    }
    CHECK(refusal_of_text(good.substr(0, i)) != "");
    CHECK(refusal_of_text(good.substr(0, i) + " " + good.substr(i)) != "");
    CHECK(refusal_of_text(good.substr(0, i) + good.substr(i + 1)) != "");
  }
  CHECK(refusal_of_text(good + "\n") != "");
}

TEST_CASE("an invalid manifest is refused with the reason") {
  CHECK_THAT(refusal_of_text(""), ContainsSubstring("not JSON"));
  CHECK_THAT(refusal_of_text("[]"), ContainsSubstring("no 'format_version'"));
  CHECK_THAT(refusal_of_text(with("\"format_version\": 1", "\"format_version\": 2")),
             ContainsSubstring("format version 2, but this program reads version 1"));
  CHECK_THAT(refusal_of_text(with("\"step\"", "\"stop\"")), ContainsSubstring("no 'step'"));
  CHECK_THAT(refusal_of_text(with("\"world_size\"", "\"world\"")), ContainsSubstring("no 'world_size'"));
  CHECK_THAT(refusal_of_text(with("\"versions\"", "\"version\"")), ContainsSubstring("no 'versions'"));
  CHECK_THAT(refusal_of_text(with("\"files\"", "\"file\"")), ContainsSubstring("no 'files'"));
  CHECK_THAT(refusal_of_text(with("\"bytes\"", "\"byte\"")), ContainsSubstring("no 'bytes'"));
  CHECK_THAT(refusal_of_text(with("\"xxh3\"", "\"xxh2\"")), ContainsSubstring("no 'xxh3'"));
  CHECK_THAT(refusal_of_text(with("1234", "1235")), ContainsSubstring("does not match its own hash"));
  for (const char* bytes :
       {"-1", "1.5", "1e3", "true", "\"12\"", "9223372036854775808", "18446744073709551615", "1125899906842625"})
    CHECK_THAT(refusal_of_text(with("\"bytes\": 12", fmt::format("\"bytes\": {}", bytes))),
               ContainsSubstring("'bytes' is not a number from 0 to"));
  for (const char* hash : {"\"0000000000000ABC\"", "\"abc\"", "2748", "\"+000000000000abc\""})
    CHECK_THAT(refusal_of_text(with("\"0000000000000abc\"", hash)),
               ContainsSubstring("not sixteen hexadecimal digits"));
  CHECK_THAT(refusal_of_text(with("\"world_size\": 2", "\"world_size\": 0")),
             ContainsSubstring("'world_size' is not a number from 1 to"));
  for (const char* name : {"", "..", "../x", "a/b", "/x", ".x", "a\nb", "\x1b[31m", "a\\b", "manifest.json", "\x7f"})
    CHECK_THAT(refusal_of_name(name), ContainsSubstring("a file with an invalid name"));
  CHECK_THAT(refusal_of_name(std::string("a\0b", 3)), ContainsSubstring("a file with an invalid name"));
  CHECK_THAT(refusal_of_name(std::string(256, 'x')), ContainsSubstring("a file with an invalid name"));
  CHECK(refusal_of_name(std::string(255, 'x')) == "");
}

TEST_CASE("a manifest that is huge or deeply nested is refused quickly") {
  CHECK_THAT(refusal_of_text(std::string(10'000'000, '[')), ContainsSubstring("nested too deeply"));
  CHECK_THAT(refusal_of_text(R"({"files":{"a":{"b":{"c":1}}}})"), ContainsSubstring("nested too deeply"));
  CHECK_THAT(refusal_of_text(std::string(kMaxManifestBytes + 1, ' ')), ContainsSubstring("bytes; at most"));
  std::string many = "{\"a0\":0";
  for (int i = 1; many.size() < 4'000'000; ++i) many += fmt::format(",\"a{}\":0", i);
  CHECK_THAT(refusal_of_text(many + "}"), ContainsSubstring("no 'format_version'"));
}
