// What needs CUDA is a library of its own, libtrainopt_cuda.so (lib/cuda): the folders named cuda and the GPU kernels.
// The program links no CUDA library, because each command would load them all. It calls what the library's table holds
// (cuda_table.h). The functions that do so are declared where they belong, in device.h, graph.h, kernels/*/launch.h and
// so on, with what holds without the library.
#pragma once

#include <string>

namespace trainopt {

struct CudaTable;

/// Whether this program was built for GPUs (TRAINOPT_CUDA).
bool built_for_cuda();

/// Opens libtrainopt_cuda.so, if this program was built for GPUs and NVIDIA's driver is installed. Its build ID must be
/// `build_id`. Call this first in main(): libtorch asks only once in a process whether its CUDA half is loaded. The
/// library stays open.
void open_cuda_library(const std::string& build_id) noexcept;

/// Opens the library without a driver: for rehearsals of CUDA's errors, and tests of what needs no GPU. If no build ID
/// has been named before, none is compared.
void open_cuda_library_without_driver() noexcept;

/// The functions of the open library; null if none is open.
const CudaTable* cuda_table();

/// One sentence: why the library could not be opened. Empty if it is open, or if nothing has tried to open it because
/// this program was built without CUDA or there is no driver.
const std::string& cuda_library_problem();

}  // namespace trainopt
