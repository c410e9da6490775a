# Compiler settings for every target, and the three kinds of target that lamina has.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

option(LAMINA_TESTS "Build the tests" ON)
option(LAMINA_WERROR "Treat warnings as errors" ON)
set(LAMINA_UNITY 0 CACHE STRING "Compile so many sources of a library or of its tests at a time, 0: each by itself. Half the work for a whole build, more for a small change")
set(LAMINA_SANITIZE "" CACHE STRING "address,undefined | thread | empty")

find_program(LAMINA_CCACHE ccache)
if(LAMINA_CCACHE)
  # Paths below the checkout are hashed relative to it, so that one cache serves every checkout of a machine.
  set(LAMINA_CCACHE ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${LAMINA_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${LAMINA_CCACHE})
endif()

get_filename_component(LAMINA_ROOT ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
add_library(lamina_options INTERFACE)
target_include_directories(lamina_options INTERFACE ${LAMINA_ROOT} ${CMAKE_BINARY_DIR})
target_compile_options(lamina_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion -fno-math-errno>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_compile_options(lamina_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)  # gcc 12 warns about its own std::string (PR 105329)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(lamina_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety>)  # base/mutex.h
endif()
if(LAMINA_WERROR)
  target_compile_options(lamina_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(LAMINA_SANITIZE)
  target_compile_options(lamina_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LAMINA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(lamina_options INTERFACE -fsanitize=${LAMINA_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang AND LAMINA_SANITIZE MATCHES undefined)
    target_compile_options(lamina_options INTERFACE -fno-sanitize=function)  # clang 14 cannot assemble coroutines with it
  endif()
  if(LAMINA_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(lamina_options INTERFACE -Wno-tsan)  # Boost.Asio's own fence, which the sanitizer does not model
  endif()
endif()

# lamina_unity(TARGET): compiles LAMINA_UNITY of its sources at a time.
function(lamina_unity target)
  if(LAMINA_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${LAMINA_UNITY})
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      target_compile_options(${target} PRIVATE -Wno-subobject-linkage)  # it takes the sources for headers
    endif()
  endif()
endfunction()

# lamina_library(NAME DEPS ... WITHOUT ...): every *.cc below this folder except *_main.cc is library lamina_NAME. WITHOUT names folders
# that need something that this machine does not have.
function(lamina_library name)
  cmake_parse_arguments(arg "" "" "DEPS;WITHOUT" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  list(FILTER sources EXCLUDE REGEX "_main\\.cc$")
  foreach(folder ${arg_WITHOUT})
    list(FILTER sources EXCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/${folder}/")
  endforeach()
  add_library(lamina_${name} STATIC ${sources})
  target_link_libraries(lamina_${name} PUBLIC lamina_options Threads::Threads ${arg_DEPS})
  lamina_unity(lamina_${name})
endfunction()

# lamina_reads_and_prints(NAME): the library lamina_NAME does little else, so its release build gives up speed for a third of the time
# that it takes to compile.
function(lamina_reads_and_prints name)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # gcc 12 takes a Result's value for uninitialized at this level.
    target_compile_options(lamina_${name} PRIVATE $<$<CONFIG:Release>:-O1 -Wno-maybe-uninitialized>)
  endif()
endfunction()

# lamina_program(NAME main.cc DEPS ...): the executable NAME.
function(lamina_program name main)
  cmake_parse_arguments(arg "" "" "DEPS" ${ARGN})
  add_executable(${name} ${main})
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
endfunction()
