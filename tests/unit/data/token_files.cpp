#include "data/formats/text/document_ends.h"
#include "data/formats/text/numpy_header.h"
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

namespace {

/// What numpy.save() writes.
std::string saved(const std::string& type, const std::string& shape, const std::string& data) {
  std::string dictionary = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  dictionary.resize(118, ' ');
  dictionary.back() = '\n';
  return std::string(kNumpyMagic) + std::string("\x01\0", 2) + as_bytes<uint16_t>({118}) + dictionary + data;
}

}  // namespace

TEST_CASE("arrays of integers that NumPy saved are token files") {
  const TemporaryFolder folder;
  const std::vector<int64_t> tokens{1, 2, 100, 7, 0};
  const auto read = [&](const std::string& type, const std::string& data) {
    write_bytes(folder / "a.npy", saved(type, "(5,)", data));
    return all_tokens(TokenFile(folder / "a.npy", std::nullopt));
  };
  CHECK(read("<u2", as_bytes<uint16_t>(tokens)) == tokens);
  CHECK(read("<i2", as_bytes<int16_t>(tokens)) == tokens);
  CHECK(read("|u1", as_bytes<uint8_t>(tokens)) == tokens);
  CHECK(read("<i4", as_bytes<int32_t>(tokens)) == tokens);
  CHECK(read("<u4", as_bytes<uint32_t>(tokens)) == tokens);
  CHECK(read("<i8", as_bytes<int64_t>(tokens)) == tokens);
  CHECK_THAT(data_error([&] { read("<i4", as_bytes<int32_t>({1, -1, 2, 3, 4})); }), ContainsSubstring(": -1, token 1"));
  const std::string five = as_bytes<uint16_t>(tokens);
  CHECK_THAT(reason(saved(">u2", "(5,)", five)),
             ContainsSubstring("no little-endian integers") && Catch::Matchers::EndsWith("'>u2'"));
  CHECK_THAT(reason(saved("<f4", "(5,)", five + five)), Catch::Matchers::EndsWith("its dtype is '<f4'"));
  CHECK_THAT(reason(saved("<u2", "(5, 1)", five)), Catch::Matchers::EndsWith("its shape is (5, 1)"));
  CHECK_THAT(reason(saved("<u2", "()", five)), Catch::Matchers::EndsWith("its shape is ()"));
  CHECK_THAT(reason(saved("<u2", "(6,)", five)), ContainsSubstring("was cut"));
  CHECK_THAT(reason(saved("<u2", "(5,)", five), 32), ContainsSubstring("data.token_bits contradicts the header"));
  const std::string whole = saved("<u2", "(5,)", five);
  for (size_t bytes = 6; bytes < whole.size(); ++bytes) CHECK(reason(whole.substr(0, bytes)) != "no error");
}

TEST_CASE("files that hold no tokens are refused with what they are") {
  CHECK_THAT(reason("To be, or not to be, that is the question: Whether 'tis nobler"),
             ContainsSubstring("is text, not tokens"));
  CHECK_THAT(reason(std::string(1023, 'x') + "\xc3\xa9 and so on"), ContainsSubstring("is text, not tokens"));
  CHECK_THAT(reason(header(20240522, 1, 3) + "123456"), ContainsSubstring("another of llm.c's"));
  CHECK_THAT(reason(header(20240326, 3, 3) + "123456"), Catch::Matchers::EndsWith("its magic number is 20240326"));
  CHECK_THAT(reason("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 42\n"),
             ContainsSubstring("a Git LFS pointer"));
  CHECK_THAT(reason(std::string("PK\x03\x04 and more", 14)), ContainsSubstring("a zip archive"));
  CHECK_THAT(reason(as_bytes<uint64_t>({30}) + "{\"a\":{\"dtype\":\"F32\"}}"), ContainsSubstring("a safetensors file"));
  CHECK(reason("\x1f\x8b tokens by chance, as two of them may be any") == "no error");
}

TEST_CASE("tokens of 32 or 64 bits are not read as others") {
  const std::vector<int64_t> tokens = counting(1000, 5);
  CHECK(reason(as_bytes<uint16_t>(tokens)) == "no error");
  CHECK_THAT(reason(as_bytes<uint32_t>(tokens)),
             ContainsSubstring("looks like tokens of 32 bits") && ContainsSubstring("set data.token_bits: 32"));
  CHECK(reason(as_bytes<uint32_t>(tokens), 32) == "no error");
  const TemporaryFolder folder;
  write_bytes(folder / "a.bin", as_bytes<uint32_t>(tokens));
  CHECK_THAT(TokenFile(folder / "a.bin", 16).caution(), ContainsSubstring("data.token_bits says that this is meant"));
  CHECK(TokenFile(folder / "a.bin", 32).caution().empty());
  for (const std::optional<int64_t> bits : {std::optional<int64_t>(), std::optional<int64_t>(32)})
    CHECK_THAT(reason(as_bytes<int64_t>(tokens), bits), ContainsSubstring("looks like tokens of 64 bits"));
  CHECK(reason(as_bytes<uint16_t>(std::vector<int64_t>(1000, 0))) == "no error");
  // Vocabularies of more than 65,536 tokens leave small numbers between.
  std::vector<int64_t> large;
  for (int64_t i = 0; i < 1000; ++i) large.push_back(i * 7919 % 128256);
  CHECK_THAT(reason(as_bytes<uint32_t>(large)), ContainsSubstring("looks like tokens of 32 bits"));
  CHECK_THAT(reason(as_bytes<int64_t>(large)), ContainsSubstring("looks like tokens of 64 bits"));
  CHECK(reason(as_bytes<uint16_t>({std::vector<int64_t>(1000, 5)})) == "no error");
  std::vector<int64_t> once(2000, 0);
  for (size_t i = 0; i < once.size(); i += 2) once[i] = 7;
  once[1001] = 1;  // in the middle
  CHECK(reason(as_bytes<uint16_t>(once)) == "no error");
}

TEST_CASE("Megatron's index says how many bits its tokens have, and how many there are") {
  const TemporaryFolder folder;
  // Two sequences of two and one tokens.
  const auto index_of = [](int type, int64_t bytes_of_token) {
    return std::string("MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17) + static_cast<char>(type) + as_bytes<uint64_t>({2, 3}) +
           as_bytes<int32_t>({2, 1}) + as_bytes<int64_t>({0, 2 * bytes_of_token}) + as_bytes<int64_t>({0, 1, 2});
  };
  const auto said = [&](const std::string& tokens, const std::string& index, std::optional<int64_t> bits) {
    write_bytes(folder / "a.bin", tokens);
    write_bytes(folder / "a.idx", index);
    return data_error([&] { TokenFile(folder / "a.bin", bits); });
  };
  const std::string wide = as_bytes<uint32_t>({70000, 70001, 70002}), narrow = as_bytes<uint16_t>({7, 8, 9});
  CHECK(said(wide, index_of(4, 4), 32) == "no error");
  CHECK(said(narrow, index_of(8, 2), 16) == "no error");
  CHECK(said(narrow, index_of(8, 2), std::nullopt) == "no error");
  CHECK(said(narrow, "another kind of index", std::nullopt) == "no error");
  CHECK_THAT(said(wide, index_of(4, 4), std::nullopt), ContainsSubstring("are int32; set data.token_bits: 32"));
  CHECK_THAT(said(wide, index_of(8, 2), 32), ContainsSubstring("are uint16; set data.token_bits: 16"));
  CHECK_THAT(said(wide, index_of(5, 8), std::nullopt), ContainsSubstring("are int64; write them with 16 or 32 bits"));
  CHECK_THAT(said(wide, index_of(99, 4), std::nullopt), ContainsSubstring("of an unknown type"));
  const std::string whole = index_of(8, 2);
  CHECK_THAT(said(narrow.substr(2), whole, std::nullopt),
             ContainsSubstring("was cut, or does not belong to its index"));
  for (size_t bytes = 9; bytes < whole.size() - 24; ++bytes)
    CHECK(said(narrow, whole.substr(0, bytes), std::nullopt) != "no error");
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
