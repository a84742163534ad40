#include "base/error.h"
#include "base/files/files.h"
#include "base/files/safetensors.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <sys/stat.h>

#include <array>
#include <cstring>

using namespace trainopt;

namespace {

std::string file_of(const std::string& header, const std::string& data, uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}
std::string file_of(const std::string& header, const std::string& data) { return file_of(header, data, header.size()); }

/// The error message for these bytes; empty if they are accepted.
std::string refusal(const std::string& bytes) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x.safetensors";
  write_file(path, bytes);
  try {
    const SafetensorsFile file(path);
    return "";
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::checkpoint);
    CHECK_THAT(error.what(), ContainsSubstring(path.string()));
    return error.what();
  }
}

}  // namespace

TEST_CASE("an error is one short line, whatever the file contains") {
  const std::string long_name = refusal(file_of("{\"a\\n" + std::string(5000, 'w') + "\":1}", ""));
  CHECK_THAT(long_name, ContainsSubstring("tensor 'a www") && ContainsSubstring("…"));
  CHECK(long_name.size() < 600);
  std::string shape = "1.5";
  for (int i = 0; i < 5000; ++i) shape += ",1.5";
  CHECK(refusal(file_of(R"({"w":{"dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[0,1]}})", "1")).size() < 600);
}

TEST_CASE("a safetensors file reads back as it was written") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "weights.safetensors";
  const std::array<float, 6> weights{1, 2, 3, 4, 5, -6.5f};
  const std::array<uint8_t, 3> bytes{7, 8, 9};
  const int64_t count = -3;
  const std::vector<SafetensorsEntry> entries{{"small", "U8", {3}, bytes.data(), 3},
                                              {"größe \"x\"", "F32", {2, 3}, weights.data(), 24},
                                              {"count", "I64", {}, &count, 8},
                                              {"nothing", "F32", {0, 4}, nullptr, 0}};
  write_safetensors(path, entries, {{"format", "pt"}, {"step", "12"}});
  const SafetensorsFile file(path);
  CHECK(file.metadata() == SafetensorsMetadata{{"format", "pt"}, {"step", "12"}});
  REQUIRE(file.entries().size() == 4);
  std::vector<std::string> names;
  const std::string first = read_file(path, ExitCode::data);
  std::vector<std::string> data;
  for (const auto& entry : file.entries()) data.emplace_back(entry.bytes, '\0');
  const Checksum checksum = file.read([&](size_t i) { return data[i].data(); });
  Checksum expected;
  expected.add(first.data(), first.size());
  CHECK(checksum.value() == expected.value());
  CHECK(checksum.bytes() == static_cast<int64_t>(first.size()));
  size_t offset = first.size();
  for (const auto& entry : file.entries()) offset -= entry.bytes;
  for (size_t i = 0; i < data.size(); ++i) {
    const auto& entry = file.entries()[i];
    names.push_back(entry.name);
    CHECK(offset % safetensors_item_bytes(entry.dtype) == 0);
    offset += entry.bytes;
    const auto& original =
        *std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.name == entry.name; });
    CHECK(entry.dtype == original.dtype);
    CHECK(entry.shape == original.shape);
    REQUIRE(entry.bytes == original.bytes);
    if (entry.bytes > 0) CHECK(std::memcmp(data[i].data(), original.data, entry.bytes) == 0);
  }
  CHECK(names[0] == "count");
  CHECK(names[3] == "small");

  write_safetensors(path, entries, {{"format", "pt"}, {"step", "12"}});
  CHECK(read_file(path, ExitCode::data) == first);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);  // no temporary file is left

  CHECK_THROWS_AS(write_safetensors(path, {{"a", "F32", {2}, weights.data(), 4}}), BrokenInvariant);
  CHECK_THROWS_AS(write_safetensors(path, {{"a", "U8", {1}, bytes.data(), 1}, {"a", "U8", {1}, bytes.data(), 1}}),
                  BrokenInvariant);
  CHECK_THROWS_AS(write_safetensors(folder.path() / "absent" / "x", entries), UserError);
}

TEST_CASE("safetensors accepts what the format allows") {
  CHECK(refusal(file_of("{}", "")) == "");
  CHECK(refusal(file_of("{}      ", "")) == "");
  CHECK(refusal(file_of(R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},)"
                        R"("a":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]}})",
                        "123")) == "");
  CHECK(refusal(file_of(R"({"a":{"data_offsets":[0,0],"shape":[0,9223372036854775807,4],"dtype":"F64"}})", "")) == "");
  std::string header = R"({"__metadata__":{"a":"b"}})";
  header.resize(0x0280, ' ');  // the length's bytes look like the start of a protocol 2 pickle
  CHECK(refusal(file_of(header, "")) == "");
}

TEST_CASE("safetensors refuses everything else and says why") {
  const auto one = [](const std::string& entry) { return R"({"w":)" + entry + "}"; };
  const std::string good = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  REQUIRE(refusal(file_of(one(good), "1234")) == "");

  struct Case {
    std::string bytes, why;
  };
  const std::vector<Case> cases{
      {"", "only 0 bytes"},
      {"1234567", "only 7 bytes"},
      {file_of("{}", "", 3), "header claims 3 bytes"},
      {file_of("{}", "", 0), "header claims 0 bytes"},
      {file_of("{}", "", 100'000'001), "header claims 100000001 bytes"},
      {file_of("{}", "", ~uint64_t{0}), "header claims 18446744073709551615 bytes"},
      {file_of("[]", ""), "does not begin with '{'"},
      {file_of(" {}", ""), "does not begin with '{'"},
      {file_of("{\"w\":", ""), "not valid JSON"},
      {file_of("{} {}", ""), "not valid JSON"},
      {file_of(R"({"w":{"dtype":"U8","shape":[1e999],"data_offsets":[0,1]}})", "1"), "a number too large"},
      {file_of("{\"\xff\":1}", ""), "not valid JSON"},
      {file_of("{\"\xc0\xaf\":1}", ""), "not valid JSON"},
      {file_of("{\"a\":[[[[[[1]]]]]]}", ""), "nested too deeply"},
      {file_of("{\"w\":" + good + ",\"w\":" + good + "}", "1234"), "the key 'w' twice"},
      {file_of(one(R"({"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]})"), "1234"),
       "the key 'dtype' twice"},
      {file_of(R"({"__metadata__":{"a":"1","a":"2"}})", ""), "the key 'a' twice"},
      {file_of(R"({"__metadata__":{"a":1}})", ""), "not a map of strings"},
      {file_of(R"({"__metadata__":"a"})", ""), "not a map of strings"},
      {file_of(one("3"), ""), "tensor 'w': its entry is not"},
      {file_of(one(R"({"dtype":"U8","shape":[4]})"), "1234"), "tensor 'w': its entry is not"},
      {file_of(one(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4],"more":1})"), "1234"),
       "tensor 'w': its entry is not"},
      {file_of(one(R"({"dtype":"U9","shape":[4],"data_offsets":[0,4]})"), "1234"), "tensor 'w': unknown dtype \"U9\""},
      {file_of(one(R"({"dtype":8,"shape":[4],"data_offsets":[0,4]})"), "1234"), "unknown dtype 8"},
      {file_of(one(R"({"dtype":"U8","shape":[-4],"data_offsets":[0,4]})"), "1234"), "not a list of sizes"},
      {file_of(one(R"({"dtype":"U8","shape":[4.0],"data_offsets":[0,4]})"), "1234"), "not a list of sizes"},
      {file_of(one(R"({"dtype":"U8","shape":4,"data_offsets":[0,4]})"), "1234"), "not a list of sizes"},
      {file_of(one(R"({"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,4]})"), "1234"),
       "not a list of sizes"},
      {file_of(one(R"({"dtype":"U8","shape":[4],"data_offsets":[4,0]})"), "1234"), "not [begin, end]"},
      {file_of(one(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4,8]})"), "1234"), "not [begin, end]"},
      {file_of(one(R"({"dtype":"U8","shape":[4],"data_offsets":[-1,3]})"), "1234"), "not [begin, end]"},
      {file_of(one(R"({"dtype":"F32","shape":[4],"data_offsets":[0,4]})"), "1234"),
       "need 16 bytes, but data_offsets span 4"},
      // 2^62 × 4 + 4 wraps around to 4.
      {file_of(one(R"({"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]})"), "1234"),
       "shape overflows"},
      {file_of(one(R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})"), ""), "shape overflows"},
      {file_of(one(good), "123"), "its data ends at 4, but the file has 3 bytes of data"},
      {file_of(one(good), "12345"), "1 bytes belong to no tensor"},
      {file_of(one(R"({"dtype":"U8","shape":[4],"data_offsets":[1,5]})"), "12345"),
       "begins at 1, but the data before it ends at 0"},
      {file_of("{\"a\":" + good + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})", "12345"),
       "tensor 'b': its data begins at 3, but the data before it ends at 4"},
      {file_of("{\"a\":" + good + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[5,7]}})", "1234567"),
       "tensor 'b': its data begins at 5, but the data before it ends at 4"},
      {std::string("PK\x03\x04\0\0\x08\x08\0\0\0\0", 12), "which can execute code; convert it to safetensors"},
      {std::string("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9", 9), "which can execute code; convert it to safetensors"},
      {std::string("\x80\x04\x95\x1f\0\0\0\0\0\0\0}", 12), "which can execute code; convert it to safetensors"},
  };
  for (const auto& [bytes, why] : cases) {
    INFO(why);
    CHECK_THAT(refusal(bytes), ContainsSubstring(why));
  }
}

TEST_CASE("a file that cannot be read is a checkpoint error with the reason") {
  const TemporaryFolder folder;
  const std::string pipe = folder / "pipe";  // has no writer; opening it must not wait for one
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& path :
       {std::string("/nonexistent/x.safetensors"), std::string("/tmp"), std::string("/dev/null"), pipe}) {
    try {
      const SafetensorsFile file(path);
      FAIL(path);
    } catch (const UserError& error) {
      CHECK(error.code() == ExitCode::checkpoint);
      CHECK_THAT(error.what(), ContainsSubstring("cannot read " + path));
    }
  }
}

TEST_CASE("writing and reading many pieces give the same checksum") {
  const TemporaryFolder folder;
  std::vector<uint32_t> values(3'000'001);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint32_t>(i * 2654435761u);
  File file = File::create(folder / "a");
  const Checksum written = append_safetensors(
      file, {{"w", "F32", {3'000'001}, values.data(), values.size() * 4}, {"b", "U8", {3}, values.data(), 3}},
      {{"k", "v"}});
  file.sync();
  file.close();
  const std::string bytes = read_file(folder / "a", ExitCode::data);
  Checksum expected;
  expected.add(bytes.data(), bytes.size());
  CHECK(written.value() == expected.value());
  std::vector<uint32_t> read(values.size());
  uint32_t last = 0;
  const SafetensorsFile again(folder / "a");
  CHECK(again.read([&](size_t i) { return i == 0 ? static_cast<void*>(read.data()) : &last; }).value() ==
        written.value());
  CHECK(read == values);
  CHECK(std::memcmp(&last, values.data(), 3) == 0);

  std::filesystem::resize_file(folder / "a", bytes.size() - 1);
  CHECK_THROWS_WITH(again.read([&](size_t i) { return i == 0 ? static_cast<void*>(read.data()) : &last; }),
                    ContainsSubstring("became shorter while it was read"));
}

TEST_CASE("nothing is allocated for a header that is longer than the file") {
  const TemporaryFolder folder;
  write_file(folder / "a", file_of("{}", "", 99'999'999));
  CHECK_THROWS_WITH(SafetensorsFile(folder / "a"),
                    ContainsSubstring("claims 99999999 bytes (the limit is 100000000, and the file has 10)"));
}
