# Writes OUT, a header that defines kCommit: the commit that is built, with "-dirty" after changes, or "unknown" outside a git checkout.
# Touches OUT only when that changes.
execute_process(COMMAND git describe --always --dirty --abbrev=12 --exclude=*
                WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE result)
if(NOT result STREQUAL "0")
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#pragma once\nnamespace lamina {\ninline constexpr char kCommit[] = \"${commit}\";\n}\n" @ONLY)
