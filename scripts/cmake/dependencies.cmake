# TRAINOPT_SITE_PACKAGES is the site-packages folder that scripts/setup fills: libtorch and a complete CUDA toolkit,
# from two pinned wheels.
if(NOT TRAINOPT_SITE_PACKAGES AND DEFINED ENV{TRAINOPT_SITE_PACKAGES})
  set(TRAINOPT_SITE_PACKAGES $ENV{TRAINOPT_SITE_PACKAGES})
endif()
if(NOT TRAINOPT_SITE_PACKAGES)
  message(FATAL_ERROR
    "TRAINOPT_SITE_PACKAGES is not set: run scripts/trainopt or scripts/test, "
    "or eval \"$(scripts/setup --print)\" first")
endif()
set(TRAINOPT_SITE_PACKAGES ${TRAINOPT_SITE_PACKAGES} CACHE PATH "site-packages with torch and nvidia/")

set(cuda_toolkit ${TRAINOPT_SITE_PACKAGES}/nvidia/cu13)
set(ENV{CUDACXX} ${cuda_toolkit}/bin/nvcc)
set(ENV{CUDA_HOME} ${cuda_toolkit})
set(CUDAToolkit_ROOT ${cuda_toolkit})
set(CUDA_TOOLKIT_ROOT_DIR ${cuda_toolkit})
if(NOT DEFINED TORCH_CUDA_ARCH_LIST)
  # For the GPUs of this machine, or PTX that any GPU can run, since each architecture takes half a CPU minute. The
  # preset `package` has all. (libtorch's own guess is a list that nvcc 13 rejects if there is no GPU.)
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
list(PREPEND CMAKE_PREFIX_PATH ${TRAINOPT_SITE_PACKAGES}/torch/share/cmake)
find_package(Torch 2.11 REQUIRED)

# TRAINOPT_ARROW is the folder of the Python package pyarrow: Arrow's headers and libraries. Without it, the program
# reads no Parquet files.
if(NOT TRAINOPT_ARROW AND DEFINED ENV{TRAINOPT_ARROW})
  set(TRAINOPT_ARROW $ENV{TRAINOPT_ARROW})
endif()
set(TRAINOPT_ARROW "${TRAINOPT_ARROW}" CACHE PATH "folder of pyarrow; empty: no Parquet")
if(TRAINOPT_ARROW)
  file(GLOB TRAINOPT_ARROW_LIBRARIES ${TRAINOPT_ARROW}/libparquet.so.* ${TRAINOPT_ARROW}/libarrow.so.*)
  list(LENGTH TRAINOPT_ARROW_LIBRARIES arrow_libraries)
  if(NOT arrow_libraries EQUAL 2)
    message(FATAL_ERROR "TRAINOPT_ARROW must be the folder of pyarrow, with libarrow.so.* and libparquet.so.*: "
      "${TRAINOPT_ARROW}")
  endif()
endif()

find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(simdjson REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(CURL REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(pugixml REQUIRED)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
if(NOT TARGET yaml-cpp::yaml-cpp)       # before 0.8
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()

# libtorch's wheel contains headers of a newer fmt than the one spdlog was built with, so the system's fmt must be found
# first.
get_target_property(fmt_include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include_first)
file(CREATE_LINK ${fmt_include}/fmt ${CMAKE_BINARY_DIR}/include_first/fmt SYMBOLIC)

# libtorch, as a system library so that its headers cause no warnings.
add_library(trainopt_torch INTERFACE)
target_include_directories(trainopt_torch SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/include_first)
# The wheel is built with NDEBUG; without it some of its classes (at::RecordFunction) have a different layout.
# trainopt's own checks do not depend on NDEBUG.
target_compile_definitions(trainopt_torch INTERFACE NDEBUG)
# libtorch's headers then include the operations that they use instead of all two thousand.
target_compile_definitions(trainopt_torch INTERFACE AT_PER_OPERATOR_HEADERS)
# libstdc++ first: libtorch exports incompatible parts of std::filesystem, in which remove_all would crash.
target_link_libraries(trainopt_torch INTERFACE -Wl,--push-state,--no-as-needed -lstdc++ -Wl,--pop-state
  ${TORCH_LIBRARIES})
target_include_directories(trainopt_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
# Without OpenMP, at::parallel_for, a template in libtorch's headers, silently runs on one thread. The wheel contains
# the same libgomp.so.1, so there is one thread pool.
target_link_libraries(trainopt_torch INTERFACE OpenMP::OpenMP_CXX)
file(GLOB cuda_library_folders LIST_DIRECTORIES true ${TRAINOPT_SITE_PACKAGES}/nvidia/*/lib)
foreach(folder IN LISTS cuda_library_folders)
  target_link_options(trainopt_torch INTERFACE -Wl,-rpath-link,${folder})
endforeach()
set(CMAKE_INSTALL_RPATH ${TRAINOPT_SITE_PACKAGES}/torch/lib)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
