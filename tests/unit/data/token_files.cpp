#include "data/formats/text/document_ends.h"
#include "data/formats/text/token_file.h"

#include "text_files.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {

std::string reason(const std::string& bytes, std::optional<int64_t> bits = std::nullopt) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.bin", bytes);
  return data_error([&] { TokenFile(folder / "a.bin", bits); });
}

std::vector<int64_t> all_tokens(const TokenFile& file, int64_t vocabulary = int64_t{1} << 32) {
  std::vector<int64_t> tokens(static_cast<size_t>(file.size()));
  file.read(0, tokens, vocabulary);
  return tokens;
}

}  // namespace

TEST_CASE("token files are raw or have llm.c's header, with 16 or 32 bits") {
  const std::vector<int64_t> small{0, 1, 65535, 50256, 7}, large{0, 70000, 4294967295, 1};
  const TemporaryFolder folder;
  const auto path = folder / "a.bin";
  const auto contents = [&](const std::string& bytes, std::optional<int64_t> bits) {
    write_bytes(path, bytes);
    return all_tokens(TokenFile(path, bits));
  };
  for (const std::optional<int64_t> bits : {std::optional<int64_t>(), std::optional<int64_t>(16)}) {
    CHECK(contents(as_bytes<uint16_t>(small), bits) == small);
    CHECK(contents(header(20240520, 1, 5) + as_bytes<uint16_t>(small), bits) == small);
  }
  CHECK(contents(as_bytes<uint32_t>(large), 32) == large);
  for (const std::optional<int64_t> bits : {std::optional<int64_t>(), std::optional<int64_t>(32)})
    CHECK(contents(header(20240801, 7, 4) + as_bytes<uint32_t>(large), bits) == large);
  CHECK(contents("", std::nullopt).empty());
}

TEST_CASE("a token file that is cut or contradicts its header is refused with the numbers") {
  const std::string three = as_bytes<uint16_t>({1, 2, 3});
  CHECK_THAT(reason(three + "x"), ContainsSubstring("16-bit tokens") && ContainsSubstring("7 bytes"));
  CHECK_THAT(reason(three, 32), ContainsSubstring("32-bit tokens") && ContainsSubstring("6 bytes"));
  for (const auto& [magic, version, bits] : {std::tuple{20240520, 1, 16}, {20240801, 7, 32}}) {
    const std::string tokens(static_cast<size_t>(3 * bits / 8), '\1'), whole = header(magic, version, 3) + tokens;
    CHECK(reason(whole) == "no error");
    CHECK_THAT(reason(whole.substr(0, whole.size() - 1)),
               ContainsSubstring(fmt::format("3 tokens of {} bits, {} bytes", bits, whole.size())) &&
                   ContainsSubstring(fmt::format(": {} bytes", whole.size() - 1)));
    CHECK_THAT(reason(whole + tokens), ContainsSubstring("was cut or does not belong to its header"));
    CHECK_THAT(reason(header(magic, version, -1)), ContainsSubstring("-1 tokens"));
    CHECK_THAT(reason(whole.substr(0, 1000)), ContainsSubstring("1024 bytes: 1000 bytes"));
    CHECK_THAT(reason(header(magic, version + 1, 3) + tokens), ContainsSubstring(fmt::format(": {}", version + 1)));
    CHECK_THAT(reason(whole, 48 - bits), ContainsSubstring("data.token_bits contradicts the header"));
  }
  CHECK_THAT(data_error([] { TokenFile("/nowhere/a.bin", std::nullopt); }),
             ContainsSubstring("/nowhere/a.bin: No such file"));
  CHECK_THAT(data_error([] { TokenFile("/tmp", std::nullopt); }), ContainsSubstring("/tmp"));
}

TEST_CASE("a token outside the vocabulary is named with its file, position and byte") {
  const TemporaryFolder folder;
  const auto path = folder / "a.bin";
  write_bytes(path, header(20240520, 1, 6) + as_bytes<uint16_t>({1, 2, 99, 100, 3, 101}));
  const TokenFile file(path, std::nullopt);
  std::vector<int64_t> three(3);
  file.read(0, three, 100);
  CHECK(three == std::vector<int64_t>{1, 2, 99});
  CHECK(data_error([&] { file.read(2, three, 100); }) ==
        path.string() +
            " has a token that is not below model.vocabulary (100): 100, token 3 of the file, at byte 1030");
}

TEST_CASE("a token file that becomes shorter is noticed, not read past its end") {
  const TemporaryFolder folder;
  const auto path = folder / "a.bin";
  write_bytes(path, as_bytes<uint16_t>(counting(10000)));
  const TokenFile file(path, std::nullopt);
  std::filesystem::resize_file(path, 100);
  CHECK_THAT(data_error([&] { all_tokens(file); }),
             ContainsSubstring("became shorter while it was read: 100 bytes, before 20000"));
}

TEST_CASE("D19: a token file that becomes shorter between the check of its size and the reading is noticed") {
  struct CutAfterCheck : DataFile {
    explicit CutAfterCheck(std::unique_ptr<const DataFile> whole)
        : DataFile(whole->name(), whole->size(), whole->version()), whole_(std::move(whole)) {}
    std::span<const uint8_t> read(int64_t offset, int64_t bytes, std::vector<uint8_t>& scratch) const override {
      const auto checked = whole_->read(offset, bytes, scratch);
      if (cuts) std::filesystem::resize_file(name(), 100);
      return checked;
    }
    bool cuts = false;

   private:
    std::unique_ptr<const DataFile> whole_;
  };
  const TemporaryFolder folder;
  const auto path = folder / "a.bin";
  write_bytes(path, as_bytes<uint16_t>(counting(10000)));
  auto cut = std::make_unique<CutAfterCheck>(open_local_file(path));
  bool& cuts = cut->cuts;
  const TokenFile file(std::move(cut), std::nullopt);
  cuts = true;
  CHECK_THAT(data_error([&] { all_tokens(file); }),
             ContainsSubstring(path.string() + " became shorter while it was read: 100 bytes, before 20000"));
}

TEST_CASE("a token file's fingerprint follows its size and both of its ends") {
  const TemporaryFolder folder;
  const auto path = folder / "a.bin";
  const auto fingerprint = [&](std::vector<int64_t> tokens) {
    write_bytes(path, as_bytes<uint16_t>(tokens));
    return TokenFile(path, std::nullopt).fingerprint();
  };
  const std::vector<int64_t> tokens(100000, 1);
  std::vector<int64_t> first = tokens, last = tokens, longer = tokens;
  first[0] = 2, last.back() = 2, longer.push_back(1);
  CHECK(fingerprint(tokens) == fingerprint(tokens));
  for (const auto& other : {first, last, longer}) CHECK(fingerprint(other) != fingerprint(tokens));
}

TEST_CASE("documents' ends ascend, leave two tokens each and end with the tokens") {
  const auto ends = [](const std::vector<int64_t>& values, int64_t tokens) {
    return document_ends(as_bytes<uint64_t>(values), tokens, "a.ends");
  };
  CHECK(ends({2, 5, 9}, 9) == std::vector<int64_t>{2, 5, 9});
  const auto wrong = [&](const std::vector<int64_t>& values, int64_t tokens) {
    return data_error([&] { ends(values, tokens); });
  };
  CHECK(wrong({5, 4}, 9) == "a.ends: the ends must ascend, but document 1 ends at 4, after 5");
  CHECK(wrong({5, 10}, 9) == "a.ends: document 1 ends beyond the 9 tokens of its file: 10");
  CHECK_THAT(wrong({5, -1}, 9), ContainsSubstring("ends beyond the 9 tokens of its file: 18446744073709551615"));
  CHECK_THAT(wrong({5, 6, 9}, 9),
             ContainsSubstring("document 1 has nothing to predict") && ContainsSubstring("5 to 6"));
  CHECK_THAT(wrong({0, 9}, 9), ContainsSubstring("document 0 has nothing to predict"));
  CHECK_THAT(wrong({5, 5, 9}, 9), ContainsSubstring("document 1 has nothing to predict"));
  CHECK(wrong({5}, 9) == "a.ends: the last document must end where its file's tokens do: 5, 9 tokens");
  CHECK_THAT(data_error([] { document_ends("123456789", 9, "a.ends"); }), ContainsSubstring("8 bytes each: 9 bytes"));
  CHECK_THAT(data_error([] { document_ends("", 9, "a.ends"); }), ContainsSubstring("0 bytes"));
  CHECK(ends_path("x/train.bin") == "x/train.ends");
}
