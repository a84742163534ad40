#include "data/batch_source.h"

#include "text_files.h"

#include "support/captured_log.h"

#include <sys/stat.h>

using namespace trainopt;
using namespace trainopt::test;

namespace fs = std::filesystem;

TEST_CASE("a sample of tokens is a window that begins where the previous one's targets end, within one file") {
  const TemporaryFolder folder;
  write_bytes(folder / "b.bin", as_bytes<uint16_t>(counting(13, 200)));  // 3 windows of 4 + 1
  write_bytes(folder / "B.bin", as_bytes<uint16_t>(counting(12, 100)));  // 2, bytewise the first file
  write_bytes(folder / "c.bin", header(20240801, 7, 5) + as_bytes<uint32_t>(counting(5, 300)));
  write_bytes(folder / "notes.txt", "no tokens");
  const auto text = open_token_windows(folder.path().string(), {.context = 4, .vocabulary = 305});
  REQUIRE(text->size() == 6);
  CHECK(text->uniform_tokens() == 4);
  CHECK(text->summary() == "3 files, 16- and 32-bit");
  const int64_t first[] = {100, 104, 200, 204, 208, 300};
  for (int64_t i = 0; i < 6; ++i) CHECK(tokens_of(*text, i) == counting(5, first[i]));
  CHECK(text->name_of(3) == (folder / "b.bin").string() + ", token 4");

  const auto narrow = open_token_windows(folder.path().string(), {.context = 4, .vocabulary = 304});
  CHECK(tokens_of(*narrow, 4) == counting(5, 208));
  CHECK_THAT(data_error([&] { tokens_of(*narrow, 5); }),
             ContainsSubstring("c.bin") && ContainsSubstring("(304): 304, token 4 of the file, at byte 1040"));

  const auto one = open_token_windows((folder / "b.bin").string(), {.context = 12, .vocabulary = 300});
  CHECK(one->size() == 1);
  CHECK(one->summary() == "1 file, 16-bit");
  CHECK(data_error([&] { open_token_windows((folder / "b.bin").string(), {.context = 13}); }) ==
        (folder / "b.bin").string() +
            " is shorter than one sample, which takes model.context and one token more: 13 tokens, 14");
  const TemporaryFolder empty;
  CHECK_THAT(data_error([&] { open_token_windows(empty.path().string(), {}); }),
             ContainsSubstring("contains no *.bin or *.npy files"));
  write_bytes(empty / "empty.bin", "");
  CHECK_THAT(data_error([&] { open_token_windows(empty.path().string(), {}); }), ContainsSubstring("0 tokens, 1025"));
}

TEST_CASE("text is evaluated on other text of the same kind, if there is any") {
  const TemporaryFolder folder;
  const ModelNeeds model{.context = 4, .vocabulary = 1000};
  DataConfig data;
  data.dataset = DatasetKind::documents;
  data.path = write_documents(folder / "train.bin", {5, 4});
  const std::string other = write_documents(folder / "val.bin", {3, 7, 9});
  const auto training = open_training_data(data, model, 0);
  CHECK(training->size() == 2);
  CHECK(open_evaluation_data(data, model, std::nullopt, training.get()) == nullptr);
  CHECK(open_evaluation_data(data, model, other, training.get())->size() == 3);
  data.dataset = DatasetKind::tokens;
  CHECK(open_evaluation_data(data, model, other, training.get())->size() == 4);
}

TEST_CASE("documents in a token file are cut to the context") {
  const TemporaryFolder folder;
  const std::string path = write_documents(folder / "train.bin", {2, 9, 5, 6});
  const auto text = open_documents(path, {.context = 4, .vocabulary = 1000});
  REQUIRE(text->size() == 4);
  CHECK(tokens_of(*text, 0) == counting(2));
  CHECK(tokens_of(*text, 1) == counting(5, 2));
  CHECK(tokens_of(*text, 2) == counting(5, 11));
  CHECK(tokens_of(*text, 3) == counting(5, 16));
  CHECK(text->cut_samples() == 2);
  CHECK(text->longest() == 4);
  CHECK_FALSE(text->uniform_tokens());
  CHECK(open_documents(path, {.context = 100, .vocabulary = 1000})->longest() == 8);
  CHECK_THAT(data_error([&] { tokens_of(*open_documents(path, {.context = 9, .vocabulary = 10}), 1); }),
             ContainsSubstring("(10): 10, token 10 of the file, at byte 20"));
  CHECK(text->name_of(2) == path + ", document 2");

  const auto before = text->identity();
  CHECK(!first_difference(open_documents(path, {.context = 4, .vocabulary = 1000})->identity(), before));
  write_documents(path, {3, 8, 5, 6});
  CHECK(open_documents(path, {.context = 4, .vocabulary = 1000})->identity().content != before.content);
  fs::remove(folder / "train.ends");
  CHECK_THAT(data_error([&] { open_documents(path, {}); }), ContainsSubstring("train.ends"));
}

TEST_CASE("a folder of texts is read as bytes, in bytewise order of the paths") {
  const TemporaryFolder folder;
  write_bytes(folder / "b.txt", "world");
  write_bytes(folder / "a/z.md", "d\xc3\xa9j\xc3\xa0 vu");
  write_bytes(folder / "a.py", "hi");
  const TextOptions options{.context = 8, .vocabulary = 256};
  const auto text = open_documents(folder.path().string(), options);
  const auto bytes = [&](int64_t sample) {
    std::string all;
    for (const int64_t token : tokens_of(*text, sample)) all += static_cast<char>(token);
    return all;
  };
  REQUIRE(text->size() == 3);
  CHECK(bytes(0) == "hi");  // '.' comes before '/'
  CHECK(bytes(1) == "d\xc3\xa9j\xc3\xa0 vu");
  CHECK(bytes(2) == "world");
  CHECK(text->name_of(1) == (folder / "a/z.md").string());
  CHECK(text->summary() == "3 files of bytes");
  const auto cut = open_documents(folder.path().string(), {.context = 1, .vocabulary = 256});
  CHECK(tokens_of(*cut, 1) == std::vector<int64_t>{'d', 0xc3});  // within a character

  const auto before = text->identity();
  write_bytes(folder / "b.txt", "worlds");
  CHECK(open_documents(folder.path().string(), options)->identity().content != before.content);
}

TEST_CASE("texts that cannot be used are named, with the place") {
  const TemporaryFolder folder;
  const std::string root = folder.path().string();
  const TextOptions options{.context = 8, .vocabulary = 256};
  const auto reading = [&](const std::string& bytes) {
    write_bytes(folder / "a.txt", bytes);
    return data_error([&] { tokens_of(*open_documents(root, options), 0); });
  };
  CHECK_THAT(data_error([&] { open_documents(root, options); }), ContainsSubstring("contains no files"));
  CHECK(reading("ab") == "no error");
  CHECK(reading("") == root + "/a.txt has nothing to predict, which takes 2 bytes; remove it: 0");
  CHECK_THAT(reading("a"), ContainsSubstring("remove it: 1"));
  CHECK(reading("abc\xff") == root + "/a.txt is not UTF-8 text: at byte 3");
  CHECK(reading("ab\xc3") == root + "/a.txt is not UTF-8 text: at byte 2");
  CHECK(reading("12345678\xc3\xa9") == "no error");  // cut in the middle of the last character
  CHECK(reading("12345678\xc3(") == root + "/a.txt is not UTF-8 text: at byte 8");
  CHECK(reading("123456789\xff") == "no error");  // beyond what is read
  write_bytes(folder / "a.txt", "abcdef");
  const auto text = open_documents(root, options);
  write_bytes(folder / "a.txt", "abc");
  CHECK_THAT(data_error([&] { tokens_of(*text, 0); }), ContainsSubstring("became shorter"));
  CHECK_THAT(data_error([&] { open_documents(root, {.vocabulary = 255}); }), ContainsSubstring("at least 256: 255"));
  CHECK_THROWS_WITH(open_documents(root, {.vocabulary = 256, .token_bits = 16}), ContainsSubstring("data.token_bits"));
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THAT(data_error([&] { open_documents(root, options); }), ContainsSubstring("not a regular file"));
  std::filesystem::remove(folder / "pipe");
  std::filesystem::create_symlink("itself", folder / "itself");
  CHECK_THAT(data_error([&] { open_documents(root, options); }), ContainsSubstring("itself"));
  std::filesystem::remove(folder / "itself");
  std::filesystem::create_directory_symlink(".", folder / "linked");
  CHECK_THAT(data_error([&] { open_documents(root, options); }), ContainsSubstring("a link to a folder"));
  std::filesystem::remove(folder / "linked");
  write_bytes(folder / "tokens.bin", std::string(8, '\0'));
  REQUIRE(::mkfifo((folder / "tokens.ends").c_str(), 0600) == 0);
  CHECK_THAT(data_error([&] { open_documents((folder / "tokens.bin").string(), options); }),
             ContainsSubstring("not a regular file: ") && ContainsSubstring("tokens.ends"));
}

TEST_CASE("tokens of 16 bits are doubted for a vocabulary that they cannot reach") {
  const TemporaryFolder folder;
  write_bytes(folder / "a.bin", as_bytes<uint16_t>(counting(100)));
  const auto said = [&](int64_t vocabulary, std::optional<int64_t> bits) {
    const CapturedLog log;
    open_token_windows((folder / "a.bin").string(), {.context = 8, .vocabulary = vocabulary, .token_bits = bits});
    return log.text();
  };
  CHECK_THAT(said(65537, std::nullopt),
             ContainsSubstring("model.vocabulary is 65537") && ContainsSubstring("token_bits: 32"));
  CHECK(said(65536, std::nullopt) == "");
  CHECK(said(65537, 16) == "");  // as asked
}
