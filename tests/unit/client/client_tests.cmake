# SPDX-License-Identifier: Apache-2.0
# The tests of libtidl: with fake brokers in a thread, and with real ones when tidld is built.
add_library(tidl_client_test_support STATIC
	client/support/broker.c
	client/support/fake_broker.c
	client/support/fake_store.c
	client/support/foreign.c
	client/support/limits.c
	client/support/memory.c
	client/support/offline.c
	client/support/scene.c
	client/support/stepping.c)
target_link_libraries(tidl_client_test_support PUBLIC
	tidl_client_static tidl_includes DLPack::DLPack PkgConfig::CRITERION)

tidl_unit_tests(client tidl_client_test_support)

file(GLOB client_sources CONFIGURE_DEPENDS client/test_*.c)
foreach(source IN LISTS client_sources)
	get_filename_component(test ${source} NAME_WE)
	if(TARGET tidld)
		set_property(TEST client/${test} APPEND PROPERTY
			ENVIRONMENT "TIDL_DAEMON=$<TARGET_FILE:tidld>")
	endif()
endforeach()

if(TARGET client_test_inplace_cuda)
	add_dependencies(client_test_inplace_cuda fake_cuda)
	target_compile_definitions(client_test_inplace_cuda PRIVATE
		TT_FAKE_CUDA="$<TARGET_FILE:fake_cuda>")
endif()
