# TRAINOPT_SITE_PACKAGES is the site-packages folder that scripts/setup fills: libtorch and, with TRAINOPT_CUDA, the
# CUDA toolkit.
if(NOT TRAINOPT_SITE_PACKAGES AND DEFINED ENV{TRAINOPT_SITE_PACKAGES})
  set(TRAINOPT_SITE_PACKAGES $ENV{TRAINOPT_SITE_PACKAGES})
endif()
if(NOT TRAINOPT_SITE_PACKAGES)
  message(FATAL_ERROR
    "TRAINOPT_SITE_PACKAGES is not set: run scripts/trainopt or scripts/test, "
    "or eval \"$(scripts/setup --print)\" first")
endif()
set(TRAINOPT_SITE_PACKAGES ${TRAINOPT_SITE_PACKAGES} CACHE PATH "site-packages with torch and nvidia/")

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
find_library(ZIP_LIBRARY zip REQUIRED)  # Debian's libzip-config.cmake asks for tools of other packages
if(NOT TARGET yaml-cpp::yaml-cpp)       # before 0.8
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()

# libtorch's wheel contains headers of a newer fmt than the one spdlog was built with, so the system's fmt must be found
# first.
get_target_property(fmt_include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include_first)
file(CREATE_LINK ${fmt_include}/fmt ${CMAKE_BINARY_DIR}/include_first/fmt SYMBOLIC)

include(torch)
