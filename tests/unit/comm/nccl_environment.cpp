// NCCL's settings are text: the exact variables, and what is refused before NCCL sees it.
#include "comm/nccl_environment.h"

#include "support/catch.h"

using namespace trainopt;
using Catch::Matchers::Contains;

namespace {

using Variables = std::map<std::string, std::string>;

std::string problem_of(const NcclConfig& nccl, const std::string& key) {
  const auto problems = nccl_problems(nccl);
  REQUIRE(problems.size() == 1);
  CHECK(problems.front().first == key);
  return problems.front().second;
}

}  // namespace

TEST_CASE("without settings only c10d's variables are set") {
  CHECK(nccl_variables({}).empty());
  CHECK(nccl_environment({}) == Variables{{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "2"},
                                          {"TORCH_NCCL_DUMP_ON_TIMEOUT", "1"},
                                          {"TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"},
                                          {"TORCH_NCCL_TRACE_BUFFER_SIZE", "2000"}});
}

TEST_CASE("each NCCL setting sets one variable") {
  CHECK(nccl_variables({.algo = "Ring"}) == Variables{{"NCCL_ALGO", "Ring"}});
  CHECK(nccl_variables({.algo = "Tree"}) == Variables{{"NCCL_ALGO", "Tree"}});
  CHECK(nccl_variables({.algo = "Ring,Tree"}) == Variables{{"NCCL_ALGO", "Ring,Tree"}});
  CHECK(nccl_variables({.proto = "LL128"}) == Variables{{"NCCL_PROTO", "LL128"}});
  CHECK(nccl_variables({.socket_ifname = "=eth0"}) == Variables{{"NCCL_SOCKET_IFNAME", "=eth0"}});
  CHECK(nccl_variables({.buffer_size_mb = 8}) == Variables{{"NCCL_BUFFSIZE", "8388608"}});
  CHECK(nccl_variables({.threads = 256}) == Variables{{"NCCL_NTHREADS", "256"}});
  CHECK(nccl_variables({.min_ctas = 4}) == Variables{{"NCCL_MIN_CTAS", "4"}});
  CHECK(nccl_variables({.max_ctas = 16}) == Variables{{"NCCL_MAX_CTAS", "16"}});
  CHECK(nccl_variables({.debug = NcclDebug::warn}) == Variables{{"NCCL_DEBUG", "WARN"}});
  const Variables all = nccl_environment({.algo = "Tree", .proto = "Simple", .buffer_size_mb = 1});
  CHECK(all.size() == 7);
  CHECK(all.at("NCCL_ALGO") == "Tree");
  CHECK(all.at("NCCL_PROTO") == "Simple");
  CHECK(all.at("NCCL_BUFFSIZE") == "1048576");
}

TEST_CASE("NCCL's lists are accepted in all their forms") {
  for (const char* algo : {"Ring", "ring", "RING,tree", "^NVLS", "^NVLS,NVLSTree", "CollnetDirect,CollnetChain", "PAT",
                           "allreduce:Tree", "AllReduce:^Ring;broadcast:ring", "Ring;allreduce:tree,NVLS"})
    CHECK(nccl_problems({.algo = algo}).empty());
  for (const char* proto : {"LL", "LL128", "Simple", "ll,ll128", "^LL", "allgather:Simple;reducescatter:^LL,LL128"})
    CHECK(nccl_problems({.proto = proto}).empty());
  for (const char* names : {"eth", "=eth0,=eth1", "^docker", "^=lo"})
    CHECK(nccl_problems({.socket_ifname = names}).empty());
}

TEST_CASE("NCCL settings that NCCL would misread are refused") {
  for (const char* algo : {"", "Rnig", "Ring,", ",Ring", "Ring Tree", "Ring, Tree", "^", "^^Ring", "Simple", "sum:Ring",
                           "allreduce:", "allreduce:Ring;", "allreduce:Ring:Tree"})
    CHECK_THAT(
        problem_of({.algo = algo}, "algo"),
        Contains("must be a list such as Ring,Tree, ^Tree (all but Tree) or allreduce:Ring, of the words Ring, Tree, "
                 "CollnetDirect, CollnetChain, NVLS, NVLSTree, PAT: '" +
                 std::string(algo) + "'"));
  CHECK_THAT(problem_of({.proto = "LL64"}, "proto"), Contains("of the words LL, LL128, Simple: 'LL64'"));
  CHECK_THAT(problem_of({.threads = 100}, "threads"), Contains("must be a multiple of 32: 100"));
  CHECK_THAT(problem_of({.min_ctas = 8, .max_ctas = 4}, "min_ctas"), Contains("must not be above max_ctas"));
  for (const char* names : {"", "eth0 eth1", "eth\n"})
    CHECK(!problem_of({.socket_ifname = names}, "socket_ifname").empty());
  CHECK(nccl_problems({.algo = "x", .proto = "y", .threads = 65}).size() == 3);
}
