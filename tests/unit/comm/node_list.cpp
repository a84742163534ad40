#include "comm/launch/launch_environment.h"

#include "base/error.h"
#include "support/catch.h"

using namespace trainopt;
using Names = std::vector<std::string>;

TEST_CASE("Slurm's node lists are expanded as by scontrol show hostnames") {
  CHECK(expand_node_list("gpu1") == Names{"gpu1"});
  CHECK(expand_node_list("gpu1,cpu-7.cluster") == Names{"gpu1", "cpu-7.cluster"});
  CHECK(expand_node_list("node[003-005,009],gpu1") == Names{"node003", "node004", "node005", "node009", "gpu1"});
  CHECK(expand_node_list("n[8-11]") == Names{"n8", "n9", "n10", "n11"});
  CHECK(expand_node_list("n[08-11]") == Names{"n08", "n09", "n10", "n11"});
  CHECK(expand_node_list("n[098-101]") == Names{"n098", "n099", "n100", "n101"});
  CHECK(expand_node_list("a[1,3]b[5-6]-ib,c") == Names{"a1b5-ib", "a1b6-ib", "a3b5-ib", "a3b6-ib", "c"});
  CHECK(expand_node_list("[1-2]") == Names{"1", "2"});
}

TEST_CASE("an invalid or huge node list is refused without exhausting memory") {
  for (const char* bad : {"", ",", "a,,b", "a,", "n[1-2", "n1-2]", "n[]", "n[1-]", "n[-1]", "n[a-b]", "n[2-1]",
                          "n[1,,2]", "n[1-2[3]]", "n[1-999999999999]", "n[1-90000][1-90000]", "n[1-60000],m[1-60000]",
                          "n[1 -2]", "n[0x1-3]", "n[99999999999999999999]"}) {
    INFO(bad);
    CHECK_THROWS_AS(expand_node_list(bad), UserError);
  }
}

TEST_CASE("Slurm's task counts per node are expanded") {
  using Counts = std::vector<int64_t>;
  CHECK(expand_task_counts("4") == Counts{4});
  CHECK(expand_task_counts("2(x3),1") == Counts{2, 2, 2, 1});
  CHECK(expand_task_counts("1,2,1(x3),3,2") == Counts{1, 2, 1, 1, 1, 3, 2});
  for (const char* bad : {"", "4,", "2(x3", "2(x)", "2(y3)", "x3", "2(x3)1", "(x3)", "-1", "1(x999999999)"}) {
    INFO(bad);
    CHECK_THROWS_AS(expand_task_counts(bad), UserError);
  }
}
