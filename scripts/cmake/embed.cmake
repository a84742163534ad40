# Files of the current folder become one constant of the program, trainopt::embedded::<name>, in the source <out>.
function(embed_text name out)
  set(embed ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/embed_text.cmake)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE files)
  string(JOIN "|" listed ${files})
  add_custom_command(OUTPUT ${out} DEPENDS ${files} ${embed} VERBATIM
    COMMAND ${CMAKE_COMMAND} "-DFILES=${listed}" -D NAME=${name} -D OUT=${CMAKE_CURRENT_BINARY_DIR}/${out} -P ${embed})
endfunction()
