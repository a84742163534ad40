// One sentence and one exit code for every exception.
#include "run/explain.h"

#include "support/catch.h"

#include <c10/util/Exception.h>

#include <new>
#include <stdexcept>
#include <system_error>

using namespace trainopt;

TEST_CASE("a user's error keeps its sentence and its code") {
  const Explained end = explain(UserError("the folder is empty: data", ExitCode::data));
  CHECK(end.message == "the folder is empty: data");
  CHECK(end.code == ExitCode::data);
}

TEST_CASE("memory that runs out is exit 5, with the amount where libtorch says it") {
  const auto torch_error = [](const char* what) { return c10::Error({__func__, __FILE__, __LINE__}, what); };
  const Explained on_cpu = explain(torch_error(
      "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
      "4000 bytes. Error code 12 (Cannot allocate memory)"));
  CHECK(on_cpu.message == "out of memory; lower data.batch_size: tried to allocate 4000 bytes");
  CHECK(on_cpu.code == ExitCode::memory);
  const Explained plain = explain(std::bad_alloc());
  CHECK(plain.message == "out of memory; lower data.batch_size");
  CHECK(plain.code == ExitCode::memory);
}

TEST_CASE("threads that cannot start are exit 5, and not a bug") {
  CHECK(explain(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again))).code ==
        ExitCode::memory);
}

TEST_CASE("any other exception is a bug, and libtorch's stack is left out") {
  const Explained torch = explain(c10::Error({__func__, __FILE__, __LINE__}, "mat1 and mat2 cannot be multiplied"));
  CHECK(torch.message == "libtorch: mat1 and mat2 cannot be multiplied");
  CHECK(torch.code == ExitCode::bug);
  const Explained other = explain(std::runtime_error("x"));
  CHECK(other.message == "x");
  CHECK(other.code == ExitCode::bug);
}
