// What a process takes from its environment.
#include "run/environment.h"

#include "support/catch.h"

using namespace trainopt;

TEST_CASE("the environment's variables, whatever their values contain") {
  char first[] = "A=1", second[] = "B=x=y", third[] = "EMPTY=", fourth[] = "no equals sign";
  char* variables[] = {first, second, third, fourth, nullptr};
  CHECK(read_environment(variables) == Environment{{"A", "1"}, {"B", "x=y"}, {"EMPTY", ""}});
}

TEST_CASE("the machine gets the variables that data in object storage need, and no others") {
  const Machine machine = this_machine({{"HOME", "/h"}, {"AWS_REGION", "eu"}, {"PATH", "/bin"}, {"AWSOME", "no"}});
  CHECK(machine.variables == Variables{{"HOME", "/h"}, {"AWS_REGION", "eu"}});
}

TEST_CASE("GPUs that CUDA_VISIBLE_DEVICES hides") {
  CHECK(visible_devices({}) == std::nullopt);
  CHECK(visible_devices({{"CUDA_VISIBLE_DEVICES", ""}}) == "");
  CHECK(visible_devices({{"CUDA_VISIBLE_DEVICES", "1,2"}}) == "1,2");
}

TEST_CASE("no colours for ranks, which a launcher may give a terminal of its own, nor if they are not wanted") {
  CHECK_FALSE(colored_output({.launched = true}));
  CHECK_FALSE(colored_output({.no_color = true}));
}
