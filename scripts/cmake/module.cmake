# trainopt_sources(OUT)
# Finds the sources of this folder and of the folders below it, in alphabetical order, except those in folders named
# cuda, which lib/cuda compiles, and in folders with a CMakeLists.txt of their own.
function(trainopt_sources out)
  file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.cpp)
  file(GLOB_RECURSE others RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} */CMakeLists.txt)
  list(TRANSFORM others REPLACE "CMakeLists.txt$" "")
  foreach(other ${others})
    list(FILTER found EXCLUDE REGEX "^${other}")
  endforeach()
  list(FILTER found EXCLUDE REGEX "(^|/)cuda/")
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# trainopt_module(NAME [USES other modules ...] [LINKS libraries ...] [TORCH] [COLD] [SINGLE] [ALONE a.cpp ...]
#   [GENERATED a.cpp ...] [EXCEPT a.cpp ...])
# Adds a static library for one folder of lib/, of all its sources (see trainopt_sources()) but those in EXCEPT. TORCH:
# the module uses libtorch, through the precompiled header that all modules share. COLD: its code takes no noticeable
# part of a step. SINGLE: its sources are compiled one by one, unless the caller groups them. ALONE: sources
# that are in no small batch.
function(trainopt_module name)
  cmake_parse_arguments(arg "TORCH;COLD;SINGLE" "" "ALONE;EXCEPT;GENERATED;USES;LINKS" ${ARGN})
  set(target trainopt_${name})
  trainopt_sources(sources)
  if(arg_EXCEPT)
    list(REMOVE_ITEM sources ${arg_EXCEPT})
  endif()
  add_library(${target} STATIC ${sources} ${arg_GENERATED})
  if(NOT arg_SINGLE)
    trainopt_compile_in_batches(${target})
  endif()
  if(arg_ALONE AND NOT TRAINOPT_BATCHES STREQUAL WHOLE)
    set_source_files_properties(${arg_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  if(arg_COLD)
    target_compile_options(${target} PRIVATE ${trainopt_cold_options})
  endif()
  list(TRANSFORM arg_USES PREPEND trainopt_)
  target_link_libraries(${target} PUBLIC trainopt_flags ${arg_USES} ${arg_LINKS})
  if(arg_TORCH)
    trainopt_use_torch(${target})
  endif()
endfunction()

# trainopt_kernels(NAME a.cu)
# Adds a static library of CUDA kernels for TORCH_CUDA_ARCH_LIST. It sees neither libtorch nor the flags of g++. ptxas's
# report on registers and memory is stored in NAME.ptxas in the build folder, for scripts/kernel_report.
function(trainopt_kernels name source)
  set(target trainopt_${name})
  add_library(${target} STATIC ${source})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/lib)
  target_compile_options(${target} PRIVATE -Xptxas=-v -Xfatbin=-compress-all
    -Xcompiler=-Wall,-Wextra,-Wshadow,-fvisibility=hidden $<$<BOOL:${TRAINOPT_WERROR}>:-Werror=all-warnings>)
  set_property(GLOBAL APPEND PROPERTY TRAINOPT_KERNEL_LOGS ${CMAKE_BINARY_DIR}/${name}.ptxas)
  # Shared: the CUDA runtime that libtorch has already loaded.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
    CUDA_RUNTIME_LIBRARY Shared CUDA_COMPILER_LAUNCHER
    "${CMAKE_SOURCE_DIR}/scripts/kernel_report;--keep;${CMAKE_BINARY_DIR}/${name}.ptxas")
endfunction()

# trainopt_add_test(NAME COMMAND...)
# Adds a ctest entry whose CPU time scripts/test counts.
function(trainopt_add_test name)
  add_test(NAME ${name} COMMAND ${CMAKE_SOURCE_DIR}/tests/support/account ${name} ${ARGN})
endfunction()

# trainopt_test(NAME [SOURCES a.cpp ...] USES modules ... [TORCH] [CUDA] [GPU] [SINGLE])
# Adds a Catch2 executable with one ctest entry, of all sources in the folder if none are named. If TRAINOPT_TEST_LABEL
# is set, it is the entry's label, and the executable is built by the target <label>_tests. GPU: the executable exits
# with 77 (skipped) on a machine without one. CUDA: it opens libtrainopt_cuda.so, without a GPU. SINGLE: its sources are
# not compiled as one.
function(trainopt_test name)
  cmake_parse_arguments(arg "TORCH;CUDA;GPU;SINGLE" "" "SOURCES;USES;LINKS" ${ARGN})
  set(target test_${name})
  if(NOT arg_SOURCES)
    file(GLOB arg_SOURCES CONFIGURE_DEPENDS *.cpp)
  endif()
  add_executable(${target} ${arg_SOURCES})
  if(NOT arg_SINGLE)
    trainopt_compile_in_batches(${target})
  endif()
  target_compile_options(${target} PRIVATE ${trainopt_cold_options})
  list(TRANSFORM arg_USES PREPEND trainopt_)
  if(arg_GPU)
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support/gpu_main.cpp)
    # Defines CATCH_CONFIG_RUNNER, so no other source of a batch may include Catch2 before it.
    set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/support/gpu_main.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR})
    target_link_libraries(${target} PRIVATE trainopt_flags Catch2::Catch2 ${arg_USES} ${arg_LINKS} trainopt_build_facts)
  else()
    target_link_libraries(${target} PRIVATE trainopt_flags trainopt_test_support ${arg_USES} ${arg_LINKS})
  endif()
  if(arg_TORCH)
    target_link_libraries(${target} PRIVATE trainopt_torch)
    if(arg_GPU)
      target_precompile_headers(${target} REUSE_FROM trainopt_precompiled)
    else()
      target_precompile_headers(${target} REUSE_FROM trainopt_test_precompiled)
    endif()
  endif()
  if(arg_CUDA AND TRAINOPT_CUDA)
    add_dependencies(${target} trainopt_cuda)   # opened by name, not linked
  endif()
  trainopt_add_test(${name} $<TARGET_FILE:${target}>)
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${TRAINOPT_TEST_TIMEOUT}
    LABELS "${TRAINOPT_TEST_LABEL}")
  if(TRAINOPT_TEST_LABEL)
    add_dependencies(${TRAINOPT_TEST_LABEL}_tests ${target})
  endif()
endfunction()

# trainopt_compile_in_batches(TARGET)
# Compiles the sources of a module as one. libtorch's headers leave template instantiations to every compilation,
# seconds of work that the sources of a batch share. With TRAINOPT_BATCHES=SMALL a batch has three sources, because a
# changed source compiles its whole batch. Names in anonymous namespaces must differ within a module, also from what its
# headers and using-directives bring in.
function(trainopt_compile_in_batches target)
  set(sources_WHOLE 0)   # no limit
  set(sources_SMALL 3)
  if(NOT TRAINOPT_BATCHES STREQUAL OFF)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON
      UNITY_BUILD_BATCH_SIZE ${sources_${TRAINOPT_BATCHES}})
  endif()
endfunction()

function(trainopt_use_torch target)
  target_link_libraries(${target} PUBLIC trainopt_torch)
  target_precompile_headers(${target} REUSE_FROM trainopt_precompiled)
endfunction()
