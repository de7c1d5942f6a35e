# SPDX-License-Identifier: Apache-2.0
# Libraries that pkg-config found, linked from their archives: what is built needs no such package to run.
# For wheels. Debian's and Ubuntu's -dev packages carry the archives; their code is position-independent
# enough for a shared object as long as its symbols stay inside (--exclude-libs).

option(TIDL_STATIC_DEPENDENCIES "Link libuv, protobuf-c and jansson from their archives" OFF)

# tidl_use_archive(PREFIX NAME...): from now on PkgConfig::PREFIX is the first of these archives there is.
# Right behind pkg_check_modules(PREFIX ... IMPORTED_TARGET ...), in the same folder: the target is local.
function(tidl_use_archive prefix)
	if(NOT TIDL_STATIC_DEPENDENCIES)
		return()
	endif()
	find_library(${prefix}_ARCHIVE NAMES ${ARGN} HINTS ${${prefix}_LIBRARY_DIRS} ${${prefix}_LIBDIR})
	if(NOT ${prefix}_ARCHIVE)
		list(JOIN ARGN " or " names)
		message(FATAL_ERROR
			"there is no ${names}. Install the package that has it, name the file with "
			"-D${prefix}_ARCHIVE=<path>, or link the shared libraries with "
			"-DTIDL_STATIC_DEPENDENCIES=OFF: what is built then needs them to run.")
	endif()
	find_package(Threads REQUIRED)
	set_target_properties(PkgConfig::${prefix} PROPERTIES
		INTERFACE_LINK_LIBRARIES "${${prefix}_ARCHIVE};Threads::Threads;${CMAKE_DL_LIBS};rt")
endfunction()
