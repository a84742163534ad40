# cmake -D SOURCE=... -D VERSION=... -D ARCHITECTURES=... -D LIBRARY=... -D READELF=... -D OUT=...
#   -P write_build_facts.cmake
# Writes what the program knows of its own build. Runs in every build; the file is touched only if its content changes,
# so a new commit compiles this one file and links. LIBRARY: libtrainopt_cuda.so, or empty.
execute_process(COMMAND git -C ${SOURCE} rev-parse --show-prefix
  OUTPUT_VARIABLE inside RESULT_VARIABLE code ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
set(commit "")
if(code EQUAL 0 AND inside STREQUAL "")     # else another project's checkout contains these sources
  execute_process(COMMAND git -C ${SOURCE} describe --always --exclude=* --abbrev=12 --dirty=+dirty
    OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
if(commit STREQUAL "")
  set(commit unknown)
endif()
set(build_id "")
if(LIBRARY)
  execute_process(COMMAND ${READELF} --notes ${LIBRARY} OUTPUT_VARIABLE notes ERROR_QUIET)
  if(NOT notes MATCHES "Build ID: ([0-9a-f]+)")
    message(FATAL_ERROR "no build ID found by ${READELF} in ${LIBRARY}")
  endif()
  set(build_id ${CMAKE_MATCH_1})
endif()
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT [[
#include "run/version.h"

namespace trainopt {

const BuildFacts kBuild{"@VERSION@", "@commit@", "@ARCHITECTURES@", "@build_id@"};

}  // namespace trainopt
]])
