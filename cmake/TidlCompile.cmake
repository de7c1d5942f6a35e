# SPDX-License-Identifier: Apache-2.0
# Warnings, hardening and sanitizers, in one interface target that everything of ours links.

add_library(tidl_compile INTERFACE)
target_compile_definitions(tidl_compile INTERFACE _GNU_SOURCE)
target_compile_options(tidl_compile INTERFACE
	-Wall -Wextra -Werror
	-Wshadow                # one variable, one meaning
	-Wconversion            # sizes come from the wire: no silent narrowing
	-Wno-sign-conversion    # flags and enumerations would drown the rest
	-Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition
	-Wpointer-arith -Wwrite-strings -Wcast-qual
	-Wformat=2 -Wundef -Wvla
	-Wimplicit-fallthrough
	-fno-common
	-fstack-protector-strong)

if(TIDL_SANITIZE)
	target_compile_options(tidl_compile INTERFACE
		-fsanitize=${TIDL_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
	target_link_options(tidl_compile INTERFACE -fsanitize=${TIDL_SANITIZE})
else()
	target_compile_options(tidl_compile INTERFACE
		$<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>
		-fstack-clash-protection)
	target_link_options(tidl_compile INTERFACE -Wl,-z,relro,-z,now)
endif()
