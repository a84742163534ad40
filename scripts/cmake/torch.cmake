# libtorch and the CUDA toolkit, from the wheels that scripts/setup installs. find_package(Torch) fails where the
# wheel's toolkit is missing, which builds without CUDA do not need; so the few libraries are named here.
#
# Defines trainopt_torch, which modules link; trainopt_torch_cuda, which lib/cuda adds; and torch_version (2.11),
# torch_cuda (13), torch_folder.
set(torch_folder ${TRAINOPT_SITE_PACKAGES}/torch)
set(cuda_toolkit ${TRAINOPT_SITE_PACKAGES}/nvidia/cu13)
if(NOT EXISTS ${torch_folder}/version.py OR NOT EXISTS ${torch_folder}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "TRAINOPT_SITE_PACKAGES has no torch; run scripts/setup: ${TRAINOPT_SITE_PACKAGES}")
endif()
file(STRINGS ${torch_folder}/version.py torch_facts REGEX "^(__version__|cuda)")
string(REGEX MATCH "__version__ = '([0-9]+\\.[0-9]+)" _ "${torch_facts}")
set(torch_version ${CMAKE_MATCH_1})
string(REGEX MATCH "cuda[^=]*= '([0-9]+)\\." _ "${torch_facts}")
set(torch_cuda ${CMAKE_MATCH_1})
include(private_headers)

# As a system library, so that its headers cause no warnings.
add_library(trainopt_torch INTERFACE)
target_include_directories(trainopt_torch SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/include_first ${torch_folder}/include
  ${torch_folder}/include/torch/csrc/api/include ${cuda_toolkit}/include)
# The wheel is built with NDEBUG; without it some of its classes (at::RecordFunction) have a different layout.
# trainopt's own checks do not depend on NDEBUG. With per-operator headers, libtorch's headers include the operations
# that they use instead of all two thousand.
target_compile_definitions(trainopt_torch INTERFACE NDEBUG AT_PER_OPERATOR_HEADERS)

# libstdc++ first: libtorch exports incompatible parts of std::filesystem, in which remove_all would crash.
target_link_libraries(trainopt_torch INTERFACE
  -Wl,--push-state,--no-as-needed -lstdc++ ${torch_folder}/lib/libtorch_cpu.so
  ${torch_folder}/lib/libc10.so -Wl,--pop-state)
# Without OpenMP, at::parallel_for, a template in libtorch's headers, silently runs on one thread. The wheel contains
# the same libgomp.so.1, so there is one thread pool.
target_link_libraries(trainopt_torch INTERFACE OpenMP::OpenMP_CXX)
target_link_options(trainopt_torch INTERFACE -Wl,-rpath,${torch_folder}/lib)
file(GLOB cuda_library_folders LIST_DIRECTORIES true ${TRAINOPT_SITE_PACKAGES}/nvidia/*/lib)
foreach(folder IN LISTS cuda_library_folders)
  target_link_options(trainopt_torch INTERFACE -Wl,-rpath-link,${folder})
endforeach()
set(CMAKE_INSTALL_RPATH ${torch_folder}/lib)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

if(TRAINOPT_CUDA)
  if(NOT EXISTS ${cuda_toolkit}/bin/nvcc)
    message(FATAL_ERROR "TRAINOPT_CUDA=ON needs the CUDA toolkit; scripts/setup --cuda installs it")
  endif()
  if(NOT DEFINED TORCH_CUDA_ARCH_LIST)
    # For the GPUs of this machine, or PTX that any GPU can run, since each architecture takes half a CPU minute. The
    # preset `package` has all.
    execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
      OUTPUT_VARIABLE architectures ERROR_QUIET RESULT_VARIABLE code OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(code EQUAL 0 AND architectures MATCHES "^[0-9.\n]+$")
      string(REPLACE "\n" ";" architectures "${architectures}")
      list(REMOVE_DUPLICATES architectures)
    else()
      set(architectures 7.5+PTX)
    endif()
    set(TORCH_CUDA_ARCH_LIST "${architectures}" CACHE STRING "GPU architectures to compile kernels for")
  endif()
  # CMake's names: 90-real is code for sm_90, 75 also PTX for compute_75.
  set(CMAKE_CUDA_ARCHITECTURES "")
  foreach(architecture ${TORCH_CUDA_ARCH_LIST})
    string(REPLACE "." "" architecture ${architecture})
    if(architecture MATCHES "^([0-9]+[af]?)\\+PTX$")
      list(APPEND CMAKE_CUDA_ARCHITECTURES ${CMAKE_MATCH_1})
    else()
      list(APPEND CMAKE_CUDA_ARCHITECTURES ${architecture}-real)
    endif()
  endforeach()
  set(CMAKE_CUDA_COMPILER ${cuda_toolkit}/bin/nvcc)
  set(CUDAToolkit_ROOT ${cuda_toolkit})
  set(ENV{CUDA_HOME} ${cuda_toolkit})
  enable_language(CUDA)
  string(APPEND CMAKE_CUDA_FLAGS " --expt-relaxed-constexpr")
  # For libtrainopt_cuda.so alone. libtorch_cuda registers its operations when it is loaded, so it is linked even if no
  # symbol of it is needed.
  add_library(trainopt_torch_cuda INTERFACE)
  target_link_libraries(trainopt_torch_cuda INTERFACE -Wl,--push-state,--no-as-needed
    ${torch_folder}/lib/libtorch_cuda.so ${torch_folder}/lib/libc10_cuda.so -Wl,--pop-state
    ${cuda_toolkit}/lib/libcudart.so)
endif()
