// Tests where credentials are found, in which order, and that no message contains one.
#include "base/error.h"
#include "storage/s3/credentials.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <sys/stat.h>

#include <fstream>

using namespace trainopt;

namespace {

constexpr int64_t kNow = 1'800'000'000;  // 2027-01-15T08:00:00Z
const std::string kMetadata = "http://169.254.169.254/latest/", kLater = "2027-01-15T09:00:00Z";
const std::string kRoles = kMetadata + "meta-data/iam/security-credentials/";

std::string json_of(const std::string& id, const std::string& token_name = "Token",
                    const std::string& expires = kLater) {
  return fmt::format(R"({{"Version": 1, "Code": "Success", "AccessKeyId": "{}", "SecretAccessKey": "HIDDEN", )"
                     R"("{}": "VEILED", "Expiration": "{}"}})",
                     id, token_name, expires);
}

/// A home folder, variables, and a network whose answers a test sets by the start of the URL.
class Place {
 public:
  Place() {
    query.variables = {{"HOME", home.path().string()}};
    query.now_s = [this] { return now_s; };
    query.ask = [this](const PlainRequest& request) {
      asked.push_back(request);
      for (const auto& [start, answer] : answers)
        if (request.url.starts_with(start)) return answer;
      throw UserError("cannot connect to " + request.url, ExitCode::data);
    };
  }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((home / name).parent_path());
    std::ofstream(home / name, std::ios::binary) << text;
  }
  std::string path(const std::string& name) const { return (home / name).string(); }
  std::string& variable(const std::string& name) { return query.variables[name]; }
  Credentials found() const { return find_credentials(query); }
  std::string refusal() const {
    try {
      found();
    } catch (const UserError& error) {
      const std::string text = error.what();
      CHECK(error.code() == ExitCode::data);
      for (const char* secret : {"HIDDEN", "VEILED", "JWT"}) CHECK(text.find(secret) == std::string::npos);
      return text;
    }
    return "no error";
  }

  const TemporaryFolder home;
  CredentialsQuery query;
  int64_t now_s = kNow;
  std::vector<std::pair<std::string, PlainAnswer>> answers;
  std::vector<PlainRequest> asked;
};

void use_environment(Place& place) {
  place.variable("AWS_ACCESS_KEY_ID") = "of_environment";
  place.variable("AWS_SECRET_ACCESS_KEY") = "HIDDEN/+=";
}

void use_web_identity(Place& place, const std::string& answer) {
  place.write("token", "JWT+x/y\n");
  place.variable("AWS_WEB_IDENTITY_TOKEN_FILE") = place.path("token");
  place.variable("AWS_ROLE_ARN") = "arn:aws:iam::1:role/train";
  place.variable("AWS_REGION") = "eu-west-1";
  place.answers.push_back({"https://sts.eu-west-1.amazonaws.com/?", {200, answer}});
}

std::string web_identity(const std::string& id) {
  return "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
         "<AssumeRoleWithWebIdentityResult><Credentials><SessionToken>VEILED</SessionToken><SecretAccessKey>HIDDEN"
         "</SecretAccessKey><Expiration>" +
         kLater + "</Expiration><AccessKeyId>" + id +
         "</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";
}

void use_profile(Place& place) {
  place.write(".aws/credentials",
              "[default]\naws_access_key_id = of_default\naws_secret_access_key = HIDDEN\n\n"
              "[train]\naws_access_key_id = of_train\naws_secret_access_key = HIDDEN\naws_session_token = VEILED\n");
}

void use_container(Place& place) {
  place.variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") = "/v2/credentials/7";
  place.answers.push_back({"http://169.254.170.2/v2/credentials/7", {200, json_of("of_container")}});
}

void use_instance(Place& place, const std::string& answer) {
  place.answers.push_back({kMetadata + "api/token", {200, "VEILED-of-metadata"}});
  place.answers.push_back({kRoles + "train@1", {200, answer}});
  place.answers.push_back({kRoles, {200, "train@1\nother"}});
}

}  // namespace

TEST_CASE("the first place with credentials is taken") {
  Place place;
  use_instance(place, json_of("of_instance"));
  CHECK(place.found().key_id == "of_instance");
  use_container(place);
  CHECK(place.found().key_id == "of_container");
  use_profile(place);
  CHECK(place.found().key_id == "of_default");
  place.variable("AWS_PROFILE") = "train";
  CHECK(place.found().key_id == "of_train");
  use_web_identity(place, web_identity("of_service_account"));
  CHECK(place.found().key_id == "of_service_account");
  use_environment(place);
  CHECK(place.found().key_id == "of_environment");
  place.query.profile = "default";
  CHECK(place.found().key_id == "of_default");
}

TEST_CASE("without credentials the message names all places") {
  Place place;
  place.write(".aws/config", "[default]\nregion = us-west-2\n");
  const std::string text = place.refusal();
  for (const std::string& part :
       {std::string("data.storage.anonymous"), std::string("the environment"),
        place.path(".aws/credentials") + " (No such file or directory)", place.path(".aws/config"),
        std::string("the instance metadata service gives no AWS credentials")})
    CHECK_THAT(text, ContainsSubstring(part));
  place.variable("AWS_EC2_METADATA_DISABLED") = "True";
  place.asked.clear();
  CHECK_THAT(place.refusal(), ContainsSubstring("is not asked (AWS_EC2_METADATA_DISABLED)"));
  CHECK(place.asked.empty());
}

TEST_CASE("the environment gives both keys or none") {
  Place place;
  use_environment(place);
  Credentials found = place.found();
  CHECK(found.secret == "HIDDEN/+=");
  CHECK(found.session_token.empty());
  CHECK_FALSE(found.expires_at_s);
  CHECK(found.source == "the environment");
  place.variable("AWS_SESSION_TOKEN") = "VEILED";
  CHECK(place.found().session_token == "VEILED");
  place.variable("AWS_ACCESS_KEY_ID").clear();
  CHECK_THAT(place.refusal(), ContainsSubstring("AWS_SECRET_ACCESS_KEY needs AWS_ACCESS_KEY_ID"));
  use_environment(place);
  place.query.variables.erase("AWS_SECRET_ACCESS_KEY");
  CHECK_THAT(place.refusal(), ContainsSubstring("AWS_ACCESS_KEY_ID needs AWS_SECRET_ACCESS_KEY"));
}

TEST_CASE("keys that cannot stand in a header are refused") {
  for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"})
    for (const char* bad : {" ", "\n", "\r\nx-evil: 1", "\x7f", "\xc3\xa9"}) {
      Place place;
      use_environment(place);
      place.variable(name) += bad;
      CHECK_THAT(place.refusal(), ContainsSubstring("character that no key has: the environment"));
    }
}

TEST_CASE("shared files are read as the AWS tools read them") {
  const std::string file =
      "# comment\r\n; [a]\r\nstray = 1\r\n[a]\r\n  \r\nAWS_Access_Key_ID=1=2\r\n\tnested = 9\r\ns3 =\r\n  x = 7\r\n"
      "  aws_access_key_id = nested\r\nregion :  us-x # 1  \r\nno setting\r\n[ b ] # trailing\r\n  x = 1\r\n  y = 2\r\n"
      "[profile \"my own\"]\nx=3\n[profile\t'c']\nx=4\n[profile]\nx=5\n[a]\nz = 8\n[A]\nz = 9";
  CHECK(section_of(file, "a") == Section{{"aws_access_key_id", "1=2"}, {"s3", ""}, {"region", "us-x # 1"}, {"z", "8"}});
  CHECK(section_of(file, "b") == Section{{"x", "1"}, {"y", "2"}});
  CHECK(section_of(file, "profile my own") == Section{{"x", "3"}});
  CHECK(section_of(file, "profile c") == Section{{"x", "4"}});
  CHECK(section_of(file, "profile") == Section{{"x", "5"}});
  CHECK(section_of(file, "c").empty());
  CHECK(section_of("", "a").empty());
  for (const char* odd : {"[", "]", "[]", "[a", "=", "[a]\n=\n:", "\r", "[profile ", "[profile \"]"})
    CHECK(value_or_nothing(section_of(odd, "a"), "x").empty());
}

TEST_CASE("a profile is found in both files") {
  Place place;
  use_profile(place);
  place.query.profile = "train";
  CHECK(place.found().session_token == "VEILED");
  CHECK(place.found().source == "the profile train in " + place.path(".aws/credentials"));
  place.write(".aws/config",
              "[default]\nregion = r0\n[profile train]\nregion = r1\naws_access_key_id = not_this\n"
              "aws_secret_access_key = HIDDEN\n[profile other]\naws_access_key_id = of_config\n"
              "aws_secret_access_key = HIDDEN\n[bare]\naws_access_key_id = x\naws_secret_access_key = HIDDEN\n");
  CHECK(place.found().key_id == "of_train");
  CHECK(region_of_profile(place.query) == "r1");
  place.query.profile = "other";
  CHECK(place.found().key_id == "of_config");
  CHECK_FALSE(region_of_profile(place.query));
  place.query.profile = "bare";  // the config file's sections begin with `profile`
  CHECK_THAT(place.refusal(), ContainsSubstring("the profile of data.storage.profile has no keys in " +
                                                place.path(".aws/credentials") + " or " + place.path(".aws/config")));
  place.query.profile.reset();
  CHECK(region_of_profile(place.query) == "r0");
}

TEST_CASE("variables name other files and another profile") {
  Place place;
  use_profile(place);
  place.write("mine", "[default]\naws_access_key_id = of_mine\naws_secret_access_key = HIDDEN\n");
  place.write("config", "[profile default]\nregion = r2\n[default]\nregion = r1\n");
  place.variable("AWS_SHARED_CREDENTIALS_FILE") = "~/mine";
  place.variable("AWS_CONFIG_FILE") = place.path("config");
  CHECK(place.found().key_id == "of_mine");
  CHECK(region_of_profile(place.query) == "r2");
  place.variable("AWS_PROFILE") = "missing";
  CHECK_THAT(place.refusal(), ContainsSubstring("the profile of AWS_PROFILE has no keys in " + place.path("mine")));
  CHECK_THAT(place.refusal(), ContainsSubstring(": missing"));
}

TEST_CASE("a profile with settings alone leaves the keys to later places, unless the recipe names it") {
  Place place;
  place.write(".aws/config", "[profile train]\nregion = r1\n");
  use_container(place);
  place.variable("AWS_PROFILE") = "train";
  CHECK(place.found().key_id == "of_container");
  place.query.profile = "train";
  CHECK_THAT(place.refusal(), ContainsSubstring("has no keys"));
}

TEST_CASE("profiles that are incomplete, or need a further request, are refused") {
  Place place;
  place.write(".aws/credentials", "[default]\naws_secret_access_key = HIDDEN\n");
  CHECK_THAT(place.refusal(), ContainsSubstring("aws_secret_access_key needs aws_access_key_id, which is missing: the "
                                                "profile default in " +
                                                place.path(".aws/credentials")));
  use_profile(place);
  for (const char* setting : {"role_arn", "sso_session", "sso_start_url"}) {
    place.write(".aws/config", fmt::format("[default]\n{} = x\nsource_profile = train\n", setting));
    CHECK_THAT(place.refusal(), ContainsSubstring(fmt::format("the profile default in {} uses {}, which is not read",
                                                              place.path(".aws/config"), setting)));
  }
}

TEST_CASE("credential_process gives credentials") {
  Place place;
  const auto with_command = [&](const std::string& command) {
    place.write(".aws/config", "[default]\ncredential_process = " + command + "\n");
  };
  place.write("answer", json_of("of_process", "SessionToken"));
  with_command("cat '" + place.path("answer") + "'");
  const Credentials found = place.found();
  CHECK(found.key_id == "of_process");
  CHECK(found.session_token == "VEILED");
  CHECK(found.expires_at_s == kNow + 3600);
  CHECK(found.source == "credential_process of the profile default in " + place.path(".aws/config"));
  with_command("echo HIDDEN; exit 3");
  CHECK_THAT(place.refusal(), ContainsSubstring("credential_process of the profile default in " +
                                                place.path(".aws/config") + " failed"));
  with_command("echo HIDDEN");
  CHECK_THAT(place.refusal(), ContainsSubstring("the answer holds no AWS credentials: credential_process of"));
  with_command("yes HIDDEN");
  CHECK_THAT(place.refusal(), ContainsSubstring("failed"));
  place.write("answer", json_of("of_process", "SessionToken", "2027-01-15T08:00:00Z"));
  with_command("cat '" + place.path("answer") + "'");
  CHECK_THAT(place.refusal(), ContainsSubstring("expired at 20270115T080000Z"));
}

TEST_CASE("answers in JSON are read exactly or refused without what they say") {
  Place place;
  use_container(place);
  PlainAnswer& answer = place.answers.back().second;
  const auto expiry = [&](const std::string& time) {
    answer.body = json_of("of_container", "Token", time);
    return place.found().expires_at_s;
  };
  CHECK(place.found().session_token == "VEILED");
  CHECK(place.found().source == "the container's endpoint of credentials");
  CHECK(expiry("2027-01-15T09:00:00Z") == kNow + 3600);
  CHECK(expiry("2027-01-15T09:00:00.123456Z") == kNow + 3600);
  CHECK(expiry("2027-01-15T09:00:00+00:00") == kNow + 3600);
  CHECK(expiry("2027-01-15T09:00:00-01:30") == kNow + 9000);
  CHECK(expiry("2028-02-29T00:00:00Z") == 1835395200);
  for (const std::string time :
       {"2027-01-15", "2027-01-15T09:00:00", "2027-13-15T09:00:00Z", "2027-01-15T09:00:00Zx", "never HIDDEN", ""}) {
    answer.body = json_of("of_container", "Token", time);
    CHECK_THAT(place.refusal(), ContainsSubstring("Expiration is not a time: the container's endpoint"));
  }
  answer.body = R"({"AccessKeyId": "a", "SecretAccessKey": "b", "Expiration": null})";
  CHECK_FALSE(place.found().expires_at_s);
  for (const std::string body : {"", "HIDDEN", "{\"SecretAccessKey\": \"HIDDEN", "[\"HIDDEN\"]",
                                 "{\"AccessKeyId\": \"a\"}", "{\"AccessKeyId\": 7, \"SecretAccessKey\": \"HIDDEN\"}",
                                 "{\"Code\": \"Failed\", \"Message\": \"HIDDEN\"}", "\xff{HIDDEN"}) {
    answer.body = body;
    CHECK_THAT(place.refusal(), ContainsSubstring("holds no AWS credentials: the container's endpoint"));
  }
}

TEST_CASE("a container's endpoint gets its token, and is asked again") {
  Place place;
  place.variable("AWS_CONTAINER_CREDENTIALS_FULL_URI") = "http://169.254.170.23/v1/credentials";
  place.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN") = "JWT-of-variable";
  place.answers.push_back({"http://169.254.170.23/v1/credentials", {200, json_of("of_agent")}});
  CHECK(place.found().key_id == "of_agent");
  CHECK(place.asked.back().method == "GET");
  CHECK(place.asked.back().headers == std::vector<std::string>{"Authorization: JWT-of-variable"});
  place.write("token", "JWT-of-file\r\n");
  place.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") = place.path("token");
  CHECK(place.found().key_id == "of_agent");
  CHECK(place.asked.back().headers == std::vector<std::string>{"Authorization: JWT-of-file"});
  place.write("token", "JWT\r\nHost: elsewhere");
  CHECK_THAT(place.refusal(), ContainsSubstring("several lines: " + place.path("token")));
  place.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") = place.path("none");
  CHECK_THAT(place.refusal(), ContainsSubstring("No such file"));
  place.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").clear();
  for (const auto& [status, attempts] : {std::pair{503, 3}, {429, 3}, {403, 1}, {404, 1}}) {
    place.answers = {{"http://169.254.170.23", {status, "HIDDEN"}}};
    place.asked.clear();
    CHECK_THAT(place.refusal(), ContainsSubstring(fmt::format("status {}", status)));
    CHECK(static_cast<int>(place.asked.size()) == attempts);
  }
  place.answers.clear();
  CHECK_THAT(place.refusal(), ContainsSubstring("the container's endpoint of credentials gives no AWS credentials"));
}

TEST_CASE("a container's endpoint is asked only by https or within the machine") {
  const auto is_asked = [](const std::string& name, const std::string& url) {
    Place place;
    place.answers.push_back({"http", {200, json_of("x")}});
    place.variable("AWS_EC2_METADATA_DISABLED") = "true";
    place.variable(name) = url;
    const std::string text = place.refusal();
    if (text != "no error") CHECK_THAT(text, ContainsSubstring(name + " must"));
    return !place.asked.empty();
  };
  const std::string full = "AWS_CONTAINER_CREDENTIALS_FULL_URI", relative = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
  for (const char* url : {"https://example.com/x", "http://localhost", "http://127.0.0.1:8080/x", "http://[::1]:80/x",
                          "http://169.254.170.2/x", "http://169.254.170.23/x?y", "http://[fd00:ec2::23]/x"})
    CHECK(is_asked(full, url));
  for (const char* url : {"http://example.com/", "http://169.254.170.2.example.com/", "http://127.0.0.1@example.com/",
                          "http://127.0.0.1:80@example.com/", "http://localhost:@example.com/",
                          "http://[::1]example.com/", "http://127.0.0.1\\@example.com/", "http://", "ftp://localhost/",
                          "file:///etc/passwd", "localhost/x", "http:/x"})
    CHECK_FALSE(is_asked(full, url));
  for (const char* path : {"@example.com/", ".example.com/", "1/x", "\\x"}) CHECK_FALSE(is_asked(relative, path));
}

TEST_CASE("the instance metadata service is asked with a token") {
  Place place;
  use_instance(place, json_of("of_instance"));
  const Credentials found = place.found();
  CHECK(found.source == "the instance metadata service, role train@1");
  CHECK(found.session_token == "VEILED");
  CHECK(found.expires_at_s == kNow + 3600);
  REQUIRE(place.asked.size() == 3);
  CHECK(place.asked[0].method == "PUT");
  CHECK(place.asked[0].url == kMetadata + "api/token");
  CHECK(place.asked[0].headers == std::vector<std::string>{"X-aws-ec2-metadata-token-ttl-seconds: 21600"});
  CHECK(place.asked[1].url == kRoles);
  CHECK(place.asked[2].url == kRoles + "train@1");
  for (const size_t i : {1, 2}) {
    CHECK(place.asked[i].method == "GET");
    CHECK(place.asked[i].headers == std::vector<std::string>{"X-aws-ec2-metadata-token: VEILED-of-metadata"});
  }
}

TEST_CASE("an instance metadata service that gives nothing is told in the message") {
  const auto told = [](size_t changed, const PlainAnswer& answer) {
    Place place;
    use_instance(place, json_of("of_instance"));
    place.answers[changed].second = answer;
    return place.refusal();
  };
  CHECK_THAT(told(0, {403, ""}),
             ContainsSubstring("the instance metadata service gives no AWS credentials: status 403"));
  CHECK_THAT(told(0, {200, "JWT\r\nX: y"}), ContainsSubstring("gives no token"));
  CHECK_THAT(told(0, {200, ""}), ContainsSubstring("gives no token"));
  CHECK_THAT(told(2, {404, ""}), ContainsSubstring("list of roles gives no AWS credentials: status 404"));
  CHECK_THAT(told(2, {200, "\n"}), ContainsSubstring("names no role"));
  CHECK_THAT(told(1, {200, "HIDDEN"}), ContainsSubstring("holds no AWS credentials: the instance metadata service"));
  CHECK_THAT(told(1, {500, "HIDDEN"}), ContainsSubstring("role train@1 gives no AWS credentials: status 500"));
}

TEST_CASE("a service account's token is exchanged for a role's credentials") {
  Place place;
  use_web_identity(place, web_identity("of_service_account"));
  const Credentials found = place.found();
  CHECK(found.secret == "HIDDEN");
  CHECK(found.session_token == "VEILED");
  CHECK(found.expires_at_s == kNow + 3600);
  CHECK_THAT(found.source, ContainsSubstring("the role arn:aws:iam::1:role/train"));
  CHECK(place.asked.back().url ==
        "https://sts.eu-west-1.amazonaws.com/?Action=AssumeRoleWithWebIdentity&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole"
        "%2Ftrain&RoleSessionName=trainopt&Version=2011-06-15&WebIdentityToken=JWT%2Bx%2Fy");
  place.variable("AWS_ROLE_SESSION_NAME") = "run 7";
  CHECK(place.found().key_id == "of_service_account");
  CHECK_THAT(place.asked.back().url, ContainsSubstring("RoleSessionName=run%207&"));
  const auto host_in = [&](const std::string& region) {
    place.variable("AWS_REGION") = region;
    place.refusal();
    return place.asked.back().url.substr(0, place.asked.back().url.find('?'));
  };
  CHECK(host_in("cn-north-1") == "https://sts.cn-north-1.amazonaws.com.cn/");
  CHECK(host_in("") == "https://sts.amazonaws.com/");
  place.variable("AWS_DEFAULT_REGION") = "us-east-2";
  CHECK(host_in("") == "https://sts.us-east-2.amazonaws.com/");
}

TEST_CASE("a refused service account is told without its token") {
  Place place;
  use_web_identity(place, "");
  PlainAnswer& answer = place.answers.back().second;
  answer = {400,
            "<ErrorResponse><Error><Code>ExpiredTokenException</Code><Message>JWT+x/y</Message></Error>"
            "</ErrorResponse>"};
  const std::string where =
      "sts.eu-west-1.amazonaws.com for the role arn:aws:iam::1:role/train and the token in " + place.path("token");
  CHECK_THAT(place.refusal(),
             ContainsSubstring(where + " gives no AWS credentials: status 400, ExpiredTokenException"));
  answer = {400, "<Error><Code>JWT and more</Code></Error>"};
  CHECK_THAT(place.refusal(), ContainsSubstring("status 400"));
  for (const std::string& body : {std::string("HIDDEN"), std::string("<a>HIDDEN</a>"), web_identity("")}) {
    answer = {200, body};
    CHECK_THAT(place.refusal(), ContainsSubstring("the answer holds no credentials: " + where));
  }
  place.answers.clear();  // the network's own message has the URL
  CHECK_THAT(place.refusal(), ContainsSubstring(where + " gives no AWS credentials: no answer"));
  place.asked.clear();
  for (const char* region : {"evil.example.com/", "a b", "x@y"}) {
    place.variable("AWS_REGION") = region;
    CHECK_THAT(place.refusal(), ContainsSubstring("AWS_REGION is not the name of a region"));
  }
  place.variable("AWS_REGION") = "eu-west-1";
  place.variable("AWS_ROLE_ARN").clear();
  CHECK_THAT(place.refusal(), ContainsSubstring("needs AWS_ROLE_ARN"));
  CHECK(place.asked.empty());
}

TEST_CASE("credentials are renewed five minutes before they expire") {
  Place place;
  use_container(place);
  CredentialsSource source(place.query);
  const auto first = source.current();
  place.answers.back().second.body = json_of("second", "Token", "2027-01-15T10:00:00Z");
  place.now_s = kNow + 3600 - 301;
  CHECK(source.current() == first);
  CHECK(place.asked.size() == 1);
  place.now_s = kNow + 3600 - 300;
  CHECK(source.current()->key_id == "second");
  CHECK(place.asked.size() == 2);
}

TEST_CASE("credentials that cannot be renewed serve to their end") {
  Place place;
  use_container(place);
  CredentialsSource source(place.query);
  const auto first = source.current();
  place.answers.back().second.status = 403;
  place.now_s = kNow + 3600 - 100;
  CHECK(source.current() == first);
  CHECK(source.current() == first);
  CHECK(place.asked.size() == 2);
  place.now_s += 30;
  CHECK(source.current() == first);
  CHECK(place.asked.size() == 3);
  place.now_s = kNow + 3600;
  CHECK_THROWS_AS(source.current(), UserError);
  CHECK_THROWS_AS(source.current(), UserError);
}

TEST_CASE("refused credentials are looked up once for all threads") {
  Place place;
  use_environment(place);
  CredentialsSource source(place.query);
  const auto first = source.current();
  place.variable("AWS_ACCESS_KEY_ID") = "unused";  // the source has its own copy of the variables
  const auto second = source.renewed(first);
  CHECK(second != first);
  CHECK(second->key_id == "of_environment");
  CHECK(source.renewed(first) == second);
  CHECK(source.current() == second);
}
