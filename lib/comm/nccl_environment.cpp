#include "comm/nccl_environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string_view>

namespace trainopt {
namespace {

constexpr int64_t kWarpSize = 32;

// NCCL compares these without regard to case.
constexpr std::array<std::string_view, 7> kAlgorithms{"Ring",     "Tree", "CollnetDirect", "CollnetChain", "NVLS",
                                                      "NVLSTree", "PAT"};
constexpr std::array<std::string_view, 3> kProtocols{"LL", "LL128", "Simple"};
constexpr std::array<std::string_view, 5> kCollectives{"allreduce", "allgather", "reducescatter", "broadcast",
                                                       "reduce"};

bool same_word(std::string_view left, std::string_view right) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [&](char a, char b) { return lower(a) == lower(b); });
}

bool is_one_of(std::string_view word, std::span<const std::string_view> known) {
  return std::any_of(known.begin(), known.end(), [&](std::string_view each) { return same_word(word, each); });
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (size_t end; (end = text.find(at)) != std::string_view::npos; text.remove_prefix(end + 1))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

/// Whether `text` is a list in NCCL's syntax: "Ring,Tree", "^NVLS", "allreduce:Tree;broadcast:Ring".
bool is_list_of(std::string_view text, std::span<const std::string_view> known) {
  for (std::string_view part : split(text, ';')) {
    if (const size_t colon = part.find(':'); colon != std::string_view::npos) {
      if (!is_one_of(part.substr(0, colon), kCollectives)) return false;
      part.remove_prefix(colon + 1);
    }
    if (part.starts_with('^')) part.remove_prefix(1);
    for (const std::string_view word : split(part, ','))
      if (!is_one_of(word, known)) return false;
  }
  return true;
}

std::string list_problem(const std::string& text, std::span<const std::string_view> known) {
  return fmt::format("must be a list such as {0},{1}, ^{1} (all but {1}) or allreduce:{0}, of the words {2}: '{3}'",
                     known[0], known[1], fmt::join(known, ", "), text);
}

bool is_printable(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

std::map<std::string, std::string> nccl_variables(const NcclConfig& nccl) {
  std::map<std::string, std::string> all;
  if (nccl.algo) all["NCCL_ALGO"] = *nccl.algo;
  if (nccl.proto) all["NCCL_PROTO"] = *nccl.proto;
  if (nccl.buffer_size_mb) all["NCCL_BUFFSIZE"] = std::to_string(*nccl.buffer_size_mb << 20);
  if (nccl.threads) all["NCCL_NTHREADS"] = std::to_string(*nccl.threads);
  if (nccl.min_ctas) all["NCCL_MIN_CTAS"] = std::to_string(*nccl.min_ctas);
  if (nccl.max_ctas) all["NCCL_MAX_CTAS"] = std::to_string(*nccl.max_ctas);
  if (nccl.socket_ifname) all["NCCL_SOCKET_IFNAME"] = *nccl.socket_ifname;
  if (nccl.debug) all["NCCL_DEBUG"] = word_of(*nccl.debug);
  return all;
}

std::vector<std::pair<std::string, std::string>> nccl_problems(const NcclConfig& nccl) {
  std::vector<std::pair<std::string, std::string>> problems;
  if (nccl.algo && !is_list_of(*nccl.algo, kAlgorithms))
    problems.emplace_back("algo", list_problem(*nccl.algo, kAlgorithms));
  if (nccl.proto && !is_list_of(*nccl.proto, kProtocols))
    problems.emplace_back("proto", list_problem(*nccl.proto, kProtocols));
  if (nccl.threads && *nccl.threads % kWarpSize != 0)
    problems.emplace_back("threads", fmt::format("must be a multiple of {}: {}", kWarpSize, *nccl.threads));
  if (nccl.min_ctas && nccl.max_ctas && *nccl.min_ctas > *nccl.max_ctas)
    problems.emplace_back("min_ctas", "must not be above max_ctas");
  if (nccl.socket_ifname && !is_printable(*nccl.socket_ifname))
    problems.emplace_back("socket_ifname", fmt::format("must be names of network interfaces, or their first letters, "
                                                       "with commas between them: '{}'",
                                                       *nccl.socket_ifname));
  return problems;
}

std::map<std::string, std::string> nccl_environment(const NcclConfig& nccl) {
  std::map<std::string, std::string> all = nccl_variables(nccl);
  all["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "2";
  // Otherwise c10d's watchdog ends the process before it can say what happened.
  all["TORCH_NCCL_RETHROW_CUDA_ERRORS"] = "0";
  all["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "1";
  all["TORCH_NCCL_TRACE_BUFFER_SIZE"] = "2000";
  return all;
}

void set_nccl_trace_folder(const std::filesystem::path& run_dir) {
  ::setenv("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", (std::filesystem::absolute(run_dir) / "nccl-trace-rank").c_str(),
           /*overwrite=*/0);  // c10d appends the rank
}

}  // namespace trainopt
