// Tests the XML answers of S3: lists of objects are read exactly or refused, and error bodies are read as far as they
// go.
#include "base/error.h"
#include "storage/s3/xml.h"
#include "support/catch.h"

using namespace trainopt;

namespace {

const std::string kOne = "<Contents><Key>a</Key><Size>1</Size><ETag>&quot;x&quot;</ETag></Contents>",
                  kLast = "<IsTruncated>false</IsTruncated>";

std::string list_of(const std::string& inner) {
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
         "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">" +
         inner + "</ListBucketResult>";
}

std::string with_key(const std::string& key) {
  return "<Contents><Key>" + key + "</Key><Size>1</Size></Contents>" + kLast;
}

std::string with_size(const std::string& size) {
  return "<Contents><Key>a</Key><Size>" + size + "</Size></Contents>" + kLast;
}

std::string key_in(const std::string& xml) {
  const ObjectList list = parse_object_list(xml);
  REQUIRE(list.objects.size() == 1);
  return list.objects[0].key;
}

std::string refusal_of(const std::string& xml) {
  try {
    parse_object_list(xml);
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::data);
    CHECK(std::string(error.what()).size() < 200);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a list of objects is read as S3 sends it") {
  const ObjectList list = parse_object_list(
      list_of("<Name>bucket</Name><Prefix>train/</Prefix><KeyCount>2</KeyCount><MaxKeys>1000</MaxKeys>"
              "<IsTruncated>false</IsTruncated>\n"
              "<Contents><Key>train/a&amp;b &lt;1&gt;.tar</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
              "<ETag>&quot;70ee1738b6b21e2c8a43f3a5ab0eee71-3&quot;</ETag><Size>9223372036854775807</Size>"
              "<StorageClass>STANDARD</StorageClass><Owner><ID>7</ID></Owner></Contents>\n"
              "<Contents><Key>train/\xc3\xa9</Key><Size>0</Size><ETag>\"e\"</ETag></Contents>"
              "<CommonPrefixes><Prefix>train/sub/</Prefix></CommonPrefixes>"));
  const std::vector<ListedObject> expected{{"train/a&b <1>.tar", INT64_MAX, "\"70ee1738b6b21e2c8a43f3a5ab0eee71-3\""},
                                           {"train/\xc3\xa9", 0, "\"e\""}};
  CHECK(list.objects == expected);
  CHECK_FALSE(list.next);
  CHECK(parse_object_list(list_of(kLast)).objects.empty());
}

TEST_CASE("a page names the next one") {
  const std::string more = "<IsTruncated>true</IsTruncated>";
  CHECK(parse_object_list(list_of(kOne + more + "<NextContinuationToken>1/x+y=%2F</NextContinuationToken>")).next ==
        "1/x+y=%2F");
  for (const std::string& token : {std::string(), std::string("<NextContinuationToken/>"),
                                   std::string("<ContinuationToken>x</ContinuationToken>")})
    CHECK_THAT(refusal_of(list_of(kOne + more + token)), ContainsSubstring("it continues, and does not say where"));
  CHECK_FALSE(parse_object_list(list_of(kLast + "<NextContinuationToken>x</NextContinuationToken>")).next);
  for (const std::string& state : {std::string(), std::string("<IsTruncated>1</IsTruncated>"),
                                   std::string("<IsTruncated>TRUE</IsTruncated>"), kLast + kLast})
    CHECK_THAT(refusal_of(list_of(kOne + state)), ContainsSubstring("cannot be read"));
}

TEST_CASE("keys are decoded if the list says so") {
  const std::string encoded = "<EncodingType>url</EncodingType>";
  CHECK(key_in(list_of(encoded + with_key("a%2Fb+c%2B%C3%A9%25%0a%00z"))) == std::string("a/b c+\xc3\xa9%\n\0z", 12));
  CHECK(key_in(list_of(with_key("a%2Fb+c"))) == "a%2Fb+c");
  for (const char* key : {"%", "a%2", "%zz", "%2g", "% 1", "%-1", "%+1", "%0x"})
    CHECK_THAT(refusal_of(list_of(encoded + with_key(key))), ContainsSubstring("not URL-encoded"));
  CHECK_THAT(refusal_of(list_of("<EncodingType>gzip</EncodingType>" + with_key("a"))),
             ContainsSubstring("EncodingType is not url"));
}

TEST_CASE("keys are read to their last byte") {
  const std::string huge(1 << 20, 'k');
  CHECK(key_in(list_of(with_key(huge))) == huge);
  CHECK(key_in(list_of(with_key(" "))) == " ");
  CHECK(key_in(list_of(with_key(" a  b "))) == " a  b ");
  CHECK(key_in(list_of(with_key("a&#13;&#10;b"))) == "a\r\nb");
  CHECK(key_in(list_of(with_key("a<!-- no -->b<![CDATA[<c>]]>d"))) == "ab<c>d");
}

TEST_CASE("sizes are whole numbers that fit") {
  for (const char* size : {"", "-1", "-9223372036854775808", "9223372036854775808", "99999999999999999999999", "1.5",
                           "1e3", "0x10", " 1", "1 ", "+1", "1\n", "one"})
    CHECK_THAT(refusal_of(list_of(with_size(size))), ContainsSubstring("size is no number"));
  CHECK_THAT(refusal_of(list_of("<Contents><Key>a</Key></Contents>" + kLast)), ContainsSubstring("size is no number"));
}

TEST_CASE("objects without a key, and elements twice or within each other, are refused") {
  CHECK_THAT(refusal_of(list_of("<Contents><Size>1</Size></Contents>" + kLast)), ContainsSubstring("has no key"));
  CHECK_THAT(refusal_of(list_of(with_key(""))), ContainsSubstring("has no key"));
  CHECK_THAT(refusal_of(list_of("<Contents><Key>a</Key><Key>b</Key><Size>1</Size></Contents>" + kLast)),
             ContainsSubstring("two Key"));
  CHECK_THAT(refusal_of(list_of(with_key("a<b>c</b>"))), ContainsSubstring("Key is no text"));
  CHECK_THAT(refusal_of(list_of(with_size("1<Size>2</Size>"))), ContainsSubstring("Size is no text"));
}

TEST_CASE("what is no list is refused") {
  const std::string good = list_of(kOne + kLast);
  CHECK(refusal_of(good) == "no error");
  for (size_t bytes = 0; bytes < good.size(); ++bytes)
    CHECK_THAT(refusal_of(good.substr(0, bytes)), ContainsSubstring("cannot be read"));
  const std::string deep(100'000, '<');
  for (const std::string& xml :
       {std::string("hello"), std::string("{}"), std::string("<html><body>Sign in</body></html>"),
        std::string("<Error><Code>AccessDenied</Code></Error>"), std::string("<x>") + good + "</x>", good + "<", deep,
        good.substr(0, 60) + '\0' + good.substr(60), std::string("\xff\xfe<\0x\0", 6)})
    CHECK_THAT(refusal_of(xml), ContainsSubstring("cannot be read"));
  std::string nested;
  for (int i = 0; i < 100'000; ++i) nested += "<a>";
  CHECK_THAT(refusal_of(nested), ContainsSubstring("cannot be read"));
}

TEST_CASE("document types are refused and entities are not expanded") {
  const std::string inner = "<ListBucketResult>" + with_key("&x;") + "</ListBucketResult>";
  for (const std::string type : {"<!DOCTYPE ListBucketResult [<!ENTITY x \"expanded\">]>",
                                 "<!DOCTYPE ListBucketResult [<!ENTITY x SYSTEM \"file:///etc/passwd\">]>",
                                 "<!DOCTYPE ListBucketResult SYSTEM \"http://127.0.0.1/x.dtd\">"}) {
    CHECK_THAT(refusal_of(type + inner), ContainsSubstring("no XML of S3"));
    CHECK(parse_s3_error(type + "<Error><Code>&x;</Code></Error>").code.empty());
  }
  CHECK(key_in(inner) == "&x;");
}

TEST_CASE("error bodies are read as far as they go") {
  const S3Error error = parse_s3_error(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>AuthorizationHeaderMalformed</Code>"
      "<Message>the region 'us-east-1' is wrong; expecting 'eu-west-1'</Message><Region>eu-west-1</Region>"
      "<RequestId>4442587FB7D0A2F9</RequestId><HostId>x</HostId></Error>");
  CHECK(error.code == "AuthorizationHeaderMalformed");
  CHECK(error.message == "the region 'us-east-1' is wrong; expecting 'eu-west-1'");
  CHECK(error.region == "eu-west-1");
  CHECK(error.request_id == "4442587FB7D0A2F9");
  CHECK(parse_s3_error("<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type>"
                       "<Code>ExpiredTokenException</Code></Error></ErrorResponse>")
            .code == "ExpiredTokenException");
  CHECK(parse_s3_error("<Error><Code>NoSuchKey</Code></Error>").message.empty());
  for (const std::string& body :
       {std::string(), std::string("<Error><Code>NoSuchKey</Code>"), std::string("Service Unavailable"),
        std::string("<html><Code>x</Code></html>"), std::string("<Error>\0</Error>", 16)}) {
    const S3Error none = parse_s3_error(body);
    CHECK((none.code + none.message + none.region + none.request_id).empty());
  }
}
