# Language, optimisation, warnings, linker and compiler cache: the same for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CUDA_STANDARD 17)             # CMake 3.25 does not know CUDA20; must be set before the language is enabled
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
# For code that takes no noticeable part of a step, and for tests: compiles a fifth to a third faster.
set(trainopt_cold_options $<$<CONFIG:Release>:-O1>)

set(batches WHOLE)
if(DEFINED ENV{TRAINOPT_BATCHES})
  set(batches $ENV{TRAINOPT_BATCHES})
endif()
if("${TRAINOPT_BATCHES}" STREQUAL "ON")   # of a build folder from before it had three values
  unset(TRAINOPT_BATCHES CACHE)
endif()
set(TRAINOPT_BATCHES ${batches} CACHE STRING
  "Sources compiled as one. WHOLE: all of a module; SMALL: a few, for developers; OFF: none, for clang-tidy, editors")
if(NOT TRAINOPT_BATCHES MATCHES "^(WHOLE|SMALL|OFF)$")
  message(FATAL_ERROR "TRAINOPT_BATCHES must be WHOLE, SMALL or OFF")
endif()
option(TRAINOPT_WERROR "Treat warnings as errors" OFF)
if(NOT DEFINED TRAINOPT_CUDA AND DEFINED ENV{TRAINOPT_CUDA})
  set(TRAINOPT_CUDA $ENV{TRAINOPT_CUDA})
endif()
option(TRAINOPT_CUDA "Build for NVIDIA GPUs; needs the CUDA toolkit, from scripts/setup --cuda" ON)

add_library(trainopt_flags INTERFACE)
# x86-64-v3 is required (checked at start-up); wider variants are chosen at run time. A designated initializer may leave
# members at their defaults.
target_compile_options(trainopt_flags INTERFACE -march=x86-64-v3 -Wall -Wextra -Wshadow -Wno-missing-field-initializers
  $<$<BOOL:${TRAINOPT_WERROR}>:-Werror>)
target_include_directories(trainopt_flags INTERFACE ${CMAKE_SOURCE_DIR}/lib)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # A precompiled header fills GCC's heap, so by default it collects garbage often. Collecting from 1 GiB on compiles an
  # eighth faster and takes 40 to 100 MB more per process.
  target_compile_options(trainopt_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1048576>
    $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-expand=100>)
endif()

find_program(TRAINOPT_CCACHE ccache)
if(TRAINOPT_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_SOURCE_DIR}/scripts/cmake/cached ${CMAKE_SOURCE_DIR} ${TRAINOPT_CCACHE})
  target_compile_options(trainopt_flags INTERFACE -fpch-preprocess)
endif()
find_program(TRAINOPT_MOLD mold)
if(TRAINOPT_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
