# cmake -D FILES="a.js|b.js" -D NAME=kScript -D OUT=script.cpp -P embed_text.cmake
# Writes a C++ source that defines trainopt::embedded::NAME, the text of the files one after the other, and NAMESha256,
# its checksum in hexadecimal. The text is cut into literals of a few lines, since compilers limit their length.
set(text "")
string(REPLACE "|" ";" files "${FILES}")
foreach(file ${files})
  file(READ ${file} part)
  string(APPEND text "${part}")
endforeach()
string(SHA256 checksum "${text}")
string(LENGTH "${text}" length)
set(literals "")
set(begin 0)
while(begin LESS length)
  string(SUBSTRING "${text}" ${begin} 4000 piece)
  string(LENGTH "${piece}" size)
  string(APPEND literals "    R\"embedded(${piece})embedded\"\n")
  math(EXPR begin "${begin} + ${size}")
endwhile()
file(WRITE ${OUT} "// Written by scripts/cmake/embed_text.cmake.
#include <string_view>

namespace trainopt::embedded {
extern const std::string_view ${NAME}, ${NAME}Sha256;
const std::string_view ${NAME} =
${literals}    \"\";
const std::string_view ${NAME}Sha256 = \"${checksum}\";
}  // namespace trainopt::embedded
")
