// Peaks of the machine: measured, kept, and found again.
#include "base/files/files.h"
#include "roofline/measure_machine.h"
#include "roofline/roofline.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace trainopt {
namespace {

Roofline any_roofline() {
  Roofline roofline;
  roofline.key = {.device = "a CPU, 2 cores", .libraries = "trainopt 1, libtorch 2"};
  roofline.products["float32"] = {.flops_per_s = 1.5e11, .size = 1024};
  roofline.memory_bytes_per_s = 2e10;
  roofline.disk_folder = "/tmp";
  roofline.exchanges["gloo, 2 ranks on 1 machine"].push_back(
      {.collective = "all_reduce", .bytes = 4096, .seconds = 1e-4, .sent_bytes_per_s = 4e7});
  roofline.wall_s = 3;
  return roofline;
}

}  // namespace

TEST_CASE("peaks that other programs disturbed are marked, also after they were stored") {
  Roofline roofline = any_roofline();
  roofline.pinned_copy_bytes_per_s.reset();  // a CPU's
  CHECK(disturbance(roofline).empty());      // not known
  roofline.other_load_pct = 5;
  CHECK(disturbance(roofline).empty());
  CHECK(to_json(roofline).at("disturbance").is_null());
  roofline.other_load_pct = 33;
  CHECK_THAT(disturbance(roofline), ContainsSubstring("33 % of the cores") && ContainsSubstring("roofline --again"));
  const TemporaryFolder cache;
  store(cache.path(), roofline);
  CHECK(disturbance(stored_roofline(cache.path(), roofline.key).value()) == disturbance(roofline));
  roofline.pinned_copy_bytes_per_s = 1e9;  // a GPU's products do not share the cores
  CHECK(disturbance(roofline).empty());
}

TEST_CASE("a measurement is found again, for the same machine and versions only") {
  const TemporaryFolder cache;
  const Roofline roofline = any_roofline();
  CHECK_FALSE(stored_roofline(cache.path(), roofline.key));
  store(cache.path(), roofline);
  const auto found = stored_roofline(cache.path(), roofline.key);
  REQUIRE(found);
  CHECK(to_json(*found) == to_json(roofline));
  RooflineKey other = roofline.key;
  other.libraries = "trainopt 2, libtorch 2";
  CHECK_FALSE(stored_roofline(cache.path(), other));
  write_file(roofline_file(cache.path(), roofline.key), "{");
  CHECK_FALSE(stored_roofline(cache.path(), roofline.key));
}

TEST_CASE("a file of another key is not believed") {
  const TemporaryFolder cache;
  Roofline roofline = any_roofline();
  const RooflineKey key = roofline.key;
  roofline.key.device = "another CPU";
  std::filesystem::create_directories(roofline_file(cache.path(), key).parent_path());
  write_file(roofline_file(cache.path(), key), json_text(to_json(roofline)));
  CHECK_FALSE(stored_roofline(cache.path(), key));
}

TEST_CASE("the CPU's peaks are measured") {
  const TemporaryFolder folder;
  const RooflineKey key = roofline_key(at::kCPU, "1.0");
  std::vector<std::string> said;
  const auto measured = measure_machine(
      at::kCPU, key,
      {.disk_folder = folder.path(), .seconds = 0.01, .progress = [&](const auto& what) { said.push_back(what); }});
  REQUIRE(measured);
  const Roofline& roofline = *measured;
  for (const char* type : {"float32", "bfloat16"}) {
    REQUIRE(roofline.products.contains(type));
    CHECK(roofline.products.at(type).flops_per_s > 1e6);
    CHECK(roofline.products.at(type).size >= 256);
  }
  CHECK(roofline.memory_bytes_per_s.value() > 1e6);
  CHECK(roofline.disk_read_bytes_per_s.value() > 0);
  CHECK(roofline.disk_write_bytes_per_s.value() > 0);
  CHECK(roofline.operation_us.value() > 0);
  CHECK(roofline.page_fault_us.value() > 0);
  CHECK_FALSE(roofline.pinned_copy_bytes_per_s);  // a CPU's batches are not copied
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK(said.size() == 6);
}

TEST_CASE("a measurement that is stopped has no result") {
  const TemporaryFolder folder;
  std::atomic<int> stop = 0;
  std::vector<std::string> said;
  const auto measured = measure_machine(at::kCPU, roofline_key(at::kCPU, "1.0"),
                                        {.disk_folder = folder.path(),
                                         .seconds = 0.01,
                                         .progress =
                                             [&](const auto& what) {
                                               said.push_back(what);
                                               if (what == "memory") stop = 2;
                                             },
                                         .stop = &stop});
  CHECK_FALSE(measured);
  CHECK(said == std::vector<std::string>{"float32 products", "bfloat16 products", "memory"});
}

TEST_CASE("a data sheet's peak is given for exactly the devices that have one") {
  CHECK(data_sheet_flops_per_s("NVIDIA H100 80GB HBM3", "bfloat16") == 989e12);
  CHECK(data_sheet_flops_per_s("NVIDIA H100 80GB HBM3", "TF32") == 494.5e12);
  CHECK_FALSE(data_sheet_flops_per_s("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bfloat16"));
  CHECK_FALSE(data_sheet_flops_per_s("NVIDIA H100 80GB HBM3", "float8"));
  CHECK_FALSE(data_sheet_flops_per_s("", "float32"));
}

}  // namespace trainopt
