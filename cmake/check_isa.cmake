# Fails when an object file compiled for one instruction set defines a symbol that other objects may
# share: a weak function whose mangled name does not carry the namespace of the instruction set.
#
#   cmake -DNM=nm -DISA=avx2 "-DOBJECTS=a.o;b.o" -P check_isa.cmake
cmake_minimum_required(VERSION 3.18)

string(LENGTH "${ISA}" length)
set(namespace "${length}${ISA}")
set(leaks "")
foreach(object IN LISTS OBJECTS)
  execute_process(
    COMMAND "${NM}" --defined-only --extern-only "${object}"
    OUTPUT_VARIABLE symbols RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${NM} could not read ${object}")
  endif()
  string(REGEX MATCHALL "[^\n]+" symbols "${symbols}")
  foreach(symbol IN LISTS symbols)
    if(symbol MATCHES " [Wu] (.+)$")
      set(name "${CMAKE_MATCH_1}")
      string(FIND "${name}" "${namespace}" found)
      if(found EQUAL -1 AND NOT name STREQUAL "__clang_call_terminate")
        string(APPEND leaks "\n  ${name}")
      endif()
    endif()
  endforeach()
endforeach()
if(leaks)
  message(FATAL_ERROR
    "Code compiled for ${ISA} defines functions that the linker may use elsewhere:${leaks}\n"
    "Make them static, move them into namespace fwcrf::FWCRF_ISA, or do without the header that "
    "defines them (see CMakeLists.txt; c++filt shows the readable names).")
endif()
