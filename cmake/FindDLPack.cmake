# SPDX-License-Identifier: Apache-2.0
# DLPack's header, 1.1 or newer, as target DLPack::DLPack. Never copied into this repository. Looked for in
#   1. DLPACK_INCLUDE_DIR, when given
#   2. the include folder of the apache-tvm-ffi wheel in the project's .venv, or of the Python that builds
#   3. the system's include folders

find_path(DLPACK_INCLUDE_DIR dlpack/dlpack.h NO_DEFAULT_PATH
	HINTS ${TIDL_DLPACK_HINTS}
	PATHS
	${PROJECT_SOURCE_DIR}/.venv/lib/python3.11/site-packages/tvm_ffi/include
	${PROJECT_SOURCE_DIR}/.venv/lib/python3.12/site-packages/tvm_ffi/include
	${PROJECT_SOURCE_DIR}/.venv/lib/python3.13/site-packages/tvm_ffi/include)

if(NOT DLPACK_INCLUDE_DIR)
	find_program(_tidl_python NAMES python3 python)
	if(_tidl_python)
		execute_process(
			COMMAND ${_tidl_python} -c
			"import importlib.util as u, os; s = u.find_spec('tvm_ffi'); print(os.path.join(list(s.submodule_search_locations)[0], 'include') if s else '')"
			OUTPUT_VARIABLE _tidl_tvm_ffi OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
	endif()
	find_path(DLPACK_INCLUDE_DIR dlpack/dlpack.h HINTS ${_tidl_tvm_ffi})
endif()

if(DLPACK_INCLUDE_DIR AND EXISTS ${DLPACK_INCLUDE_DIR}/dlpack/dlpack.h)
	file(STRINGS ${DLPACK_INCLUDE_DIR}/dlpack/dlpack.h _dlpack_lines
		REGEX "#define DLPACK_(MAJOR|MINOR)_VERSION")
	string(REGEX MATCH "MAJOR_VERSION ([0-9]+)" _ "${_dlpack_lines}")
	set(_dlpack_major ${CMAKE_MATCH_1})
	string(REGEX MATCH "MINOR_VERSION ([0-9]+)" _ "${_dlpack_lines}")
	set(DLPack_VERSION "${_dlpack_major}.${CMAKE_MATCH_1}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DLPack
	REQUIRED_VARS DLPACK_INCLUDE_DIR
	VERSION_VAR DLPack_VERSION
	REASON_FAILURE_MESSAGE
	"run scripts/setup, or give -DDLPACK_INCLUDE_DIR=<folder that holds dlpack/dlpack.h 1.1 or newer>")

if(DLPack_FOUND AND NOT TARGET DLPack::DLPack)
	add_library(DLPack::DLPack INTERFACE IMPORTED)
	target_include_directories(DLPack::DLPack SYSTEM INTERFACE ${DLPACK_INCLUDE_DIR})
endif()
