#include "base/log.h"

#include "support/captured_log.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include <fcntl.h>
#include <unistd.h>

using namespace trainopt;

namespace {

/// Captures standard error while it lives.
class CapturedErrors {
 public:
  CapturedErrors() {
    std::fflush(stderr);
    const int file = ::open((folder_ / "stderr").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(file, STDERR_FILENO);
    ::close(file);
  }
  ~CapturedErrors() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
  }
  std::string text() const {
    std::fflush(stderr);
    return folder_.text("stderr");
  }

 private:
  TemporaryFolder folder_;
  int before_ = ::dup(STDERR_FILENO);
};

}  // namespace

TEST_CASE("a log on a full disk says so once and never stops the program") {
  const auto before = spdlog::default_logger();
  {
    const CapturedErrors errors;
    start_logging("error", false);
    log_to_file("/dev/full");
    for (int i = 0; i < 300; ++i) {
      log_info("{} {}", i, std::string(100, '.'));
      log_warning("{}", i);  // flushes
    }
    log_error("still heard");
    const std::string text = errors.text();
    INFO(text);
    CHECK(text.starts_with("error: Failed "));
    CHECK_THAT(text, ContainsSubstring("No space left on device; training continues"));
    CHECK(text.ends_with("error: still heard\n"));
    CHECK(std::count(text.begin(), text.end(), '\n') == 2);
    spdlog::set_default_logger(before);
  }
}

TEST_CASE("the log file has more lines than standard error, each with a timestamp") {
  const auto before = spdlog::default_logger();
  const TemporaryFolder folder;
  const CapturedErrors errors;
  start_logging("warning", false);
  log_to_file(folder / "run.log");
  log_info("quiet");
  log_warning("heard");
  spdlog::set_default_logger(before);
  CHECK(errors.text() == "warning: heard\n");
  const std::string log = folder.text("run.log");
  CHECK_THAT(log, ContainsSubstring(" info: quiet\n"));
  CHECK_THAT(log, ContainsSubstring(" warning: heard\n"));
  CHECK(log.size() > std::string("2026-11-21T18:00:00.000 ").size() * 2);
}

TEST_CASE("a line that is no format may contain braces") {
  const CapturedLog log;
  log_warning(std::string("{} of {a}"));
  log_warning("{} of {:.1f}", 1, 2.0);
  CHECK(log.text() == "warning: {} of {a}\nwarning: 1 of 2.0\n");
}

TEST_CASE("a process that says only errors still says them, and all if debug lines are asked for") {
  const auto before = spdlog::default_logger();
  for (const std::string level : {"info", "debug"}) {
    const CapturedErrors errors;
    start_logging(level, false);
    log_only_errors();
    log_warning("as rank 0 says");
    log_error("mine");
    CHECK(errors.text() == (level == "debug" ? "warning: as rank 0 says\nerror: mine\n" : "error: mine\n"));
    spdlog::set_default_logger(before);
  }
}
